//! Programs go on while a commit is brought into the image: at each of its writes and flushes all
//! files are read, and now and then one is written.

use std::sync::{Arc, Mutex};

use tacita_block::{BlockDevice, BlockNo, BlockRange, Geometry, MemoryDevice};
use tacita_hifs::Hifs;
use tacita_hifs::faults::Fault;
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_testkit::by_name;
use tacita_testkit::env_number;
use tacita_testkit::history::{Place, Rng, Tree, read_all, step, tree, walk};
use tacita_vfs::{Demand, Exchange, FileSystem, FileType, NewNode, Stamps, Wait};

use crate::fills;
use crate::images::{
    LAYOUTS, NOW, assert_same, fresh, memory_device, new, open, parameters, plainly,
};
use crate::permutation::LIMITS;
use crate::planted::catches;

type Hook = Box<dyn Fn(&str) + Send>;

/// A device that tells of every write and flush before it happens, and can fail.
struct Watched {
    inner: Arc<MemoryDevice>,
    hook: Mutex<Option<Hook>>,
    /// Flushes until one fails, once.
    fails: Mutex<Option<u32>>,
}

impl Watched {
    fn new(inner: Arc<MemoryDevice>) -> Self {
        Self { inner, hook: Mutex::new(None), fails: Mutex::new(None) }
    }

    fn tell(&self, what: &str) {
        // What the hook does may come back here.
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook(what);
            *self.hook.lock().unwrap() = Some(hook);
        }
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> tacita_block::Result<()> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> tacita_block::Result<()> {
        self.tell(&format!("before a write at {}", at.0));
        self.inner.write(at, buf)?;
        self.tell(&format!("behind a write at {}", at.0));
        Ok(())
    }

