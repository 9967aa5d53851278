//! Blocks that cannot be read, as of a disk with a bad sector: what is in them is lost and nothing else, and
//! nothing is written over what may be there.

use std::fs;
use std::sync::Arc;

use tacita_block::{Fault, FaultDevice};
use tacita_hifs::geometry::{BLOCK_LEN, Geometry, Layout, Parameters, Table};
use tacita_hifs::pack::unpack;
use tacita_hifs::placement::Cell;
use tacita_hifs::{Hifs, Kind, OpenOptions, Result, RootOwner, format};
use tacita_testkit::by_name;
use tacita_testkit::history::{Rng, tree};
use tacita_vfs::{Change, FileSystem, FileType, NewNode, NodeId, Reserve, Stamps};

use crate::damage::{Sample, sample};
use crate::fills;
use crate::images::{
    LAYOUTS, NOW, assert_same, fault_device, fresh, new, open, options, parameters,
};

/// A device with an image of which one block cannot be read.
pub(crate) fn with_bad_block(image: &[u8], block: u64) -> Arc<FaultDevice> {
    let device = fault_device(image.to_vec());
    break_block(&device, block);
    device
}

pub(crate) fn break_block(device: &FaultDevice, block: u64) {
    let start = block * BLOCK_LEN as u64;
    // A sector of it.
    device.inject(Fault::FailReads(start + 512..start + 1024));
}

fn read_only(device: &Arc<FaultDevice>) -> Result<Hifs> {
    Hifs::open(device.clone(), OpenOptions { read_only: true, ..options(1) })
}

/// Opened for reading and for writing, it shows all files, and a warning that says this.
fn is_shown_with_warning(sample: &Sample, device: &Arc<FaultDevice>, what: &str) {
    for hifs in [read_only(device), Hifs::open(device.clone(), options(1))] {
        let hifs = hifs.unwrap_or_else(|e| panic!("{what}: {e}"));
        let warning = hifs.warning().expect("a warning").to_string();
        assert!(warning.contains(what), "{what}: {warning}");
        assert!(hifs.is_read_only() && tree(&hifs) == sample.tree, "{what}");
        let report = hifs.check(&mut |_, _| {}).unwrap();
        assert!(report.count == 1 && report.findings[0].contains(what), "{report:?}");
    }
    assert!(device.writes() == 0, "{what}: written");
}

#[test]
fn the_copy_stands_for_a_superblock_that_cannot_be_read() {
    let sample = sample(Layout::D);
    is_shown_with_warning(&sample, &with_bad_block(&sample.image, 0), "block 0");
    let copy = sample.superblock.geometry.superblock_copy().0;
    let device = with_bad_block(&sample.image, copy);
    let report = read_only(&device).unwrap().check(&mut |_, _| {}).unwrap();
    assert!(report.count == 1 && report.findings[0].contains(&format!("block {copy}")));
    break_block(&device, 0);
    assert_eq!(read_only(&device).unwrap_err().kind(), Kind::Device);
}

#[test]
fn a_journal_at_rest_that_cannot_be_read_keeps_nobody_from_reading() {
    let sample = sample(Layout::D);
    let geometry = sample.superblock.geometry;
    let journal = geometry.journal().0..geometry.journal().0 + geometry.journal_blocks;
    for block in journal.clone() {
        let device = with_bad_block(&sample.image, block);
        is_shown_with_warning(&sample, &device, &format!("block {block}"));
    }
    // Two of them may hold a commit.
    let device = with_bad_block(&sample.image, journal.start);
    break_block(&device, journal.start + 1);
    for hifs in [read_only(&device), Hifs::open(device.clone(), options(1))] {
        assert_eq!(hifs.unwrap_err().kind(), Kind::Device);
    }
}

