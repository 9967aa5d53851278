//! Clients that keep to nothing.

use super::*;
use crate::link::frames::{read_body, read_head};
use crate::wire::codec::Reply;
use crate::wire::{HEADER_LEN, PIECE_LEN_MAX, VERSION};

fn codec() -> Codec {
    Codec::new(Some(geometry()))
}

fn frame(number: u64, request: &Request) -> Bytes {
    codec().encode_request(number, request).unwrap()
}

fn hello() -> Bytes {
    frame(1, &Request::Hello { version: VERSION })
}

async fn reply(stream: &mut DuplexStream) -> Option<Reply> {
    let head = read_head(stream).await.ok()??;
    let head = codec().reply_head(&head).unwrap();
    Some(codec().reply(head, read_body(stream, head.len).await.unwrap()).unwrap())
}

/// A welcomed connection as bytes.
async fn welcomed(server: &Server) -> (DuplexStream, JoinHandle<()>) {
    let (mut stream, session) = connect(server);
    stream.write_all(&hello()).await.unwrap();
    assert!(matches!(reply(&mut stream).await, Some(Reply::Answer(1, Answer::Welcome { .. }))));
    (stream, session)
}

async fn is_refused(stream: &mut DuplexStream, number: u64, refusal: Refusal) {
    assert_eq!(reply(stream).await, Some(Reply::Answer(number, Answer::Refused(refusal))));
    assert_eq!(reply(stream).await, None, "the connection is closed");
}

/// Whether an honest client is session.
async fn serves(server: &Server) {
    let client = Client::of(server, None).await;
    assert_eq!(client.call(Request::Root).await, Answer::Root(root(0)));
}

#[tokio::test]
async fn malformed_frames_end_their_connection_alone() {
    let (_, store) = made(1).await;
    let server = server(&store).await;
    let honest = Client::following(&server).await;
    let mut cases: Vec<Vec<u8>> = Vec::new();
    let get = frame(2, &Request::Get { object: Object::Log { first: 0 }, offset: 0, len: 1 });
    for (at, byte) in [(0, 33), (3, 0xff), (4, 0), (4, 65), (4, 200), (5, 1), (16, 9), (46, 1)] {
        let mut bytes = get.to_vec();
        bytes[at] = byte;
        cases.push(bytes);
    }
    cases.push(hello().to_vec());
    for bytes in cases {
        let (mut stream, session) = welcomed(&server).await;
        stream.write_all(&bytes).await.unwrap();
        let number = u64::from_le_bytes(bytes[8..HEADER_LEN].try_into().unwrap());
        is_refused(&mut stream, number, Refusal::Malformed).await;
        session.await.unwrap();
    }
    // Before the welcome, of another version, of another protocol.
    let (mut stream, _) = connect(&server);
    stream.write_all(&get).await.unwrap();
    is_refused(&mut stream, 2, Refusal::Malformed).await;
    let (mut stream, _) = connect(&server);
    stream.write_all(&frame(1, &Request::Hello { version: VERSION + 1 })).await.unwrap();
    is_refused(&mut stream, 1, Refusal::Version).await;
    let (mut stream, session) = connect(&server);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    session.await.unwrap();
    assert_eq!(honest.append(1).await, appended(0));
}

/// Bytes of every kind, cut anywhere.
#[tokio::test]
async fn noise_does_no_harm() {
    let (_, store) = made(1).await;
    let server = server(&store).await;
    let mut random = 7_u64;
    for round in 0..300 {
        let (mut stream, session) = connect(&server);
        let mut bytes = hello().to_vec();
        for _ in 0..round % 40 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let kind = random.to_le_bytes()[5] % 16;
            let len =
                [0, 8, 16, 32, 56, 88, geometry().record_len() + 8][(random >> 50) as usize % 7];
            bytes.extend(u32::try_from(len).unwrap().to_le_bytes());
            bytes.extend([kind, 0, 0, 0]);
            bytes.extend((random >> 33).to_le_bytes());
            bytes.extend(random.to_le_bytes().iter().map(|byte| byte & 3).cycle().take(len));
        }
        bytes.truncate(bytes.len() - round % 3);
        let (mut from, mut to) = tokio::io::split(&mut stream);
        let mut answers = Vec::new();
        // The server may have had enough before all is written.
        let (_, ()) = tokio::join!(from.read_to_end(&mut answers), async {
            let _ = to.write_all(&bytes).await;
            let _ = to.shutdown().await;
        });
        session.await.unwrap();
    }
    serves(&server).await;
}

