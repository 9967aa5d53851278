//! The shape of what the server sees is the same for all workloads of the same number and times of
//! queries: exactly, to the byte count, the order and the microsecond.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tacita_oram::blob::{BlobStore, FolderStore, MemoryStore};
use tacita_oram::client::{Access, Anchorage, Client};
use tacita_oram::faults::{Fault, plant};
use tacita_oram::geometry::Geometry;
use tacita_oram::keys::Id;
use tacita_oram::log_view::Outcome;
use tacita_oram::record::{Operation, digest_of};

use super::proxy::{Frame, Trace};
use super::world::{Gate, World, block, id, key};

const TASKS: u64 = 6;
const ROUNDS: u64 = 40;

/// What task `task` does in round `round`.
type Workload = fn(&Geometry, u64, u64) -> (Id, Operation);

fn geometry() -> Geometry {
    // Buckets so small that the lowest level has several, and is built in two passes.
    Geometry::new(512, 32, 2, 500).unwrap().with_buckets(256).unwrap()
}

/// The trace of a workload: all tasks ask at once, each one query after the other.
async fn play(workload: Workload) -> Result<Trace, tacita_oram::Error> {
    play_over(Arc::new(MemoryStore::new()), workload).await
}

async fn play_over(
    store: Arc<dyn BlobStore>,
    workload: Workload,
) -> Result<Trace, tacita_oram::Error> {
    let world = World::over(store, geometry(), 30).await;
    world.prepare(100).await;
    let trace = world.watch();
    let client = world.open().await?;
    ask(workload, vec![client]).await?;
    Ok(ended(&trace))
}

/// The trace of a workload that several clients with one anchor share.
async fn play_together(workload: Workload) -> Result<Trace, tacita_oram::Error> {
    let world = World::new(geometry(), 30).await;
    world.prepare(100).await;
    let trace = world.watch();
    let anchor = Anchorage::Shared(Arc::new(MemoryStore::new()));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(world.open_at(anchor.clone(), key(), Access::Write).await?);
    }
    ask(workload, clients).await?;
    Ok(ended(&trace))
}

/// The trace of one who is cut off in the middle of its queries, and comes back when another has gone on.
async fn play_left_behind(workload: Workload) -> Result<Trace, tacita_oram::Error> {
    let world = World::new(geometry(), 30).await;
    world.prepare(100).await;
    let trace = world.watch();
    let anchor = Anchorage::Shared(Arc::new(MemoryStore::new()));
    let other = world.open_at(anchor.clone(), key(), Access::Write).await?;
    let gate = Arc::new(Gate::default());
    let left = Arc::new(world.open_through(&gate, anchor).await?);
    left.query(id(1), Operation::Read).await?;
    // Nothing else is on its way when the way is cut: of that the first frame would be seen.
    left.client()?.idle().await?;
    let mut queries = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (left, (id, operation)) = (left.clone(), workload(&geometry(), task, 0));
        queries.spawn(async move { left.query(id, operation).await });
    }
    // Their records have come to the server, and no answer from there.
    tokio::time::sleep(Duration::from_millis(20)).await;
    gate.cut(true);
    for _ in 0..8 * geometry().period() {
        other.query(id(1), Operation::Read).await?;
    }
    gate.cut(false);
    // What cannot be told was not done twice, nor is it said to be done.
    while let Some(ended) = queries.join_next().await {
        ended.unwrap().map_or_else(
            |error| assert_eq!(error.kind(), tacita_oram::Kind::Unreachable, "{error}"),
            |told| assert!(matches!(told, Outcome::Was(_)), "{told:?}"),
        );
    }
    left.query(id(1), Operation::Read).await?;
    other.idle().await?;
    left.client()?.idle().await?;
    Ok(ended(&trace))
}

/// All tasks ask, each one of the clients.
async fn ask(workload: Workload, clients: Vec<Client>) -> Result<(), tacita_oram::Error> {
    let geometry = geometry();
    let clients: Vec<_> = clients.into_iter().map(Arc::new).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (task, client) in (0..TASKS).zip(clients.iter().cycle()) {
        let client = client.clone();
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let (id, operation) = workload(&geometry, task, round);
                client.query(id, operation).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap()?;
    }
    for client in clients {
        client.idle().await?;
    }
    Ok(())
}

fn ended(trace: &Mutex<Trace>) -> Trace {
    let mut trace = std::mem::take(&mut *trace.lock().unwrap());
    // What passes in the same instant has no order: which task runs first is drawn by the runtime.
    trace.frames.sort();
    trace
}

const WORKLOADS: [(&str, Workload); 9] = [
    ("one block, read", |_, _, _| (id(1), Operation::Read)),
    ("one block, written", |geometry, _, round| (id(1), Operation::Write(block(geometry, round)))),
    ("blocks in a row, read", |_, task, round| {
        (id((task * ROUNDS + round) % 100), Operation::Read)
    }),
    ("blocks in no order, written", |geometry, task, round| {
        let which = (task * 7919 + round * 104_729) % 100;
        (id(which), Operation::Write(block(geometry, round)))
    }),
    ("blocks that are not there", |_, task, round| {
        (id(10_000 + task * ROUNDS + round), Operation::Read)
    }),
    ("all tasks the same block", |_, _, round| (id(round % 100), Operation::Read)),
    ("freed", |_, task, round| (id((task * ROUNDS + round) % 100), Operation::Free)),
    ("compared and written", |geometry, task, round| {
        let (which, new) = ((task * ROUNDS + round) % 100, block(geometry, round));
        let expected = Some(digest_of(&block(geometry, which + round % 2)));
        (id(which), Operation::CompareAndWrite { expected, new })
    }),
    ("nothing", |_, _, _| (id(0), Operation::Dummy)),
];

