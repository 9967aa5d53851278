use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::message::{Answer, Asked, Request, Told, WELCOME_LEN, answer_len, hello};
use super::*;
use crate::anchor::MemoryAnchor;
use crate::blob::MemoryStore;
use crate::client::{self, Access, Anchorage, Connect, Lasting, Patience, Surroundings};
use crate::geometry::Geometry;
use crate::keys::Id;
use crate::link::{Delay, Stream};
use crate::log_view::Outcome;
use crate::record::Operation;
use crate::server::{Limits, Server};
use crate::{Error, Kind, Result};
use tacita_secret::Key;

fn key() -> Key {
    Key::take(&mut [7; 32])
}

fn geometry() -> Geometry {
    Geometry::new(512, 32, 4, 400).unwrap()
}

fn id(n: u64) -> Id {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&n.to_le_bytes());
    id
}

fn block(n: u64) -> Bytes {
    let mut block = vec![0; 512];
    block[..8].copy_from_slice(&n.to_le_bytes());
    Bytes::from(block)
}

/// The way to something that takes streams; now and then a connection is cut after some bytes.
struct Way<T> {
    to: std::sync::Mutex<Option<T>>,
    /// After how many bytes from the other side the next connections are lost; 0: never.
    cut_after: AtomicU64,
    /// Milliseconds that what is sent on the next connections takes.
    one_way_ms: AtomicU64,
    served: std::sync::Mutex<JoinSet<()>>,
}

trait Serves: Clone + Send + Sync + 'static {
    fn take(self, stream: DuplexStream) -> impl Future<Output = ()> + Send;
}

impl Serves for Server {
    async fn take(self, stream: DuplexStream) {
        self.serve(stream).await;
    }
}

impl Serves for Engine {
    async fn take(self, stream: DuplexStream) {
        self.serve(stream).await;
    }
}

impl<T: Serves> Way<T> {
    fn to(to: T) -> Arc<Self> {
        let to = std::sync::Mutex::new(Some(to));
        let (cut_after, one_way_ms) = (AtomicU64::new(0), AtomicU64::new(5));
        Arc::new(Self { to, cut_after, one_way_ms, served: std::sync::Mutex::default() })
    }
}

#[async_trait]
impl<T: Serves> Connect for Way<T> {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        let to = self.to.lock().unwrap().clone();
        let to = to.ok_or_else(|| Error::new(Kind::Unreachable, "nobody is there"))?;
        let (near, far) = duplex(1 << 16);
        let mut served = self.served.lock().unwrap();
        served.spawn(to.take(far));
        let one_way = Duration::from_millis(self.one_way_ms.load(Relaxed));
        let near = Delay::of(one_way).wrap(near);
        let cut_after = self.cut_after.load(Relaxed);
        if cut_after == 0 {
            return Ok(Box::new(near));
        }
        let (ours, theirs) = duplex(1 << 16);
        let (mut from_near, mut to_near) = tokio::io::split(near);
        let (mut from_user, mut to_user) = tokio::io::split(ours);
        served.spawn(async move {
            tokio::select! {
                _ = tokio::io::copy(&mut from_user, &mut to_near) => {}
                () = async {
                    let mut left = (&mut from_near).take(cut_after);
                    let _ = tokio::io::copy(&mut left, &mut to_user).await;
                } => {}
            }
        });
        Ok(Box::new(theirs))
    }
}

/// A server with a store, and a client of it.
struct World {
    server: Arc<Way<Server>>,
    anchor: Arc<MemoryAnchor>,
}

impl World {
    async fn new() -> Self {
        let server = Server::open(Arc::new(MemoryStore::new()), Limits::default()).await.unwrap();
        let server = Way::to(server);
        client::init(&*server, &key(), geometry(), [5; 16]).await.unwrap();
        Self { server, anchor: Arc::default() }
    }

