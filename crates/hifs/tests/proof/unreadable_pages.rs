//! Pages that go bad under a mount and have to move: memory has them, so the image is what it would be.

use std::collections::HashMap;

use tacita_hifs::Hifs;
use tacita_hifs::geometry::{BLOCK_LEN, Layout, Parameters, Table};
use tacita_hifs::placement::Cell;
use tacita_testkit::history::tree;
use tacita_vfs::{FileSystem, FileType};

use crate::images::{LAYOUTS, assert_same, fault_device, fresh, new, open, parameters};
use crate::unreadable::break_block;

/// A full table of pages: every folder that is not empty has one.
fn folders(hifs: &Hifs, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let name = format!("folder {number}");
        let (folder, _) =
            hifs.create(hifs.root(), name.as_ref(), &new(FileType::Directory)).unwrap();
        hifs.create(folder, "file".as_ref(), &new(FileType::File)).unwrap();
    }
}

/// Pages by their content, of which no two are equal, and where they lie.
fn pages(hifs: &Hifs, image: &[u8]) -> HashMap<Vec<u8>, u64> {
    let geometry = hifs.superblock().geometry;
    let cells = (0..geometry.shape(Table::Pages).cells()).map(Cell);
    let blocks = cells.map(|cell| geometry.cell_start(Table::Pages, cell).0);
    let content =
        |block: u64| image[usize::try_from(block).unwrap() * BLOCK_LEN..][..BLOCK_LEN].to_vec();
    blocks
        .map(|block| (content(block), block))
        .filter(|(page, _)| page.iter().any(|b| *b != 0))
        .collect()
}

#[test]
fn a_page_that_went_bad_moves_all_the_same() {
    for layout in LAYOUTS {
        let parameters = Parameters { len_bytes: 8 << 20, groups: Some(1), ..parameters(layout) };
        let device = fresh(&parameters);
        let hifs = open(device.clone());
        let (_, room) = hifs.load(Table::Pages);
        let most = u32::try_from(room).unwrap() * 2 / 3;
        folders(&hifs, 0..most);
        hifs.sync().unwrap();
        let (image, before) = (device.snapshot(), pages(&hifs, &device.snapshot()));
        folders(&hifs, most..most + 2);
        hifs.sync().unwrap();
        let (wanted, after) = (device.snapshot(), pages(&hifs, &device.snapshot()));
        let moved = before.iter().filter(|(page, at)| after.get(*page).is_some_and(|to| to != *at));
        let moved: Vec<u64> = moved.map(|(_, at)| *at).collect();
        assert!(
            moved.len() > 1 || layout == Layout::D && !moved.is_empty(),
            "{layout:?}: {moved:?}"
        );
        // Each by itself; what waits is committed at once, or after something else; and all of them.
        let each = moved.iter().map(|block| vec![*block]);
        for (number, bad) in each.chain([moved.clone()]).enumerate() {
            let what = format!("{layout:?}, {bad:?}");
            let device = fault_device(image.clone());
            let hifs = open(device.clone());
            for block in &bad {
                break_block(&device, *block);
            }
            folders(&hifs, most..most + 1 + u32::try_from(number % 2).unwrap());
            hifs.commit().unwrap_or_else(|e| panic!("{what}: {e}"));
            if number % 2 == 0 {
                folders(&hifs, most + 1..most + 2);
                hifs.commit().unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            assert_same(&wanted, &device.content(), &what);
            device.clear_faults();
            assert!(tree(&open(device)) == tree(&hifs), "{what}");
        }
    }
}
