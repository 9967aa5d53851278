//! What is taken out of a damaged image: all that does not lie in what is damaged, nothing but that, nothing
//! that was deleted; and what is lost is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use tacita_block::BlockDevice;
use tacita_hifs::geometry::{BLOCK_LEN, Geometry, Layout, Table};
use tacita_hifs::pack::unpack;
use tacita_hifs::placement::Cell;
use tacita_hifs::{Hifs, Kind, Losses};
use tacita_testkit::history::{Rng, Seen, Tree, tree};
use tacita_vfs::FileSystem;

use crate::damage::sample;
use crate::fills;
use crate::images::{LAYOUTS, NOW, fault_device, memory_device, open, options};
use crate::unreadable::{break_block, crowded, with_bad_block};

const FOUND: &[u8] = b"/lost+found";

fn salvaged(device: Arc<dyn BlockDevice>) -> Hifs {
    Hifs::salvage(device, options(1)).unwrap()
}

/// The ways in which a block is damaged.
fn damages(image: &[u8], block: u64) -> Vec<(&'static str, Arc<dyn BlockDevice>)> {
    let at = usize::try_from(block).unwrap() * BLOCK_LEN;
    let with = |bytes: &[u8]| {
        let mut image = image.to_vec();
        image[at..at + BLOCK_LEN].copy_from_slice(bytes);
        memory_device(&image)
    };
    let mut flipped = image[at..at + BLOCK_LEN].to_vec();
    flipped[40] ^= 4;
    vec![
        ("noise", with(&Rng::new(block).bytes(BLOCK_LEN))),
        ("zero", with(&[0; BLOCK_LEN])),
        ("one bit", with(&flipped)),
        ("unreadable", with_bad_block(image, block)),
    ]
}

fn is_zero(image: &[u8], block: u64) -> bool {
    let at = usize::try_from(block).unwrap() * BLOCK_LEN;
    tacita_block::is_zero(&image[at..at + BLOCK_LEN])
}

/// Blocks of a map of a table that tell of something.
fn map_blocks(image: &[u8], geometry: &Geometry, table: Table) -> Vec<u64> {
    let blocks = (0..geometry.shape(table).groups).flat_map(|group| {
        let start = geometry.map_start(table, group).0;
        start..start + geometry.map_blocks(table)
    });
    blocks.filter(|block| !is_zero(image, *block)).collect()
}

fn pages(image: &[u8], geometry: &Geometry) -> Vec<u64> {
    let cells = (0..geometry.shape(Table::Pages).cells()).map(Cell);
    let blocks = cells.map(|cell| geometry.cell_start(Table::Pages, cell).0);
    blocks.filter(|block| !is_zero(image, *block)).collect()
}

#[test]
fn an_undamaged_image_is_shown_as_it_is() {
    for layout in LAYOUTS {
        let sample = sample(layout);
        let hifs = salvaged(memory_device(&sample.image));
        assert!(tree(&hifs) == sample.tree, "{layout:?}");
        assert_eq!(*hifs.losses(), Losses::default(), "{layout:?}");
        assert!(hifs.is_read_only());
    }
}

#[test]
fn descriptors_and_the_map_of_pages_are_no_loss() {
    for layout in LAYOUTS {
        let sample = sample(layout);
        let geometry = sample.superblock.geometry;
        let mut blocks: Vec<u64> =
            (0..geometry.buckets.groups).map(|group| geometry.descriptor(group).0).collect();
        blocks.extend(map_blocks(&sample.image, &geometry, Table::Pages));
        assert!(blocks.len() > 3, "{blocks:?}");
        for block in blocks {
            for (how, device) in damages(&sample.image, block) {
                let what = format!("{layout:?}, block {block}, {how}");
                let hifs = salvaged(device);
                assert!(tree(&hifs) == sample.tree, "{what}");
                let losses = hifs.losses();
                assert!(losses.lost.is_empty(), "{what}: {losses:?}");
                let place = format!("block {block}:");
                assert!(
                    losses.damage.iter().any(|text| text.contains(&place)),
                    "{what}: {losses:?}"
                );
            }
        }
    }
}

/// Where content lies follows from the layout.
#[test]
fn the_map_of_buckets_is_no_loss_where_files_have_no_holes() {
    for layout in LAYOUTS {
        let (image, hifs, _) = crowded(layout, 20);
        let (wanted, geometry) = (tree(&hifs), hifs.superblock().geometry);
        let blocks = map_blocks(&image, &geometry, Table::Buckets);
        for block in &blocks {
            for (how, device) in damages(&image, *block) {
                let what = format!("{layout:?}, block {block}, {how}");
                let hifs = salvaged(device);
                assert!(tree(&hifs) == wanted, "{what}");
                assert!(hifs.losses().lost.is_empty(), "{what}: {:?}", hifs.losses());
                assert!(!hifs.losses().damage.is_empty(), "{what}");
            }
        }
        let device = fault_device(image.clone());
        for block in blocks {
            break_block(&device, block);
        }
        assert!(tree(&salvaged(device)) == wanted, "{layout:?}: all of it");
    }
}