/// The commit may be read the next time.
#[test]
fn a_commit_that_cannot_be_read_stays() {
    let sample = sample(Layout::D);
    let journal = sample.superblock.geometry.journal().0;
    let device = fault_device(sample.image.clone());
    let hifs = open(device.clone());
    fills::write(&hifs, "new", &Rng::new(1).bytes(9000));
    let wanted = tree(&hifs);
    device.restart_recording();
    // All of the journal, and no more.
    device.inject(Fault::CutAtFlush(1));
    hifs.sync().unwrap_err();
    let image = device.content();
    let used = (journal..).take_while(|block| {
        image[usize::try_from(*block).unwrap() * BLOCK_LEN..][..BLOCK_LEN].iter().any(|b| *b != 0)
    });
    let used: Vec<u64> = used.collect();
    assert!(used.len() > 1, "{used:?}");
    for block in used {
        let device = with_bad_block(&image, block);
        for hifs in [read_only(&device), Hifs::open(device.clone(), options(1))] {
            assert_eq!(hifs.unwrap_err().kind(), Kind::Device, "{block}");
        }
        assert_eq!(device.writes(), 0, "{block}");
        device.clear_faults();
        assert!(tree(&Hifs::open(device, options(1)).unwrap()) == wanted, "{block}");
    }
}

/// What is needed to know the tree: descriptors, maps, and pages that hold something.
fn is_needed(image: &[u8], geometry: &Geometry, block: u64) -> bool {
    let shape = geometry.shape(Table::Pages);
    let mut groups = 0..shape.groups;
    let is_map = |group: u32, table: Table| {
        let start = geometry.map_start(table, group).0;
        (start..start + geometry.map_blocks(table)).contains(&block)
    };
    let is_page = |cell: u32| {
        let at = geometry.cell_start(Table::Pages, Cell(cell)).0;
        let at_byte = usize::try_from(at).unwrap() * BLOCK_LEN;
        at == block && image[at_byte..][..BLOCK_LEN].iter().any(|byte| *byte != 0)
    };
    groups.any(|group| {
        geometry.descriptor(group).0 == block
            || is_map(group, Table::Pages)
            || is_map(group, Table::Buckets)
    }) || (0..shape.cells()).any(is_page)
}

#[test]
fn any_other_block_takes_what_is_in_it() {
    for layout in LAYOUTS {
        let sample = sample(layout);
        let geometry = sample.superblock.geometry;
        let first = geometry.journal().0 + geometry.journal_blocks;
        for block in first..geometry.superblock_copy().0 {
            let device = with_bad_block(&sample.image, block);
            let what = format!("{layout:?}, block {block}");
            let opened = read_only(&device);
            if is_needed(&sample.image, &geometry, block) {
                let error = opened.expect_err(&what);
                assert_eq!(error.kind(), Kind::Device, "{what}");
                continue;
            }
            let hifs = opened.unwrap_or_else(|e| panic!("{what}: {e}"));
            let report = hifs.check(&mut |_, _| {}).unwrap();
            assert!(report.count == 1, "{what}: {report:?}");
            assert!(report.findings[0].contains(&format!("block {block}:")), "{what}: {report:?}");
        }
    }
}

#[test]
fn a_new_image_needs_nothing_of_what_was_there() {
    let parameters = Parameters { len_bytes: 1 << 20, groups: Some(2), ..parameters(Layout::D) };
    let wanted = fresh(&parameters).snapshot();
    for block in 0..parameters.len_bytes / BLOCK_LEN as u64 {
        let device = with_bad_block(&vec![7; wanted.len()], block);
        format(device.clone(), &parameters, RootOwner::default(), &mut |_, _| {})
            .unwrap_or_else(|e| panic!("block {block}: {e}"));
        assert_same(&wanted, &device.content(), &format!("block {block}"));
    }
}

/// Pages that lie near each other are read at once, with what is free between them.
#[test]
fn a_free_page_between_others_keeps_nobody_out() {
    let device = fresh(&Parameters { len_bytes: 16 << 20, ..parameters(Layout::D) });
    let hifs = open(device.clone());
    for n in 0..40 {
        let (folder, _) =
            hifs.create(hifs.root(), format!("{n}").as_ref(), &new(FileType::Directory)).unwrap();
        hifs.create(folder, "file".as_ref(), &new(FileType::File)).unwrap();
    }
    hifs.sync().unwrap();
    let (image, wanted, geometry) = (device.snapshot(), tree(&hifs), hifs.superblock().geometry);
    let cells = (0..geometry.shape(Table::Pages).cells()).map(Cell);
    let mut free = 0;
    for block in cells.map(|cell| geometry.cell_start(Table::Pages, cell).0) {
        if !is_needed(&image, &geometry, block) {
            free += 1;
            let hifs = read_only(&with_bad_block(&image, block));
            assert!(tree(&hifs.unwrap_or_else(|e| panic!("block {block}: {e}"))) == wanted);
        }
    }
    assert!(free > 10, "{free}");
}