/// After how long a connection is closed, unless it stays for an hour.
async fn closed_after(session: JoinHandle<()>) -> Option<Duration> {
    let begun = Instant::now();
    timeout(Duration::from_hours(1), session).await.ok()?.unwrap();
    Some(begun.elapsed())
}

/// After how long the server closes connections of clients that say nothing: at all, any more, and from
/// the middle of a request on.
async fn silences() -> [Option<Duration>; 3] {
    let (_, store) = made(1).await;
    let server = server(&store).await;
    let (_stream, session) = connect(&server);
    let at_all = closed_after(session).await;
    let (_stream, session) = welcomed(&server).await;
    let any_more = closed_after(session).await;
    let (mut stream, session) = welcomed(&server).await;
    stream
        .write_all(&frame(2, &Request::Append { fence: 0, record: record(1) })[..100])
        .await
        .unwrap();
    [at_all, any_more, closed_after(session).await]
}

#[tokio::test(start_paused = true)]
async fn silent_clients_are_closed() {
    let Limits { frame, idle, .. } = Limits::default();
    assert_eq!(silences().await, [frame, idle, frame].map(Some));
}

#[cfg(feature = "faults")]
#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_silent_clients_is_noticed() {
    let _planted = crate::faults::plant(crate::faults::Fault::SilenceKept);
    assert_eq!(silences().await, [None; 3]);
}

/// Who asks and never reads is closed, and what waits for it is bounded.
#[tokio::test(start_paused = true)]
async fn clients_that_take_nothing_are_closed() {
    let (memory, store) = made(1).await;
    let object = Object::Manifest { period: 0 };
    memory.delete(object).await.unwrap();
    memory.put_if_absent(object, vec![1; PIECE_LEN_MAX].into()).await.unwrap();
    let server = server(&store).await;
    let begun = Instant::now();
    let (mut stream, session) = welcomed(&server).await;
    let len = u32::try_from(PIECE_LEN_MAX).unwrap();
    let get = frame(2, &Request::Get { object, offset: 0, len });
    store.operations();
    // It writes until it is not read any more.
    while stream.write_all(&get).await.is_ok() {}
    session.await.unwrap();
    assert_eq!(begun.elapsed(), Limits::default().stalled);
    let read = store.operations().len();
    let room = Limits::default().reading_len_max / PIECE_LEN_MAX;
    assert!(read <= room + 1, "{read} pieces were read");
    serves(&server).await;
}

#[tokio::test]
async fn too_many_requests_are_refused() {
    let (_, store) = made(1).await;
    let limits = Limits { in_flight_max: 4, ..Limits::default() };
    let server = Server::open(store.clone(), limits).await.unwrap();
    let client = Client::of(&server, None).await;
    store.hold();
    let object = Object::Manifest { period: 0 };
    let get = Request::Get { object, offset: 0, len: 0 };
    let mut pending = Vec::new();
    for _ in 0..4 {
        pending.push(client.connection.begin(get.clone()).await.unwrap());
    }
    assert_eq!(client.call(get.clone()).await, Answer::Refused(Refusal::Overloaded));
    store.release();
    for pending in pending {
        assert_eq!(pending.answer().await.unwrap(), Answer::Bytes(Bytes::new()));
    }
    assert_eq!(client.call(get).await, Answer::Bytes(Bytes::new()));
}

#[tokio::test]
async fn too_many_connections_are_closed() {
    let (_, store) = made(1).await;
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let server = Server::open(store, limits).await.unwrap();
    let (one, _other) = (welcomed(&server).await, welcomed(&server).await);
    let (mut stream, session) = connect(&server);
    session.await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(server.metrics().connections_refused.get(), 1);
    drop(one.0);
    one.1.await.unwrap();
    serves(&server).await;
}

