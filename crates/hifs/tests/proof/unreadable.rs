//! Blocks that cannot be read, as of a disk with a bad sector: what is in them is lost and nothing else, and
//! nothing is written over what may be there.

use std::sync::Arc;

use tacita_block::{Fault, FaultDevice};
use tacita_hifs::geometry::{BLOCK_LEN, Layout, Parameters, Table};
use tacita_hifs::placement::Cell;
use tacita_hifs::Hifs;
use tacita_testkit::by_name;
use tacita_testkit::history::Rng;
use tacita_vfs::{Change, FileSystem, NodeId, Reserve, Stamps};

use crate::fills;
use crate::images::{LAYOUTS, NOW, assert_same, fault_device, fresh, open, options, parameters};

/// A device with an image of which one block cannot be read.
fn with_bad_block(image: &[u8], block: u64) -> Arc<FaultDevice> {
    let device = fault_device(image.to_vec());
    break_block(&device, block);
    device
}

fn break_block(device: &FaultDevice, block: u64) {
    let start = block * BLOCK_LEN as u64;
    // A sector of it.
    device.inject(Fault::FailReads(start + 512..start + 1024));
}

const LEN: u64 = 40_000;

/// An image in which files crowd, of several blocks a bucket, and one of them.
fn crowded(layout: Layout) -> (Vec<u8>, Hifs, NodeId) {
    let parameters = Parameters { bucket_len_bytes: Some(16 << 10), ..parameters(layout) };
    let device = fresh(&parameters);
    let hifs = open(device.clone());
    for n in 0..20 {
        let content = Rng::new(n).bytes(usize::try_from(LEN).unwrap());
        fills::write(&hifs, &format!("{n}"), &content);
    }
    hifs.sync().unwrap();
    let (victim, _) = hifs.lookup(hifs.root(), "7".as_ref()).unwrap();
    (device.snapshot(), hifs, victim)
}

/// The blocks in which a file lies.
fn blocks_of(hifs: &Hifs, path: &str) -> Vec<u64> {
    let geometry = hifs.superblock().geometry;
    let groups = hifs.map();
    let cells = groups.iter().flat_map(|group| &group.buckets);
    let its = (0..).zip(cells).filter(|(_, cell)| {
        cell.as_ref().is_some_and(|cell| cell.name.to_str().unwrap().trim_matches('/') == path)
    });
    let blocks = its.flat_map(|(cell, _)| {
        let start = geometry.cell_start(Table::Buckets, Cell(cell)).0;
        start..start + u64::from(geometry.bucket_blocks)
    });
    blocks.collect()
}

/// A change of the file that needs nothing of what is bad.
type Act = fn(&Hifs, NodeId);

fn delete(hifs: &Hifs) {
    let node = by_name::remove(hifs, hifs.root(), "7".as_ref(), NOW).unwrap();
    hifs.forget(node);
}

fn acts() -> [(&'static str, Act); 4] {
    [
        ("deleted", |hifs, _| {
            delete(hifs);
        }),
        ("deleted, and another is new", |hifs, _| {
            delete(hifs);
            fills::write(hifs, "new", &Rng::new(99).bytes(70_000));
        }),
        ("overwritten", |hifs, node| {
            hifs.write(node, 0, &vec![5; 40_960], Stamps::NONE).unwrap();
        }),
        ("emptied", |hifs, node| {
            hifs.change(node, &Change { size: Some(0), ..Change::default() }).unwrap();
        }),
    ]
}

#[test]
fn a_file_that_cannot_be_read_can_be_deleted_and_written_anew() {
    for layout in LAYOUTS {
        let (image, hifs, _) = crowded(layout);
        let blocks = blocks_of(&hifs, "7");
        assert!(blocks.len() > 8, "{blocks:?}");
        for (name, act) in acts() {
            for block in &blocks {
                let what = format!("{layout:?}, block {block}, {name}");
                let done = |device: Arc<FaultDevice>| {
                    let hifs = Hifs::open(device.clone(), options(1)).unwrap();
                    let (node, _) = hifs.lookup(hifs.root(), "7".as_ref()).unwrap();
                    act(&hifs, node);
                    hifs.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
                    device.content()
                };
                let wanted = done(fault_device(image.clone()));
                assert_same(&wanted, &done(with_bad_block(&image, *block)), &what);
            }
        }
    }
}

/// Truncated or punched within a block that cannot be read: it is as before, here and on the medium.
#[test]
fn what_needs_a_block_that_cannot_be_read_changes_nothing() {
    let (image, hifs, _) = crowded(Layout::D);
    let blocks = blocks_of(&hifs, "7");
    for truncates in [true, false] {
        let mut refused = 0;
        for block in &blocks {
            let device = with_bad_block(&image, *block);
            let hifs = open(device.clone());
            let (node, _) = hifs.lookup(hifs.root(), "7".as_ref()).unwrap();
            let done = if truncates {
                hifs.change(node, &Change { size: Some(5000), ..Change::default() }).map(drop)
            } else {
                hifs.reserve(node, 5000..LEN, Reserve::Punch)
            };
            if done.is_ok() {
                continue;
            }
            refused += 1;
            assert_eq!(hifs.attr(node).unwrap().size, LEN);
            device.clear_faults();
            let mut content = vec![0; usize::try_from(LEN).unwrap()];
            hifs.read(node, 0, &mut content).unwrap();
            assert!(content == Rng::new(7).bytes(content.len()));
            hifs.sync().unwrap();
            assert_same(&image, &device.content(), "nothing has changed");
        }
        // Of a hole both ends.
        assert_eq!(refused, if truncates { 1 } else { 2 });
    }
}

/// A file grows no further than by what was written.
#[test]
fn what_could_not_be_appended_leaves_no_zeros() {
    let (image, hifs, _) = crowded(Layout::D);
    let mut failed = 0;
    for block in blocks_of(&hifs, "7") {
        let device = with_bad_block(&image, block);
        let hifs = open(device.clone());
        let (node, _) = hifs.lookup(hifs.root(), "7".as_ref()).unwrap();
        failed += u32::from(hifs.write(node, LEN, &[1; 9000], Stamps::NONE).is_err());
        let size = hifs.attr(node).unwrap().size;
        device.clear_faults();
        let mut content = vec![0; 9000];
        let len = hifs.read(node, LEN, &mut content).unwrap();
        assert!(size == LEN + len as u64 && content[..len].iter().all(|byte| *byte == 1));
    }
    // The block where it ended, and the one where it was to end.
    assert_eq!(failed, 2);
}
