//! Clients and servers that end in the middle: nothing that was answered is lost, every block goes through
//! one history, and what is played again is asked again to the byte.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tacita_oram::anchor::{Anchor, Mark, MemoryAnchor};
use tacita_oram::blob::{FaultyStore, MemoryStore, Mishap, Plan};
use tacita_oram::client::{Access, Anchorage, Client};
use tacita_oram::faults::{Fault, plant};
use tacita_oram::geometry::Geometry;
use tacita_oram::keys::Id;
use tacita_oram::log_view::Outcome;
use tacita_oram::record::Operation;
use tacita_oram::{Error, Kind};
use tacita_testkit::env_number;

use super::proxy::Frame;
use super::world::{Gate, World, block, id, key, random};

/// The kind of a frame that stores a result.
const STORE: u8 = 5;

pub(crate) fn geometry() -> Geometry {
    Geometry::new(512, 32, 4, 400).unwrap().with_buckets(256).unwrap()
}

/// What was asked about one block: when it began and ended (never, if the client was gone), what was
/// written if anything, and what it was told, 0 for a block that was not there.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    begin: u64,
    end: Option<u64>,
    written: Option<u64>,
    told: Option<u64>,
}

pub(crate) type History = Arc<Mutex<HashMap<u64, Vec<Call>>>>;

fn number(block: &Bytes) -> u64 {
    u64::from_le_bytes(block[..8].try_into().unwrap())
}

/// Asks one thing about one of few blocks and writes it down; whether it ended.
pub(crate) async fn ask(
    client: &Client,
    history: &History,
    clock: &Mutex<u64>,
    state: &mut u64,
) -> bool {
    let tick = || {
        let mut clock = clock.lock().unwrap();
        *clock += 1;
        *clock
    };
    let which = random(state) % 5;
    let begin = tick();
    let written = random(state).is_multiple_of(2).then_some(begin);
    let operation = match written {
        Some(content) => Operation::Write(block(client.geometry(), content)),
        None => Operation::Read,
    };
    let call = Call { begin, end: None, written, told: None };
    let index = {
        let mut history = history.lock().unwrap();
        let calls = history.entry(which).or_default();
        calls.push(call);
        calls.len() - 1
    };
    let Ok(outcome) = client.query(id(which), operation).await else { return false };
    let Outcome::Was(was) = outcome else { panic!("{outcome:?}") };
    let mut history = history.lock().unwrap();
    let call = &mut history.get_mut(&which).unwrap()[index];
    call.end = Some(tick());
    call.told = Some(was.as_ref().map_or(0, number));
    true
}

/// Whether there is an order of the calls in which each is told what the one before left, and no call
/// comes before one that had ended when it began (Wing and Gong). Calls that never ended may be
/// anywhere later, or nowhere.
fn is_linear(calls: &[Call]) -> bool {
    fn go(calls: &[Call], done: &mut Vec<bool>, is: u64, seen: &mut Seen) -> bool {
        if (0..calls.len()).all(|n| done[n] || calls[n].end.is_none()) {
            return true;
        }
        if !seen.insert((done.clone(), is)) {
            return false;
        }
        let open = |n: &usize| !done[*n];
        let first_end = (0..calls.len()).filter(open).filter_map(|n| calls[n].end).min();
        let next: Vec<usize> = (0..calls.len())
            .filter(open)
            .filter(|&n| first_end.is_none_or(|end| calls[n].begin <= end))
            .filter(|&n| calls[n].told.is_none_or(|told| told == is))
            .collect();
        for n in next {
            done[n] = true;
            if go(calls, done, calls[n].written.unwrap_or(is), seen) {
                return true;
            }
            done[n] = false;
        }
        false
    }
    type Seen = std::collections::HashSet<(Vec<bool>, u64)>;
    go(calls, &mut vec![false; calls.len()], 0, &mut Seen::new())
}