pub(crate) const LEN: u64 = 40_000;

/// An image in which files crowd, of several blocks a bucket, and one of them.
pub(crate) fn crowded(layout: Layout, files: u64) -> (Vec<u8>, Hifs, NodeId) {
    let parameters = Parameters { bucket_len_bytes: Some(16 << 10), ..parameters(layout) };
    let device = fresh(&parameters);
    let hifs = open(device.clone());
    for n in 0..files {
        let content = Rng::new(n).bytes(usize::try_from(LEN).unwrap());
        fills::write(&hifs, &format!("{n}"), &content);
    }
    hifs.sync().unwrap();
    let (victim, _) = hifs.lookup(hifs.root(), "7".as_ref()).unwrap();
    (device.snapshot(), hifs, victim)
}

/// The blocks in which a file lies.
pub(crate) fn blocks_of(hifs: &Hifs, path: &str) -> Vec<u64> {
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
        let (image, hifs, _) = crowded(layout, 20);
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
    let (image, hifs, _) = crowded(Layout::D, 20);
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
        // Of a hole the beginning: it goes to the end of the file.
        assert_eq!(refused, 1);
    }
}

/// A file grows no further than by what was written.
#[test]
fn what_could_not_be_appended_leaves_no_zeros() {
    let (image, hifs, _) = crowded(Layout::D, 20);
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
    // The block where it ended.
    assert_eq!(failed, 1);
}

/// A folder of everything, but for what cannot be read.
#[test]
fn unpacking_takes_what_can_be_read() {
    let device = fresh(&Parameters { bucket_len_bytes: Some(16 << 10), ..parameters(Layout::D) });
    let hifs = open(device.clone());
    let content: Vec<Vec<u8>> = (0..3).map(|n| Rng::new(n).bytes(40_000)).collect();
    for (n, content) in content.iter().enumerate() {
        fills::write(&hifs, &format!("{n}"), content);
    }
    let target = "t".repeat(1000);
    let link = NewNode { target: target.clone().into(), ..new(FileType::Symlink) };
    hifs.create(hifs.root(), "link".as_ref(), &link).unwrap();
    hifs.sync().unwrap();
    let image = device.snapshot();
    let unpacked = |block: u64| {
        let folder = tempfile::tempdir().unwrap();
        let hifs = read_only(&with_bad_block(&image, block)).unwrap();
        let carried = unpack(&hifs, folder.path(), &mut |_| {}).unwrap();
        let unread: Vec<(String, u64)> = carried
            .unread
            .iter()
            .map(|(path, bytes)| (path.file_name().unwrap().to_str().unwrap().into(), *bytes))
            .collect();
        (folder, unread)
    };
    let file = blocks_of(&hifs, "1");
    for block in [file[0], file[1]] {
        let (folder, unread) = unpacked(block);
        assert_eq!(unread, [("1".to_owned(), 4096)]);
        for (n, content) in content.iter().enumerate() {
            let found = fs::read(folder.path().join(format!("{n}"))).unwrap();
            let differing = found.iter().zip(content).filter(|(a, b)| a != b).count();
            assert_eq!(found.len(), content.len());
            assert!(if n == 1 { (3900..=4096).contains(&differing) } else { differing == 0 });
        }
        assert_eq!(fs::read_link(folder.path().join("link")).unwrap().to_str(), Some(&target[..]));
    }
    let (folder, unread) = unpacked(blocks_of(&hifs, "link")[0]);
    assert_eq!(unread, [("link".to_owned(), 1000)]);
    fs::symlink_metadata(folder.path().join("link")).unwrap_err();
    assert!(fs::read(folder.path().join("1")).unwrap() == content[1]);
}
