use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;

use super::text::{HEAD, line, parse};
use super::*;
use crate::error::Kind;
use crate::geometry::{Generation, Geometry};
use crate::link::Address;
use crate::record::Operation;
use crate::root::Root;
use crate::server::{Limits, Listening, Place, Running};
use crate::wire::codec::Codec;
use crate::wire::{Answer, HEADER_LEN, Push, Request};
use crate::{Options, Store};

fn geometry() -> Geometry {
    Geometry::new(512, 16, 2, 100).unwrap()
}

fn root() -> Bytes {
    let root = Root { geometry: geometry(), store_id: [7; 16], fence: 0, group: [0; 16] };
    Bytes::copy_from_slice(&root.encode(&[0; 32]))
}

fn generation(level: u8, number: u64) -> Generation {
    Generation { level, number }
}

fn fetch(label: u8, page: u32) -> Request {
    Request::Fetch {
        page: Some(PageAddress { generation: generation(2, 3), page }),
        item: Some(ItemAddress { generation: generation(1, 9), label: [label; 16] }),
    }
}

/// What a decoder makes of `bytes`, which come in pieces of `piece`.
fn decoded(side: Side, known: Option<Geometry>, bytes: &[u8], piece: usize) -> Vec<Frame> {
    let geometry = Arc::new(OnceLock::new());
    known.map(|known| geometry.set(known));
    let mut decoder = Decoder::new(side, geometry);
    let mut frames = Vec::new();
    for part in bytes.chunks(piece) {
        decoder.take(part, &mut |frame| frames.push(frame));
    }
    decoder.end(&mut |frame| frames.push(frame));
    frames
}

fn sent() -> Vec<u8> {
    let codec = Codec::new(Some(geometry()));
    let record = Bytes::from(vec![5; geometry().record_len()]);
    let requests =
        [Request::Hello { version: 1 }, Request::Append { fence: 4, record }, fetch(8, 6)];
    let frames = (1..).zip(&requests).map(|(number, r)| codec.encode_request(number, r).unwrap());
    frames.collect::<Vec<_>>().concat()
}

#[test]
fn frames_are_told_however_they_come() {
    for piece in [1, 7, 100, 10_000] {
        let frames = decoded(Side::Client, Some(geometry()), &sent(), piece);
        let told: Vec<_> = frames.iter().map(|f| (f.kind, f.len, f.names.as_str())).collect();
        let append_len = (HEADER_LEN + 8 + geometry().record_len()) as u64;
        assert_eq!(told, [("hello", 32, "1"), ("append", append_len, "4"), ("fetch", 72, "")]);
        assert_eq!(frames[2].page.unwrap().page, 6);
        assert_eq!(frames[2].item.unwrap().label, [8; 16]);
    }
}

#[test]
fn shapes_are_learnt_from_the_server() {
    let codec = Codec::new(Some(geometry()));
    let welcome = Answer::Welcome { version: 1, root: root(), records: 2, period: 0, followers: 0 };
    let record = Bytes::from(vec![5; geometry().record_len()]);
    let bytes = [
        codec.encode_answer(1, &welcome).unwrap(),
        codec.encode_push(&Push::Record { sequence: 3, record }).unwrap(),
    ]
    .concat();
    let frames = decoded(Side::Server, None, &bytes, 50);
    let told: Vec<_> = frames.iter().map(|f| (f.kind, f.names.as_str())).collect();
    assert_eq!(told, [("welcome", "2 0"), ("record", "3")]);
}

#[test]
fn what_is_no_frame_is_counted_and_so_is_all_behind_it() {
    for (bytes, whole) in [
        ([&sent()[..], &[9; 40]].concat(), 3),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 0),
        ([&[9; 40], &sent()[..]].concat(), 0),
    ] {
        for piece in [3, 10_000] {
            let frames = decoded(Side::Client, Some(geometry()), &bytes, piece);
            let known = frames.iter().take_while(|frame| frame.kind != UNDECODED).count();
            assert_eq!(known, whole);
            assert!(frames[known..].iter().all(|frame| frame.kind == UNDECODED));
            assert_eq!(frames.iter().map(|frame| frame.len).sum::<u64>(), bytes.len() as u64);
        }
    }
    // What has begun as one may have been one.
    let frames = decoded(Side::Client, Some(geometry()), &sent()[..sent().len() - 1], 90);
    let told: Vec<_> = frames.iter().map(|frame| (frame.kind, frame.len)).collect();
    assert_eq!((told.len(), told[2]), (3, (PART, 71)));
    // Before the server has told the shapes, there are no records.
    let frames = decoded(Side::Client, None, &sent(), 10_000);
    assert_eq!(frames.iter().map(|frame| frame.kind).collect::<Vec<_>>(), ["hello", UNDECODED]);
}