    async fn client(&self) -> Arc<Lasting> {
        let surroundings = Surroundings {
            connect: self.server.clone(),
            anchor: Anchorage::Own(self.anchor.clone()),
            random: Arc::new(tacita_secret::random::<16>),
            patience: Patience::default(),
            access: Access::TakeOver,
            between: None,
        };
        Arc::new(Lasting::open(&key(), surroundings).await.unwrap())
    }
}

async fn user(engine: &Arc<Way<Engine>>) -> User {
    User::open(engine.clone(), &key(), Patience::default()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn users_share_a_store() {
    let world = World::new().await;
    let engine = Way::to(Engine::new(world.client().await, key()));
    let (one, other) = (user(&engine).await, user(&engine).await);
    assert_eq!(*one.geometry(), geometry());
    let mut writing = JoinSet::new();
    for user in [one, other] {
        writing.spawn(async move {
            for n in 0..60 {
                user.query(id(n), Operation::Write(block(n))).await.unwrap();
            }
            user
        });
    }
    let users = writing.join_all().await;
    for n in 0..60 {
        let was = users[0].query(id(n), Operation::Read).await.unwrap();
        assert_eq!(was, Outcome::Was(Some(block(n))));
    }
    let compared = Operation::CompareAndWrite { expected: None, new: block(1) };
    let compared = users[1].query(id(1), compared).await.unwrap();
    assert_eq!(compared, Outcome::Compared { written: false, was: Some(block(1)) });
    assert_eq!(users[1].status().await.unwrap().queries, 181);
}

/// Patience of a user is with an engine that lets nothing end, too.
#[tokio::test(start_paused = true)]
async fn a_slow_store_is_waited_for_as_long_as_it_goes_on() {
    let world = World::new().await;
    world.server.one_way_ms.store(4000, Relaxed);
    let engine = Way::to(Engine::new(world.client().await, key()));
    let user = Arc::new(user(&engine).await);
    let begun = Instant::now();
    let mut asked = JoinSet::new();
    for n in 0..100 {
        let user = user.clone();
        asked.spawn(async move { user.query(id(n % 60), Operation::Read).await });
    }
    for outcome in asked.join_all().await {
        assert_eq!(outcome.unwrap(), Outcome::Was(None));
    }
    let patience = Patience::default().query;
    assert!(begun.elapsed() > 2 * patience, "it is not slow: {:?}", begun.elapsed());
}

/// Whether all is done once whatever becomes of connections. Each query adds one to the block with
/// compare-and-write: what is done twice, or not at all though it was answered, shows.
async fn is_done_once() -> bool {
    let world = World::new().await;
    let engine = Way::to(Engine::new(world.client().await, key()));
    for cut_after in [800, 1300, 3000, 9000] {
        let count = user(&engine).await;
        count.query(id(0), Operation::Write(block(0))).await.unwrap();
        engine.cut_after.store(cut_after, Relaxed);
        let user = user(&engine).await;
        for n in 0..100 {
            let expected = Some(crate::record::digest_of(&block(n)));
            let add = Operation::CompareAndWrite { expected, new: block(n + 1) };
            let outcome = user.query(id(0), add).await.unwrap();
            if outcome != (Outcome::Compared { written: true, was: Some(block(n)) }) {
                return false;
            }
        }
        engine.cut_after.store(0, Relaxed);
        let was = count.query(id(0), Operation::Read).await.unwrap();
        if was != Outcome::Was(Some(block(100))) {
            return false;
        }
    }
    true
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_connections_all_is_done_once() {
    assert!(is_done_once().await);
}

#[cfg(feature = "faults")]
#[tokio::test(start_paused = true)]
async fn what_is_done_twice_is_noticed() {
    let _planted = crate::faults::plant(crate::faults::Fault::DoneTwice);
    assert!(!is_done_once().await);
}

/// The engine ends in the middle and begins anew: what is in the log is not done again.
#[tokio::test(start_paused = true)]
async fn an_engine_that_begins_anew_does_nothing_twice() {
    let world = World::new().await;
    let engine = Way::to(Engine::new(world.client().await, key()));
    let user = Arc::new(user(&engine).await);
    user.query(id(0), Operation::Write(block(0))).await.unwrap();
    let adding = {
        let user = user.clone();
        tokio::spawn(async move {
            let (mut n, mut unknown) = (0, 0);
            while n < 300 {
                let expected = Some(crate::record::digest_of(&block(n)));
                let add = Operation::CompareAndWrite { expected, new: block(n + 1) };
                match user.query(id(0), add).await {
                    Ok(outcome) => {
                        let was = Some(block(n));
                        assert_eq!(outcome, Outcome::Compared { written: true, was });
                        n += 1;
                    }
                    Err(error) => {
                        // Not known: whether it was done is seen.
                        assert_eq!(error.kind(), Kind::Unreachable, "{error}");
                        unknown += 1;
                        let is = user.query(id(0), Operation::Read).await.unwrap();
                        n += u64::from(is == Outcome::Was(Some(block(n + 1))));
                    }
                }
            }
            unknown
        })
    };
    let mut restarts = 0;
    while !adding.is_finished() {
        tokio::time::sleep(Duration::from_millis(40 + 7 * restarts)).await;
        engine.to.lock().unwrap().take();
        let mut served = std::mem::take(&mut *engine.served.lock().unwrap());
        served.shutdown().await;
        let again = Engine::new(world.client().await, key());
        *engine.to.lock().unwrap() = Some(again);
        restarts += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let unknown = adding.await.unwrap();
    assert!(restarts > 3 && unknown <= restarts, "{restarts} restarts, {unknown} unknown");
    let is = user.query(id(0), Operation::Read).await.unwrap();
    assert_eq!(is, Outcome::Was(Some(block(300))));
}

/// As a user, which says what it wants on a connection of its own, and leaves; what it was told, unless it says
/// nothing.
async fn says(engine: &Arc<Way<Engine>>, request: Option<Request>) -> Option<Told> {
    let stream = engine.connect().await.unwrap();
    let (mut sender, mut receiver) = open(stream, &key()).await.unwrap();
    sender.send(&hello(&[3; 16])).await.unwrap();
    receiver.receive(WELCOME_LEN).await.unwrap();
    let request = request?;
    sender.send(&request.encode(&geometry())).await.unwrap();
    let answer = receiver.receive(answer_len(&geometry())).await.unwrap();
    Some(Answer::decode(&geometry(), &answer).unwrap().told)
}

/// What an engine did that has begun anew since is done no second time, also for a user whose first connection to
/// the new one is lost before it has said anything, and whom others have left far behind.
#[tokio::test(start_paused = true)]
async fn a_user_that_comes_back_twice_does_nothing_twice() {
    let world = World::new().await;
    let write = |asked_since| {
        let asked = Asked::Query(id(0), Operation::Write(block(1)));
        Some(Request { number: 1, received: 1, asked_since, asked })
    };
    let engine = Way::to(Engine::new(world.client().await, key()));
    assert_eq!(says(&engine, write(None)).await, Some(Told::Outcome(Outcome::Was(None))));
    *engine.to.lock().unwrap() = Some(Engine::new(world.client().await, key()));
    assert_eq!(says(&engine, None).await, None);
    let other = user(&engine).await;
    other.query(id(0), Operation::Write(block(2))).await.unwrap();
    for _ in 0..200 {
        other.query(id(1), Operation::Read).await.unwrap();
    }
    let told = says(&engine, write(Some(0))).await;
    assert!(matches!(told, Some(Told::Failed(Kind::Unreachable, _))), "{told:?}");
    let was = other.query(id(0), Operation::Read).await.unwrap();
    assert_eq!(was, Outcome::Was(Some(block(2))));
}

/// Others have gone on by several periods since it heard of the log a moment ago: it hears again before it asks, so
/// that another engine can tell whether it has been asked.
#[tokio::test(start_paused = true)]
async fn who_was_silent_for_a_moment_hears_how_far_others_are() {
    let world = World::new().await;
    world.server.one_way_ms.store(1, Relaxed);
    let engine = Way::to(Engine::new(world.client().await, key()));
    let (silent, busy) = (Arc::new(user(&engine).await), Arc::new(user(&engine).await));
    silent.status().await.unwrap();
    let begin = Instant::now();
    let mut reading = JoinSet::new();
    for n in 0..160 {
        let busy = busy.clone();
        reading.spawn(async move { busy.query(id(n % 9), Operation::Read).await.unwrap() });
    }
    reading.join_all().await;
    assert!(begin.elapsed() < super::user::FRESH_MAX, "{:?}", begin.elapsed());
    let writing = {
        let silent = silent.clone();
        tokio::spawn(async move { silent.query(id(0), Operation::Write(block(1))).await })
    };
    // What it says is on its way to an engine that ends.
    tokio::time::sleep(Duration::from_millis(2)).await;
    engine.to.lock().unwrap().take();
    let mut served = std::mem::take(&mut *engine.served.lock().unwrap());
    served.shutdown().await;
    *engine.to.lock().unwrap() = Some(Engine::new(world.client().await, key()));
    assert_eq!(writing.await.unwrap().unwrap(), Outcome::Was(None));
}

#[tokio::test(start_paused = true)]
async fn without_the_key_nobody_enters_and_nothing_hangs() {
    let world = World::new().await;
    let engine = Way::to(Engine::new(world.client().await, key()));
    let other = Key::take(&mut [8; 32]);
    let refused = User::open(engine.clone(), &other, Patience::default()).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::WrongKey);
    // What is no channel at all, silence, and a server in its place.
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 300], &[255; 300], b""] {
        let mut stream = engine.connect().await.unwrap();
        stream.write_all(said).await.unwrap();
        let mut heard = Vec::new();
        let ended = tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut heard));
        // An end in the middle of a stream is an end.
        let _ = ended.await.expect("the engine does not wait for ever");
        assert_eq!(heard, b"");
    }
    let refused = User::open(world.server.clone(), &key(), Patience::default()).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::WrongKey);
    user(&engine).await.query(id(1), Operation::Read).await.unwrap();
}

