//! What programs have written is on the medium when a mount has been synced, or has ended.

use std::fs;

use tacita_testkit::skip_without_fuse;
use tacita_vfs::FileSystem;

use crate::acts::fill;
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

const KEPT: &str = "KEPT-Written-w-";

/// How often the content is on the device of a file system that stays mounted, after a sync or after the end.
fn stored(fs: Fs, ends: bool) -> Option<usize> {
    let image = Image::new("what_was_written_is_written_back", fs)?;
    let mounted = Mounted::new(&image, options("clear", false));
    fs::write(mounted.dir.join("file"), fill(KEPT, 160_000)).unwrap();
    if !ends {
        mounted.overlay().sync().unwrap();
        return Some(image.count(KEPT));
    }
    mounted.end();
    Some(image.count(KEPT))
}

#[test]
fn what_was_written_is_written_back() {
    let _turn = turn();
    if skip_without_fuse("what_was_written_is_written_back") {
        return;
    }
    for fs in [Fs::Ext4, Fs::Xfs] {
        for ends in [false, true] {
            let Some(stored) = stored(fs, ends) else { return };
            assert!(stored > 1000, "{fs:?}, at the end {ends}: {stored}");
        }
    }
}

#[cfg(feature = "faults")]
#[test]
fn what_stays_in_memory_is_missed() {
    use tacita_purge::faults::{Fault, plant};
    let _turn = turn();
    if skip_without_fuse("what_stays_in_memory_is_missed") {
        return;
    }
    for ends in [false, true] {
        plant(&[Fault::LeftInMemory]);
        let seen = stored(Fs::Ext4, ends);
        plant(&[]);
        let Some(stored) = seen else { return };
        assert!(stored < 1000, "at the end {ends}: {stored}");
    }
}