/// Everything once, without its names.
fn things(tree: &Tree) -> BTreeMap<&[u8], Seen> {
    let nameless = |seen: &Seen| Seen { same_as: Vec::new(), ..seen.clone() };
    tree.values().map(|seen| (&seen.same_as[..], nameless(seen))).collect()
}

/// Whatever differs is told, nothing is there that was not, and everything is there but what is told to be lost.
fn assert_told(wanted: &Tree, hifs: &Hifs, what: &str) {
    let (found, losses) = (tree(hifs), hifs.losses());
    let what = format!("{what}: {losses:?}");
    let told: BTreeSet<&[u8]> =
        losses.lost.iter().map(|loss| loss.path.as_os_str().as_bytes()).collect();
    // The root is the empty path.
    let is_told = |path: &[u8]| told.contains(if path.is_empty() { &b"/"[..] } else { path });
    let parent =
        |path: &[u8]| path[..path.iter().rposition(|byte| *byte == b'/').unwrap()].to_vec();
    for path in wanted.keys().filter(|path| !found.contains_key(*path)) {
        let parent = parent(path);
        let is_known = is_told(path) || is_told(&parent) || !found.contains_key(&parent);
        assert!(is_known, "{what}: {:?} is not there", path.escape_ascii().to_string());
    }
    let before = things(wanted);
    for (path, seen) in things(&found) {
        let name = path.escape_ascii();
        assert!(path.starts_with(FOUND) || wanted.contains_key(path), "{what}: {name} is new");
        let is_alike = before.values().any(|other| *other == seen);
        assert!(path == FOUND || is_alike || is_told(path), "{what}: {name} differs");
    }
    let bare = losses.lost.iter().filter(|loss| loss.what == "all but its name");
    let bare: BTreeSet<&[u8]> =
        bare.map(|loss| &wanted[loss.path.as_os_str().as_bytes()].same_as[..]).collect();
    let count = things(&found).len() - usize::from(found.contains_key(FOUND));
    assert_eq!(count + bare.len(), before.len(), "{what}");
}

#[test]
fn a_page_takes_what_is_in_it_and_that_is_told() {
    for layout in LAYOUTS {
        let sample = sample(layout);
        let mut lost = 0;
        for block in pages(&sample.image, &sample.superblock.geometry) {
            for (how, device) in damages(&sample.image, block) {
                let what = format!("{layout:?}, block {block}, {how}");
                let hifs = salvaged(device);
                assert_told(&sample.tree, &hifs, &what);
                let place = format!("block {block}:");
                let losses = hifs.losses();
                assert!(
                    losses.damage.iter().any(|text| text.contains(&place)),
                    "{what}: {losses:?}"
                );
                lost += losses.lost.len();
            }
        }
        assert!(lost > 10, "{layout:?}: {lost}");
    }
}

/// Of so much that no zeros are at its end.
#[test]
fn files_whose_inodes_are_lost_keep_their_content() {
    for layout in LAYOUTS {
        let (image, hifs, _) = crowded(layout, 20);
        let wanted = tree(&hifs);
        let mut kept = 0;
        for block in pages(&image, &hifs.superblock().geometry) {
            let salvaged = salvaged(with_bad_block(&image, block));
            assert_told(&wanted, &salvaged, &format!("{layout:?}, block {block}"));
            let found = tree(&salvaged);
            let whole = |seen: &&Seen| found.values().any(|other| other.content == seen.content);
            assert_eq!(wanted.values().filter(whole).count(), wanted.len(), "block {block}");
            kept += salvaged.losses().lost.len();
        }
        assert!(kept >= 40, "{layout:?}: {kept}");
    }
}

/// What had been deleted does not come back, though a page of it is still there: below a map block that tells of
/// something, or, while a commit is under way, below any.
#[test]
pub(crate) fn what_the_map_calls_free_is_not_looked_at() {
    let (image, hifs, _) = crowded(Layout::D, 20);
    let (wanted, geometry) = (tree(&hifs), hifs.superblock().geometry);
    let byte = |block: u64| usize::try_from(block).unwrap() * BLOCK_LEN;
    let cells = (0..geometry.shape(Table::Pages).cells()).map(Cell);
    let free: Vec<(Cell, u64)> = cells
        .map(|cell| (cell, geometry.cell_start(Table::Pages, cell).0))
        .filter(|(_, block)| is_zero(&image, *block))
        .collect();
    let is_mapped = |cell| !is_zero(&image, geometry.map_entry(Table::Pages, cell).0.0);
    let below = |mapped| free.iter().find(|(cell, _)| is_mapped(*cell) == mapped).unwrap().1;
    for (to, under_way, comes) in [
        (below(true), false, false),
        (below(true), true, false),
        (below(false), true, false),
        (below(false), false, true),
    ] {
        let what = format!("block {to}, under way: {under_way}");
        let page = pages(&image, &geometry)[0];
        let mut image = image.clone();
        image.copy_within(byte(page)..byte(page) + BLOCK_LEN, byte(to));
        image[byte(page)] ^= 1;
        let device = fault_device(image);
        if under_way {
            // Nobody can tell whether there was one.
            break_block(&device, geometry.journal().0);
            break_block(&device, geometry.journal().0 + 1);
        }
        let hifs = salvaged(device);
        assert_eq!(tree(&hifs) == wanted, comes, "{what}: {:?}", hifs.losses());
        assert_told(&wanted, &hifs, &what);
    }
}

