//! Sectors of the disk below that cannot be read, for a while or for good.

use std::sync::Arc;

use tacita_flash::emulator::disk::Disk;
use tacita_flash::{Behaviour, Emulator, EmulatorOptions, Kind, Leb, Volume};

const PAGE_LEN: usize = 512;
const PAGES: usize = 16;
/// Where the first block begins in the file.
const HEADER_LEN: usize = 4096;

fn options() -> EmulatorOptions {
    EmulatorOptions {
        page_len_bytes: u32::try_from(PAGE_LEN).unwrap(),
        pages_per_block: u32::try_from(PAGES).unwrap(),
        blocks: 48,
        ..EmulatorOptions::default()
    }
}

fn open(disk: &Arc<Disk>) -> tacita_flash::Result<Emulator> {
    Emulator::open_on_disk(disk.clone(), Behaviour::default())
}

/// A disk with an image of which every fourth erase block holds something, and was changed before.
fn filled() -> Arc<Disk> {
    let disk = Arc::new(Disk::default());
    let flash = Emulator::create_on_disk(disk.clone(), &options()).unwrap();
    for leb in (0..flash.geometry().lebs).step_by(4) {
        flash.append(Leb(leb), 0, &[1; PAGE_LEN]).unwrap();
        flash.change(Leb(leb), &content(leb)).unwrap();
    }
    flash.sync().unwrap();
    disk
}

fn content(leb: u32) -> Vec<u8> {
    vec![u8::try_from(leb).unwrap() + 2; 3 * PAGE_LEN]
}

/// All is there, also when everything has been erased that nothing refers to.
fn is_whole(disk: &Arc<Disk>, what: &str) {
    let flash = open(disk).unwrap();
    flash.flush_erases().unwrap();
    for leb in (0..flash.geometry().lebs).step_by(4) {
        let mut found = vec![0; 3 * PAGE_LEN];
        flash.read(Leb(leb), 0, &mut found).unwrap();
        assert!(found == content(leb), "{what}: block {leb}");
    }
}

/// Who writes erases what is torn, so what cannot be read for a while is not taken for torn.
#[test]
fn what_cannot_be_read_for_a_while_is_not_erased() {
    let whole = filled();
    let mut refused = 0;
    for sector in 0..48 * PAGES {
        let at = HEADER_LEN + sector * PAGE_LEN;
        let what = format!("page {} of block {}", sector % PAGES, sector / PAGES);
        let disk = Arc::new(whole.crashed(0));
        disk.fail_reads(at..at + PAGE_LEN);
        match open(&disk) {
            Ok(flash) => drop(flash.flush_erases()),
            Err(e) => {
                assert_eq!(e.kind(), Kind::Io, "{what}: {e}");
                assert!(
                    e.to_string().contains(&format!("block {}", sector / PAGES)),
                    "{what}: {e}"
                );
                refused += 1;
            }
        }
        disk.heal();
        is_whole(&disk, &what);
    }
    assert!(refused > 24, "{refused}");
}

/// Who reads sees all but what cannot be read, and a dump has it.
#[test]
fn whoever_reads_has_all_that_can_be_read() {
    let whole = filled();
    for sector in 0..48 * PAGES {
        let at = HEADER_LEN + sector * PAGE_LEN;
        let disk = Arc::new(whole.crashed(0));
        let mut wanted = Vec::new();
        let flash = Emulator::open_on_disk_read_only(disk.clone()).unwrap();
        assert!(flash.dump(&mut wanted).unwrap().is_empty());
        disk.fail_reads(at..at + PAGE_LEN);
        let what = format!("page {} of block {}", sector % PAGES, sector / PAGES);
        let flash =
            Emulator::open_on_disk_read_only(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
        let readable = |leb: &u32| {
            let mut found = vec![0; 3 * PAGE_LEN];
            flash.read(Leb(*leb), 0, &mut found).is_ok() && found == content(*leb)
        };
        let lebs = (0..flash.geometry().lebs).step_by(4);
        let lost = lebs.clone().count() - lebs.filter(readable).count();
        assert!(lost <= 1, "{what}: {lost} are lost");
        let mut dump = Vec::new();
        let unread = flash.dump(&mut dump).unwrap();
        let start = sector * PAGE_LEN;
        if unread.is_empty() {
            assert!(dump == wanted && wanted[start..][..PAGE_LEN] == [0xff; PAGE_LEN], "{what}");
            continue;
        }
        let range = u64::try_from(start).unwrap()..u64::try_from(start + PAGE_LEN).unwrap();
        assert_eq!(unread, [range], "{what}");
        wanted[start..][..PAGE_LEN].fill(0);
        assert!(dump == wanted, "{what}");
    }
}
