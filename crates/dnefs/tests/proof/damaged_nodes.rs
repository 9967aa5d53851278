//! Nodes that are damaged, so that nobody notices when they are read: what is lost with them is told.

use std::sync::Arc;

use tacita_dnefs::{Layout, PurgeScope, check, read_superblock};
use tacita_flash::{Leb, Volume};
use tacita_vfs::FileSystem;

use crate::deletion::make;
use crate::volumes::{fresh, open, volume};

const FILES: usize = 30;
/// What is short of the end of what was written in an erase block lies before a whole node.
const LONGEST_NODE_LEN: usize = 5000;

fn is_readable(fs: &impl FileSystem, number: usize) -> bool {
    let mut buf = vec![0; 9000];
    fs.lookup(fs.root(), format!("file {number}").as_ref())
        .and_then(|(node, _)| fs.read(node, 0, &mut buf))
        .is_ok_and(|len| len == 9000 && buf == [7; 9000])
}

/// What was synced before a crash is there, or is told to be lost: what the crash has cut short is the last of
/// an erase block alone.
#[test]
fn a_damaged_node_that_a_crash_left_is_told_with_all_that_is_behind_it() {
    let chip = fresh(110, 1);
    let fs = open(&chip);
    for number in 0..FILES {
        if number == FILES / 2 {
            fs.purge(PurgeScope::Deleted).unwrap();
        }
        make(&fs, &format!("file {number}"), &[7; 9000]);
    }
    fs.sync().unwrap();
    drop(fs);
    let whole = chip.power_on().unwrap();
    let layout = Layout::new(&read_superblock(&whole).unwrap().parameters).unwrap();
    let (mut told, mut block) = (0, vec![0; layout.leb_len_bytes as usize]);
    for leb in (layout.key_leb(0) + layout.key_lebs..whole.geometry().lebs).map(Leb) {
        whole.read(leb, 0, &mut block).unwrap();
        let end = block.iter().rposition(|byte| *byte != 0xff).unwrap_or(0);
        for at in (200..end.saturating_sub(LONGEST_NODE_LEN)).step_by(512) {
            let chip = Arc::new(whole.snapshot().unwrap());
            let mut damaged = block.clone();
            damaged[at] ^= 4;
            chip.change(leb, &damaged).unwrap();
            let Ok(found) = check(&volume(&chip), None, &mut |_, _| {}) else { continue };
            let fs = open(&chip);
            let left = (0..FILES).filter(|number| is_readable(&fs, *number)).count();
            let what = format!("{leb:?}, byte {at}: {left} are left: {found:?}");
            assert!(left == FILES || !found.wrong.is_empty(), "{what}");
            let is_lost = found.wrong.iter().any(|wrong| wrong.contains("nodes written after"));
            assert_eq!(is_lost, fs.lost_nodes() > 0, "{what}");
            told += u32::from(is_lost);
            fs.close().unwrap();
            drop(fs);
            assert_eq!(open(&chip).lost_nodes(), 0, "{what}: it is told once");
        }
    }
    assert!(told > 10, "{told}");
}