/// What passes has the same lengths, whatever is asked and found, and nothing of it can be altered.
#[tokio::test]
async fn messages_are_long_as_they_are_and_whole_or_not_there() {
    for (altered, len) in
        [(None, 5), (None, 70_000), (None, 140_000), (Some(60), 5), (Some(66_000), 70_000)]
    {
        let (near, mut ours) = duplex(1 << 20);
        let (mut theirs, far) = duplex(1 << 20);
        let message: Vec<u8> = (0_u8..=255).cycle().take(len).collect();
        let receiving = tokio::spawn(async move {
            let (_sender, mut receiver) = accept(far, &key()).await?;
            receiver.receive(len).await
        });
        let carrying = tokio::spawn(async move {
            // To and fro for the greeting; then what is sent, with one byte altered.
            let mut greeting = [0; 50];
            ours.read_exact(&mut greeting).await.unwrap();
            theirs.write_all(&greeting).await.unwrap();
            theirs.read_exact(&mut greeting).await.unwrap();
            ours.write_all(&greeting).await.unwrap();
            let pieces = len.div_ceil(65_519);
            let mut sent = vec![0; len + pieces * 18];
            ours.read_exact(&mut sent).await.unwrap();
            if let Some(at) = altered {
                sent[at % len] ^= 1;
            }
            theirs.write_all(&sent).await.unwrap();
            (ours, theirs)
        });
        let (mut sender, _receiver) = open(near, &key()).await.unwrap();
        sender.send(&message).await.unwrap();
        let _open = carrying.await.unwrap();
        match (altered, receiving.await.unwrap()) {
            (None, received) => assert_eq!(received.unwrap(), message),
            (Some(_), received) => assert_eq!(received.unwrap_err().kind(), Kind::Protocol),
        }
    }
}
