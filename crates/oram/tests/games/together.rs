//! Clients that share an anchor and write at the same time, straight at the server: what one of them does
//! all agree on, whoever builds may go, and a server that shows them different logs is found out before
//! anybody looks anything up in the second one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tacita_oram::blob::{BlobStore, FaultyStore, MemoryStore, Mishap, Plan, Put, Swap};
use tacita_oram::client::{Access, Anchorage, Client};
use tacita_oram::faults::{Fault, plant};
use tacita_oram::geometry::Generation;
use tacita_oram::keys::Label;
use tacita_oram::log_view::Outcome;
use tacita_oram::object::Object;
use tacita_oram::record::Operation;
use tacita_oram::{Error, Kind};

use super::crashes::{History, ask, geometry, judge};
use super::world::{World, block, id, key, random};

fn anchor() -> Anchorage {
    Anchorage::Shared(Arc::new(MemoryStore::new()))
}

/// An anchor that fails, also after it has done what it was asked, and is late.
fn shaky_anchor(seed: u64) -> Anchorage {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let late = Mishap::Late(Duration::from_millis(90));
    let rates = vec![(Mishap::Fails, 30), (Mishap::FailsAfterwards, 30), (late, 100)];
    store.plan(Plan { seed, rates });
    Anchorage::Shared(Arc::new(store))
}

async fn member(world: &World, anchor: &Anchorage) -> Client {
    loop {
        match world.open_at(anchor.clone(), key(), Access::Write).await {
            Err(error) if error.kind() == Kind::Storage => {}
            opened => return opened.unwrap(),
        }
    }
}

/// A client of the group that asks until it is dropped, from several tasks.
struct Asking {
    _client: Arc<Client>,
    _tasks: tokio::task::JoinSet<()>,
}

impl Asking {
    fn begin(client: Client, history: &History, clock: &Arc<Mutex<u64>>, seed: u64) -> Self {
        let client = Arc::new(client);
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..3 {
            let (client, history, clock) = (client.clone(), history.clone(), clock.clone());
            let mut state = seed * 10 + task;
            tasks.spawn(async move { while ask(&client, &history, &clock, &mut state).await {} });
        }
        Self { _client: client, _tasks: tasks }
    }
}

/// Whether each query was looked up with labels of its own: as many different ones as there are generations
/// to ask.
async fn labels_are_exact(world: &World, labels: &[(Generation, Label)]) -> bool {
    let geometry = geometry();
    let records = world.records().await;
    let all: usize = (0..records).map(|n| geometry.live(n / geometry.period()).len()).sum();
    labels.iter().collect::<HashSet<_>>().len() == all
}

