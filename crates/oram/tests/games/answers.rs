//! Clients are told what was written, however many queries are under way.

use std::collections::BTreeMap;
use std::time::Duration;

use tacita_oram::client::{Client, Patience};
use tacita_oram::geometry::Geometry;
use tacita_oram::log_view::Outcome;
use tacita_oram::object::Object;
use tacita_oram::record::Operation;
use tacita_oram::{Error, Kind};
use tacita_testkit::env_number;
use tokio::time::Instant;

use super::world::{World, block, id, random};

#[tokio::test(start_paused = true)]
async fn one_query_after_the_other() {
    let geometry = Geometry::new(512, 16, 4, 600).unwrap();
    let world = World::new(geometry, 40).await;
    let mut model = BTreeMap::new();
    let mut state = 3;
    for session in 0..3 {
        let client = world.open().await.unwrap();
        for n in 0..700 {
            let which = random(&mut state) % 300;
            let write = random(&mut state).is_multiple_of(2);
            let content = block(&geometry, n + 1000 * session);
            let operation = if write { Operation::Write(content.clone()) } else { Operation::Read };
            let outcome = client.query(id(which), operation).await.unwrap();
            assert_eq!(outcome, Outcome::Was(model.get(&which).cloned()), "{session} {n}");
            if write {
                model.insert(which, content);
            }
        }
    }
}

/// Each task has blocks of its own and one that all increase.
#[tokio::test(start_paused = true)]
async fn many_at_once() {
    let geometry = Geometry::new(512, 64, 4, 2000).unwrap();
    let world = World::new(geometry, 80).await;
    let client = std::sync::Arc::new(world.open().await.unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    let rounds = env_number("TACITA_GAMES", 30);
    for task in 0..20_u64 {
        let client = client.clone();
        tasks.spawn(async move {
            let mut model = BTreeMap::new();
            let mut state = task;
            for n in 0..rounds {
                let which = 1000 * (task + 1) + random(&mut state) % 9;
                let content = block(&geometry, n);
                let outcome =
                    client.query(id(which), Operation::Write(content.clone())).await.unwrap();
                assert_eq!(outcome, Outcome::Was(model.insert(which, content)));
                increase(&client, &geometry).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let outcome = client.query(id(0), Operation::Read).await.unwrap();
    assert_eq!(outcome, Outcome::Was(Some(block(&geometry, 20 * rounds))));
}

/// A hundred queries at once, of a server that is slow.
async fn hundred(client: &std::sync::Arc<Client>) -> Vec<Result<Outcome, Error>> {
    let mut queries = tokio::task::JoinSet::new();
    for n in 0..100 {
        let client = client.clone();
        queries.spawn(async move { client.query(id(n), Operation::Read).await });
    }
    queries.join_all().await
}

/// Patience is with a server that lets no query end, not with one that takes long for all of them.
#[tokio::test(start_paused = true)]
async fn a_slow_server_is_waited_for_as_long_as_it_goes_on() {
    let patience = Patience::default().query;
    let world = World::new(Geometry::new(512, 16, 4, 600).unwrap(), 4000).await;
    let client = std::sync::Arc::new(world.open().await.unwrap());
    let begun = Instant::now();
    for outcome in hundred(&client).await {
        assert_eq!(outcome.unwrap(), Outcome::Was(None));
    }
    assert!(begun.elapsed() > 2 * patience, "it is not slow: {:?}", begun.elapsed());
    world.stop().await;
    let begun = Instant::now();
    for outcome in hundred(&client).await {
        assert_eq!(outcome.unwrap_err().kind(), Kind::Unreachable);
    }
    assert_eq!(begun.elapsed().as_secs(), patience.as_secs());
}

/// With a rate that it cannot keep, queries are answered at the rate that it can, and dummies do not pile up
/// before them.
#[tokio::test(start_paused = true)]
async fn a_rate_that_the_server_does_not_keep_starves_nobody() {
    let geometry = Geometry::new(512, 64, 4, 2000).unwrap();
    let world = World::new(geometry, 80).await;
    let client = world.open_at_rate(Duration::from_micros(500)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = Instant::now();
    client.query(id(1), Operation::Read).await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

async fn increase(client: &tacita_oram::client::Client, geometry: &Geometry) {
    let mut was = None;
    loop {
        let count = was
            .as_ref()
            .map_or(0, |block: &bytes::Bytes| u64::from_le_bytes(block[..8].try_into().unwrap()));
        let expected = was.as_deref().map(tacita_oram::record::digest_of);
        let new = block(geometry, count + 1);
        match client.query(id(0), Operation::CompareAndWrite { expected, new }).await.unwrap() {
            Outcome::Compared { written: true, .. } => return,
            Outcome::Compared { was: is, .. } => was = is,
            other => panic!("{other:?}"),
        }
    }
}

/// However long a store is used, it takes the room of its blocks and no more.
#[tokio::test(start_paused = true)]
async fn the_room_on_the_server_is_bounded() {
    let geometry = Geometry::new(512, 16, 2, 100).unwrap();
    let world = World::new(geometry, 10).await;
    let mut most = 0;
    for round in 0..6 {
        let client = world.open().await.unwrap();
        for n in 0..160 {
            let content = block(&geometry, n);
            client.query(id(n % 100), Operation::Write(content)).await.unwrap();
        }
        client.idle().await.unwrap();
        drop(client);
        let held = world.memory.snapshot();
        let is_manifest = |object: &Object| matches!(object, Object::Manifest { .. });
        let blobs = held.blobs.iter().filter(|(object, _)| !is_manifest(object));
        let len: usize = blobs.map(|(_, bytes)| bytes.len()).sum();
        if round == 2 {
            most = len;
        }
        assert!(round <= 2 || len <= most + most / 2, "{len} bytes after {most}");
    }
}
