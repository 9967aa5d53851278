//! Servers that lie: nothing they say is believed, and what was caught once is not asked again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tacita_oram::client::{Access, Client};
use tacita_oram::geometry::Geometry;
use tacita_oram::log_view::Outcome;
use tacita_oram::record::Operation;
use tacita_oram::wire::HEADER_LEN;
use tacita_oram::{Error, Kind};

use super::world::{Lie, World, block, id};

fn geometry() -> Geometry {
    Geometry::new(512, 32, 4, 400).unwrap()
}

/// Kinds of answers and pushes, as the wire has them.
const FETCHED: u8 = 68;
const BYTES: u8 = 70;
const PUSHED_RECORD: u8 = 129;
const PUSHED_RESULT: u8 = 130;

/// Alters the `count`-th frame of `kind` from the server at `at` (negative: from the end).
fn altered(kind: u8, count: usize, at: isize) -> (Lie, Arc<AtomicBool>) {
    let seen = Mutex::new(0);
    let was_told = Arc::new(AtomicBool::new(false));
    let tells = was_told.clone();
    let lie: Lie = Arc::new(move |head: &[u8; HEADER_LEN], body: &mut Vec<u8>| {
        if head[4] != kind {
            return;
        }
        let mut seen = seen.lock().unwrap();
        *seen += 1;
        if *seen == count {
            let len = isize::try_from(body.len()).unwrap();
            let at = usize::try_from(at.rem_euclid(len)).unwrap();
            body[at] ^= 0x10;
            tells.store(true, Relaxed);
        }
    });
    (lie, was_told)
}

/// Reads and writes until an error; what is read has to be right up to then.
async fn use_it(client: &Client, rounds: u64) -> Result<(), Error> {
    for n in 0..rounds {
        let outcome = client.query(id(n % 80), Operation::Read).await?;
        assert_eq!(outcome, Outcome::Was(Some(block(&geometry(), n % 80))));
    }
    client.idle().await
}

/// What comes of a lie to a client that joins a store with 80 blocks and uses it.
async fn told(lie: Lie) -> Result<(), Error> {
    let world = World::new(geometry(), 20).await;
    world.prepare(80).await;
    world.lie(Some(lie));
    let client = tokio::time::timeout(Duration::from_mins(1), world.open()).await;
    let client = client.map_err(|_| Error::new(Kind::Unreachable, "never opened"))??;
    let caught = use_it(&client, 100).await;
    if caught.is_err() {
        world.lie(None);
        let after = client.query(id(1), Operation::Read).await;
        let is_over = |e: &Error| !matches!(e.kind(), Kind::Hostile | Kind::RolledBack);
        if let Err(error) = &after {
            assert!(!is_over(error) || caught.as_ref().is_err_and(is_over), "{error}");
        }
    }
    caught
}

#[tokio::test(start_paused = true)]
async fn whatever_is_altered_is_caught() {
    told(altered(0, 1, 0).0).await.unwrap();
    for (kind, counts) in [
        (FETCHED, &[1, 2, 30, 200][..]),
        (BYTES, &[1, 2, 3, 5]),
        (PUSHED_RECORD, &[1, 20, 40]),
        (PUSHED_RESULT, &[1, 5]),
    ] {
        for &count in counts {
            for at in [20, 100, -1, -600] {
                let (lie, was_told) = altered(kind, count, at);
                let caught = told(lie).await;
                assert!(was_told.load(Relaxed), "there are fewer than {count} of {kind}");
                let kind_of = caught.as_ref().map_err(Error::kind);
                let is_caught = matches!(
                    kind_of,
                    Err(Kind::Hostile | Kind::Protocol | Kind::Unreachable | Kind::RolledBack)
                );
                assert!(is_caught, "{kind} {count} {at}: {caught:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_set_back_is_refused() {
    let world = World::new(geometry(), 20).await;
    world.prepare(40).await;
    let before = world.memory.snapshot();
    for more in [1, 30, 500] {
        let client = world.open().await.unwrap();
        for n in 0..more {
            client.query(id(n % 80), Operation::Read).await.unwrap();
        }
        let records = client.status().queries;
        drop(client);
        let now = world.memory.snapshot();
        world.stop().await;
        world.memory.restore(before.clone());
        world.start().await;
        let refused = world.open().await.unwrap_err();
        assert_eq!(refused.kind(), Kind::RolledBack, "{more}: {refused}");
        world.stop().await;
        world.memory.restore(now);
        world.start().await;
        let client = world.open().await.unwrap();
        assert_eq!(client.status().queries, records);
    }
}

#[tokio::test(start_paused = true)]
async fn another_key_opens_nothing() {
    let world = World::new(geometry(), 20).await;
    let refused =
        world.open_with(tacita_secret::Key::take(&mut [8; 32]), Access::Write).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::WrongKey);
}
