//! Hostile NBD clients from bytes that a fuzzer chooses.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tacita_block::{Geometry, MemoryDevice};
use tacita_nbd::negotiation::{Facts, Negotiation, Next, OPTION_HEAD_LEN_BYTES, parse_option_head};
#[allow(clippy::wildcard_imports, reason = "a client says all that there is to say")]
use tacita_nbd::protocol::*;
use tacita_nbd::request::{Cookie, REQUEST_LEN_BYTES, Request, Terms};
use tacita_nbd::{Export, Listener, Server};
use tempfile::TempDir;

const DEVICE_LEN_BYTES: u64 = 1 << 20;

/// The bytes as what a client sends before the first request.
pub fn options(bytes: &[u8]) {
    let facts =
        |name: &str, read_only| Facts { name: name.into(), len_bytes: DEVICE_LEN_BYTES, read_only };
    let exports = [facts("public", false), facts("other", true)];
    let Some((flags, mut rest)) = bytes.split_first_chunk() else { return };
    let Some(mut negotiation) = Negotiation::new(&exports, *flags) else { return };
    while let Some((head, after)) = rest.split_first_chunk::<OPTION_HEAD_LEN_BYTES>() {
        let Some((option, len)) = parse_option_head(head) else { return };
        let (data, after) = after.split_at(after.len().min(len as usize));
        let mut out = Vec::new();
        match negotiation.answer(option, data, &mut out) {
            Next::Option => check_replies(option, &out),
            Next::Requests(index, terms) => {
                assert_eq!(terms.read_only, exports[index].read_only);
                assert_eq!(terms.len_bytes, DEVICE_LEN_BYTES);
                assert!(terms.structured || !terms.extents);
            }
            Next::End => return,
        }
        rest = after;
    }
}

/// Replies to one option are whole, and the last one only says how it went.
fn check_replies(option: u32, mut out: &[u8]) {
    loop {
        let (magic, rest) = out.split_first_chunk().unwrap();
        assert_eq!(u64::from_be_bytes(*magic), OPTION_REPLY_MAGIC);
        let (number, rest) = rest.split_first_chunk().unwrap();
        assert_eq!(u32::from_be_bytes(*number), option);
        let (reply, rest) = rest.split_first_chunk().unwrap();
        let (len, rest) = rest.split_first_chunk().unwrap();
        let reply = u32::from_be_bytes(*reply);
        out = &rest[u32::from_be_bytes(*len) as usize..];
        if out.is_empty() {
            assert!(reply == REP_ACK || reply >> 31 == 1);
            return;
        }
        assert!(matches!(reply, REP_SERVER | REP_INFO | REP_META_CONTEXT));
    }
}

/// The bytes as requests: on their own, and to a server.
pub fn requests(bytes: &[u8]) {
    for structured in [false, true] {
        let terms = Terms {
            len_bytes: DEVICE_LEN_BYTES,
            read_only: false,
            structured,
            extents: structured,
        };
        if let Some((head, _)) = bytes.split_first_chunk::<REQUEST_LEN_BYTES>() {
            check_request(head, &terms);
        }
        converse(bytes, structured);
    }
}

fn check_request(head: &[u8; REQUEST_LEN_BYTES], terms: &Terms) {
    let Some(request) = Request::parse(head) else { return };
    assert_eq!(request.encode(), *head);
    if let Ok(work) = request.check(terms) {
        let is_flush = request.command == CMD_FLUSH;
        assert!(is_flush || work.offset + u64::from(work.len_bytes) <= terms.len_bytes);
        assert!(request.payload_len_bytes() <= PAYLOAD_LEN_MAX_BYTES);
    }
}

/// Served for as long as the fuzzer runs.
struct Served {
    _server: Server,
    _folder: TempDir,
    socket: PathBuf,
}

static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = MemoryDevice::new(Geometry::within(DEVICE_LEN_BYTES, 4096).unwrap());
    let export = Export::new("disk", Arc::new(device));
    let server = Server::start(vec![export], vec![Listener::unix(&socket).unwrap()]).unwrap();
    Served { _server: server, _folder: folder, socket }
});

/// Sends the bytes to a server after a proper beginning; it must come to an end with the client.
fn converse(bytes: &[u8], structured: bool) {
    let mut stream = UnixStream::connect(&SERVED.socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    let mut beginning = vec![0, 0, 0, 3];
    if structured {
        beginning.extend(option(OPT_STRUCTURED_REPLY, &[]));
        let query = BASE_ALLOCATION.as_bytes();
        let contexts = [&[0; 4][..], &[0, 0, 0, 1, 0, 0, 0, 15], query].concat();
        beginning.extend(option(OPT_SET_META_CONTEXT, &contexts));
    }
    beginning.extend(option(OPT_GO, &[0; 6]));
    stream.write_all(&beginning).unwrap();
    std::thread::scope(|scope| {
        let mut reader = stream.try_clone().unwrap();
        let all = scope.spawn(move || {
            let mut answers = Vec::new();
            match reader.read_to_end(&mut answers) {
                Ok(_) => {}
                // Closed with bytes of ours unread.
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset),
            }
        });
        // The server may have had enough before all is sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        all.join().unwrap();
    });
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &len.to_be_bytes(), data].concat()
}

/// A corpus for [`options`] to begin with.
pub fn option_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let name = [&[0, 0, 0, 6][..], b"public"].concat();
    let contexts = [&name[..], &[0, 0, 0, 1, 0, 0, 0, 15], BASE_ALLOCATION.as_bytes()].concat();
    let info = [&name[..], &[0, 2, 0, 1, 0, 3]].concat();
    let begin = |options: &[Vec<u8>]| [&[0, 0, 0, 3][..], &options.concat()].concat();
    vec![
        ("list-then-abort", begin(&[option(OPT_LIST, &[]), option(OPT_ABORT, &[])])),
        (
            "all-that-can-be-asked",
            begin(&[
                option(OPT_STRUCTURED_REPLY, &[]),
                option(OPT_LIST_META_CONTEXT, &contexts),
                option(OPT_SET_META_CONTEXT, &contexts),
                option(OPT_INFO, &info),
                option(OPT_GO, &info),
            ]),
        ),
        ("the-old-way-to-choose", begin(&[option(OPT_EXPORT_NAME, b"other")])),
    ]
}

/// A corpus for [`requests`] to begin with.
pub fn request_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let request = |command, flags, offset, len_bytes| {
        Request { flags, command, cookie: Cookie(1), offset, len_bytes }.encode().to_vec()
    };
    vec![
        (
            "write-from-the-middle-of-a-block",
            [request(CMD_WRITE, CMD_FLAG_FUA, 5, 9), b"some data".to_vec()].concat(),
        ),
        ("read-then-flush", [request(CMD_READ, 0, 0, 100), request(CMD_FLUSH, 0, 0, 0)].concat()),
        (
            "trim-then-zeroes",
            [request(CMD_TRIM, 0, 0, 8192), request(CMD_WRITE_ZEROES, 2, 1, 9000)].concat(),
        ),
        (
            "extents-then-goodbye",
            [request(CMD_BLOCK_STATUS, 8, 0, 1 << 20), request(CMD_DISC, 0, 0, 0)].concat(),
        ),
    ]
}
