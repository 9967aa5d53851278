//! The whole scheme without a network: queries one after the other, builds when they are due, beside
//! a map; and what a server sees of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

use super::*;
use crate::error::Error;
use crate::geometry::{ITEMS_HEADER_LEN, LABEL_LEN, PAGE_LEN};
use crate::keys::{Id, Keys, Label};
use crate::log_view::{LogView, Outcome, Past};
use crate::lookup::{Asked, Lookup, Step};
use crate::manifest::Manifest;
use crate::record::{Operation, Record};
use tacita_secret::Key;

/// Objects in memory.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<Object, Bytes>>);

#[async_trait]
impl Objects for Memory {
    async fn get(&self, object: Object, offset: u64, len: u64) -> Result<Bytes> {
        let objects = self.0.lock().unwrap();
        let bytes = objects.get(&object).unwrap_or_else(|| panic!("{object} is there"));
        Ok(bytes.slice(index(offset)..index(offset + len)))
    }

    async fn put(&self, object: Object, bytes: Bytes) -> Result<()> {
        let mut objects = self.0.lock().unwrap();
        let kept = objects.entry(object).or_insert_with(|| bytes.clone());
        assert_eq!(*kept, bytes, "who builds again builds the same");
        Ok(())
    }

    async fn delete(&self, object: Object) -> Result<()> {
        self.0.lock().unwrap().remove(&object);
        Ok(())
    }

    async fn made(&self, generation: Generation) -> Result<HashSet<Object>> {
        let objects = self.0.lock().unwrap();
        let of_it = objects.keys().filter(|object| object.generation() == Some(generation));
        Ok(of_it.copied().collect())
    }
}

/// Objects to who is stopped after some changes, or who is not told what there is.
struct Seen<'a> {
    objects: &'a Memory,
    changes_left: Mutex<usize>,
    changes: Mutex<Vec<Object>>,
    shows: bool,
}

impl<'a> Seen<'a> {
    fn new(objects: &'a Memory, changes_left: usize, shows: bool) -> Self {
        Self { objects, changes_left: Mutex::new(changes_left), changes: Mutex::default(), shows }
    }

    fn change(&self) -> Result<()> {
        let mut left = self.changes_left.lock().unwrap();
        let stopped = || Error::new(crate::Kind::Storage, "stopped");
        *left = left.checked_sub(1).ok_or_else(stopped)?;
        Ok(())
    }
}

#[async_trait]
impl Objects for Seen<'_> {
    async fn get(&self, object: Object, offset: u64, len: u64) -> Result<Bytes> {
        self.objects.get(object, offset, len).await
    }

    async fn put(&self, object: Object, bytes: Bytes) -> Result<()> {
        self.change()?;
        self.changes.lock().unwrap().push(object);
        self.objects.put(object, bytes).await
    }

    async fn delete(&self, object: Object) -> Result<()> {
        self.change()?;
        self.objects.delete(object).await
    }

    async fn made(&self, generation: Generation) -> Result<HashSet<Object>> {
        if self.shows { self.objects.made(generation).await } else { Ok(HashSet::new()) }
    }
}

/// Builds once more what is built, as if nobody had, and what of it is done after a stop at any change.
async fn build_again(job: &Job, objects: &Memory) {
    let whole = Memory(Mutex::new(objects.0.lock().unwrap().clone()));
    job.run(&Seen::new(objects, usize::MAX, false), &Counted::default()).await.unwrap();
    assert_eq!(*whole.0.lock().unwrap(), *objects.0.lock().unwrap());
    let generation = job.build.generation;
    for stop in 0.. {
        let again = Memory(Mutex::new(whole.0.lock().unwrap().clone()));
        again.0.lock().unwrap().retain(|object, _| object.generation() != Some(generation));
        let first = Seen::new(&again, stop, true);
        let is_done = job.run(&first, &Counted::default()).await.is_ok();
        let second = Seen::new(&again, usize::MAX, true);
        let moved = Counted::default();
        job.run(&second, &moved).await.unwrap();
        assert_eq!(*moved.0.lock().unwrap(), work(&job.geometry, &job.build));
        assert_eq!(*whole.0.lock().unwrap(), *again.0.lock().unwrap());
        let first = first.changes.lock().unwrap();
        let second = second.changes.lock().unwrap();
        // What stays is not made twice, nor what lies between the passes once the first is over.
        let is_lasting = |object: &&Object| !matches!(object, Object::Cells { .. });
        let was_spread = first.iter().any(|object| is_lasting(&object));
        let twice = second.iter().filter(|object| was_spread || is_lasting(object));
        let twice = twice.filter(|object| first.contains(object)).count();
        // A bucket's items may be there without what it gives to the filter, and a filter in part.
        assert!(twice <= 4, "{generation} stopped after {stop}: {second:?} after {first:?}");
        if is_done {
            return;
        }
    }
}

