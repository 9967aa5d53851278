//! What is served, to clients that keep to the protocol.

use std::sync::Arc;

use tacita_block::{Fault, FaultDevice, Geometry, Kind, RequestKind, TraceDevice};
use tacita_nbd::Export;
use tacita_nbd::protocol::*;

use crate::client::Served;
use crate::devices::{GatedDevice, memory};

const INVAL: u32 = Errno::Inval as u32;
const NOSPC: u32 = Errno::NoSpc as u32;
const HOLE: u32 = STATE_HOLE | STATE_ZERO;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + seed * 7 + at / 251) % 256).unwrap()).collect()
}

#[test]
fn content_comes_back_at_any_offset_and_length() {
    let served = Served::device(memory(64 << 20, 4096));
    let mut model = vec![0; 64 << 20];
    let lengths = [1, 511, 512, 4096, 4097, 65_536, 65_537, 1 << 20, 32 << 20];
    for (seed, mut client) in [served.simple(), served.structured()].into_iter().enumerate() {
        // Often enough for the server to know the device as quick.
        for round in 0..60 {
            let len = lengths[round % if round < 40 { 6 } else { lengths.len() }];
            let offset = (round * 40_503 * (seed + 1)) % (model.len() - len);
            let data = pattern(len, round + seed);
            assert_eq!(client.write(0, offset as u64, &data), 0);
            model[offset..offset + len].copy_from_slice(&data);
            let from = offset.saturating_sub(100);
            let to = (offset + len + 100).min(model.len()).min(from + (32 << 20));
            assert!(client.read(from as u64, to - from) == model[from..to], "round {round}");
        }
    }
}

#[test]
fn requests_in_one_piece_are_all_answered() {
    let served = Served::device(memory(1 << 20, 512));
    let mut client = served.simple();
    for _ in 0..50 {
        // Until the server answers at once, and beyond.
        client.write(0, 0, &[1; 512]);
    }
    let mut bytes = Vec::new();
    for number in 0..200_u64 {
        let mut request = tacita_nbd::request::Request {
            flags: 0,
            command: CMD_WRITE,
            cookie: tacita_nbd::request::Cookie(number),
            offset: number * 512,
            len_bytes: 512,
        };
        bytes.extend(request.encode());
        bytes.extend([number.to_le_bytes()[0]; 512]);
        if number % 3 == 0 {
            request.command = CMD_READ;
            request.offset = 0;
            request.cookie.0 += 1000;
            bytes.extend(request.encode());
        }
    }
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..200 + 67 {
        let head = client.take(16);
        assert_eq!(head[..8], [SIMPLE_REPLY_MAGIC.to_be_bytes(), [0; 4]].concat());
        let cookie = u64::from_be_bytes(head[8..].try_into().unwrap());
        if cookie >= 1000 {
            client.take(512);
        }
        assert!(seen.insert(cookie));
    }
    sender.join().unwrap().unwrap();
    for number in 1..200_u64 {
        assert_eq!(client.read(number * 512, 512), [number.to_le_bytes()[0]; 512]);
    }
}

#[test]
fn a_request_that_waits_holds_up_no_other() {
    let device = GatedDevice::new(memory(1 << 20, 512));
    let served = Served::device(device.clone());
    let mut client = served.simple();
    client.send(CMD_READ, 0, 1, 0, 512);
    client.send(CMD_FLUSH, 0, 2, 0, 0);
    device.await_waiting(2);
    client.write(0, 4096, &[7; 512]);
    assert_eq!(client.read(4096, 512), [7; 512]);
    device.open();
    let mut cookies = Vec::new();
    for _ in 0..2 {
        let head = client.take(16);
        assert_eq!(head[4..8], [0; 4]);
        let cookie = head[15];
        client.take(if cookie == 1 { 512 } else { 0 });
        cookies.push(cookie);
    }
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2]);
}