/// What tells two traces apart, if anything.
fn difference(one: &Trace, other: &Trace) -> Option<String> {
    let pairs = one.frames.iter().zip(&other.frames);
    if let Some((a, b)) = pairs.clone().find(|(a, b)| a != b) {
        return Some(format!("{a:?} and {b:?}"));
    }
    let (a, b) = (one.frames.len(), other.frames.len());
    (a != b).then(|| format!("{a} frames and {b}"))
}

/// Whether the game notices anything in `workload`, beside the first workload.
async fn noticed(workload: Workload) -> Option<String> {
    let first = match play(WORKLOADS[0].1).await {
        Ok(trace) => trace,
        Err(error) => return Some(error.to_string()),
    };
    let trace = match play(workload).await {
        Ok(trace) => trace,
        Err(error) => return Some(error.to_string()),
    };
    let repeated = [&first, &trace]
        .iter()
        .any(|trace| trace.most_of_one_label() > 1 || trace.labels_of_two_generations() > 0);
    difference(&first, &trace).or_else(|| repeated.then(|| "a label comes twice".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn all_workloads_have_the_same() {
    for (name, workload) in WORKLOADS {
        let noticed = noticed(workload).await;
        assert_eq!(noticed, None, "{name}");
    }
    let trace = play(WORKLOADS[3].1).await.unwrap();
    assert!(trace.labels.len() > 500 && trace.frames.len() > 2500);
}

#[tokio::test(start_paused = true)]
async fn all_workloads_of_several_clients_have_the_same() {
    let first = play_together(WORKLOADS[0].1).await.unwrap();
    assert!(first.labels.len() > 500 && first.most_of_one_label() == 1);
    for (name, workload) in &WORKLOADS[1..] {
        let trace = play_together(*workload).await.unwrap();
        assert_eq!(difference(&first, &trace), None, "{name}");
        assert_eq!(trace.most_of_one_label(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_workloads_of_one_who_was_left_behind_have_the_same() {
    let first = play_left_behind(WORKLOADS[0].1).await.unwrap();
    let again = play_left_behind(WORKLOADS[0].1).await.unwrap();
    assert_eq!(difference(&first, &again), None, "the same twice");
    for (name, workload) in &WORKLOADS[1..] {
        let trace = play_left_behind(*workload).await.unwrap();
        assert_eq!(difference(&first, &trace), None, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_is_not_asked_in_the_place_of_another_is_noticed() {
    let _planted = plant(Fault::UnknownUnasked);
    let read = play_left_behind(WORKLOADS[0].1).await.unwrap();
    let written = play_left_behind(WORKLOADS[1].1).await.unwrap();
    assert!(difference(&read, &written).is_some());
}

/// Who ends then leaves nothing for others to look up again.
#[tokio::test(start_paused = true)]
async fn whoever_is_idle_has_left_all_that_it_found() {
    const STORE: u8 = 5;
    const KEPT: u8 = 69;
    let world = World::new(geometry(), 30).await;
    let trace = world.watch();
    let client = world.open().await.unwrap();
    for n in 0..3 {
        client.query(id(n), Operation::Read).await.unwrap();
        client.idle().await.unwrap();
        let trace = trace.lock().unwrap();
        let stores = trace.frames.iter().filter(|frame| frame.kind == STORE);
        let connections: Vec<usize> = stores.map(|frame| frame.connection).collect();
        let is_kept =
            |frame: &&Frame| frame.kind == KEPT && connections.contains(&frame.connection);
        let kept = trace.frames.iter().filter(is_kept).count();
        assert_eq!((connections.len() as u64, kept as u64), (n + 1, n + 1));
    }
}

/// A folder takes no simulated time: not even that may be seen of what is in it.
#[tokio::test(start_paused = true)]
async fn all_workloads_have_the_same_in_a_folder() {
    let mut traces = Vec::new();
    for (_, workload) in [WORKLOADS[0], WORKLOADS[3], WORKLOADS[6]] {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(FolderStore::open(folder.path().join("store")).unwrap());
        traces.push(play_over(store, workload).await.unwrap());
    }
    for trace in &traces[1..] {
        assert_eq!(difference(&traces[0], trace), None);
    }
}

#[tokio::test(start_paused = true)]
async fn what_shows_more_is_noticed() {
    let faults = [
        (Fault::DummySkipped, 5),
        (Fault::HitReturnsEarly, 2),
        (Fault::FilterLoose, 4),
        (Fault::UntouchedStays, 2),
        (Fault::LengthShown, 1),
        (Fault::CompareStopsEarly, 7),
    ];
    for (fault, workload) in faults {
        let _planted = plant(fault);
        let (name, workload) = WORKLOADS[workload];
        let noticed = noticed(workload).await;
        assert!(noticed.is_some(), "{fault:?} with {name}");
    }
}