#[tokio::test]
async fn puts_are_bounded() {
    let (_, store) = made(1).await;
    let limits = Limits { assembling_len_max: 3000, puts_max: 2, ..Limits::default() };
    let server = Server::open(store, limits).await.unwrap();
    let client = Client::of(&server, None).await;
    let put = async |period, total, offset, len: usize| {
        let (object, bytes) = (Object::Manifest { period }, vec![1; len].into());
        client.call(Request::Put { object, total, offset, bytes }).await
    };
    let (malformed, overloaded) =
        (Answer::Refused(Refusal::Malformed), Answer::Refused(Refusal::Overloaded));
    assert_eq!(put(1, 1000, 0, 10).await, Answer::Done);
    assert_eq!(put(1, 1000, 20, 10).await, malformed, "a piece is missing");
    assert_eq!(put(1, 1000, 10, 10).await, malformed, "it has to begin anew");
    assert_eq!(put(1, 4000, 0, 10).await, overloaded, "too many bytes");
    assert_eq!(put(1, 1000, 0, 10).await, Answer::Done);
    assert_eq!(put(2, 1000, 0, 10).await, Answer::Done);
    assert_eq!(put(3, 1000, 0, 10).await, overloaded, "too many objects");
    assert_eq!(put(2, 1000, 10, 990).await, Answer::Kept { created: true });
    assert_eq!(put(3, 1000, 0, 1000).await, Answer::Kept { created: true });
    assert_eq!(put(9, 2 << 20, 0, 10).await, malformed, "no manifest is so long");
    let generation = Generation { level: 1, number: 1 };
    let whole = items(generation).1;
    let pieces = [
        (Object::Log { first: 5 }, record(1)),
        (Object::Results { period: 0 }, vec![0; 16 * geometry().result_len()].into()),
        (Object::Items { generation, bucket: 0 }, whole.slice(1..)),
        (Object::Items { generation, bucket: 1 }, whole.clone()),
        (Object::Items { generation: Generation { level: 9, number: 1 }, bucket: 0 }, whole),
        (Object::Filter { generation, part: 0 }, vec![0; PAGE_LEN + 1].into()),
        (Object::Filter { generation, part: 1 }, Bytes::new()),
    ];
    for (object, bytes) in pieces {
        let total = bytes.len() as u64;
        let bytes = bytes.slice(..bytes.len().min(100));
        let answer = client.call(Request::Put { object, total, offset: 0, bytes }).await;
        assert_eq!(answer, malformed, "{object}");
    }
}

/// Items without their header, or out of order, would never be found.
#[tokio::test]
async fn items_out_of_order_are_refused() {
    let (_, store) = made(1).await;
    let server = server(&store).await;
    let client = Client::of(&server, None).await;
    let generation = Generation { level: 1, number: 1 };
    let object = Object::Items { generation, bucket: 0 };
    for at in [0, 8, 12, 20, 32] {
        let mut bytes = items(generation).1.to_vec();
        bytes[at] ^= 0x80;
        let refused = client.connection.put(object, bytes.into()).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Protocol, "byte {at}");
    }
}

/// A follower that reads nothing is left behind in the store, not in memory, and finds its own records
/// as its own when it goes on.
#[tokio::test]
async fn a_slow_follower_gets_all_in_order() {
    let (_, store) = made(9).await;
    let server = server(&store).await;
    let (mut slow, _session) = welcomed(&server).await;
    slow.write_all(&frame(2, &Request::Follow { record: 0, result: 0 })).await.unwrap();
    slow.write_all(&frame(3, &Request::Append { fence: 0, record: record(9) })).await.unwrap();
    let client = Client::of(&server, None).await;
    while server.metrics().queries.get() == 0 {
        tokio::task::yield_now().await;
    }
    for n in 1..8 * PERIOD {
        if n == 3 * PERIOD {
            slow.write_all(&frame(4, &Request::Append { fence: 0, record: record(9) }))
                .await
                .unwrap();
            while server.metrics().queries.get() == n {
                tokio::task::yield_now().await;
            }
            continue;
        }
        while client.append(0).await != appended(n) {
            tokio::task::yield_now().await;
        }
        // The results of the slow one's are played again by others.
        client.store(n).await;
        if n == 1 || n == 3 * PERIOD + 1 {
            client.store(n - 1).await;
        }
    }
    assert_eq!(reply(&mut slow).await, Some(Reply::Answer(2, Answer::Following)));
    let mut next = 0;
    while next < 8 * PERIOD {
        match reply(&mut slow).await.unwrap() {
            Reply::Answer(3, answer) => assert_eq!((answer, next), (appended(0), 0)),
            Reply::Answer(4, answer) => {
                assert_eq!((answer, next), (appended(3 * PERIOD), 3 * PERIOD));
            }
            Reply::Push(Push::Record { sequence, .. }) => assert_eq!(sequence, next),
            Reply::Push(Push::Result { sequence, .. }) => {
                assert!(sequence < next, "a result comes after its record");
                continue;
            }
            other => panic!("{other:?}"),
        }
        next += 1;
    }
}