/// Whoever comes back while the server's storage fails, and is told so, goes on when it no longer does.
#[tokio::test(start_paused = true)]
async fn a_storage_that_fails_for_a_while_ends_no_client_that_comes_back() {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    let world = World::over(store.clone(), geometry(), 2).await;
    let gate = Arc::new(Gate::default());
    let anchor = Anchorage::Own(world.anchor.clone());
    let client = world.open_through(&gate, anchor).await.unwrap();
    client.query(id(1), Operation::Read).await.unwrap();
    gate.cut(true);
    store.plan(Plan { seed: 1, rates: vec![(Mishap::Fails, 1000)] });
    gate.cut(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    store.plan(Plan::default());
    client.query(id(1), Operation::Read).await.unwrap();
}

/// Whoever comes back stores what it has found anew, for the server may have lost it: on a slow way, too, in a few
/// round trips and not in one for each query of three periods, which all others would wait for.
#[tokio::test(start_paused = true)]
async fn whoever_comes_back_is_soon_there() {
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    let world = World::new(geometry(), 100).await;
    let gate = Arc::new(Gate::default());
    let anchor = Anchorage::Own(world.anchor.clone());
    let client = world.open_through(&gate, anchor).await.unwrap();
    for _ in 0..3 * geometry().period() {
        client.query(id(1), Operation::Read).await.unwrap();
    }
    let trace = world.watch();
    gate.cut(true);
    gate.cut(false);
    let begin = tokio::time::Instant::now();
    client.query(id(1), Operation::Read).await.unwrap();
    let took = begin.elapsed();
    let store = |frame: &&Frame| frame.from_client && frame.kind == STORE;
    let again = trace.lock().unwrap().frames.iter().filter(store).count();
    assert!(again as u64 > geometry().period(), "{again} results were stored again");
    assert!(took < 20 * ROUND_TRIP, "{took:?} for {again} results");
}

/// Sessions of several tasks; each session ends in the middle, sooner with a higher `haste`, and now and
/// then the server does, too.
async fn sessions(seed: u64, world: &World, haste: u64) -> History {
    let history = History::default();
    let clock = Arc::new(Mutex::new(0));
    let mut state = seed;
    for session in 0..8 {
        let client = Arc::new(world.open().await.unwrap());
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..5 {
            let (client, history) = (client.clone(), history.clone());
            let clock = clock.clone();
            let mut state = seed * 1000 + session * 10 + task;
            tasks.spawn(async move { while ask(&client, &history, &clock, &mut state).await {} });
        }
        let life = (300 + random(&mut state) % 4000) / haste;
        tokio::time::sleep(Duration::from_millis(life)).await;
        if session % 3 == 1 {
            world.stop().await;
            tokio::time::sleep(Duration::from_millis(500 / haste)).await;
            world.start().await;
            tokio::time::sleep(Duration::from_millis(life)).await;
        }
        tasks.shutdown().await;
        drop(client);
        if session % 3 == 2 {
            world.stop().await;
            world.start().await;
        }
    }
    history
}

/// Sessions that end in the middle, and then one that ends well: each block has one history.
pub(crate) async fn have_one_history(seed: u64, world: &World, haste: u64) {
    let history = sessions(seed, world, haste).await;
    let client = world.open().await.unwrap();
    let clock = Mutex::new(1 << 40);
    for state in 0..40 {
        assert!(ask(&client, &history, &clock, &mut (state * 77)).await);
    }
    judge(&history, seed);
}

/// Enough was answered, and each block went through one history.
pub(crate) fn judge(history: &History, seed: u64) {
    let history = history.lock().unwrap();
    let ended: usize = history.values().flatten().filter(|call| call.end.is_some()).count();
    assert!(ended > 50, "{ended}");
    for (which, calls) in &*history {
        assert!(is_linear(calls), "seed {seed}, block {which}: {calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_block_has_one_history() {
    for seed in 0..env_number("TACITA_GAMES", 4) {
        have_one_history(seed + 1, &World::new(geometry(), 20).await, 1).await;
    }
}

#[test]
fn the_judge_knows_what_has_no_order() {
    let call =
        |begin, end, written, told| Call { begin, end: Some(end), written, told: Some(told) };
    assert!(is_linear(&[call(1, 2, Some(7), 0), call(3, 4, None, 7)]));
    assert!(!is_linear(&[call(1, 2, Some(7), 0), call(3, 4, None, 0)]));
    assert!(is_linear(&[call(1, 9, Some(7), 0), call(3, 4, None, 0)]));
    let lost = Call { begin: 1, end: None, written: Some(7), told: None };
    assert!(is_linear(&[lost.clone(), call(3, 4, None, 0), call(5, 6, None, 7)]));
    assert!(!is_linear(&[lost, call(3, 4, None, 7), call(5, 6, None, 0)]));
}

/// A client that dies after its record is in the log; what the next one asks for it, beside what it asked
/// itself.
async fn replayed() -> (BTreeMap<u64, usize>, bool) {
    let world = World::new(geometry(), 20).await;
    world.prepare(80).await;
    let trace = world.watch();
    // Dies in the middle of its lookups, at each of many points.
    for life in 0..30 {
        let client = Arc::new(world.open().await.unwrap());
        let asking = {
            let client = client.clone();
            let which: Id = id(life);
            tokio::spawn(async move { client.query(which, Operation::Read).await })
        };
        tokio::time::sleep(Duration::from_millis(7 * life)).await;
        asking.abort();
        drop(client);
    }
    let client = world.open().await.unwrap();
    for n in 0..30 {
        let outcome = client.query(id(n), Operation::Read).await.unwrap();
        assert_eq!(outcome, Outcome::Was(Some(block(&geometry(), n))));
    }
    drop(client);
    let trace = std::mem::take(&mut *trace.lock().unwrap());
    // Each query asks one label of each generation that lives: with what is asked again counted once
    // there are as many labels as that, and no more.
    let mut labels: HashMap<_, usize> = HashMap::new();
    for label in &trace.labels {
        *labels.entry(*label).or_default() += 1;
    }
    let mut repeats = BTreeMap::new();
    for count in labels.values() {
        *repeats.entry(*count as u64).or_default() += 1;
    }
    let mut per_generation: HashMap<_, u64> = HashMap::new();
    for (generation, _) in labels.keys() {
        *per_generation.entry(*generation).or_default() += 1;
    }
    let geometry = geometry();
    let too_many =
        per_generation.iter().any(|(generation, count)| *count > geometry.shape(*generation).fakes);
    let sequences = world.records().await;
    let asked: usize =
        (80..sequences).map(|sequence| geometry.live(sequence / geometry.period()).len()).sum();
    (repeats, !too_many && labels.len() == asked)
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_over_is_asked_again_to_the_byte() {
    let (repeats, is_exact) = replayed().await;
    assert!(is_exact, "{repeats:?}");
    assert!(repeats.keys().any(|&count| count > 1), "something was asked again: {repeats:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_chooses_anew_is_noticed() {
    let _planted = plant(Fault::FreshOnReplay);
    let (repeats, is_exact) = replayed().await;
    assert!(!is_exact, "{repeats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_client_takes_over_and_the_first_is_told() {
    let world = World::new(geometry(), 20).await;
    let first = world.open().await.unwrap();
    first.query(id(1), Operation::Write(block(&geometry(), 1))).await.unwrap();
    // It is not asked for while the first is there, and may look all the same.
    assert_eq!(world.open().await.unwrap_err().kind(), Kind::Busy);
    let looking = world.open_with(key(), Access::Look).await.unwrap();
    assert_eq!(looking.status().queries, 1);
    assert_eq!(looking.check(&mut |_, _| ()).await.unwrap().damage, Vec::<String>::new());
    assert_eq!(looking.query(id(1), Operation::Read).await.unwrap_err().kind(), Kind::Parameters);
    first.query(id(1), Operation::Read).await.unwrap();
    let second = world.open_with(key(), Access::TakeOver).await.unwrap();
    let refused = first.query(id(1), Operation::Read).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Busy);
    let outcome = second.query(id(1), Operation::Read).await.unwrap();
    assert_eq!(outcome, Outcome::Was(Some(block(&geometry(), 1))));
}

/// A client that is stopped where it clears away what others have left, and goes on when they have long gone on:
/// what is newer than what it knows is theirs.
#[test]
fn whoever_clears_away_late_removes_nothing_of_others() {
    let others = tokio::runtime::Runtime::new().unwrap();
    let world = others.block_on(World::new(geometry(), 0));
    let trace = world.watch();
    // Nothing of it goes on but while somebody waits for it.
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut first = Box::pin(world.open());
    let looks =
        || trace.lock().unwrap().frames.iter().any(|frame| frame.names == "generation/ None");
    own.block_on(async {
        tokio::select! {
            biased;
            () = async { while !looks() { tokio::task::yield_now().await } } => {}
            _ = &mut first => panic!("it has not looked for what is left"),
        }
    });
    let second = others.block_on(world.open_with(key(), Access::TakeOver)).unwrap();
    let content = |n: u64| block(&geometry(), n);
    for n in 0..8 * geometry().period() {
        others.block_on(second.query(id(n), Operation::Write(content(n)))).unwrap();
    }
    let _late = own.block_on(async { tokio::time::timeout(Duration::from_secs(3), first).await });
    for n in 0..8 * geometry().period() {
        let found = others.block_on(second.query(id(n), Operation::Read)).unwrap();
        assert_eq!(found, Outcome::Was(Some(content(n))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_makes_queries_end_in_an_error() {
    let world = World::new(geometry(), 20).await;
    let client = world.open().await.unwrap();
    client.query(id(1), Operation::Read).await.unwrap();
    world.stop().await;
    let late = client.query(id(1), Operation::Read).await.unwrap_err();
    assert_eq!(late.kind(), Kind::Unreachable);
    world.start().await;
    client.query(id(1), Operation::Read).await.unwrap();
}

/// An anchor on a disk that is full, or fails, for a while.
#[derive(Debug, Default)]
struct Failing {
    memory: MemoryAnchor,
    fails: AtomicBool,
}

#[async_trait::async_trait]
impl Anchor for Failing {
    async fn load(&self) -> Result<Option<Mark>, Error> {
        self.memory.load().await
    }

    async fn store(&self, mark: &Mark) -> Result<(), Error> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Storage, "no room for the anchor"));
        }
        self.memory.store(mark).await
    }
}

/// Who asks meanwhile hears why, and it goes on when it is better.
#[tokio::test(start_paused = true)]
async fn an_anchor_that_cannot_be_written_for_a_while_is_waited_for() {
    let world = World::new(geometry(), 20).await;
    let anchor = Arc::new(Failing::default());
    let client = world.open_by(anchor.clone(), key(), Access::Write).await.unwrap();
    let write = |n| client.query(id(1), Operation::Write(block(&geometry(), n)));
    write(1).await.unwrap();
    anchor.fails.store(true, Ordering::SeqCst);
    let told = write(2).await.unwrap_err();
    assert!(told.to_string().contains("no room for the anchor"), "{told}");
    tokio::time::sleep(Duration::from_mins(1)).await;
    anchor.fails.store(false, Ordering::SeqCst);
    let found = client.query(id(1), Operation::Read).await.unwrap();
    assert_eq!(found, Outcome::Was(Some(block(&geometry(), 2))));
}