#[test]
pub(crate) fn a_file_that_was_deleted_in_use_stays_deleted() {
    let device = crate::images::fresh(&crate::images::parameters(Layout::D));
    let hifs = open(device.clone());
    fills::write(&hifs, "kept", &[1; 9000]);
    fills::write(&hifs, "gone", &[2; 9000]);
    hifs.sync().unwrap();
    // Somebody has it open.
    tacita_testkit::by_name::remove(&hifs, hifs.root(), "gone".as_ref(), NOW).unwrap();
    hifs.sync().unwrap();
    let image = device.snapshot();
    let geometry = hifs.superblock().geometry;
    let mut blocks = vec![geometry.descriptor(0).0];
    blocks.extend(map_blocks(&image, &geometry, Table::Pages));
    blocks.extend(map_blocks(&image, &geometry, Table::Buckets));
    for block in blocks {
        let found = tree(&salvaged(with_bad_block(&image, block)));
        let names: Vec<_> = found.keys().map(|path| path.escape_ascii().to_string()).collect();
        assert_eq!(names, ["", "/kept"], "block {block}");
    }
}

#[test]
fn without_any_superblock_there_is_nothing_to_go_by() {
    let sample = sample(Layout::D);
    let device = with_bad_block(&sample.image, 0);
    assert!(tree(&salvaged(device.clone())) == sample.tree);
    break_block(&device, sample.superblock.geometry.superblock_copy().0);
    let error = Hifs::salvage(device, options(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Device);
    let error = Hifs::salvage(memory_device(&vec![7; sample.image.len()]), options(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::NotAnImage);
}

/// Where files have holes, nothing says which of their buckets are missing: then these are told.
#[test]
pub(crate) fn missing_content_is_told_by_whoever_copies_it() {
    let outside = tempfile::tempdir().unwrap();
    for layout in LAYOUTS {
        let sample = sample(layout);
        let geometry = sample.superblock.geometry;
        for block in map_blocks(&sample.image, &geometry, Table::Buckets) {
            let what = format!("{layout:?}, block {block}");
            let hifs = salvaged(with_bad_block(&sample.image, block));
            let folder = outside.path().join(format!("{layout:?}-{block}"));
            let carried = unpack(&hifs, &folder, &mut |_| {}).unwrap();
            assert!(hifs.losses().lost.is_empty(), "{what}: {:?}", hifs.losses());
            let found = tree(&hifs);
            for (path, seen) in &sample.tree {
                let at =
                    folder.join(String::from_utf8(path.clone()).unwrap().trim_start_matches('/'));
                let is_told = |path| carried.unread.iter().any(|(other, _)| *other == path);
                let differs = found.get(path) != Some(seen);
                let told = seen.same_as == *path && is_told(at.clone()) || {
                    let first = String::from_utf8(seen.same_as.clone()).unwrap();
                    is_told(folder.join(first.trim_start_matches('/')))
                };
                assert!(!differs || told, "{what}: {}: {:?}", at.display(), carried.unread);
                if !differs && !told && !seen.content.is_empty() && at.is_file() && !at.is_symlink()
                {
                    assert!(fs::read(&at).unwrap() == seen.content, "{what}: {}", at.display());
                }
            }
        }
    }
}

/// What lies behind the end is lost, as if it could not be read.
#[test]
fn of_a_truncated_image_the_beginning_is_taken() {
    let outside = tempfile::tempdir().unwrap();
    for layout in LAYOUTS {
        let (image, hifs, _) = crowded(layout, 20);
        let (wanted, mut whole) = (tree(&hifs), 0);
        for tenths in 1..10 {
            let blocks = image.len() / BLOCK_LEN * tenths / 10;
            let hifs = salvaged(memory_device(&image[..blocks * BLOCK_LEN]));
            let what = format!("{layout:?}, {tenths} tenths: {:?}", hifs.losses());
            assert!(hifs.losses().damage[0].contains("truncated"), "{what}");
            let folder = outside.path().join(format!("{layout:?} {tenths}"));
            let carried = unpack(&hifs, &folder, &mut |_| {}).unwrap();
            for n in 0..20 {
                let Ok(content) = fs::read(folder.join(n.to_string())) else { continue };
                let is_told = carried.unread.iter().any(|(path, _)| path.ends_with(n.to_string()))
                    || hifs.losses().lost.iter().any(|loss| loss.path.ends_with(n.to_string()));
                let is_whole = content == wanted[format!("/{n}").as_bytes()].content;
                assert!(is_whole || is_told, "{what}: {n}");
                whole += usize::from(is_whole);
            }
        }
        assert!(whole > 4, "{layout:?}: {whole}");
    }
}
