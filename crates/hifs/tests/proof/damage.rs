//! Damaged images: refused with the place, opened read-only with a warning, or shown as different by
//! a check; never a panic, and never a tree that silently differs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use proptest::prelude::*;
use tacita_block::MemoryDevice;
use tacita_hifs::geometry::{BLOCK_LEN, Geometry, Layout, Parameters, Table};
use tacita_hifs::placement::Cell;
use tacita_hifs::{Hifs, Kind, OpenOptions, Recovery, Superblock};
use tacita_testkit::env_number;
use tacita_testkit::history::{Limits, Rng, Tree, step, tree};
use tacita_vfs::FileSystem;

use crate::images::{LAYOUTS, fresh, memory_device, open, options, parameters};

/// Words of which every refusal has one, so that a person knows where to look.
const PLACES: [&str; 10] = [
    "block",
    "superblock",
    "journal",
    "truncated",
    "inode",
    "map",
    "directory",
    "page",
    "names",
    "too small",
];

/// A small image with something in every table, and its tree.
pub(crate) struct Sample {
    pub(crate) image: Vec<u8>,
    pub(crate) tree: Tree,
    pub(crate) superblock: Superblock,
}

pub(crate) fn sample(layout: Layout) -> Sample {
    let parameters = Parameters { len_bytes: 1 << 20, groups: Some(2), ..parameters(layout) };
    let limits = Limits { names: 12, size_max: 40_000, write_max: 20_000 };
    let filled = |seed| {
        let device = fresh(&parameters);
        let hifs = open(device.clone());
        let mut rng = Rng::new(seed);
        for _ in 0..120 {
            step(&hifs, &mut rng, &limits);
        }
        hifs.sync().unwrap();
        let rich = hifs.load(Table::Pages).0 > 2 && hifs.load(Table::Buckets).0 > 10;
        rich.then_some((device, hifs))
    };
    let (device, hifs) = (3..50).find_map(filled).unwrap();
    let sample =
        Sample { image: device.snapshot(), tree: tree(&hifs), superblock: hifs.superblock() };
    assert!(tree(&open(memory_device(&sample.image))) == sample.tree);
    sample
}

/// What became of a damaged image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Refused.
    Refused(Kind),
    /// Open for reading only, with a warning.
    Warned,
    /// Open, and a check has found what differs.
    Found,
    /// Open, and the image is the old one again.
    Mended,
}

/// Whether trees are equal; `content` is left out where data buckets, which carry no checksum, were
/// damaged.
fn same(a: &Tree, b: &Tree, content: bool) -> bool {
    let outline = |tree: &Tree| -> Tree {
        let mut tree = tree.clone();
        for seen in tree.values_mut() {
            seen.content.fill(0);
        }
        tree
    };
    if content { a == b } else { outline(a) == outline(b) }
}

fn refused(error: &tacita_hifs::Error, what: &str) -> Fate {
    let text = error.to_string();
    let kinds = [Kind::Damaged, Kind::Interrupted, Kind::NotAnImage, Kind::Version];
    assert!(kinds.contains(&error.kind()), "{what}: {:?}: {text}", error.kind());
    assert!(
        !matches!(error.kind(), Kind::Damaged | Kind::Interrupted)
            || PLACES.iter().any(|place| text.contains(place)),
        "{what}: no place in {text:?}"
    );
    Fate::Refused(error.kind())
}

fn fate(sample: &Sample, image: &[u8], what: &str, content: bool) -> Fate {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        read_only(sample, image, what, content);
        read_write(sample, image, what, content)
    }));
    outcome.unwrap_or_else(|_| panic!("{what}: it panicked"))
}

/// Opening to read changes nothing and lies about nothing.
fn read_only(sample: &Sample, image: &[u8], what: &str, content: bool) {
    let device = memory_device(image);
    let options = OpenOptions { read_only: true, ..options(1) };
    match Hifs::open(device.clone(), options) {
        Err(error) => drop(refused(&error, what)),
        Ok(hifs) => {
            assert!(same(&tree(&hifs), &sample.tree, content), "{what}: the tree differs");
            let report = hifs.check(&mut |_, _| {}).unwrap();
            let whole = image[..] == sample.image[..];
            assert!(report.is_canonical() == whole || !content, "{what}: {report:?}");
            // A survey and a map of it are given, whatever they say.
            hifs.survey();
            hifs.map();
        }
    }
    assert!(device.snapshot() == image[..image.len() / BLOCK_LEN * BLOCK_LEN], "{what}: written");
}

