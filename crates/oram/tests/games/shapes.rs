//! The shape of what the server sees is the same for all workloads of the same number and times of
//! queries: exactly, to the byte count, the order and the microsecond.

use std::sync::Arc;

use tacita_oram::blob::{BlobStore, FolderStore, MemoryStore};
use tacita_oram::faults::{Fault, plant};
use tacita_oram::geometry::Geometry;
use tacita_oram::keys::Id;
use tacita_oram::record::{Operation, digest_of};

use super::proxy::Trace;
use super::world::{World, block, id};

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
    let geometry = geometry();
    let world = World::over(store, geometry, 30).await;
    world.prepare(100).await;
    let trace = world.watch();
    let client = Arc::new(world.open().await?);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
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
    client.idle().await?;
    drop(client);
    let mut trace = std::mem::take(&mut *trace.lock().unwrap());
    // What passes in the same instant has no order: which task runs first is drawn by the runtime.
    trace.frames.sort();
    Ok(trace)
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
