//! A page of keys that is damaged: what has its keys is lost and nothing else, and no purge claims what
//! it cannot do.

use std::sync::Arc;

use tacita_dnefs::{Dnefs, Layout, PurgeScope, check, read_superblock};
use tacita_dnefs_audit::{audit, keys_used_twice};
use tacita_flash::{Emulator, Leb, Volume};
use tacita_vfs::FileSystem;

use crate::deletion::{make, remove};
use crate::volumes::{dump, fresh, open, volume};

const FILES: usize = 40;

/// A volume with files; unmounted.
fn prepared(seed: u64) -> Arc<Emulator> {
    let chip = fresh(110, seed);
    let fs = open(&chip);
    for number in 0..FILES {
        make(&fs, &format!("file {number}"), &[7; 9000]);
    }
    fs.close().unwrap();
    chip
}

fn layout(chip: &Emulator) -> Layout {
    Layout::new(&read_superblock(chip).unwrap().parameters).unwrap()
}

/// Flips a bit of a page of keys.
fn flip(chip: &Emulator, leb: u32, page: u32) {
    let layout = layout(chip);
    let mut block = vec![0; layout.leb_len_bytes as usize];
    let leb = Leb(layout.key_leb(leb));
    chip.read(leb, 0, &mut block).unwrap();
    block[(page * layout.page_len_bytes) as usize + 200] ^= 4;
    chip.change(leb, &block).unwrap();
    chip.flush_erases().unwrap();
}

/// Files that can be read.
fn readable(fs: &Dnefs) -> Vec<String> {
    let names = (0..FILES).map(|number| format!("file {number}"));
    let is_readable = |name: &String| {
        let mut buf = vec![0; 9000];
        fs.lookup(fs.root(), name.as_ref())
            .and_then(|(node, _)| fs.read(node, 0, &mut buf))
            .is_ok_and(|len| len == 9000 && buf == [7; 9000])
    };
    names.filter(is_readable).collect()
}

#[test]
fn a_damaged_page_of_keys_takes_its_own_nodes_and_nothing_else() {
    let mut damaged_in_use = 0;
    for seed in 0..3 {
        let Layout { keys_per_page, .. } = layout(&prepared(seed));
        for page in 0..12 {
            let what = format!("seed {seed}, page {page}");
            let chip = prepared(seed);
            flip(&chip, 0, page);
            let before = dump(&chip);
            let Ok(fs) = Dnefs::open(volume(&chip), None, Arc::new(tacita_clock::System)) else {
                continue; // The checkpoint had its keys there.
            };
            let left = readable(&fs);
            if left.len() == FILES || fs.attr(fs.root()).is_err() {
                continue; // Nothing of it is in use, or the root directory.
            }
            damaged_in_use += 1;
            let lost = FILES - left.len();
            assert!(lost <= keys_per_page as usize, "{what}: {lost} are lost");
            let victim = left.last().unwrap();
            remove(&fs, victim);
            let receipt = fs.purge(PurgeScope::Deleted).unwrap();
            assert!(!receipt.is_complete() && receipt.damaged_pages == 1, "{what}: {receipt:?}");
            for number in 0..30 {
                make(&fs, &format!("new {number}"), &[8; 9000]);
            }
            // It does not count as unmounted, and opens all the same.
            assert!(!fs.close().unwrap().is_complete(), "{what}");
            drop(fs);
            assert!(!check(&volume(&chip), None, &mut |_, _| {}).unwrap().was_unmounted, "{what}");
            let after = dump(&chip);
            assert!(keys_used_twice(&after).is_empty(), "{what}");
            assert!(
                audit(&before, &after, &[], &|_, _| ()).unwrap().recoverable.is_empty(),
                "{what}"
            );
            let fs = open(&chip);
            let again = readable(&fs);
            assert_eq!(again.len(), left.len() - 1, "{what}: what could be read can be read");
            assert!(fs.lookup(fs.root(), "new 29".as_ref()).is_ok(), "{what}");
        }
    }
    assert!(damaged_in_use > 5, "{damaged_in_use} pages were in use");
}

#[test]
fn a_damaged_page_of_unused_keys_is_made_anew() {
    let chip = prepared(0);
    let layout = layout(&chip);
    flip(&chip, layout.key_lebs - 1, layout.pages_per_leb() - 1);
    let fs = open(&chip);
    assert_eq!(readable(&fs).len(), FILES);
    let receipt = fs.purge(PurgeScope::All).unwrap();
    assert!(receipt.is_complete(), "{receipt:?}");
    fs.close().unwrap();
    assert!(check(&volume(&chip), None, &mut |_, _| {}).unwrap().was_unmounted);
}

/// After a crash, too, with nodes that are in no checkpoint yet.
#[test]
fn a_damaged_page_of_keys_takes_its_own_of_what_a_crash_left_and_nothing_else() {
    let (mut losses, mut refused) = (0, 0);
    for seed in 0..3 {
        let crashed = || {
            let chip = fresh(110, seed);
            let fs = open(&chip);
            for number in 0..FILES {
                if number == FILES / 2 {
                    fs.purge(PurgeScope::Deleted).unwrap();
                }
                make(&fs, &format!("file {number}"), &[7; 9000]);
            }
            fs.sync().unwrap();
            drop(fs);
            Arc::new(chip.power_on().unwrap())
        };
        let layout = layout(&crashed());
        for page in 0..layout.pages_per_leb() {
            let what = format!("seed {seed}, page {page}");
            let chip = crashed();
            flip(&chip, 0, page);
            let before = dump(&chip);
            let wrong =
                check(&volume(&chip), None, &mut |_, _| {}).map(|found| found.wrong.join("\n"));
            let Ok(fs) = Dnefs::open(volume(&chip), None, Arc::new(tacita_clock::System)) else {
                refused += 1; // The checkpoint had its keys there.
                continue;
            };
            let lost = fs.lost_nodes();
            assert!(lost <= layout.keys_per_page.into(), "{what}: {lost} nodes");
            let told = format!("{lost} nodes written after the newest checkpoint are lost");
            assert_eq!(wrong.unwrap().contains(&told), lost > 0, "{what}");
            losses += u32::from(lost > 0);
            let left = readable(&fs);
            assert!(FILES - left.len() <= layout.keys_per_page as usize, "{what}: {left:?}");
            for number in 0..30 {
                make(&fs, &format!("new {number}"), &[8; 9000]);
            }
            fs.close().unwrap();
            let after = dump(&chip);
            assert!(keys_used_twice(&after).is_empty(), "{what}");
            assert!(
                audit(&before, &after, &[], &|_, _| ()).unwrap().recoverable.is_empty(),
                "{what}"
            );
            drop(fs);
            let fs = open(&chip);
            assert_eq!((fs.lost_nodes(), readable(&fs)), (0, left), "{what}: it is told once");
        }
    }
    assert!(losses > 10, "{losses} pages had nodes of after the checkpoint");
    assert!(refused < losses, "{refused} volumes were refused");
}
