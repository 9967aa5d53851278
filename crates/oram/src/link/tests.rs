use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant;

use super::frames::{read_body, read_head};
use super::*;
use crate::error::Kind;
use crate::geometry::Geometry;
use crate::root::Root;
use crate::wire::codec::Codec;
use crate::wire::{Answer, Push, Refusal, Request, VERSION};

const MS: Duration = Duration::from_millis(1);

fn geometry() -> Geometry {
    Geometry::new(512, 16, 2, 100).unwrap()
}

fn record(byte: u8) -> Bytes {
    vec![byte; geometry().record_len()].into()
}

/// The other end, as a test wants it.
struct Peer {
    stream: DuplexStream,
    codec: Codec,
}

impl Peer {
    async fn request(&mut self) -> (u64, Request) {
        let head = read_head(&mut self.stream).await.unwrap().unwrap();
        let head = self.codec.request_head(&head).unwrap();
        let body = read_body(&mut self.stream, head.len).await.unwrap();
        (head.number, self.codec.request(head, body).unwrap())
    }

    async fn answer(&mut self, number: u64, answer: Answer) {
        self.stream.write_all(&self.codec.encode_answer(number, &answer).unwrap()).await.unwrap();
    }

    async fn push(&mut self, sequence: u64) {
        let push = Push::Record { sequence, record: record(1) };
        self.stream.write_all(&self.codec.encode_push(&push).unwrap()).await.unwrap();
    }
}

type Seen = Arc<Mutex<Vec<String>>>;

/// A connection that was welcomed, its peer, and what the handler sees.
async fn connected(options: Options) -> (Connection, Peer, Seen) {
    let (ours, stream) = duplex(1 << 20);
    let mut peer = Peer { stream, codec: Codec::new(Some(geometry())) };
    let seen = Seen::default();
    let log = seen.clone();
    let handler = move |event: Event| {
        log.lock().unwrap().push(match event {
            Event::Push(Push::Record { sequence, .. }) => format!("record {sequence}"),
            Event::Push(Push::Result { sequence, .. }) => format!("result {sequence}"),
            Event::Appended { sequence, record } => format!("own {sequence} {}", record[0]),
            Event::Lost(_) => "lost".into(),
        });
    };
    let (opened, ()) = tokio::join!(Connection::open(ours, options, handler), async {
        let (number, request) = peer.request().await;
        assert_eq!(request, Request::Hello { version: VERSION });
        let root = Root { geometry: geometry(), store_id: [1; 16], fence: 0, group: [0; 16] };
        let root = Bytes::copy_from_slice(&root.encode(&[0; 32]));
        let welcome =
            Answer::Welcome { version: VERSION, root, records: 3, period: 0, followers: 0 };
        peer.answer(number, welcome).await;
    });
    let (connection, welcome) = opened.unwrap();
    assert_eq!((welcome.records, welcome.period), (3, 0));
    (connection, peer, seen)
}

#[tokio::test]
async fn answers_find_who_waits_for_them() {
    let (connection, mut peer, _) = connected(Options::default()).await;
    let first = connection.begin(Request::Root).await.unwrap();
    let object = crate::object::Object::Log { first: 0 };
    let second = connection.begin(Request::Delete { object }).await.unwrap();
    let ((a, _), (b, _)) = (peer.request().await, peer.request().await);
    peer.answer(b, Answer::Done).await;
    peer.answer(a, Answer::Root(Bytes::new())).await;
    assert_eq!(first.answer().await.unwrap(), Answer::Root(Bytes::new()));
    assert_eq!(second.answer().await.unwrap(), Answer::Done);
}

/// When an append returns, the handler has had every record before it.
#[tokio::test]
async fn the_log_is_told_in_order() {
    let (connection, mut peer, seen) = connected(Options::default()).await;
    let append = |byte| connection.begin(Request::Append { fence: 0, record: record(byte) });
    let (first, second) = (append(7).await.unwrap(), append(8).await.unwrap());
    let ((a, _), (b, _)) = (peer.request().await, peer.request().await);
    peer.push(3).await;
    peer.answer(a, Answer::Appended { sequence: 4 }).await;
    peer.push(5).await;
    assert_eq!(first.answer().await.unwrap(), Answer::Appended { sequence: 4 });
    assert_eq!(seen.lock().unwrap()[..2], ["record 3", "own 4 7"]);
    peer.answer(b, Answer::Appended { sequence: 6 }).await;
    assert_eq!(second.answer().await.unwrap(), Answer::Appended { sequence: 6 });
    assert_eq!(*seen.lock().unwrap(), ["record 3", "own 4 7", "record 5", "own 6 8"]);
}