#[test]
fn durability_is_asked_of_the_device() {
    let device = TraceDevice::new(memory(1 << 20, 512));
    let trace = device.trace();
    let served = Served::device(device);
    let mut client = served.simple();
    assert_eq!(client.write(0, 0, &[1; 512]), 0);
    assert_eq!(trace.count(RequestKind::Flush), 0);
    assert_eq!(client.errno(CMD_FLUSH, 0, 0, 0), 0);
    assert_eq!(trace.count(RequestKind::Flush), 1);
    assert_eq!(client.write(CMD_FLAG_FUA, 0, &[1; 512]), 0);
    assert_eq!(client.errno(CMD_TRIM, CMD_FLAG_FUA, 0, 512), 0);
    assert_eq!(client.errno(CMD_WRITE_ZEROES, CMD_FLAG_FUA, 0, 512), 0);
    assert_eq!(trace.count(RequestKind::Flush), 4);
    // Reading takes the flag, and has nothing to make durable.
    assert_eq!(client.errno(CMD_READ, CMD_FLAG_FUA, 0, 512), 0);
    assert_eq!(trace.count(RequestKind::Flush), 4);
    let kinds: Vec<_> = trace.take().into_iter().map(|request| request.kind).collect();
    let flush = kinds.iter().rposition(|kind| *kind == RequestKind::Flush).unwrap();
    assert_eq!(kinds[flush - 1], RequestKind::WriteZeroes, "flushed after, not before");
}

#[test]
fn zeroes_and_trims_reach_the_device() {
    let device = TraceDevice::new(memory(1 << 20, 4096));
    let trace = device.trace();
    let served = Served::device(device);
    let mut client = served.structured();
    assert_eq!(client.write(0, 0, &pattern(1 << 20, 3)), 0);
    trace.take();
    assert_eq!(client.errno(CMD_WRITE_ZEROES, 0, 1000, 500_000), 0);
    assert_eq!(trace.count(RequestKind::WriteZeroes), 1);
    assert_eq!(client.read(1000, 500_000), vec![0; 500_000]);
    assert_eq!(client.read(0, 1000), pattern(1 << 20, 3)[..1000]);
    assert_eq!(client.errno(CMD_WRITE_ZEROES, CMD_FLAG_NO_HOLE, 600_000, 100_000), 0);
    assert_eq!(trace.count(RequestKind::WriteZeroes), 1, "real zeros are written");
    assert_eq!(client.read(600_000, 100_000), vec![0; 100_000]);
    assert_eq!(client.errno(CMD_TRIM, 0, 4095, 8193), 0);
    let trims: Vec<_> =
        trace.take().into_iter().filter(|r| r.kind == RequestKind::Discard).collect();
    assert_eq!(trims.len(), 1);
    assert_eq!((trims[0].offset, trims[0].len_bytes), (4096, 8192), "whole blocks only");
    let fast = CMD_FLAG_FAST_ZERO;
    assert_eq!(client.errno(CMD_WRITE_ZEROES, fast, 0, 4096), Errno::NotSup as u32);
}

#[test]
fn extents_tell_holes_from_data() {
    let served = Served::device(memory(1 << 20, 4096));
    let mut client = served.structured();
    assert_eq!(client.extents(0, 0, 1 << 20), [(1 << 20, HOLE)]);
    client.write(0, 65_536, &[1; 10]);
    client.write(0, 3 * 65_536, &[1; 10]);
    let all = [(65_536, HOLE), (65_536, 0), (65_536, HOLE), (65_536, 0), (786_432, HOLE)];
    assert_eq!(client.extents(0, 0, 1 << 20), all);
    assert_eq!(client.extents(CMD_FLAG_REQ_ONE, 0, 1 << 20), all[..1]);
    assert_eq!(client.extents(0, 65_537, 100_000), [(65_535, 0), (34_465, HOLE)]);
    assert_eq!(client.extents(0, (1 << 20) - 1, 1), [(1, HOLE)]);
    // A device that knows no holes is all data.
    let served = Served::device(FaultDevice::new(Geometry::within(1 << 20, 512).unwrap()));
    assert_eq!(served.structured().extents(0, 5, 1000), [(1000, 0)]);
    // Who has not asked for extents gets none.
    assert_eq!(served.simple().errno(CMD_BLOCK_STATUS, 0, 0, 512), INVAL);
}

