//! What never was on the medium is not put there by purging it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use tacita_purge::{Removal, RemovalOptions};
use tacita_testkit::skip_without_fuse;

use crate::acts::fill;
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};
use tacita_testkit::system;

const LOST: &str = "LOST-Memory-m-";

/// How a file comes to have content that is nowhere but in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// New, and larger than an inode.
    Plain,
    /// A few bytes that fit into the inode, then more than that.
    OutOfInode,
    /// Into room that was promised.
    IntoRoom,
    /// Over what is there, with content that passes through the journal.
    Journaled,
}

impl Written {
    fn write(self, path: &Path) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        match self {
            Self::OutOfInode => file.write_all(b"12345678").unwrap(),
            Self::IntoRoom => fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap(),
            Self::Plain | Self::Journaled => {}
        }
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&fill(LOST, 160_000), 0).unwrap();
    }

    fn fs(self) -> Fs {
        match self {
            Self::OutOfInode => Fs::Ext4Inline,
            Self::Journaled => Fs::Ext4Immediate,
            _ => Fs::Ext4,
        }
    }
}

const ALL: [Written; 4] =
    [Written::Plain, Written::OutOfInode, Written::IntoRoom, Written::Journaled];

/// `chattr +j`, which this process may not be allowed to set on a mounted file system.
fn mark_journaled(image: &Image, name: &str) {
    File::create(image.dir().join(name)).unwrap();
    image.unmount();
    let set = format!("set_inode_field {name} flags 0x84000");
    system("debugfs", &["-w", "-R", &set, image.path().to_str().unwrap()]).unwrap();
    image.mount();
}

/// How often the content is in the image when the device is as it was left by the purge, with its
/// journal, and how many verdicts hold.
fn left(written: Written, by_path: bool) -> Option<usize> {
    let image = Image::new("what_never_was_stored_is_not_written", written.fs())?;
    if written == Written::Journaled {
        mark_journaled(&image, "file");
    }
    if by_path {
        let path = image.dir().join("file");
        written.write(&path);
        let mut removal = Removal::new(RemovalOptions::default());
        removal.purge(&path);
        let verdicts = removal.finish();
        assert!(verdicts[0].removed, "{verdicts:?}");
    } else {
        let mounted = Mounted::new(&image, options("clear", false));
        // Far into the journal, so that what is written into it next does not come over it.
        for number in 0..300 {
            fs::create_dir(mounted.dir.join(format!("folder-{number}"))).unwrap();
        }
        system("sync", &["-f", image.dir().to_str().unwrap()]).unwrap();
        let path = mounted.dir.join("file");
        written.write(&path);
        fs::remove_file(&path).unwrap();
        // As it is now, not at the end of the epoch: nothing is to come into the journal either.
        system("sync", &["-f", image.dir().to_str().unwrap()]).unwrap();
        let now = image.count(LOST);
        mounted.end();
        image.unmount();
        return Some(now + image.count(LOST));
    }
    image.unmount();
    Some(image.count(LOST))
}

#[test]
fn what_never_was_stored_is_not_written() {
    let _turn = turn();
    if skip_without_fuse("what_never_was_stored_is_not_written") {
        return;
    }
    for written in ALL {
        for by_path in [false, true] {
            let Some(left) = left(written, by_path) else { return };
            assert_eq!(left, 0, "{written:?}, by path {by_path}");
        }
    }
}

#[cfg(feature = "faults")]
#[test]
fn writing_what_was_in_memory_is_caught() {
    use tacita_purge::faults::{Fault, plant};
    let _turn = turn();
    if skip_without_fuse("writing_what_was_in_memory_is_caught") {
        return;
    }
    for written in [Written::OutOfInode, Written::Journaled] {
        plant(&[Fault::MemoryUnhooked]);
        let seen = left(written, false);
        plant(&[]);
        let Some(left) = seen else { return };
        assert!(left > 1000, "{written:?}: {left} left");
    }
}

/// Promised room that nobody has written to costs no write.
#[test]
fn promised_room_is_not_overwritten() {
    let _turn = turn();
    if skip_without_fuse("promised_room_is_not_overwritten") {
        return;
    }
    for fs in [Fs::Ext4, Fs::Xfs] {
        let Some(image) = Image::new("promised_room_is_not_overwritten", fs) else { return };
        let mounted = Mounted::new(&image, options("clear", false));
        let path = mounted.dir.join("file");
        let file = File::create(&path).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, 16 << 20).unwrap();
        file.write_all_at(&fill(LOST, 100_000), 1 << 20).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs::remove_file(&path).unwrap();
        mounted.overlay().finish().unwrap();
        let status = mounted.overlay().status();
        assert_eq!(status["verified"], 1, "{status:#}");
        let overwritten = status["bytes_overwritten"].as_u64().unwrap();
        assert!((100_000..200_000).contains(&overwritten), "{fs:?}: {overwritten}");
        mounted.end();
        image.unmount();
        assert_eq!(image.count(LOST), 0, "{fs:?}");
    }
}