#[tokio::test(start_paused = true)]
async fn calls_end_in_time() {
    let options = Options { keep_alive: None, ..Options::default() };
    let (connection, mut peer, seen) = connected(options).await;
    let begun = Instant::now();
    let record = record(1);
    let error = connection.call(Request::Append { fence: 0, record }).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable);
    assert_eq!(begun.elapsed(), options.time_out);
    // That it came about after all is told to the log's handler.
    let (number, _) = peer.request().await;
    peer.answer(number, Answer::Appended { sequence: 3 }).await;
    tokio::time::sleep(MS).await;
    assert_eq!(*seen.lock().unwrap(), ["own 3 1"]);
}

#[tokio::test]
async fn a_lost_connection_fails_every_call() {
    let (connection, mut peer, seen) = connected(Options::default()).await;
    let waiting = [
        connection.begin(Request::Root).await.unwrap(),
        connection.begin(Request::Root).await.unwrap(),
    ];
    peer.request().await;
    drop(peer);
    for pending in waiting {
        assert_eq!(pending.answer().await.unwrap_err().kind(), Kind::Unreachable);
    }
    assert_eq!(connection.call(Request::Root).await.unwrap_err().kind(), Kind::Unreachable);
    assert!(connection.lost().is_some());
    tokio::task::yield_now().await;
    assert_eq!(*seen.lock().unwrap(), ["lost"]);
}

#[tokio::test]
async fn hostile_answers_end_the_connection() {
    for case in 0..4 {
        let (connection, mut peer, _) = connected(Options::default()).await;
        let pending = connection.begin(Request::Root).await.unwrap();
        let (number, _) = peer.request().await;
        match case {
            0 => peer.answer(number, Answer::Done).await,
            1 => peer.answer(number + 1, Answer::Root(Bytes::new())).await,
            2 => peer.stream.write_all(&[0xff; 16]).await.unwrap(),
            _ => peer.answer(number, Answer::Root(Bytes::from_static(b"no root"))).await,
        }
        let kind = pending.answer().await.unwrap_err().kind();
        assert_eq!(kind, if case == 3 { Kind::NotAStore } else { Kind::Protocol }, "case {case}");
        assert!(connection.call(Request::Root).await.is_err());
    }
}

/// A silence is broken, and a server that is silent itself is taken for gone.
#[tokio::test(start_paused = true)]
async fn a_dead_server_is_noticed() {
    let options = Options::default();
    let (connection, mut peer, _) = connected(options).await;
    let begun = Instant::now();
    let (number, request) = peer.request().await;
    assert_eq!(request, Request::Root);
    assert!(begun.elapsed() <= 2 * options.keep_alive.unwrap());
    peer.answer(number, Answer::Refused(Refusal::Overloaded)).await;
    peer.request().await;
    tokio::time::sleep(options.time_out + MS).await;
    assert!(connection.lost().is_some());
}

#[tokio::test]
async fn objects_travel_in_pieces() {
    let (connection, mut peer, _) = connected(Options::default()).await;
    let object = crate::object::Object::Manifest { period: 0 };
    let whole = Bytes::from(vec![5; 3 * crate::wire::PIECE_LEN_MAX + 1]);
    let server = async {
        let mut came = 0;
        loop {
            let (number, request) = peer.request().await;
            let Request::Put { total, offset, bytes, .. } = request else { panic!() };
            assert_eq!((total, offset), (whole.len() as u64, came));
            came += bytes.len() as u64;
            if came == total {
                peer.answer(number, Answer::Kept { created: true }).await;
                break;
            }
            peer.answer(number, Answer::Done).await;
        }
        for _ in 0..4 {
            let (number, request) = peer.request().await;
            let Request::Get { len, .. } = request else { panic!() };
            peer.answer(number, Answer::Bytes(vec![5; len as usize].into())).await;
        }
    };
    let client = async {
        assert!(connection.put(object, whole.clone()).await.unwrap());
        connection.get(object, 0..whole.len() as u64).await.unwrap().unwrap()
    };
    let (got, ()) = tokio::join!(client, server);
    assert_eq!(got, whole);
}

