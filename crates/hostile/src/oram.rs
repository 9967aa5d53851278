//! Hostile clients and servers of the oblivious store from bytes that a fuzzer chooses.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tacita_oram::Kind;
use tacita_oram::agreement::Agreement;
use tacita_oram::anchor::Mark;
use tacita_oram::blob::{BlobStore, Lease, MemoryStore, Process, ProfileFile, Profiles};
use tacita_oram::engine::message;
use tacita_oram::geometry::{Generation, Geometry};
use tacita_oram::key_file::KeyFile;
use tacita_oram::keys::Keys;
use tacita_oram::link::{Connection, Options};
use tacita_oram::object::Object;
use tacita_oram::record::Operation;
use tacita_oram::root::Root;
use tacita_oram::server::{Limits, Server};
use tacita_oram::trace::{Decoder, Side, UNDECODED, compare, text};
use tacita_oram::wire::codec::{Codec, Reply};
use tacita_oram::wire::{
    Answer, HEADER_LEN, ItemAddress, PageAddress, Push, Refusal, Request, VERSION,
};
use tacita_secret::Key;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::runtime::{Builder, Runtime};

fn geometry() -> Geometry {
    Geometry::new(512, 16, 2, 100).unwrap()
}

fn codec() -> Codec {
    Codec::new(Some(geometry()))
}

