use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::blob::{FaultyStore, MemoryStore, Mishap, Plan};
use crate::geometry::{Generation, LABEL_LEN, PAGE_LEN};
use crate::link::{Connection, Delay, Event, Options};
use crate::object::Object;
use crate::wire::{ItemAddress, PageAddress, Push, Request};

mod hostile;
mod storage;

const PERIOD: u64 = 16;
const MS: Duration = Duration::from_millis(1);

fn geometry() -> Geometry {
    Geometry::new(512, 16, 2, 100).unwrap()
}

fn root(fence: u64) -> Bytes {
    let root = Root { geometry: geometry(), store_id: [7; 16], fence, group: [0; 16] };
    Bytes::copy_from_slice(&root.encode(&[0; 32]))
}

fn record(byte: u8) -> Bytes {
    vec![byte; geometry().record_len()].into()
}

fn result(byte: u8) -> Bytes {
    vec![byte; geometry().result_len()].into()
}

/// A store that can go wrong, with a root and the first manifests.
async fn made(manifests: u64) -> (Arc<MemoryStore>, Arc<FaultyStore>) {
    let memory = Arc::new(MemoryStore::new());
    for period in 0..manifests {
        memory.put_if_absent(Object::Manifest { period }, Bytes::new()).await.unwrap();
    }
    memory.swap_root(None, root(0)).await.unwrap();
    (memory.clone(), Arc::new(FaultyStore::new(memory)))
}

async fn server(store: &Arc<FaultyStore>) -> Server {
    Server::open(store.clone(), Limits::default()).await.unwrap()
}

/// A client, and what it is told.
struct Client {
    connection: Connection,
    welcome: crate::link::Welcome,
    events: mpsc::UnboundedReceiver<Event>,
    session: JoinHandle<()>,
}

fn connect(server: &Server) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = duplex(1 << 16);
    let server = server.clone();
    (near, tokio::spawn(async move { server.serve(far).await }))
}

impl Client {
    async fn of(server: &Server, delay: Option<Delay>) -> Self {
        let (near, session) = connect(server);
        let stream: Box<dyn Stream> = match delay {
            Some(delay) => Box::new(delay.wrap(near)),
            None => Box::new(near),
        };
        let (sender, events) = mpsc::unbounded_channel();
        let options = Options { keep_alive: None, ..Options::default() };
        let handler = move |event| {
            let _ = sender.send(event);
        };
        let (connection, welcome) = Connection::open(stream, options, handler).await.unwrap();
        Self { connection, welcome, events, session }
    }

    async fn following(server: &Server) -> Self {
        let client = Self::of(server, None).await;
        client.follow(0, 0).await;
        client
    }

    async fn call(&self, request: Request) -> Answer {
        self.connection.call(request).await.unwrap()
    }

    async fn follow(&self, record: u64, result: u64) {
        assert_eq!(self.call(Request::Follow { record, result }).await, Answer::Following);
    }

    async fn append(&self, byte: u8) -> Answer {
        self.call(Request::Append { fence: 0, record: record(byte) }).await
    }

    async fn store(&self, sequence: u64) -> Answer {
        let byte = u8::try_from(sequence % 251).unwrap();
        self.call(Request::Store { sequence, result: result(byte) }).await
    }

    /// The next event: `(sequence, what)`.
    async fn told(&mut self) -> (u64, &'static str) {
        match self.events.recv().await.unwrap() {
            Event::Push(Push::Record { sequence, .. }) => (sequence, "record"),
            Event::Push(Push::Result { sequence, result: bytes }) => {
                assert_eq!(bytes, result(u8::try_from(sequence % 251).unwrap()));
                (sequence, "result")
            }
            Event::Appended { sequence, .. } => (sequence, "own"),
            Event::Lost(_) => (u64::MAX, "lost"),
        }
    }

    async fn told_many(&mut self, count: usize) -> Vec<(u64, &'static str)> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.told().await);
        }
        all
    }
}