/// All that is sent at once arrives at once, one latency later.
#[tokio::test(start_paused = true)]
async fn a_slow_line_keeps_much_on_its_way() {
    let (near, far) = duplex(1 << 20);
    let (mut near, mut far) = (Delay::of(50 * MS).wrap(near), far);
    let begun = Instant::now();
    for byte in 0..10 {
        near.write_all(&[byte; 100]).await.unwrap();
        tokio::time::sleep(MS).await;
    }
    assert_eq!(begun.elapsed(), 10 * MS);
    let mut bytes = vec![0; 1000];
    far.read_exact(&mut bytes).await.unwrap();
    assert_eq!(begun.elapsed(), 59 * MS);
    far.write_all(b"back").await.unwrap();
    near.read_exact(&mut bytes[..4]).await.unwrap();
    assert_eq!(begun.elapsed(), 109 * MS);
    drop(near);
    assert_eq!(far.read(&mut bytes).await.unwrap(), 0);
    assert_eq!(begun.elapsed(), 159 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_narrow_line_takes_its_time() {
    let (near, mut far) = duplex(1 << 20);
    let delay = Delay { one_way: 10 * MS, bandwidth: Some(1000), ..Delay::default() };
    let mut near = delay.wrap(near);
    let begun = Instant::now();
    near.write_all(&[1; 500]).await.unwrap();
    let mut bytes = vec![0; 500];
    far.read_exact(&mut bytes).await.unwrap();
    assert_eq!(begun.elapsed(), 510 * MS);
}

#[tokio::test(start_paused = true)]
async fn jitter_is_bounded_and_keeps_the_order() {
    for seed in 0..20 {
        let (near, mut far) = duplex(1 << 20);
        let delay = Delay { one_way: 10 * MS, jitter: 20 * MS, seed, ..Delay::default() };
        let mut near = delay.wrap(near);
        let begun = Instant::now();
        let mut arrivals = Vec::new();
        for byte in 0..20 {
            near.write_all(&[byte]).await.unwrap();
            tokio::time::sleep(MS).await;
        }
        for byte in 0..20 {
            assert_eq!(far.read_u8().await.unwrap(), byte, "seed {seed}");
            arrivals.push(begun.elapsed());
        }
        let latest = Duration::from_millis(19) + 31 * MS;
        assert!(arrivals.iter().all(|at| (10 * MS..=latest).contains(at)), "seed {seed}");
    }
}

#[test]
fn addresses_are_read_as_they_are_shown() {
    for text in [
        "127.0.0.1:7777",
        "[::1]:80",
        "server.example:1",
        "unix:/run/x.sock",
        "tls:server.example:1",
        "tls:[::1]:80",
    ] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
    for text in ["", "unix:", "host", ":80", "host:port", "host:99999", "tls:", "tls:80", "tls::80"]
    {
        assert_eq!(text.parse::<Address>().unwrap_err().kind(), Kind::Parameters, "{text}");
    }
}

#[tokio::test]
async fn sockets_carry_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    for address in [Address::Tcp("127.0.0.1:0".into()), Address::Unix(path.clone())] {
        for _ in 0..2 {
            let listener = address.listen(None).await.unwrap();
            if let Address::Unix(_) = address {
                assert!(address.listen(None).await.is_err(), "it is taken");
                listener.accept().await.unwrap();
            }
            let place = listener.address().unwrap();
            let (near, far) = tokio::join!(place.connect(), listener.accept());
            let (mut near, mut far) = (near.unwrap(), far.unwrap().stream().await.unwrap());
            near.write_all(b"bytes").await.unwrap();
            let mut bytes = [0; 5];
            far.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"bytes");
        }
    }
}

/// Nobody takes away the socket of who was a moment faster.
#[test]
fn of_many_who_take_over_what_was_left_one_listens() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..100 {
        let path = folder.path().join(round.to_string());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let begin = Arc::new(std::sync::Barrier::new(4));
        let threads = [(); 4].map(|()| {
            let (address, begin) = (Address::Unix(path.clone()), begin.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.unwrap();
                begin.wait();
                let listening = runtime.block_on(address.listen(None));
                // Nobody ends before the others know.
                begin.wait();
                listening.is_ok()
            })
        });
        let listening = threads.map(|thread| thread.join().unwrap());
        assert_eq!(listening.iter().filter(|listens| **listens).count(), 1, "round {round}");
    }
}