fn root() -> Bytes {
    let root = Root { geometry: geometry(), store_id: [7; 16], fence: 0, group: [0; 16] };
    Bytes::copy_from_slice(&root.encode(&[0; 32]))
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// The bytes as a key file: what is taken for a key is the one that its digits say, and what is sealed is
/// not opened without a password.
pub fn key(bytes: &[u8]) {
    let Some(file) = KeyFile::decode(bytes) else { return };
    let is_sealed = file.is_sealed();
    match file.open(None) {
        Ok(key) => {
            let hex = key.expose().iter().fold(String::new(), |hex, b| hex + &format!("{b:02x}"));
            let text = String::from_utf8_lossy(bytes).to_lowercase();
            assert!(!is_sealed && text.contains(&hex), "another key than the file's");
        }
        Err(error) => assert!(is_sealed && error.kind() == Kind::WrongKey, "{error}"),
    }
}

/// The bytes as what a client sends: what is understood is encoded as it came; and to a server, which
/// must come to an end with the client.
pub fn requests(bytes: &[u8]) {
    let mut rest = Bytes::copy_from_slice(bytes);
    while let Some(head) = rest.first_chunk::<HEADER_LEN>() {
        let Ok(found) = codec().request_head(head) else { break };
        if rest.len() < HEADER_LEN + found.len {
            break;
        }
        let frame = rest.split_to(HEADER_LEN + found.len);
        if let Ok(request) = codec().request(found, frame.slice(HEADER_LEN..)) {
            assert_eq!(codec().encode_request(found.number, &request).unwrap(), frame);
        }
    }
    let hello = codec().encode_request(1, &Request::Hello { version: VERSION }).unwrap();
    runtime().block_on(async {
        let store = Arc::new(MemoryStore::new());
        store.put_if_absent(Object::Manifest { period: 0 }, Bytes::new()).await.unwrap();
        store.swap_root(None, root()).await.unwrap();
        let server = Server::open(store, Limits::default()).await.unwrap();
        let (client, stream) = duplex(1 << 16);
        let (mut from, mut to) = split(client);
        let mut answers = Vec::new();
        tokio::join!(
            server.serve(stream),
            async { from.read_to_end(&mut answers).await.unwrap() },
            async {
                // The server may have had enough before all is sent.
                let _ = to.write_all(&[&hello, bytes].concat()).await;
                let _ = to.shutdown().await;
            }
        );
        check_replies(&answers);
    });
}

/// What a server sends is whole and understood.
fn check_replies(mut bytes: &[u8]) {
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() {
        let head = codec().reply_head(head).unwrap();
        let (body, rest) = rest.split_at(head.len);
        codec().reply(head, Bytes::copy_from_slice(body)).unwrap();
        bytes = rest;
    }
    assert!(bytes.is_empty());
}

/// The bytes as what a server sends: what is understood is encoded as it came; and to a client after a
/// proper welcome, whose calls must all end.
pub fn replies(bytes: &[u8]) {
    let mut rest = Bytes::copy_from_slice(bytes);
    while let Some(head) = rest.first_chunk::<HEADER_LEN>() {
        let Ok(found) = codec().reply_head(head) else { break };
        if rest.len() < HEADER_LEN + found.len {
            break;
        }
        let frame = rest.split_to(HEADER_LEN + found.len);
        let again = match codec().reply(found, frame.slice(HEADER_LEN..)) {
            Ok(Reply::Answer(number, answer)) => codec().encode_answer(number, &answer),
            Ok(Reply::Push(push)) => codec().encode_push(&push),
            Err(_) => continue,
        };
        assert_eq!(again.unwrap(), frame);
    }
    let welcome =
        Answer::Welcome { version: VERSION, root: root(), records: 0, period: 0, followers: 0 };
    let welcome = codec().encode_answer(1, &welcome).unwrap();
    runtime().block_on(async {
        let (near, far) = duplex(1 << 20);
        let (mut from, mut to) = split(far);
        to.write_all(&welcome).await.unwrap();
        let options = Options { keep_alive: None, ..Options::default() };
        let (connection, _) = Connection::open(near, options, drop).await.unwrap();
        let record = vec![1; geometry().record_len()].into();
        let calls = [
            connection.begin(Request::Root).await.unwrap(),
            connection.begin(Request::Append { fence: 0, record }).await.unwrap(),
        ];
        let _ = to.write_all(bytes).await;
        let _ = to.shutdown().await;
        let mut asked = [0; 1 << 10];
        let _ = from.read(&mut asked).await;
        for call in calls {
            let _ = call.answer().await;
        }
        assert!(connection.call(Request::Root).await.is_err());
    });
}

/// The bytes as messages of an engine's user and of an engine: what is understood is encoded as it came;
/// and as what comes at both ends where a channel is opened, without the key.
pub fn engine(bytes: &[u8]) {
    let geometry = geometry();
    let whole = Bytes::copy_from_slice(bytes);
    if let Ok(session) = message::open_hello(&whole) {
        assert_eq!(message::hello(&session)[..], whole);
    }
    if let Ok((root, records)) = message::open_welcome(&whole) {
        assert_eq!(message::welcome(&root, records)[..], whole);
    }
    for piece in bytes.chunks(message::request_len(&geometry)) {
        let piece = Bytes::copy_from_slice(piece);
        if let Ok(request) = message::Request::decode(&geometry, &piece) {
            assert_eq!(request.encode(&geometry), piece);
        }
    }
    for piece in bytes.chunks(message::answer_len(&geometry)) {
        let piece = Bytes::copy_from_slice(piece);
        if let Ok(answer) = message::Answer::decode(&geometry, &piece) {
            assert_eq!(answer.encode(&geometry), piece);
        }
    }
    let key = Key::take(&mut [3; 32]);
    runtime().block_on(async {
        for is_listening in [true, false] {
            let (near, far) = duplex(1 << 20);
            let (mut from, mut to) = split(far);
            to.write_all(bytes).await.unwrap();
            to.shutdown().await.unwrap();
            let reading = async {
                let mut said = Vec::new();
                let _ = from.read_to_end(&mut said).await;
            };
            let opened = async {
                if is_listening {
                    tacita_oram::engine::accept(near, &key).await.is_ok()
                } else {
                    tacita_oram::engine::open(near, &key).await.is_ok()
                }
            };
            let ((), opened) = tokio::join!(reading, opened);
            assert!(!opened, "without the key nobody enters");
        }
    });
}

/// The bytes as a recorded trace: what is read is what was written, and has the shape that it has; and as
/// what either side sends past a recorder, in pieces: every byte is told of, once.
pub fn trace(bytes: &[u8]) {
    if let Some(Ok(events)) = std::str::from_utf8(bytes).ok().map(text::parse) {
        let again: String = events.iter().map(text::line).collect();
        assert_eq!(format!("{}{again}", text::HEAD).as_bytes(), bytes);
        let compared = compare(&events, &events);
        assert!(compared.order.is_none());
        // A frame that was not understood says nothing, however short it is.
        let is_understood = events.iter().all(|event| event.frame.kind != UNDECODED);
        assert_eq!(compared.is_equal(), is_understood);
    }
    let piece = bytes.first().map_or(1, |first| usize::from(*first) + 1);
    for (side, known) in [(Side::Client, true), (Side::Server, true), (Side::Server, false)] {
        let shapes = Arc::new(OnceLock::new());
        if known {
            shapes.set(geometry()).unwrap();
        }
        let mut decoder = Decoder::new(side, shapes);
        let mut told = 0;
        bytes.chunks(piece).for_each(|part| decoder.take(part, &mut |frame| told += frame.len));
        decoder.end(&mut |frame| told += frame.len);
        assert_eq!(told, bytes.len() as u64);
    }
}

/// What whoever keeps a shared anchor may show for it: what is understood is encoded as it came.
pub fn agreement(bytes: &[u8]) {
    let keys = Keys::new(&Key::take(&mut [1; 32]), &[7; 16]);
    if let Ok(agreement) = Agreement::decode(&keys, &[7; 16], bytes) {
        assert_eq!(agreement.encode(&keys)[..], *bytes);
    }
}

/// What may stand where it says who serves a store: what is understood is encoded as it came.
pub fn lease(bytes: &[u8]) {
    if let Ok(lease) = Lease::decode(bytes) {
        assert_eq!(lease.encode()[..], *bytes);
    }
}

/// What a file of profiles may hold: what is refused is refused for one of its lines.
pub fn profiles(bytes: &[u8]) {
    for file in [ProfileFile::Credentials, ProfileFile::Config] {
        if let Err(wrong) = Profiles::parse(bytes, file) {
            assert!((1..=bytes.len().max(1)).contains(&wrong.line), "{wrong}");
        }
    }
}

/// A corpus for all to begin with: target, name, bytes.
#[expect(clippy::too_many_lines, reason = "a list")]
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let request = |number, request| codec().encode_request(number, &request).unwrap().to_vec();
    let answer = |number, answer| codec().encode_answer(number, &answer).unwrap().to_vec();
    let record = Bytes::from(vec![5; geometry().record_len()]);
    let result = Bytes::from(vec![6; geometry().result_len()]);
    let generation = Generation { level: 1, number: 1 };
    let fetch = Request::Fetch {
        page: Some(PageAddress { generation, page: 0 }),
        item: Some(ItemAddress { generation, label: [9; 16] }),
    };
    let object = Object::Manifest { period: 1 };
    let put = |offset| Request::Put { object, total: 6, offset, bytes: Bytes::from_static(b"abc") };
    let append = Request::Append { fence: 0, record: record.clone() };
    let mut long = request(2, Request::Root);
    long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut wrong = answer(2, Answer::Refused(Refusal::Storage));
    wrong[HEADER_LEN] = 99;
    let push = codec().encode_push(&Push::Record { sequence: 0, record }).unwrap().to_vec();
    let (session, root_is) =
        ([4; 16], Root { geometry: geometry(), store_id: [7; 16], fence: 0, group: [0; 16] });
    let asked = message::Asked::Query([2; 32], Operation::Write(Bytes::from(vec![5; 512])));
    let asked = message::Request { number: 1, received: 1, asked_since: Some(7), asked };
    let told = message::Told::Failed(Kind::Storage, "the disk is full".to_owned());
    let told = message::Answer { number: 1, records: 9, told };
    let mark = Mark { store_id: [7; 16], sequence: 9, head: [6; 32] };
    let keys = Keys::new(&Key::take(&mut [1; 32]), &[7; 16]);
    let agreed = Agreement::new([4; 16], mark).encode(&keys);
    let elsewhere = Agreement::new([4; 16], Mark { store_id: [8; 16], ..mark }).encode(&keys);
    let process = Process { machine: [6; 16], number: 77, begun: 9 };
    let held = Lease { is_held: true, holder: [4; 16], beat: 3, process };
    vec![
        ("oram_agreement", "a-new-group", agreed.to_vec()),
        ("oram_agreement", "another-stores", elsewhere.to_vec()),
        ("oram_agreement", "its-beginning", agreed[..100].to_vec()),
        ("oram_agreement", "without-a-tag", [&agreed[..128], &[0; 32]].concat()),
        ("oram_lease", "a-server-that-is-there", held.encode().to_vec()),
        ("oram_lease", "given-back", Lease { is_held: false, ..held }.encode().to_vec()),
        ("oram_lease", "something-else", root_is.encode(&[0; 32]).to_vec()),
        (
            "oram_profiles",
            "as-others-write-them",
            b"# mine\n[default]\naws_access_key_id = A ; old\n\n[profile 'a b']\nregion=eu\ns3 =\n \
              endpoint_url = http://home:9000\n[services x]\n"
                .to_vec(),
        ),
        ("oram_profiles", "a-key-twice", b"[a]\nregion = b\nREGION = c\n".to_vec()),
        ("oram_profiles", "a-section-without-end", b"[profile a\nregion = b\n".to_vec()),
        ("oram_profiles", "further-in-than-nothing", b"  a = b\n[c]\n\td\n".to_vec()),
        ("oram_profiles", "no-text", b"[a]\nb = \xff\xfe\n".to_vec()),
        ("oram_engine", "a-hello", message::hello(&session).to_vec()),
        ("oram_engine", "a-welcome", message::welcome(&root_is, 9).to_vec()),
        ("oram_engine", "a-write-asked-again", asked.encode(&geometry())),
        ("oram_engine", "a-failure", told.encode(&geometry())),
        ("oram_engine", "a-greeting-of-somebody-else", [&[48, 0][..], &[9; 48]].concat()),
        (
            "oram_requests",
            "a-query",
            [
                request(2, Request::Follow { record: 0, result: 0 }),
                request(3, append),
                request(4, fetch),
                request(5, Request::Store { sequence: 0, result }),
            ]
            .concat(),
        ),
        ("oram_key", "as-it-is", format!("tacita-oram-key-1 {}\n", "0a".repeat(32)).into_bytes()),
        (
            "oram_key",
            "one-digit-too-few",
            format!("tacita-oram-key-1 {}", "0".repeat(63)).into_bytes(),
        ),
        ("oram_key", "sealed", format!("tacita-oram-key-2 {}\n", "Fe".repeat(80)).into_bytes()),
        ("oram_key", "with-a-sign", format!("tacita-oram-key-1 +1{}", "0".repeat(62)).into_bytes()),
        ("oram_requests", "an-object-in-pieces", [request(2, put(0)), request(3, put(3))].concat()),
        ("oram_requests", "pieces-out-of-order", request(2, put(3))),
        ("oram_requests", "longer-than-memory", long),
        (
            "oram_replies",
            "a-root-and-a-push",
            [push, answer(3, Answer::Appended { sequence: 1 }), answer(2, Answer::Root(root()))]
                .concat(),
        ),
        (
            "oram_trace",
            "a-fetch-and-its-answer",
            format!(
                "{}5,1,client,fetch,72,2-3-17,1-9-{},\n9,1,server,fetched,1624,,,\n",
                text::HEAD,
                "a5".repeat(16)
            )
            .into_bytes(),
        ),
        (
            "oram_trace",
            "bytes-that-were-not-understood",
            format!("{}5,1,client,undecoded,40,,,\n", text::HEAD).into_bytes(),
        ),
        (
            "oram_trace",
            "no-bytes-that-were-not-understood",
            format!("{}5,1,client,undecoded,0,,,\n", text::HEAD).into_bytes(),
        ),
        (
            "oram_trace",
            "a-label-that-is-too-short",
            format!("{}5,1,client,fetch,72,,1-9-a5,\n", text::HEAD).into_bytes(),
        ),
        ("oram_replies", "an-answer-to-something-else", answer(2, Answer::Done)),
        ("oram_replies", "refused-for-no-reason", wrong),
        ("oram_replies", "a-root-that-is-none", answer(2, Answer::Root(Bytes::from_static(b"x")))),
    ]
}