/// The trace of `requests`, one each millisecond.
fn trace(requests: &[Request]) -> Vec<Event> {
    let codec = Codec::new(Some(geometry()));
    let bytes: Vec<_> = requests.iter().map(|r| codec.encode_request(1, r).unwrap()).collect();
    let frames = decoded(Side::Client, Some(geometry()), &bytes.concat(), 10_000);
    (0..).zip(frames).map(|(at, frame)| Event { at_us: at * 1000, connection: 1, frame }).collect()
}

#[test]
fn what_is_written_is_read() {
    let object = crate::object::Object::Items { generation: generation(3, 8), bucket: 2 };
    let events = trace(&[
        Request::Hello { version: 1 },
        fetch(0xa5, 17),
        Request::Put { object, total: 6, offset: 3, bytes: Bytes::from_static(b"abc") },
        Request::List { prefix: "generation/".into(), after: Some(object) },
    ]);
    let lines: Vec<_> = events.iter().map(line).collect();
    let text = HEAD.to_owned() + &lines.concat();
    assert_eq!(parse(&text).unwrap(), events);
    let label = "a5".repeat(16);
    assert_eq!(lines[1], format!("1000,1,client,fetch,72,2-3-17,1-9-{label},\n"));
    assert!(lines[2].ends_with(",,generation/03-0000000000000008/items-00000002 3+3 of 6\n"));
}

#[test]
fn other_lines_are_refused() {
    let right = "5,1,client,append,792,,,4\n";
    assert!(parse(&(HEAD.to_owned() + right)).is_ok());
    for wrong in [
        "5,1,client,append,792,,,4",
        "05,1,client,append,792,,,4\n",
        "5,1,nobody,append,792,,,4\n",
        "5,1,client,appends,792,,,4\n",
        "5,1,client,append,-1,,,4\n",
        "5,1,client,append,792,,4\n",
        "5,1,client,append,792,,,4,\n",
        "5,1,client,append,792,,,<svg>\n",
        "5,1,client,fetch,72,0-1-1,,\n",
        "5,1,client,fetch,72,25-1-1,,\n",
        "5,1,client,fetch,72,1-0-1,,\n",
        "5,1,client,fetch,72,,1-1-00,\n",
        "5,1,client,fetch,72,,1-1-0+0000000000000000000000000000000,\n",
        "\n",
    ] {
        let refused = parse(&format!("{HEAD}{right}{wrong}")).unwrap_err();
        assert_eq!(refused.kind(), Kind::Parameters, "{wrong}");
        assert!(refused.to_string().contains("line 4"), "{refused}");
    }
    assert!(parse("something else\n").unwrap_err().to_string().contains("does not begin"));
}

#[test]
fn a_shape_is_all_but_labels_pages_and_time() {
    let one = trace(&[fetch(1, 1), fetch(2, 2), Request::Root]);
    let mut two = trace(&[fetch(7, 5), fetch(8, 4), Request::Root]);
    for event in &mut two {
        event.at_us *= 3;
    }
    assert_eq!(compare(&one, &two), Comparison { shape: None, order: None });

    // Among frames of one kind the order is seen, and only told.
    let item = Request::Fetch {
        page: None,
        item: Some(ItemAddress { generation: generation(1, 9), label: [4; 16] }),
    };
    let (ahead, behind) = (trace(&[item.clone(), fetch(1, 1)]), trace(&[fetch(1, 1), item]));
    let compared = compare(&ahead, &behind);
    assert_eq!(compared.shape, None);
    assert!(compared.order.unwrap().starts_with("connection 1, 1.: fetch"));

    for (others, what) in [
        (vec![fetch(1, 1), Request::Root], "fetch from the client of 72 bytes, a page"),
        (vec![fetch(1, 1), fetch(2, 2), Request::Root, Request::Root], "root from"),
        (vec![fetch(1, 1), fetch(2, 2), Request::Follow { record: 0, result: 0 }], "root from"),
    ] {
        let compared = compare(&one, &trace(&others));
        assert!(
            compared.shape.as_ref().is_some_and(|shape| shape.starts_with(what)),
            "{compared:?}"
        );
        assert!(compared.order.is_some());
    }
    // How long the log was when somebody came is a matter of time.
    let (mut early, mut late) = (one.clone(), one.clone());
    for (events, names) in [(&mut early, "0 0"), (&mut late, "9 0")] {
        (events[0].frame.kind, events[0].frame.names) = ("welcome", names.to_owned());
    }
    assert_eq!(compare(&early, &late), Comparison { shape: None, order: None });
    // Nothing can be said where something was not understood, though it is equal.
    let mut odd = one.clone();
    odd[0].frame.kind = UNDECODED;
    assert!(compare(&odd, &odd).shape.is_some());
}