/// Appends `count` records, each by a client that waits for it.
async fn fill(client: &Client, count: u64) {
    for n in 0..count {
        let answer = client.append(n.to_le_bytes()[0]).await;
        assert!(matches!(answer, Answer::Appended { .. }), "record {n}");
    }
}

fn appended(sequence: u64) -> Answer {
    Answer::Appended { sequence }
}

#[tokio::test]
async fn followers_are_told_of_each_other() {
    let (_, store) = made(1).await;
    let server = server(&store).await;
    let (mut a, mut b) = (Client::following(&server).await, Client::following(&server).await);
    assert_eq!(a.append(1).await, appended(0));
    assert_eq!(b.append(2).await, appended(1));
    assert_eq!(b.store(1).await, Answer::Kept { created: true });
    assert_eq!(a.store(1).await, Answer::Kept { created: false });
    assert_eq!(a.store(0).await, Answer::Kept { created: true });
    assert_eq!(a.store(2).await, Answer::Refused(Refusal::Absent));
    assert_eq!(a.told_many(3).await, [(0, "own"), (1, "record"), (1, "result")]);
    assert_eq!(b.told_many(3).await, [(0, "record"), (1, "own"), (0, "result")]);
    assert_eq!((server.metrics().queries.get(), server.metrics().results.get()), (2, 2));
}

/// Over lines of all kinds, each follower sees every record once and in order, its own as its own, and
/// is told of what comes before its own before it is told of that.
#[tokio::test(start_paused = true)]
async fn the_order_holds_over_slow_lines() {
    let (_, store) = made(4).await;
    store.plan(Plan { seed: 5, rates: vec![(Mishap::Late(3 * MS), 500)] });
    let server = server(&store).await;
    let mut clients = Vec::new();
    for n in 0..6_u32 {
        let delay =
            Delay { one_way: n * 7 * MS, jitter: 5 * MS, seed: n.into(), ..Delay::default() };
        let client = Client::of(&server, Some(delay)).await;
        client.follow(0, 0).await;
        clients.push(client);
    }
    let mut works = Vec::new();
    for client in &clients {
        for n in 0..5 {
            let connection = client.connection.clone();
            works.push(tokio::spawn(async move {
                let append = Request::Append { fence: 0, record: record(n) };
                let Answer::Appended { sequence } = connection.call(append).await.unwrap() else {
                    panic!("it is open")
                };
                sequence
            }));
        }
    }
    let mut sequences = Vec::new();
    for work in works {
        sequences.push(work.await.unwrap());
    }
    let per_client: Vec<Vec<u64>> = sequences.chunks(5).map(<[u64]>::to_vec).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (0..30).collect::<Vec<_>>());
    for (client, own) in clients.iter_mut().zip(per_client) {
        let expected: Vec<_> =
            (0..30).map(|n| (n, if own.contains(&n) { "own" } else { "record" })).collect();
        assert_eq!(client.told_many(30).await, expected);
    }
    assert!(server.metrics().commits.get() < 30, "some waited for each other");
}

/// What waits while the store is busy becomes one object.
#[tokio::test]
async fn records_that_wait_are_committed_together() {
    let (memory, store) = made(1).await;
    let server = server(&store).await;
    let client = Client::of(&server, None).await;
    store.operations();
    store.hold();
    let append = |byte| client.connection.begin(Request::Append { fence: 0, record: record(byte) });
    let mut pending = vec![append(0).await.unwrap()];
    // The first one is on its way to the store.
    while store.operations().is_empty() {
        tokio::task::yield_now().await;
    }
    for byte in 1..8 {
        pending.push(append(byte).await.unwrap());
    }
    // All of them have arrived when an answer to a later request has.
    client.call(Request::Store { sequence: 99, result: result(0) }).await;
    store.release();
    for (sequence, pending) in (0..).zip(pending) {
        assert_eq!(pending.answer().await.unwrap(), appended(sequence));
    }
    let mut logs = memory.list("log/").await.unwrap();
    logs.sort();
    assert_eq!(logs, [Object::Log { first: 0 }, Object::Log { first: 1 }]);
    assert_eq!(server.metrics().commits.get(), 2);
}