fn read_write(sample: &Sample, image: &[u8], what: &str, content: bool) -> Fate {
    let device = memory_device(image);
    let hifs = match Hifs::open(device.clone(), options(1)) {
        Ok(hifs) => hifs,
        Err(error) => return refused(&error, what),
    };
    assert!(same(&tree(&hifs), &sample.tree, content), "{what}: the tree differs");
    if hifs.warning().is_some() {
        assert!(hifs.is_read_only(), "{what}: a warning, and yet open for writing");
        assert!(device.snapshot() == *image, "{what}: written");
        return Fate::Warned;
    }
    let report = hifs.check(&mut |_, _| {}).unwrap();
    if device.snapshot() == sample.image {
        assert!(report.is_canonical(), "{what}: {report:?}");
        return Fate::Mended;
    }
    assert!(!report.is_canonical() || !content, "{what}: a check finds nothing");
    assert!(report.findings.iter().all(|f| f.contains("block")), "{what}: {report:?}");
    Fate::Found
}

/// Changes to one block, each with a name.
fn mutations(block: &[u8], other: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for at in (0..BLOCK_LEN).step_by(509).chain([0, 4, 8, 20, 26, 28, 31, 40, 50, 4080, 4095]) {
        let mut changed = block.to_vec();
        changed[at] ^= 1 << (at % 8);
        all.push((format!("bit of byte {at} flipped"), changed));
    }
    all.push(("zeroed".into(), vec![0; BLOCK_LEN]));
    all.push(("filled with ones".into(), vec![0xff; BLOCK_LEN]));
    all.push(("half zeroed".into(), [&block[..2048], &[0; 2048]].concat()));
    all.push(("replaced by another".into(), other.to_vec()));
    all.retain(|(_, changed)| changed != block);
    all
}

/// Where a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Region {
    Superblock,
    Journal,
    Descriptor,
    Map,
    Page,
    Data { used: bool },
    Rest,
    Copy,
}

fn region(hifs: &Hifs, geometry: &Geometry, block: u64) -> Region {
    if block == 0 {
        return Region::Superblock;
    } else if block <= geometry.journal_blocks {
        return Region::Journal;
    } else if block == geometry.superblock_copy().0 {
        return Region::Copy;
    }
    let map = hifs.map();
    for group in (0..geometry.buckets.groups).rev() {
        let first = |table, shape: tacita_hifs::placement::Shape| {
            geometry.cell_start(table, Cell(group * shape.cells_per_group)).0
        };
        let start = geometry.descriptor(group).0;
        if block < start {
            continue;
        }
        let data = first(Table::Buckets, geometry.buckets);
        let index = block.saturating_sub(data) / u64::from(geometry.bucket_blocks);
        return if block == start {
            Region::Descriptor
        } else if block < first(Table::Pages, geometry.pages) {
            Region::Map
        } else if block < data {
            Region::Page
        } else {
            let cells = &map[group as usize].buckets;
            match cells.get(usize::try_from(index).unwrap()) {
                Some(cell) => Region::Data { used: cell.is_some() },
                None => Region::Rest,
            }
        };
    }
    unreachable!("a block before the first group")
}

#[test]
fn every_block_changed_in_every_way() {
    for layout in LAYOUTS {
        let sample = sample(layout);
        let geometry = sample.superblock.geometry;
        let hifs = open(memory_device(&sample.image));
        for block in 0..geometry.image_blocks {
            let region = region(&hifs, &geometry, block);
            let at = usize::try_from(block).unwrap() * BLOCK_LEN;
            // Every kind of block stands in for every other over the whole image.
            let other = (at + 37 * BLOCK_LEN) % sample.image.len();
            let other = sample.image[other..][..BLOCK_LEN].to_vec();
            let thin = matches!(region, Region::Journal | Region::Data { .. } | Region::Rest);
            for (n, (how, changed)) in
                mutations(&sample.image[at..][..BLOCK_LEN], &other).into_iter().enumerate()
            {
                if thin && !(at / BLOCK_LEN + n).is_multiple_of(7) {
                    continue;
                }
                let mut image = sample.image.clone();
                image[at..at + BLOCK_LEN].copy_from_slice(&changed);
                let what = format!("{layout:?}, block {block} in {region:?}, {how}");
                let used = region == Region::Data { used: true };
                let fate = fate(&sample, &image, &what, !used);
                let as_it_must_be = match region {
                    Region::Superblock => {
                        matches!(fate, Fate::Warned | Fate::Refused(Kind::Version))
                    }
                    Region::Journal => fate == Fate::Mended,
                    Region::Descriptor => fate == Fate::Refused(Kind::Damaged),
                    Region::Copy | Region::Rest | Region::Data { used: false } => {
                        fate == Fate::Found
                    }
                    Region::Map | Region::Page => {
                        matches!(fate, Fate::Refused(Kind::Damaged) | Fate::Found)
                    }
                    Region::Data { used: true } => true,
                };
                assert!(as_it_must_be, "{what}: {fate:?}");
            }
        }
    }
}