/// Objects that another builder of the same clears away when something of a kind is read for the nth time.
struct Cleared<'a> {
    objects: &'a Memory,
    is_read: fn(&Object) -> bool,
    reads_left: Mutex<usize>,
}

#[async_trait]
impl Objects for Cleared<'_> {
    async fn get(&self, object: Object, offset: u64, len: u64) -> Result<Bytes> {
        if (self.is_read)(&object) {
            let mut left = self.reads_left.lock().unwrap();
            let Some(fewer) = left.checked_sub(1) else {
                let is_between =
                    |o: &Object| matches!(o, Object::Cells { .. } | Object::Entries { .. });
                self.objects.0.lock().unwrap().retain(|object, _| !is_between(object));
                return Err(Error::new(crate::Kind::Hostile, "it is not there"));
            };
            *left = fewer;
        }
        self.objects.get(object, offset, len).await
    }

    async fn put(&self, object: Object, bytes: Bytes) -> Result<()> {
        self.objects.put(object, bytes).await
    }

    async fn delete(&self, object: Object) -> Result<()> {
        self.objects.delete(object).await
    }

    async fn made(&self, generation: Generation) -> Result<HashSet<Object>> {
        self.objects.made(generation).await
    }
}

/// Whoever finds what lies between the passes gone can begin again, and no server is accused.
async fn build_while_another_clears(job: &Job, objects: &Memory) {
    let whole = objects.0.lock().unwrap().clone();
    let generation = job.build.generation;
    let kinds: [fn(&Object) -> bool; 2] =
        [|o| matches!(o, Object::Cells { .. }), |o| matches!(o, Object::Entries { .. })];
    for is_read in kinds {
        for reads in [0, 3] {
            let again = Memory(Mutex::new(whole.clone()));
            again.0.lock().unwrap().retain(|object, _| object.generation() != Some(generation));
            let reads_left = Mutex::new(reads);
            let cleared = Cleared { objects: &again, is_read, reads_left };
            let error = job.run(&cleared, &Counted::default()).await.unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Storage, "{error}");
            job.run(&again, &Counted::default()).await.unwrap();
            assert_eq!(whole, *again.0.lock().unwrap());
        }
    }
}

/// Counts what has been moved.
#[derive(Default)]
struct Counted(Mutex<u64>);

#[async_trait]
impl Pace for Counted {
    async fn moved(&self, items: u64) -> Result<()> {
        *self.0.lock().unwrap() += items;
        Ok(())
    }

    async fn room(&self) -> Result<Room> {
        Ok(Room::unbounded())
    }
}

/// A store whose queries come one at a time.
struct Game {
    geometry: Geometry,
    keys: Keys,
    view: LogView,
    manifest: Manifest,
    generations: HashMap<Generation, Arc<GenerationKeys>>,
    objects: Memory,
    /// Every how many periods what is built is built once more.
    again: u64,
    /// What was asked of each generation.
    seen: HashSet<(Generation, Label)>,
    steps: Vec<usize>,
}