    fn flush(&self) -> tacita_block::Result<()> {
        self.tell("a flush");
        let mut fails = self.fails.lock().unwrap();
        let now = fails.take();
        *fails = now.and_then(|flushes| flushes.checked_sub(1));
        if now == Some(0) {
            return Err(tacita_block::Error::new(tacita_block::Kind::Io, "a flush that fails"));
        }
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> tacita_block::Result<()> {
        self.inner.discard(range)
    }

    fn write_zeroes(&self, range: BlockRange) -> tacita_block::Result<()> {
        self.inner.write_zeroes(range)
    }
}

fn contents(hifs: &Hifs) -> Vec<(Vec<u8>, Vec<u8>)> {
    let places = walk(hifs);
    let files = places.into_iter().filter(|place| place.kind == FileType::File);
    files.map(|place| (place.path, read_all(hifs, place.node))).collect()
}

/// A history whose every commit is watched. With `writing`, what is watched also changes.
/// Returns how often was written meanwhile.
fn game(parameters: &Parameters, seed: u64, writing: bool) -> u64 {
    let inner = fresh(parameters);
    let device = Arc::new(Watched::new(inner.clone()));
    let hifs = Arc::new(open(device.clone()));
    let mut rng = Rng::new(seed);
    // A folder whose name changes with each commit, so that much moves.
    let (folder, _) = hifs.create(hifs.root(), "ballast 0".as_ref(), &folder()).unwrap();
    for n in 0..6 {
        let (file, _) = hifs.create(folder, format!("{n}").as_ref(), &new(FileType::File)).unwrap();
        hifs.write(file, 0, &rng.bytes(90_000), Stamps::NONE).unwrap();
    }
    let mut looked = 0;
    let written = Arc::new(Mutex::new(0));
    for commit in 0..12 {
        let (old, now) = (format!("ballast {commit}"), format!("ballast {}", commit + 1));
        let root = hifs.root();
        let _ =
            by_name::rename(&*hifs, (root, old.as_ref()), (root, now.as_ref()), Exchange::No, NOW);
        for _ in 0..=rng.below(25) {
            step(&*hifs, &mut rng, &LIMITS);
        }
        let expected = Arc::new(Mutex::new(contents(&hifs)));
        let (looks, weak) = (Arc::new(Mutex::new(0)), Arc::downgrade(&hifs));
        let (want, count, wrote) = (expected.clone(), looks.clone(), written.clone());
        let writer = Mutex::new(Rng::new(seed + commit));
        *device.hook.lock().unwrap() = Some(Box::new(move |what| {
            let hifs = weak.upgrade().unwrap();
            let mut want = want.lock().unwrap();
            let now = contents(&hifs);
            let differing = now.iter().zip(&*want).find(|(a, b)| a != b);
            assert!(
                now.len() == want.len() && differing.is_none(),
                "commit {commit}, {what}: {:?} is not what was written",
                differing.map(|((path, _), _)| String::from_utf8_lossy(path).into_owned())
            );
            *count.lock().unwrap() += 1;
            let mut rng = writer.lock().unwrap();
            if writing && rng.below(4) == 0 {
                let files: Vec<_> =
                    walk(&*hifs).into_iter().filter(|p| p.kind == FileType::File).collect();
                // Who needs a commit, since too much is pending or the image is full, waits for the one
                // that goes on, which waits here.
                let has_room = |place: &&Place| {
                    let free = hifs.stats().unwrap().blocks_available;
                    free > 16 && hifs.wait(place.node, Demand::Write) == Wait::No
                };
                if let Some(place) = rng.pick(&files).filter(has_room) {
                    let (at, bytes) = (rng.below(9000), rng.bytes(100));
                    let done = hifs.write(place.node, at, &bytes, Stamps::NONE);
                    *wrote.lock().unwrap() += u64::from(done.is_ok());
                }
                *want = contents(&hifs);
            }
        }));
        hifs.sync().unwrap();
        *device.hook.lock().unwrap() = None;
        looked += *looks.lock().unwrap();
    }
    assert!(looked > 50, "{looked} looks");
    hifs.sync().unwrap();
    let durability: Tree = tree(&*hifs);
    let other = fresh(parameters);
    let again = open(other.clone());
    plainly(&again, &durability, seed);
    again.sync().unwrap();
    assert_same(&inner.snapshot(), &other.snapshot(), &format!("{parameters:?}, seed {seed}"));
    *written.lock().unwrap()
}

/// New content for which cells are cleared: at first the device fails at one of the flushes, what has
/// moved returns, and the commit is made all the same. Returns how many flushes that could be.
fn clearing(layout: Layout, seed: u64) -> u32 {
    let parameters = crowded(layout);
    let mut rng = Rng::new(seed);
    let inner = fresh(&parameters);
    let hifs = open(inner.clone());
    fills::crowd(&hifs, &mut rng, 250);
    hifs.sync().unwrap();
    drop(hifs);
    let before = inner.snapshot();
    for fails in 0.. {
        let device = Arc::new(Watched::new(memory_device(&before)));
        let hifs = Arc::new(open(device.clone()));
        fills::change_crowded(&hifs, &mut Rng::new(seed + 1));
        let (want, weak) = (contents(&hifs), Arc::downgrade(&hifs));
        *device.hook.lock().unwrap() = Some(Box::new(move |what| {
            let now = contents(&weak.upgrade().unwrap());
            let differing = now.iter().zip(&want).find(|(a, b)| a != b);
            let differing =
                differing.map(|((path, _), _)| String::from_utf8_lossy(path).into_owned());
            assert!(
                differing.is_none(),
                "flush {fails} fails, {what}: {differing:?} is not itself"
            );
        }));
        *device.fails.lock().unwrap() = Some(fails);
        let failed = hifs.sync().is_err();
        if !failed || hifs.attr(hifs.root()).is_err() {
            // It was durable already.
            return fails;
        }
        hifs.sync().unwrap();
        *device.hook.lock().unwrap() = None;
        assert!(hifs.check(&mut |_, _| {}).unwrap().is_canonical());
    }
    unreachable!("a commit has no end of flushes");
}

fn folder() -> NewNode {
    NewNode { perm: 0o755, ..new(FileType::Directory) }
}

fn crowded(layout: Layout) -> Parameters {
    Parameters { len_bytes: 2 << 20, groups: Some(2), ..parameters(layout) }
}

#[test]
fn files_read_as_written_during_commits() {
    for layout in LAYOUTS {
        let mut written = 0;
        for seed in 0..env_number("TACITA_GAMES", 2) {
            for writing in [false, true] {
                written += game(&crowded(layout), seed, writing);
            }
        }
        assert!(written > 0, "{layout:?}: nothing was written meanwhile");
    }
}

#[test]
fn files_read_as_written_while_cells_are_cleared() {
    let flushes: Vec<u32> =
        (0..2).flat_map(|seed| LAYOUTS.map(|layout| clearing(layout, seed))).collect();
    assert!(flushes.iter().filter(|flushes| **flushes > 3).count() >= 4, "{flushes:?}");
}

#[test]
fn reading_the_old_place_is_caught() {
    let play = || (0..3).for_each(|seed| _ = game(&crowded(Layout::B), seed, false));
    let clears = || {
        clearing(Layout::D, 0);
    };
    assert!(!catches(None, play) && !catches(None, clears), "they pass without a fault");
    assert!(catches(Some(Fault::ReadsOldPlace), play));
    assert!(catches(Some(Fault::ReadsOldPlace), clears));
    assert!(catches(Some(Fault::ReadsNewPlace), clears));
}