#[test]
fn refusals_have_their_numbers() {
    let served = Served::device(memory(1 << 20, 512));
    for mut client in [served.simple(), served.structured()] {
        let end = 1 << 20;
        assert_eq!(client.errno(CMD_READ, 0, end, 1), INVAL);
        assert_eq!(client.errno(CMD_READ, 0, 0, 0), INVAL);
        assert_eq!(client.errno(CMD_TRIM, 0, end - 1, 2), INVAL);
        assert_eq!(client.errno(CMD_WRITE_ZEROES, 0, end - 1, 2), NOSPC);
        assert_eq!(client.write(0, end - 1, &[1; 2]), NOSPC);
        assert_eq!(client.write(1 << 9, 0, &[1; 2]), INVAL);
        assert_eq!(client.errno(5, 0, 0, 512), INVAL);
        assert_eq!(client.errno(999, 0, 0, 512), INVAL);
        // The connection is as good as before.
        assert_eq!(client.read(end - 2, 2), [0, 0]);
    }
}

#[test]
fn read_only_exports_stay() {
    let device = Arc::new(memory(1 << 20, 512));
    let served = Served::new(vec![Export::new("disk", device).read_only(true)]);
    let mut client = served.structured();
    let perm = Errno::Perm as u32;
    assert_eq!(client.write(0, 0, &vec![1; 100_000]), perm);
    assert_eq!(client.errno(CMD_TRIM, 0, 0, 512), perm);
    assert_eq!(client.errno(CMD_WRITE_ZEROES, 0, 0, 512), perm);
    assert_eq!(client.errno(CMD_FLUSH, 0, 0, 0), 0);
    assert_eq!(client.read(0, 1000), [0; 1000]);
}

#[test]
fn failures_of_the_device_have_their_numbers() {
    let device = FaultDevice::new(Geometry::within(1 << 20, 512).unwrap());
    let served = Served::device(device.clone());
    for mut client in [served.simple(), served.structured()] {
        device.restart_recording();
        let kinds =
            [(Kind::Io, Errno::Io), (Kind::NoSpace, Errno::NoSpc), (Kind::ReadOnly, Errno::Perm)];
        for (write, (kind, _)) in (0..).zip(kinds) {
            device.inject(Fault::FailWrite { write, kind });
        }
        for (_, errno) in kinds {
            assert_eq!(client.write(0, 512, &[1; 512]), errno as u32);
        }
        assert_eq!(client.write(0, 512, &[1; 512]), 0);
        device.inject(Fault::FailFlush(0));
        assert_eq!(client.errno(CMD_FLUSH, 0, 0, 0), Errno::Io as u32);
        device.inject(Fault::FailFlush(1));
        assert_eq!(client.write(CMD_FLAG_FUA, 512, &[1; 512]), Errno::Io as u32);
        device.inject(Fault::FailReads(0..512));
        for _ in 0..60 {
            // By workers first, then where it is received.
            assert_eq!(client.errno(CMD_READ, 0, 100, 10), Errno::Io as u32);
        }
        device.clear_faults();
        assert_eq!(client.read(512, 512), [1; 512]);
    }
    device.cut_power();
    assert_eq!(served.simple().errno(CMD_READ, 0, 0, 1), Errno::Io as u32);
}

#[test]
fn connections_see_one_device() {
    let served = Served::device(memory(1 << 20, 4096));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let served = &served;
            scope.spawn(move || {
                let mut client = served.simple();
                for place in 0..200_u64 {
                    // Neighbours within the same blocks.
                    let offset = place * 400 + u64::from(thread) * 100;
                    assert_eq!(client.write(0, offset, &[thread + 1; 100]), 0);
                }
            });
        }
    });
    let content = served.structured().read(0, 80_000);
    for (at, byte) in content.iter().enumerate() {
        assert_eq!(usize::from(*byte), at / 100 % 4 + 1, "byte {at}");
    }
}

#[test]
fn exports_are_apart() {
    let exports = ["public", "other"].map(|name| Export::new(name, Arc::new(memory(1 << 16, 512))));
    let served = Served::new(exports.into());
    let mut other = served.greeted();
    other.go("other");
    other.write(0, 0, &[9; 512]);
    let mut public = served.greeted();
    public.go("public");
    assert_eq!(public.read(0, 512), [0; 512]);
    let mut named = served.greeted();
    named.option(OPT_EXPORT_NAME, b"other");
    let facts = named.take(10);
    assert_eq!(facts[..8], (1_u64 << 16).to_be_bytes());
    assert_eq!(named.read(0, 512), [9; 512]);
}