impl Game {
    fn new(geometry: Geometry) -> Self {
        let keys = Keys::new(&Key::take(&mut [1; 32]), &[2; 16]);
        let mut view = LogView::new(keys.clone(), geometry, Past::none(&keys));
        view.opened(0, 0).unwrap();
        Self {
            geometry,
            manifest: Manifest::first(&keys),
            keys,
            view,
            generations: HashMap::new(),
            objects: Memory::default(),
            again: 37,
            seen: HashSet::new(),
            steps: Vec::new(),
        }
    }

    async fn query(&mut self, id: Id, operation: Operation) -> Result<Outcome> {
        let sequence = self.view.records();
        let period = sequence / self.geometry.period();
        if period > self.manifest.period {
            self.open(period).await?;
        }
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&sequence.to_le_bytes());
        let record =
            Record { request: salt, id, operation, seen: sequence, head: self.view.head() };
        self.view.push(&record.seal(&self.keys, salt, self.geometry.block_len()))?;
        let asked = self
            .geometry
            .live(period)
            .into_iter()
            .map(|generation| Asked {
                generation,
                keys: self.generations[&generation].clone(),
                index: sequence - self.geometry.born(generation),
            })
            .collect();
        let mut lookup = Lookup::new(self.view.target(sequence), asked);
        let mut steps = 0;
        while let Some(step) = lookup.step() {
            let (page, item) = self.serve(&step)?;
            lookup.take(page.as_deref(), item.as_deref())?;
            steps += 1;
        }
        self.steps.push(steps);
        self.view.found_here(sequence, lookup.finish())?;
        Ok(self.view.outcome(sequence).expect("all before it have settled"))
    }

    /// What an honest server does.
    fn serve(&mut self, step: &Step) -> Result<(Option<Bytes>, Option<Bytes>)> {
        let objects = self.objects.0.lock().unwrap();
        let page = step.page.map(|address| {
            let shape = self.geometry.shape(address.generation);
            let (part, offset) = shape.part_of(address.page);
            let filter = &objects[&Object::Filter { generation: address.generation, part }];
            filter.slice(index(offset)..index(offset) + PAGE_LEN)
        });
        let Some(address) = step.item else { return Ok((page, None)) };
        let shape = self.geometry.shape(address.generation);
        let bucket = shape.bucket_of(&address.label);
        let items = &objects[&Object::Items { generation: address.generation, bucket }];
        let labels = &items[ITEMS_HEADER_LEN..][..shape.slots as usize * LABEL_LEN];
        let labels: &[Label] = labels.as_chunks().0;
        assert!(labels.is_sorted());
        assert!(self.seen.insert((address.generation, address.label)), "a label is asked once");
        let slot = labels
            .binary_search(&address.label)
            .map_err(|_| Error::new(crate::Kind::Hostile, "no such label"))?;
        let begin =
            ITEMS_HEADER_LEN + shape.slots as usize * LABEL_LEN + slot * self.geometry.item_len();
        Ok((page, Some(items.slice(begin..begin + self.geometry.item_len()))))
    }

    /// Completes what is due and opens `period`.
    async fn open(&mut self, period: u64) -> Result<()> {
        let due = period * self.geometry.period();
        let before = period - 1;
        let start = self.view.head_after(before * self.geometry.period()).unwrap();
        for build in self.geometry.builds(before) {
            if build.until != due {
                continue;
            }
            let head = self.manifest.head_of(build.generation).unwrap_or(start);
            let shape = self.geometry.shape(build.generation);
            let keys = Arc::new(self.keys.generation(build.generation, shape, &head));
            let batch = match build.batch {
                Batch::Log { period } => Input::Log(self.view.batch(period).unwrap()),
                Batch::Full(full) => Input::Full(full, self.generations[&full].clone()),
            };
            let current = build.current.map(|current| self.generations[&current].clone());
            let job = Job { geometry: self.geometry, build, keys: keys.clone(), current, batch };
            let moved = Counted::default();
            job.run(&self.objects, &moved).await?;
            assert_eq!(*moved.0.lock().unwrap(), work(&self.geometry, &build), "{build:?}");
            if period.is_multiple_of(self.again) {
                build_again(&job, &self.objects).await;
                if job.keys.shape().buckets > 3 {
                    build_while_another_clears(&job, &self.objects).await;
                }
            }
            self.generations.insert(build.generation, keys);
        }
        let history = Vec::new();
        let present = if before == 0 {
            0
        } else {
            self.manifest.present.strict_add_signed(self.view.change(before - 1))
        };
        let sealed = self.manifest.seal(&self.keys);
        self.manifest = self.manifest.next(&self.geometry, &sealed, (start, present, history));
        self.view.opened(period, present)?;
        self.view.forget_before(before);
        let live = self.geometry.live(period);
        self.generations.retain(|generation, _| live.contains(generation));
        self.objects.0.lock().unwrap().retain(|object, _| match object {
            Object::Items { generation, .. } | Object::Filter { generation, .. } => {
                live.contains(generation)
            }
            _ => panic!("{object} was needed between passes only"),
        });
        Ok(())
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

fn id(n: u64) -> Id {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&n.to_le_bytes());
    id
}