#[test]
fn blocks_of_the_tables_trade_places() {
    for layout in LAYOUTS {
        let sample = sample(layout);
        let geometry = sample.superblock.geometry;
        let hifs = open(memory_device(&sample.image));
        let meta: Vec<u64> = (0..geometry.image_blocks)
            .filter(|block| match region(&hifs, &geometry, *block) {
                Region::Journal => *block == 1,
                Region::Data { .. } | Region::Rest => false,
                _ => true,
            })
            .collect();
        for a in &meta {
            for b in meta.iter().filter(|b| *b > a) {
                let mut image = sample.image.clone();
                let (a, b) = (usize::try_from(*a).unwrap(), usize::try_from(*b).unwrap());
                let (low, high) = image.split_at_mut(b * BLOCK_LEN);
                low[a * BLOCK_LEN..][..BLOCK_LEN].swap_with_slice(&mut high[..BLOCK_LEN]);
                if image != sample.image {
                    fate(&sample, &image, &format!("{layout:?}, {a} and {b} swapped"), true);
                }
            }
        }
    }
}

/// Less than a block of the image behind it, on a device of smaller ones.
#[test]
fn a_check_looks_behind_the_last_block() {
    let sample = sample(Layout::D);
    for byte in [0, 7] {
        let mut bytes = sample.image.clone();
        bytes.extend([0; 3 * 512]);
        *bytes.last_mut().unwrap() = byte;
        let device = Arc::new(MemoryDevice::from_bytes(&bytes, 512).unwrap());
        let hifs = Hifs::open(device, OpenOptions { read_only: true, ..options(1) }).unwrap();
        let report = hifs.check(&mut |_, _| {}).unwrap();
        assert_eq!(report.count, u64::from(byte > 0), "{report:?}");
    }
}

#[test]
fn an_interrupted_commit_is_told_from_damage() {
    let sample = sample(Layout::D);
    let mut image = with_journal(&sample, &[1]);
    let read = |image: &[u8]| {
        let options = OpenOptions { read_only: true, ..options(1) };
        Hifs::open(memory_device(image), options).unwrap_err()
    };
    assert_eq!(read(&image).kind(), Kind::Interrupted);
    // With a damaged superblock nobody opens it for writing, which would settle it.
    image[100] ^= 1;
    let error = read(&image);
    assert_eq!(error.kind(), Kind::Damaged);
    assert!(error.to_string().contains("block 0"), "{error}");
}

#[test]
fn a_truncated_image() {
    let sample = sample(Layout::D);
    for blocks in (0..sample.image.len() / BLOCK_LEN).step_by(5) {
        let fate = fate(&sample, &sample.image[..blocks * BLOCK_LEN], "truncated", true);
        assert!(matches!(fate, Fate::Refused(_)), "{blocks} blocks: {fate:?}");
    }
    let odd = &sample.image[..sample.image.len() - 100];
    let error = Hifs::open(memory_device(odd), options(1)).unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
    // Both superblocks gone, or of different images.
    let mut image = sample.image.clone();
    let last = image.len() - BLOCK_LEN;
    image[10] ^= 1;
    image[last + 10] ^= 1;
    assert!(matches!(fate(&sample, &image, "both superblocks", true), Fate::Refused(_)));
    image.fill(0);
    assert_eq!(fate(&sample, &image, "zeros", true), Fate::Refused(Kind::NotAnImage));
}

