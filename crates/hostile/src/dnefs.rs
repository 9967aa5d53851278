//! DNEFS: what is read of a volume once it is decrypted, and raw dumps for the audit.

use std::sync::{Arc, LazyLock};

use tacita_clock::System;
use tacita_dnefs::{CipherChoice, Compression, Dnefs, FormatOptions, PurgeScope, check, format};
use tacita_dnefs_audit::{audit, keys_used_twice};
use tacita_dnefs_format::checkpoint::{IndexChunk, KeyMap, Orphans, Root, Table};
use tacita_dnefs_format::node::{HEADER_LEN, Header};
use tacita_dnefs_format::receipt::Receipt;
use tacita_dnefs_format::record::{Dentry, Inode, Removal, Xattr, decode_truncation};
use tacita_dnefs_format::{Superblock, key_page};
use tacita_flash::{Emulator, EmulatorOptions, Leb, Volume};
use tacita_testkit::history::{Limits, Rng, step};
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
    if let Ok(report) = audit(&DUMP, dump, &[], &|_, _| ()) {
        assert!(!report.holds() || report.in_use > 0);
    }
    keys_used_twice(dump);
}

/// A small volume that was not unmounted, whose nodes nothing authenticates, and the key of none is
/// needed to change what it says.
static VOLUME: LazyLock<Emulator> = LazyLock::new(|| {
    let chip = EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 16,
        blocks: 64,
        ..EmulatorOptions::default()
    };
    let chip = Arc::new(Emulator::in_memory(&chip).unwrap());
    let volume: Arc<dyn Volume> = chip.clone();
    let options = FormatOptions {
        node_len_bytes: 1024,
        cipher: CipherChoice::Aes128Ctr,
        compression: Compression::None,
        ..FormatOptions::default()
    };
    format(&volume, &options, None).unwrap();
    let fs = Dnefs::open(volume, None, Arc::new(System)).unwrap();
    let mut rng = Rng::new(5);
    for number in 0..120 {
        step(&fs, &mut rng, &LIMITS);
        match number % 40 {
            20 => drop(fs.purge(PurgeScope::Deleted).unwrap()),
            39 => fs.sync().unwrap(),
            _ => {}
        }
    }
    chip.power_on().unwrap()
});

const LIMITS: Limits = Limits { names: 8, size_max: 6000, write_max: 3000 };

/// Changes of a valid volume, five bytes each: an erase block, a node in it or a place if it has none,
/// a byte of that, and what is flipped in it; checksums are right again.
pub fn mount(bytes: &[u8]) {
    let chip = Arc::new(VOLUME.snapshot().unwrap());
    let volume: Arc<dyn Volume> = chip.clone();
    let geometry = volume.geometry();
    for change in bytes.chunks_exact(5).take(8) {
        let leb = Leb(u32::from(change[0]) % geometry.lebs);
        let mut image = vec![0; geometry.leb_len_bytes as usize];
        volume.read(leb, 0, &mut image).unwrap();
        flip(&mut image, change);
        // What was never programmed stays so.
        let page = geometry.page_len_bytes as usize;
        let pages = image.chunks(page).rposition(|page| page.iter().any(|&byte| byte != 0xff));
        volume.change(leb, &image[..pages.map_or(0, |last| last + 1) * page]).unwrap();
    }
    let whole = check(&volume, None, &mut |_, _| {}).is_ok_and(|found| found.wrong.is_empty());
    let Ok(fs) = Dnefs::open(volume, None, Arc::new(System)) else {
        assert!(!whole, "what is whole can be mounted");
        return;
    };
    assert!(fs.is_sound());
    let places = walk_what_is_there(&fs);
    assert!(places > 0 || !whole);
    drop(fs.purge(PurgeScope::All));
    drop(fs.close());
    assert!(keys_used_twice(&dump_of(&chip)).is_empty() || !whole);
}

fn dump_of(chip: &Emulator) -> Vec<u8> {
    let mut dump = Vec::new();
    chip.dump(&mut dump).unwrap();
    dump
}

/// Nodes begin at pages where roots are, and follow one another elsewhere.
fn flip(image: &mut [u8], change: &[u8]) {
    let mut nodes = Vec::new();
    let mut at = 0;
    while let Some(bytes) = image.get(at..) {
        match Header::parse(bytes) {
            Ok(Some(header)) => {
                nodes.push((at, header.len_bytes as usize));
                at += header.stored_len_bytes() as usize;
            }
            _ if at % 512 == 0 && at < image.len() => at += 512,
            _ if at < image.len() => at = at.next_multiple_of(512),
            _ => break,
        }
    }
    let place = usize::from(u16::from_le_bytes([change[2], change[3]]));
    let Some((start, len)) = nodes.get(usize::from(change[1]) % nodes.len().max(1)).copied() else {
        let len = image.len();
        image[place % len] ^= change[4];
        return;
    };
    let node = &mut image[start..start + len];
    node[12 + place % (len - 12)] ^= change[4];
    let record = if len > HEADER_LEN && node[40] < 3 { &node[HEADER_LEN..] } else { &[] };
    let sum = if record.is_empty() { 0 } else { crc32fast::hash(record) };
    node[8..12].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32fast::hash(&node[8..HEADER_LEN]);
    node[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Reads all names and all content, as far as that is possible; how many names there are.
fn walk_what_is_there(fs: &Dnefs) -> usize {
    let mut pending = vec![fs.root()];
    let mut seen = 0;
    while let Some(node) = pending.pop() {
        let Ok(attr) = fs.attr(node) else { continue };
        let mut buf = vec![0; usize::try_from(attr.size.min(1 << 16)).unwrap()];
        drop(fs.read(node, 0, &mut buf));
        drop(fs.xattrs(node));
        let listed = fs.list(node, 0, &mut |entry| {
            seen += 1;
            // Names may go round in a circle.
            if seen < 1000 {
                pending.push(entry.node);
            }
            true
        });
        drop(listed);
    }
    seen
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
        ("dnefs_mount", "untouched", Vec::new()),
        ("dnefs_mount", "root-of-another-kind", vec![2, 0, 36, 0, 1]),
        ("dnefs_mount", "keys-of-another-page", vec![4, 0, 12, 0, 1]),
        ("dnefs_mount", "newest-nodes-changed", vec![8, 9, 40, 0, 4, 9, 3, 50, 0, 255]),
        ("dnefs_dump", "untouched", Vec::new()),
        ("dnefs_dump", "too-short-for-a-sector", vec![0x54; 3]),
        ("dnefs_dump", "first-block-in-ones", [&[0, 4, 0, 255][..], &[0xff; 255]].concat()),
    ]
}