fn block(geometry: &Geometry, content: u64) -> Bytes {
    let mut block = vec![0; geometry.block_len()];
    block[..8].copy_from_slice(&content.to_le_bytes());
    Bytes::from(block)
}

/// Random enough, and the same each time.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Plays `count` queries on `ids` blocks beside a map.
async fn play(geometry: Geometry, ids: u64, count: u64) -> Game {
    let mut game = Game::new(geometry);
    let mut model: BTreeMap<u64, Bytes> = BTreeMap::new();
    let mut state = 5;
    for n in 0..count {
        let which = random(&mut state) % ids;
        let was = model.get(&which).cloned();
        let operation = match random(&mut state) % 8 {
            0..3 => Operation::Read,
            3 => Operation::Free,
            _ => Operation::Write(block(&geometry, n)),
        };
        match &operation {
            Operation::Write(block) => drop(model.insert(which, block.clone())),
            Operation::Free => drop(model.remove(&which)),
            _ => {}
        }
        let outcome = game.query(id(which), operation).await.unwrap();
        assert_eq!(outcome, Outcome::Was(was), "query {n} for block {which}");
    }
    game
}

#[tokio::test]
async fn blocks_are_what_was_written_through_all_levels() {
    for growth in [2, 4] {
        let geometry = Geometry::new(512, 16, growth, 600).unwrap();
        let game = play(geometry, 500, 6000).await;
        // Each query takes as many steps as there are generations, and one more.
        for (sequence, steps) in (0..).zip(&game.steps) {
            let live = geometry.live(sequence / geometry.period()).len();
            assert_eq!(*steps, if live == 0 { 0 } else { live + 1 });
        }
    }
}

#[tokio::test]
async fn levels_of_many_buckets_are_built_in_two_passes() {
    let geometry = Geometry::new(512, 64, 4, 3000).unwrap().with_buckets(700).unwrap();
    let bottom = Generation { level: geometry.levels(), number: 30 };
    assert!(geometry.shape(bottom).buckets > 5);
    play(geometry, 2500, 9000).await;
}

#[tokio::test]
async fn a_store_can_be_full_to_its_last_block() {
    let geometry = Geometry::new(512, 16, 2, 300).unwrap();
    let mut game = Game::new(geometry);
    for n in 0..300 {
        let outcome = game.query(id(n), Operation::Write(block(&geometry, n))).await.unwrap();
        assert_eq!(outcome, Outcome::Was(None));
    }
    for n in 0..64 {
        game.query(id(n), Operation::Read).await.unwrap();
    }
    let refused = game.query(id(999), Operation::Write(block(&geometry, 1))).await.unwrap();
    assert_eq!(refused, Outcome::Full);
    for n in 0..300 {
        let outcome = game.query(id(n), Operation::Read).await.unwrap();
        assert_eq!(outcome, Outcome::Was(Some(block(&geometry, n))));
    }
}