#[test]
fn labels_that_come_again_are_counted() {
    let totals = Totals::of(&trace(&[fetch(1, 1), fetch(2, 1), fetch(1, 5), Request::Root]));
    assert_eq!((totals.frames, totals.labels, totals.labels_again), (4, 3, 1));
    assert_eq!(totals.client_bytes, 3 * 72 + 16);
}

/// What a recorder tells of a new store from which `ask` asks, until it is closed.
fn recorded(ask: impl FnOnce(&Store)) -> Vec<Event> {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::Folder(folder.path().join("store"));
    let key = tacita_secret::Key::take(&mut [7; 32]);
    Store::init(&place, &key, geometry()).unwrap();
    let at = Address::Unix(folder.path().join("server"));
    let running = Running::start(&place, &Listening::at(at), Limits::default()).unwrap();
    let server = running.addresses()[0].clone();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = told.clone();
    let tell = move |event: &Event| telling.lock().unwrap().push(event.clone());
    let listen = Address::Tcp("127.0.0.1:0".into());
    let recorder = Recorder::start(&server, &listen, tell).unwrap();
    assert_ne!(*recorder.address(), listen);

    let anchor = crate::AnchorAt::File(folder.path().join("anchor"));
    let address = recorder.address().clone();
    let store =
        Store::open(crate::Way::Server(address), &key, &anchor, &Options::default()).unwrap();
    ask(&store);
    drop(store);
    drop(recorder);
    told.lock().unwrap().clone()
}

/// Queries through a recorder are answered, whatever it understands of them, and are all told.
#[test]
fn a_recorder_hands_on_what_it_tells() {
    let told = recorded(|store| {
        let block = Bytes::from(vec![3; 512]);
        store.write([1; 32], block.clone()).unwrap();
        assert_eq!(store.read([1; 32]).unwrap(), Some(block));
        store.all((0..40).map(|n| ([n; 32], Operation::Read)).collect()).unwrap();
    });
    let totals = Totals::of(&told);
    assert_eq!((totals.queries, totals.undecoded_bytes, totals.labels_again), (42, 0, 0));
    assert!(totals.labels > 0 && told.is_sorted_by_key(|event| event.at_us));
    let written = HEAD.to_owned() + &told.iter().map(line).collect::<String>();
    assert_eq!(parse(&written).unwrap(), *told);
}

/// Nobody waits before a store is closed: what it was about to build or remove is done all the same, so
/// that where it ends tells nothing.
#[test]
fn recordings_end_alike_wherever_a_store_is_closed() {
    for queries in [17, 33, 49, 65] {
        let one = recorded(|store| {
            store.all((0..queries).map(|n| ([n; 32], Operation::Read)).collect()).unwrap();
        });
        let other = recorded(|store| {
            let block = Operation::Write(Bytes::from(vec![9; 512]));
            store.all((0..queries).map(|_| ([1; 32], block.clone())).collect()).unwrap();
        });
        assert_eq!(compare(&one, &other).shape, None, "{queries} queries");
    }
}

#[test]
fn a_recorder_needs_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = Address::Unix(folder.path().join("nobody"));
    let refused = Recorder::start(&nobody, &Address::Tcp("127.0.0.1:0".into()), |_| ());
    assert_eq!(refused.unwrap_err().kind(), Kind::Unreachable);
}