#[tokio::test(start_paused = true)]
async fn several_clients_come_and_go_and_every_block_has_one_history() {
    for seed in 1..5 {
        let world = World::new(geometry(), 20).await;
        let trace = world.watch();
        let anchor = if seed % 2 == 0 { shaky_anchor(seed) } else { anchor() };
        let (history, clock) = (History::default(), Arc::new(Mutex::new(0)));
        let mut state = seed;
        let mut clients = VecDeque::new();
        for turn in 0..14 {
            let client = member(&world, &anchor).await;
            clients.push_back(Asking::begin(client, &history, &clock, seed * 1000 + turn));
            tokio::time::sleep(Duration::from_millis(500 + random(&mut state) % 6000)).await;
            // Whoever has been there longest builds: it is gone in the middle of that.
            if clients.len() > 3 {
                clients.pop_front();
            }
            if turn % 5 == 4 {
                world.stop().await;
                tokio::time::sleep(Duration::from_millis(500)).await;
                world.start().await;
            }
        }
        clients.clear();
        let client = member(&world, &anchor).await;
        let clock = Mutex::new(1 << 40);
        for state in 0..40 {
            assert!(ask(&client, &history, &clock, &mut (state * 77)).await);
        }
        judge(&history, seed);
        assert!(world.records().await > 10 * geometry().period(), "{}", world.records().await);
        let labels = std::mem::take(&mut trace.lock().unwrap().labels);
        assert!(labels_are_exact(&world, &labels).await, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_them_builds_and_queries_of_all_keep_to_its_pace() {
    let world = World::new(geometry(), 20).await;
    let trace = world.watch();
    let anchor = anchor();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(member(&world, &anchor).await);
    }
    for n in 0..200 {
        let client = &clients[n % 3];
        let content = block(&geometry(), n as u64);
        client.query(id(n as u64), Operation::Write(content)).await.unwrap();
    }
    for client in &clients {
        client.idle().await.unwrap();
    }
    for n in 0..200 {
        let outcome = clients[(n + 1) % 3].query(id(n as u64), Operation::Read).await.unwrap();
        assert_eq!(outcome, Outcome::Was(Some(block(&geometry(), n as u64))));
    }
    drop(clients);
    let trace = trace.lock().unwrap();
    let mut puts: HashMap<&str, usize> = HashMap::new();
    let is_put = |names: &str| names.starts_with("generation/") && names.split(' ').count() == 3;
    for frame in trace.frames.iter().filter(|frame| frame.from_client) {
        if is_put(&frame.names) && frame.len > 100 {
            *puts.entry(&frame.names).or_default() += 1;
        }
    }
    assert!(puts.len() > 20, "{}", puts.len());
    let twice: Vec<_> = puts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[tokio::test(start_paused = true)]
async fn when_who_builds_is_gone_another_one_goes_on() {
    for leaves in [false, true] {
        let world = World::new(geometry(), 20).await;
        let anchor = anchor();
        let first = member(&world, &anchor).await;
        let second = member(&world, &anchor).await;
        first.query(id(1), Operation::Write(block(&geometry(), 1))).await.unwrap();
        if leaves {
            first.leave().await.unwrap();
        }
        drop(first);
        for n in 0..5 * geometry().period() {
            second.query(id(n), Operation::Write(block(&geometry(), n))).await.unwrap();
        }
    }
}

/// Two clients that share an anchor, each with a server that goes on from the same log by itself: what the
/// second one is told, and how many labels it has asked for.
async fn parted() -> (Kind, usize) {
    let world = World::new(geometry(), 20).await;
    let anchor = anchor();
    let first = member(&world, &anchor).await;
    for n in 0..70 {
        first.query(id(n), Operation::Write(block(&geometry(), n))).await.unwrap();
    }
    let other = world.forked().await;
    let trace = other.watch();
    let second = member(&other, &anchor).await;
    second.idle().await.unwrap();
    first.query(id(3), Operation::Read).await.unwrap();
    let before = trace.lock().unwrap().labels.len();
    let told = second.query(id(3), Operation::Read).await.map_or_else(|e| e.kind(), |_| Kind::Busy);
    let asked = trace.lock().unwrap().labels.len() - before;
    (told, asked)
}

#[tokio::test(start_paused = true)]
async fn whoever_is_shown_another_log_looks_nothing_up_in_it() {
    assert_eq!(parted().await, (Kind::RolledBack, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_compare_is_noticed() {
    let _planted = plant(Fault::AgreementIgnored);
    let (_, asked) = parted().await;
    assert!(asked > 0);
}

#[tokio::test(start_paused = true)]
async fn what_others_have_seen_cannot_be_withheld() {
    let world = World::new(geometry(), 20).await;
    let anchor = anchor();
    let first = member(&world, &anchor).await;
    first.query(id(1), Operation::Write(block(&geometry(), 1))).await.unwrap();
    let stale = world.forked().await;
    first.query(id(1), Operation::Write(block(&geometry(), 2))).await.unwrap();
    let refused = stale.open_at(anchor.clone(), key(), Access::Write).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::RolledBack);
    let looking = stale.open_at(anchor, key(), Access::Look).await.unwrap_err();
    assert_eq!(looking.kind(), Kind::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn a_single_client_and_a_group_exclude_each_other() {
    let world = World::new(geometry(), 20).await;
    let anchor = anchor();
    let member_one = member(&world, &anchor).await;
    member_one.query(id(1), Operation::Write(block(&geometry(), 1))).await.unwrap();
    assert_eq!(world.open().await.unwrap_err().kind(), Kind::Busy);
    let alone = world.open_with(key(), Access::TakeOver).await.unwrap();
    alone.query(id(1), Operation::Write(block(&geometry(), 2))).await.unwrap();
    let told = member_one.query(id(1), Operation::Read).await.unwrap_err();
    assert_eq!(told.kind(), Kind::Busy);
    drop(member_one);
    let refused = world.open_at(anchor.clone(), key(), Access::Write).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Busy);
    drop(alone);
    let member_two = member(&world, &anchor).await;
    let outcome = member_two.query(id(1), Operation::Read).await.unwrap();
    assert_eq!(outcome, Outcome::Was(Some(block(&geometry(), 2))));
}

#[tokio::test(start_paused = true)]
async fn an_anchor_that_was_set_back_or_is_another_stores_is_told() {
    let world = World::new(geometry(), 20).await;
    let place = Arc::new(MemoryStore::new());
    let anchor = Anchorage::Shared(place.clone());
    let client = member(&world, &anchor).await;
    client.query(id(1), Operation::Read).await.unwrap();
    let before = place.snapshot();
    client.query(id(2), Operation::Read).await.unwrap();
    place.restore(before);
    let told = client.query(id(3), Operation::Read).await.unwrap_err();
    assert_eq!(told.kind(), Kind::RolledBack);
    let other = World::called([6; 16], geometry(), 20).await;
    let refused = other.open_at(anchor, key(), Access::Write).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::RolledBack);
}

/// An anchor that can be read, and not changed for a while: somebody stands still who has its lock.
#[derive(Debug, Default)]
struct Locked {
    memory: MemoryStore,
    is_locked: tokio::sync::watch::Sender<bool>,
}

#[async_trait::async_trait]
impl BlobStore for Locked {
    async fn get(&self, _: Object, _: &[Range<u64>]) -> Result<Option<Vec<Bytes>>, Error> {
        Ok(None)
    }

    async fn len(&self, _: Object) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    async fn put_if_absent(&self, _: Object, _: Bytes) -> Result<Put, Error> {
        Ok(Put::Created)
    }

    async fn delete(&self, _: Object) -> Result<(), Error> {
        Ok(())
    }

    async fn list(&self, _: &str) -> Result<Vec<Object>, Error> {
        Ok(Vec::new())
    }

    async fn root(&self) -> Result<Option<Bytes>, Error> {
        self.memory.root().await
    }

    async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap, Error> {
        let mut is_locked = self.is_locked.subscribe();
        is_locked.wait_for(|is_locked| !is_locked).await.unwrap();
        self.memory.swap_root(expected, new).await
    }
}

/// A member that was stopped just where it changes the anchor keeps all others from that. They say so.
#[tokio::test(start_paused = true)]
async fn an_anchor_that_cannot_be_changed_is_told() {
    let world = World::new(geometry(), 20).await;
    let place = Arc::new(Locked::default());
    let anchor = Anchorage::Shared(place.clone());
    let client = member(&world, &anchor).await;
    client.query(id(1), Operation::Write(block(&geometry(), 1))).await.unwrap();
    place.is_locked.send_replace(true);
    let told = client.query(id(1), Operation::Read).await.unwrap_err();
    assert!(told.to_string().contains("seems to stand still"), "{told}");
    let refused = world.open_at(anchor.clone(), key(), Access::Write);
    let refused =
        tokio::time::timeout(Duration::from_hours(1), refused).await.unwrap().unwrap_err();
    assert_eq!(refused.to_string(), told.to_string());
    place.is_locked.send_replace(false);
    let found = client.query(id(1), Operation::Read).await.unwrap();
    assert_eq!(found, Outcome::Was(Some(block(&geometry(), 1))));
}

fn one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A client whose machine sleeps while others go on, whether it builds or not: what it missed is gone, and so is
/// what it was building. No server has lied, and it goes on when it opens the store again.
#[test]
fn whoever_was_stopped_for_long_accuses_nobody() {
    let others = tokio::runtime::Runtime::new().unwrap();
    for builds in [true, false] {
        let world = others.block_on(World::new(geometry(), 0));
        let anchor = anchor();
        let join = || world.open_hastily(anchor.clone());
        // Nothing of it goes on but while somebody waits for it.
        let own = one_thread();
        let first = builds.then(|| own.block_on(join()).unwrap());
        let other = others.block_on(join()).unwrap();
        let stopped = first.unwrap_or_else(|| own.block_on(join()).unwrap());
        let content = |n: u64| block(&geometry(), n);
        let before = stopped.query(id(300), Operation::Write(content(300)));
        own.block_on(before).unwrap();
        for n in 0..8 * geometry().period() {
            let written = other.query(id(n), Operation::Write(content(n)));
            others.block_on(written).unwrap();
        }
        let told = own.block_on(async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            stopped.query(id(1), Operation::Read).await.unwrap_err()
        });
        assert_eq!(told.kind(), Kind::Poisoned, "{told}, builds: {builds}");
        // Nor does it take it on itself to build when nobody does: all others would wait for it.
        let late = one_thread();
        let third = late.block_on(join()).unwrap();
        others.block_on(async { drop(other) });
        std::thread::scope(|scope| {
            let (_done, done) = tokio::sync::oneshot::channel::<()>();
            scope.spawn(|| own.block_on(done));
            others.block_on(async { tokio::time::sleep(Duration::from_secs(2)).await });
            for n in 0..4 * geometry().period() {
                let written = third.query(id(n), Operation::Write(content(n)));
                late.block_on(written).unwrap();
            }
        });
        drop((stopped, third));
        let again = own.block_on(join()).unwrap();
        for n in [1, 300] {
            let found = own.block_on(again.query(id(n), Operation::Read)).unwrap();
            assert_eq!(found, Outcome::Was(Some(content(n))));
        }
    }
}

/// The same, by somebody who comes back by itself: it serves as before when it is awake, and of what was under way
/// it says at most that it is not known.
#[test]
fn whoever_was_stopped_for_long_comes_back_by_itself() {
    let others = tokio::runtime::Runtime::new().unwrap();
    for builds in [true, false] {
        let world = others.block_on(World::new(geometry(), 0));
        let anchor = anchor();
        let own = one_thread();
        let join = || world.open_lastingly(anchor.clone());
        let first = builds.then(|| own.block_on(join()).unwrap());
        let other = others.block_on(world.open_hastily(anchor.clone())).unwrap();
        let stopped = Arc::new(first.unwrap_or_else(|| own.block_on(join()).unwrap()));
        let content = |n: u64| block(&geometry(), n);
        let write = |n: u64, new: u64| {
            let stopped = stopped.clone();
            async move { stopped.query(id(n), Operation::Write(block(&geometry(), new))).await }
        };
        own.block_on(write(300, 300)).unwrap();
        // Under way: they may have come to the server, or not.
        let written: Vec<_> = (0..6).map(|n| own.spawn(write(300 + n, 400 + n))).collect();
        own.block_on(async {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        });
        for n in 0..8 * geometry().period() {
            let written = other.query(id(n), Operation::Write(content(n)));
            others.block_on(written).unwrap();
        }
        let found = own.block_on(stopped.query(id(1), Operation::Read)).unwrap();
        assert_eq!(found, Outcome::Was(Some(content(1))), "builds: {builds}");
        for (n, written) in (0..).zip(written) {
            let told = own.block_on(written).unwrap();
            let found = own.block_on(stopped.query(id(300 + n), Operation::Read)).unwrap();
            let before = (n == 0).then(|| content(300));
            match told {
                Ok(_) => assert_eq!(found, Outcome::Was(Some(content(400 + n)))),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Unreachable, "{error}");
                    let may_be = [Outcome::Was(before), Outcome::Was(Some(content(400 + n)))];
                    assert!(may_be.contains(&found), "{found:?}");
                }
            }
        }
        // It goes on alone, and builds.
        others.block_on(async { drop(other) });
        for n in 0..4 * geometry().period() {
            own.block_on(write(n, n + 1)).unwrap();
        }
        let found = own.block_on(stopped.query(id(1), Operation::Read)).unwrap();
        assert_eq!(found, Outcome::Was(Some(content(2))));
        own.block_on(stopped.close(Duration::from_secs(1), Duration::from_mins(1)));
    }
}