/// One record of a hand-made journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    kind: u8,
    layer: u8,
    count: u32,
    at: u64,
    from: u64,
    tag: u64,
}

/// A journal of these records and data blocks, with the hash that makes it whole.
pub(crate) fn journal_of(records: &[Record], data: &[u8]) -> Vec<u8> {
    let head = BLOCK_LEN + (records.len() * 32).next_multiple_of(BLOCK_LEN);
    let mut bytes = vec![0; head];
    bytes[..8].copy_from_slice(b"TACITAJL");
    bytes[8..12].copy_from_slice(&u32::try_from(records.len()).unwrap().to_le_bytes());
    bytes[12..16].copy_from_slice(&u32::try_from(data.len() / BLOCK_LEN).unwrap().to_le_bytes());
    for (slot, record) in bytes[BLOCK_LEN..].chunks_exact_mut(32).zip(records) {
        slot[0] = record.kind;
        slot[1] = record.layer;
        slot[4..8].copy_from_slice(&record.count.to_le_bytes());
        slot[8..16].copy_from_slice(&record.at.to_le_bytes());
        slot[16..24].copy_from_slice(&record.from.to_le_bytes());
        slot[24..32].copy_from_slice(&record.tag.to_le_bytes());
    }
    bytes.extend(data);
    let hash = tacita_secret::digest(&bytes);
    bytes[32..64].copy_from_slice(&hash);
    bytes
}

fn with_journal(sample: &Sample, journal: &[u8]) -> Vec<u8> {
    let mut image = sample.image.clone();
    image[BLOCK_LEN..BLOCK_LEN + journal.len()].copy_from_slice(journal);
    image
}

#[test]
fn hostile_journals_are_refused_before_anything_is_written() {
    let sample = sample(Layout::D);
    let geometry = sample.superblock.geometry;
    let (end, group) = (geometry.image_blocks, geometry.descriptor(0).0);
    let bucket = geometry.cell_start(Table::Buckets, Cell(0)).0;
    let good = Record { kind: 3, layer: 0, count: 1, at: bucket, from: 0, tag: 0 };
    let record = |kind, count, at, from| Record { kind, count, at, from, ..good };
    let cases = [
        ("the superblock zeroed", record(3, 1, 0, 0)),
        ("the superblock written", record(2, 1, 0, 0)),
        ("the journal itself", record(2, 1, 1, 0)),
        ("the journal's end", record(3, 2, group - 1, 0)),
        ("the copy of the superblock", record(3, 1, end - 1, 0)),
        ("the groups and the copy", record(3, u32::try_from(end - group).unwrap(), group, 0)),
        ("behind the end", record(2, 1, end, 0)),
        ("an overflow", record(3, u32::MAX, u64::MAX, 0)),
        ("a large count", record(3, u32::MAX, group, 0)),
        ("no blocks", record(3, 0, group, 0)),
        ("a move from the superblock", record(1, 1, bucket, 0)),
        ("a move from behind the end", record(1, 1, bucket, u64::MAX)),
        ("a move of many blocks", record(1, 7, bucket, bucket + 8)),
        ("a move of what is nowhere", record(1, 1, bucket, bucket + 1)),
        ("more data than there is", record(2, 2, bucket, 0x88)),
        ("a block of nine sectors", record(2, 1, bucket, 9)),
        ("lengths of more blocks", record(2, 1, bucket, 0x18)),
        ("content of a long run", record(2, 17, group, 0)),
        ("a fill of a long run", record(5, 257, group, 0)),
        ("a fill of the superblock", record(5, 1, 0, 0)),
        ("an unknown kind", record(9, 1, bucket, 0)),
        ("no kind", record(0, 1, bucket, 0)),
    ];
    for (what, bad) in cases {
        for records in [vec![bad], vec![good, bad], vec![bad, good]] {
            let image = with_journal(&sample, &journal_of(&records, &[7; BLOCK_LEN]));
            let device = memory_device(&image);
            let error = Hifs::open(device.clone(), options(1)).expect_err(what);
            assert_eq!(error.kind(), Kind::Damaged, "{what}: {error}");
            assert!(error.to_string().contains("journal"), "{what}: {error}");
            assert!(device.snapshot() == image, "{what}: something was written");
        }
    }
}