#[tokio::test]
async fn periods_open_with_their_manifests() {
    let (_, store) = made(1).await;
    let server = server(&store).await;
    let client = Client::of(&server, None).await;
    fill(&client, PERIOD).await;
    assert_eq!(client.append(0).await, Answer::Refused(Refusal::PeriodClosed));
    let open = async |period| {
        let object = Object::Manifest { period };
        assert!(client.connection.put(object, Bytes::from_static(b"m")).await.unwrap());
    };
    open(1).await;
    fill(&client, PERIOD).await;
    assert_eq!(client.append(0).await, Answer::Refused(Refusal::PeriodClosed));
    for sequence in 0..PERIOD {
        assert_eq!(client.store(sequence).await, Answer::Kept { created: true });
    }
    let results = Object::Results { period: 0 };
    let len = PERIOD * geometry().result_len() as u64;
    let bytes = loop {
        // The object is there soon after its last result is kept.
        match client.connection.get(results, 0..len).await.unwrap() {
            Some(bytes) => break bytes,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(bytes[15 * geometry().result_len()..][..2], [15, 15]);
    assert_eq!(client.store(3).await, Answer::Kept { created: false });
    open(2).await;
    fill(&client, PERIOD).await;
    assert_eq!(Client::of(&server, None).await.welcome.period, 2);
    // What the results of period 1 have left is in a generation by then: that they miss stops nobody.
    open(3).await;
    fill(&client, PERIOD).await;
    assert_eq!(client.store(PERIOD).await, Answer::Kept { created: false });
}

#[tokio::test]
async fn an_old_fence_is_refused() {
    let (_, store) = made(1).await;
    let server = server(&store).await;
    let (old, new) = (Client::of(&server, None).await, Client::of(&server, None).await);
    assert_eq!(old.append(0).await, appended(0));
    let swap = |expected, to| Request::SwapRoot { expected, new: to };
    let swapped = new.call(swap(root(0), root(1))).await;
    assert_eq!(swapped, Answer::Swapped { swapped: true, root: root(1) });
    assert_eq!(old.append(0).await, Answer::Refused(Refusal::Fenced));
    let late = old.call(swap(root(0), root(2))).await;
    assert_eq!(late, Answer::Swapped { swapped: false, root: root(1) });
    let append = Request::Append { fence: 1, record: record(1) };
    assert_eq!(new.call(append).await, appended(1));
    let malformed = Answer::Refused(Refusal::Malformed);
    assert_eq!(new.call(swap(root(1), Bytes::from_static(b"none"))).await, malformed);
    let other = Root { geometry: geometry(), store_id: [8; 16], fence: 2, group: [0; 16] };
    let other = Bytes::copy_from_slice(&other.encode(&[0; 32]));
    assert_eq!(new.call(swap(root(1), other)).await, malformed);
}

/// From nothing to a first record, on one connection.
#[tokio::test]
async fn a_store_is_made() {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    let server = server(&store).await;
    let client = Client::of(&server, None).await;
    assert_eq!(client.welcome.root, None);
    assert!(client.connection.put(Object::Manifest { period: 0 }, Bytes::new()).await.unwrap());
    let swap = Request::SwapRoot { expected: Bytes::new(), new: root(0) };
    assert_eq!(client.call(swap).await, Answer::Swapped { swapped: true, root: root(0) });
    assert_eq!(client.append(1).await, appended(0));
    let again = Client::of(&server, None).await;
    assert_eq!((again.welcome.root, again.welcome.records), (Some(root(0)), 1));
}

fn items(generation: Generation) -> (Vec<[u8; LABEL_LEN]>, Bytes) {
    let slots = geometry().shape(generation).slots;
    let mut bytes = b"TACITEMS".to_vec();
    bytes.extend(slots.to_le_bytes());
    bytes.extend(u32::try_from(geometry().item_len()).unwrap().to_le_bytes());
    bytes.resize(crate::geometry::ITEMS_HEADER_LEN, 0);
    let labels: Vec<_> = (0..slots).map(|n| (u128::from(n) << 100).to_be_bytes()).collect();
    bytes.extend(labels.concat());
    (0..slots).for_each(|n| bytes.extend(vec![n.to_le_bytes()[0]; geometry().item_len()]));
    (labels, bytes.into())
}

#[tokio::test]
async fn lookups_find_pages_and_items() {
    let (_, store) = made(1).await;
    let server = server(&store).await;
    let client = Client::of(&server, None).await;
    let generation = Generation { level: 1, number: 1 };
    let shape = geometry().shape(generation);
    let (labels, bytes) = items(generation);
    let object = Object::Items { generation, bucket: 0 };
    assert!(client.connection.put(object, bytes.clone()).await.unwrap());
    assert!(!client.connection.put(object, bytes).await.unwrap(), "it is there");
    let pages: Bytes = vec![3; shape.pages as usize * PAGE_LEN].into();
    let filter = Object::Filter { generation, part: 0 };
    assert!(client.connection.put(filter, pages).await.unwrap());
    let page = Some(PageAddress { generation, page: shape.pages - 1 });
    for (n, label) in (0_u8..).zip(&labels) {
        let item = Some(ItemAddress { generation, label: *label });
        let Answer::Fetched { page: Some(page), item: Some(item) } =
            client.call(Request::Fetch { page, item }).await
        else {
            panic!("both are there")
        };
        assert_eq!((page[0], item[0], item.len()), (3, n, geometry().item_len()));
    }
    let gets = |ops: Vec<String>| ops.iter().filter(|op| op.contains("items")).count();
    assert_eq!(gets(store.operations()), 2 + 1 + labels.len(), "labels are read once");
    let absent = Answer::Refused(Refusal::Absent);
    let elsewhere = Generation { level: 1, number: 2 };
    for (page, item) in [
        (page, Some(ItemAddress { generation, label: [9; LABEL_LEN] })),
        (None, Some(ItemAddress { generation: elsewhere, label: labels[0] })),
        (
            None,
            Some(ItemAddress { generation: Generation { level: 24, number: 1 }, label: labels[0] }),
        ),
        (Some(PageAddress { generation, page: shape.pages }), None),
        (Some(PageAddress { generation: elsewhere, page: 0 }), None),
    ] {
        assert_eq!(client.call(Request::Fetch { page, item }).await, absent);
    }
    assert_eq!(client.call(Request::Delete { object }).await, Answer::Done);
    let item = Some(ItemAddress { generation, label: labels[0] });
    assert_eq!(client.call(Request::Fetch { page: None, item }).await, absent);
}

#[tokio::test]
async fn names_are_listed_in_pieces_and_needed_objects_stay() {
    let (_, store) = made(3).await;
    let server = server(&store).await;
    let client = Client::of(&server, None).await;
    let list = |prefix: &str, after| Request::List { prefix: prefix.into(), after };
    let manifest = |period| Object::Manifest { period };
    let names = Answer::Names(vec![manifest(1), manifest(2)]);
    assert_eq!(client.call(list("manifest/", Some(manifest(0)))).await, names);
    fill(&client, 2 * PERIOD).await;
    for sequence in 0..PERIOD {
        client.store(sequence).await;
    }
    while client.append(0).await != appended(2 * PERIOD) {
        tokio::task::yield_now().await;
    }
    let delete = |object| client.call(Request::Delete { object });
    assert_eq!(delete(manifest(1)).await, Answer::Refused(Refusal::Malformed));
    assert_eq!(delete(Object::Log { first: PERIOD }).await, Answer::Refused(Refusal::Malformed));
    assert_eq!(delete(manifest(0)).await, Answer::Done);
    assert_eq!(delete(Object::Log { first: 0 }).await, Answer::Done);
    assert_eq!(client.call(list("manifest/", None)).await, names);
    let follow = Request::Follow { record: 0, result: PERIOD };
    assert_eq!(client.call(follow).await, Answer::Refused(Refusal::Absent), "it was removed");
}
