//! Blocks of `PrivateFS` from bytes that a fuzzer chooses: of somebody who has the key.

use std::sync::{Arc, LazyLock};

use tacita_clock::{Clock, System};
use tacita_privatefs::blocks::Memory;
use tacita_privatefs::directory::Part;
use tacita_privatefs::ids::{BLOCK_LEN, Id};
use tacita_privatefs::inode::Inode;
use tacita_privatefs::journal::Header;
use tacita_privatefs::register::Register;
use tacita_privatefs::{Options, PrivateFs, Stamp, check, format};
use tacita_secret::Key;
use tacita_testkit::history::{Limits, Rng, step};
use tacita_vfs::{FileSystem, FileType, NewNode, Timestamp};

fn key() -> Key {
    Key::take(&mut [7; 32])
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(System)
}

/// A valid file system, with a directory in buckets: its blocks.
static BASE: LazyLock<Vec<(Id, Vec<u8>)>> = LazyLock::new(|| {
    let store = Memory::new(1 << 12);
    format(&*store.way(0), &key(), &clock(), (0, 0)).unwrap();
    let fs = PrivateFs::open(store.way(1), &key(), clock(), &Options::default()).unwrap();
    for number in 0..120 {
        let new = NewNode::new(FileType::Fifo, 0o600, Timestamp::default());
        fs.create(fs.root(), format!("many {number}").as_ref(), &new).unwrap();
    }
    let mut rng = Rng::new(3);
    for _ in 0..120 {
        step(&fs, &mut rng, &Limits { names: 40, size_max: 20_000, write_max: 9_000 });
    }
    fs.sync().unwrap();
    let records = store.dump();
    let records = records.chunks(32 + BLOCK_LEN);
    // Of content there is nothing to understand.
    let is_metadata = |block: &[u8]| block.starts_with(b"TPF") || block.starts_with(b"tacita");
    records
        .map(|record| (record[..32].try_into().unwrap(), record[32..].to_vec()))
        .filter(|(_, block): &(Id, Vec<u8>)| is_metadata(block))
        .collect()
});

/// The bytes as the beginning of a block of each kind: what is understood is encoded as it came.
/// And as patches of a valid file system (which block, offset, length, and so many bytes), which is
/// mounted and looked at.
pub fn block(bytes: &[u8]) {
    let mut block = bytes[..bytes.len().min(BLOCK_LEN)].to_vec();
    block.resize(BLOCK_LEN, 0);
    let is_same = |mut encoded: Vec<u8>| {
        Stamp::of(&block).stamp(&mut encoded);
        encoded == block
    };
    assert!(Inode::decode(&block).map_or(true, |found| is_same(found.encode())));
    assert!(Part::decode(&block).map_or(true, |found| is_same(found.encode())));
    assert!(Header::decode(&block).map_or(true, |found| found.encode() == block));
    let register = Register::decode(&block);
    assert!(register.map_or(true, |found| found.encode() == block));

    let mut blocks = BASE.clone();
    let mut rest = bytes;
    while let [which, low, high, len, after @ ..] = rest {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % BLOCK_LEN;
        let len = usize::from(*len).min(after.len()).min(BLOCK_LEN - at);
        let which = usize::from(*which) % blocks.len();
        blocks[which].1[at..at + len].copy_from_slice(&after[..len]);
        rest = &after[len..];
    }
    let store = Memory::of(1 << 12, blocks);
    let Ok(fs) = PrivateFs::open(store.way(1), &key(), clock(), &Options::default()) else {
        return;
    };
    let _ = check(&fs, false, &mut |_| ());
    let _ = fs.list(fs.root(), 0, &mut |_| true);
    let _ = fs.close();
}

/// A corpus to begin with.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let of = |magic: &[u8]| {
        let found = BASE.iter().find(|(_, block)| block.starts_with(magic));
        let block = &found.expect("there is one of each kind").1;
        let end = block.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        block[..=end].to_vec()
    };
    vec![
        ("privatefs_block", "an-inode", of(b"TPFI")),
        ("privatefs_block", "a-bucket", of(b"TPFB")),
        ("privatefs_block", "a-register", of(b"tacitaPF")),
        ("privatefs_block", "a-header", of(b"tacitaPJ")),
        ("privatefs_block", "one-byte-of-a-block", vec![1, 200, 0, 1, 0x55]),
    ]
}