/// A journal that is whole by its hash and destroys tables: the tree is refused, not shown in part.
#[test]
fn a_journal_that_destroys_tables_leads_to_a_refusal() {
    let sample = sample(Layout::D);
    let geometry = sample.superblock.geometry;
    for group in 0..geometry.buckets.groups {
        let start = geometry.descriptor(group).0;
        let data =
            geometry.cell_start(Table::Buckets, Cell(group * geometry.buckets.cells_per_group));
        for at in start..data.0 {
            let byte = sample.image[usize::try_from(at).unwrap() * BLOCK_LEN..][..BLOCK_LEN]
                .iter()
                .any(|&byte| byte != 0);
            if byte {
                let zero = Record { kind: 3, layer: 0, count: 1, at, from: 0, tag: 0 };
                let image = with_journal(&sample, &journal_of(&[zero], &[]));
                let error = Hifs::open(memory_device(&image), options(1)).expect_err("destroyed");
                refused(&error, &format!("block {at}"));
            }
        }
    }
}

/// A commit whose journal was damaged after a crash has not happened.
#[test]
fn a_journal_with_a_flipped_bit_is_erased() {
    let sample = sample(Layout::D);
    let bucket = sample.superblock.geometry.cell_start(Table::Buckets, Cell(0)).0;
    let zero = Record { kind: 3, layer: 0, count: 1, at: bucket, from: 0, tag: 0 };
    let journal = journal_of(&[zero], &[7; BLOCK_LEN]);
    for at in (0..journal.len()).step_by(97).chain(0..80) {
        let mut journal = journal.clone();
        journal[at] ^= 0x10;
        let device = memory_device(&with_journal(&sample, &journal));
        let hifs = Hifs::open(device.clone(), options(1)).unwrap();
        assert_eq!(hifs.recovery(), Recovery::Erased);
        assert!(device.snapshot() == sample.image, "byte {at}");
    }
}

/// Every byte of every table changed, with the checksum put right: what is refused is refused with
/// its place, and what is not serves every request.
#[test]
fn every_byte_changed_under_a_right_checksum() {
    let every = env_number("TACITA_DAMAGE_STRIDE", 97);
    for (n, layout) in LAYOUTS.into_iter().enumerate() {
        let sample = sample(layout);
        let geometry = sample.superblock.geometry;
        let hifs = open(memory_device(&sample.image));
        for block in 0..geometry.image_blocks {
            if matches!(
                region(&hifs, &geometry, block),
                Region::Journal | Region::Data { .. } | Region::Rest
            ) {
                continue;
            }
            let at = usize::try_from(block).unwrap() * BLOCK_LEN;
            for byte in
                (0..BLOCK_LEN).filter(|b| ((b + n) as u64).is_multiple_of(every) || *b < 100)
            {
                // Free entries and slack are alike everywhere.
                if byte > 200 && sample.image[at + byte.min(4092)..][..4] == [0; 4] {
                    continue;
                }
                let mut image = sample.image.clone();
                image[at + byte] ^= 1 << ((byte + n) % 8);
                crate::hostile::mend(&mut image[at..at + BLOCK_LEN]);
                let outcome = catch_unwind(AssertUnwindSafe(|| crate::hostile::exercise(&image)));
                assert!(outcome.is_ok(), "{layout:?}, block {block}, byte {byte}");
            }
        }
    }
}

fn blocks() -> impl Strategy<Value = Vec<(usize, usize, u8)>> {
    prop::collection::vec((0usize..256, 0usize..BLOCK_LEN, 1u8..), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any few bytes, anywhere; checksums put right in half of the cases, so that parsing goes on.
    #[test]
    fn random_bytes(which in 0usize..4, changes in blocks(), mend in any::<bool>()) {
        thread_local! {
            static SAMPLES: Vec<Sample> = LAYOUTS.into_iter().map(sample).collect();
        }
        SAMPLES.with(|samples| {
            let sample = &samples[which];
            let mut image = sample.image.clone();
            for (block, at, change) in changes {
                image[block * BLOCK_LEN + at] ^= change;
                if mend {
                    crate::hostile::mend(&mut image[block * BLOCK_LEN..][..BLOCK_LEN]);
                }
            }
            // What has right checksums may be another valid tree: that nothing panics is all.
            crate::hostile::exercise(&image);
        });
    }
}
