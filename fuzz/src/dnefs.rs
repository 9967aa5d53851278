//! DNEFS: what is read of a volume once it is decrypted, and raw dumps for the audit.

use std::sync::{Arc, LazyLock};

use tacita_clock::System;
use tacita_dnefs::{Dnefs, FormatOptions, PurgeScope, format};
use tacita_dnefs_audit::{audit, keys_used_twice};
use tacita_dnefs_format::checkpoint::{IndexChunk, KeyMap, Orphans, Root, Table};
use tacita_dnefs_format::node::Header;
use tacita_dnefs_format::receipt::Receipt;
use tacita_dnefs_format::record::{Dentry, Inode, Removal, Xattr, decode_truncation};
use tacita_dnefs_format::{Superblock, key_page};
use tacita_flash::{Emulator, EmulatorOptions, Volume};
use tacita_vfs::{FileSystem, FileType, NewNode, Stamps, Timestamp};

/// The first byte says what the others are; what is understood means the same when it is written and
/// read again.
pub fn record(bytes: &[u8]) {
    let [what, bytes @ ..] = bytes else { return };
    macro_rules! again {
        ($Type:ty) => {
            if let Ok(value) = <$Type>::decode(bytes) {
                assert_eq!(<$Type>::decode(&value.encode()).as_ref(), Ok(&value));
            }
        };
    }
    match what % 14 {
        0 => again!(Superblock),
        1 => drop(key_page::peek(bytes)),
        2 => {
            if let Ok(Some(header)) = Header::parse(bytes) {
                assert!(header.stored_len_bytes() >= header.len_bytes);
                header.is_whole(bytes);
            }
        }
        3 => again!(Inode),
        4 => again!(Dentry),
        5 => again!(Xattr),
        6 => again!(Removal),
        7 => drop(decode_truncation(bytes)),
        8 => again!(IndexChunk),
        9 => again!(KeyMap),
        10 => again!(Table),
        11 => again!(Orphans),
        12 => again!(Receipt),
        _ => again!(Root),
    }
}

/// A dump of a small volume with two files, one of which was deleted and purged.
static DUMP: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let chip = EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 8,
        blocks: 48,
        ..EmulatorOptions::default()
    };
    let chip = Arc::new(Emulator::in_memory(&chip).unwrap());
    let volume: Arc<dyn Volume> = chip.clone();
    let options = FormatOptions { node_len_bytes: 1024, ..FormatOptions::default() };
    format(&volume, &options, None).unwrap();
    let fs = Dnefs::open(volume, None, Arc::new(System)).unwrap();
    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
    for name in ["one", "two"] {
        let (node, _) = fs.create(fs.root(), name.as_ref(), &new).unwrap();
        fs.write(node, 0, &[7; 3000], Stamps::NONE).unwrap();
    }
    fs.purge(PurgeScope::Deleted).unwrap();
    let mut dump = Vec::new();
    chip.dump(&mut dump).unwrap();
    dump
});

/// The bytes as a dump; and as patches of a valid one: an offset of three bytes, a length, and so many
/// bytes, again and again.
pub fn dump(bytes: &[u8]) {
    exercise(bytes);
    let mut dump = DUMP.clone();
    let mut rest = bytes;
    while let [a, b, c, len, after @ ..] = rest {
        let at = (u32::from_le_bytes([*a, *b, *c, 0]) as usize) % dump.len();
        let len = usize::from(*len).min(after.len()).min(dump.len() - at);
        dump[at..at + len].copy_from_slice(&after[..len]);
        rest = &after[len..];
    }
    exercise(&dump);
}

/// Whatever is in a dump, a verdict holds only if something could be judged.
fn exercise(dump: &[u8]) {
    if let Ok(report) = audit(&DUMP, dump, &[]) {
        assert!(!report.holds() || report.in_use > 0);
    }
    keys_used_twice(dump);
}

/// Inputs to begin with.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut count = vec![8];
    count.extend(u32::MAX.to_le_bytes());
    let mut order = vec![8, 2, 0, 0, 0];
    order.extend([0; 48]);
    vec![
        ("dnefs_record", "count-beyond-the-end", count),
        ("dnefs_record", "chunk-out-of-order", order),
        ("dnefs_record", "time-with-too-many-nanoseconds", [&[3][..], &[0xff; 90]].concat()),
        ("dnefs_record", "receipt-of-unknown-scope", [&[12][..], &[9; 108]].concat()),
        ("dnefs_record", "name-without-a-letter", [&[4][..], &[0; 12]].concat()),
        ("dnefs_record", "superblock-in-zeros", vec![0; 161]),
        ("dnefs_dump", "untouched", Vec::new()),
        ("dnefs_dump", "too-short-for-a-sector", vec![0x54; 3]),
        ("dnefs_dump", "first-block-in-ones", [&[0, 4, 0, 255][..], &[0xff; 255]].concat()),
    ]
}
