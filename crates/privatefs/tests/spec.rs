//! The example in the specification, and what a reader refuses.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fmt::Write;

use tacita_privatefs::Stamp;
use tacita_privatefs::directory::{Entry, Part, bucket_of, decode_entries, places};
use tacita_privatefs::ids::{BLOCK_LEN, Ids, PLACES, turned};
use tacita_privatefs::inode::{Form, Inode, Range, Ranges};
use tacita_privatefs::journal::{self, Header};
use tacita_privatefs::register::{Pending, Register, Slot};
use tacita_secret::Key;
use tacita_vfs::{FileType, Timestamp};

const SPEC: &str = include_str!("../../../docs/spec/privatefs.md");

fn ids() -> Ids {
    Ids::new(&Key::take(&mut [7; 32]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn lines(bytes: &[u8]) -> String {
    let lines: Vec<String> = bytes.chunks(32).map(hex).collect();
    lines.join("\n")
}

/// The blocks between fences of the last section.
fn examples() -> Vec<&'static str> {
    let section = SPEC.split_once("## 8.").unwrap().1;
    section.split("```").skip(1).step_by(2).map(str::trim).collect()
}

fn inode() -> Inode {
    let time = |secs| Timestamp { secs, nanos: 0 };
    Inode {
        id: [0x11; 32],
        kind: FileType::File,
        form: Form::Inline,
        perm: 0o640,
        nlink: 1,
        uid: 1000,
        gid: 100,
        rdev: 0,
        flags: 0,
        size: 5,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        content: [0x22; 32],
        parent: ids().root(),
        entries: 0,
        buckets: 0,
        ranges: Ranges::default(),
        xattrs: Vec::new(),
        body: b"hello".to_vec(),
    }
}

#[test]
fn the_example_is_what_the_code_writes() {
    let ids = ids();
    let found = format!("{}\n{}", hex(&ids.inode(&[0x11; 32])), hex(&ids.inode(&ids.root())));
    let mut block = inode().encode();
    Stamp { epoch: 3, commit: 9 }.stamp(&mut block);
    assert_eq!(block[1792..1797], *b"hello");
    assert!(block[256..1792].iter().chain(&block[1797..]).all(|byte| *byte == 0));
    assert_eq!(examples(), [found, lines(&block[..256])]);
    assert_eq!(Inode::decode(&block).unwrap(), inode());
}

fn register() -> Register {
    let slot = |mount, waits_since| Slot { mount: [mount; 16], beat: 5, waits_since, journal: 16 };
    Register {
        writes: 9,
        epoch: 4,
        commit: 3,
        owner: Some([2; 16]),
        pending: Some(Pending { mount: [1; 16], count: 7 }),
        slots: vec![slot(1, 0), slot(2, 8)],
        ..Register::new([3; 16])
    }
}

#[test]
fn blocks_are_read_as_they_were_written() {
    assert_eq!(Register::decode(&register().encode()).unwrap(), register());
    let entry =
        |name: &str| Entry { name: name.as_bytes().to_vec(), kind: FileType::Fifo, inode: [9; 32] };
    let entries = vec![entry("a"), entry(&"n".repeat(255))];
    let part = Part { content: [1; 32], bucket: 7, part: 1, has_more: true, entries };
    assert_eq!(Part::decode(&part.encode()).unwrap(), part);
    let entries = vec![journal::Entry { id: [4; 32], has_image: false }; journal::ENTRIES];
    let stamp = Stamp { epoch: 1, commit: 2 };
    let header = Header { mount: [5; 16], stamp, number: 3, entries };
    assert_eq!(Header::decode(&header.encode()).unwrap(), header);
    assert_eq!((journal::ENTRIES, journal::headers(0), journal::headers(101)), (100, 0, 2));
    let mut ranges = Ranges::default();
    ranges.add(5, 9);
    ranges.add(9, 12);
    ranges.add(20, 21);
    assert_eq!(ranges.all(), [Range { start: 5, end: 12 }, Range { start: 20, end: 21 }]);
    let sparse = Inode { form: Form::Blocks, body: Vec::new(), ranges, ..inode() };
    assert_eq!(Inode::decode(&sparse.encode()).unwrap(), sparse);
}

/// A byte anywhere that is another one is refused, or read as something else; nothing panics.
#[test]
fn no_byte_is_without_meaning() {
    let inode = inode().encode();
    for at in 0..BLOCK_LEN {
        let mut damaged = inode.clone();
        damaged[at] ^= 0x55;
        let read = Inode::decode(&damaged);
        // The stamp is not the inode's.
        let is_told = read.map_or(true, |read| read.encode() != inode) || (8..24).contains(&at);
        assert!(is_told, "byte {at}");
    }
    let register = register().encode();
    for at in 0..BLOCK_LEN {
        let mut damaged = register.clone();
        damaged[at] ^= 0x55;
        let read = Register::decode(&damaged);
        assert!(read.map_or(true, |read| read.encode() != register), "byte {at}");
    }
}

#[test]
fn a_newer_format_is_named() {
    let mut block = register().encode();
    block[8] = 2;
    let error = Register::decode(&block).unwrap_err();
    assert_eq!(error.kind(), tacita_privatefs::Kind::Version);
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn entries_that_no_directory_has_are_refused() {
    for name in ["", ".", "..", "a/b", "a\0"] {
        let entry = Entry { name: name.into(), kind: FileType::File, inode: [1; 32] };
        let bytes = tacita_privatefs::directory::encode_entries([&entry]);
        assert!(decode_entries(&bytes).is_err(), "{name:?}");
    }
}

/// Every place of a listing is in one bucket, the one that names with that place are in.
#[test]
fn buckets_are_ranges_of_places() {
    for buckets in 1..70 {
        let mut all: Vec<(u64, u64, u64)> = (0..buckets)
            .map(|bucket| {
                let (first, end) = places(bucket, buckets);
                (first, end, bucket)
            })
            .collect();
        all.sort_unstable();
        let mut next = 0;
        for (first, end, bucket) in all {
            assert_eq!(first, next, "{bucket} of {buckets}");
            for place in [first, first + (end - first) / 3, end - 1] {
                assert_eq!(bucket_of(turned(place), buckets), bucket, "{place} of {buckets}");
            }
            next = end;
        }
        assert_eq!(next, PLACES);
    }
}
