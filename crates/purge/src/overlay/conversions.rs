//! What the lower file system says in the words of the seam, and the other way round.

use rustix::fs::{FileType as Lower, Statx};
use rustix::io::Errno;
use tacita_vfs::{Attr, FileType, Kind as Seam, Timestamp};

use crate::{Error, Kind};

/// What the lower file system refused.
pub(super) fn refused(errno: Errno) -> tacita_vfs::Error {
    Seam::from_errno(errno.raw_os_error()).into()
}

impl From<Error> for tacita_vfs::Error {
    fn from(error: Error) -> Self {
        let kind = match (error.kind(), error.errno()) {
            (_, Some(errno)) => Seam::from_errno(errno.raw_os_error()),
            (Kind::Invalid, _) => Seam::Invalid,
            (Kind::NotFound, _) => Seam::NotFound,
            (Kind::Unsuitable, _) => Seam::Unsupported,
            (Kind::Unpurgeable | Kind::NotPermitted, _) => Seam::NotPermitted,
            (Kind::ReadOnly, _) => Seam::ReadOnly,
            (Kind::InUse, _) => Seam::Busy,
            (Kind::NoSpace, _) => Seam::NoSpace,
            (Kind::Io | Kind::Interrupted, _) => Seam::Io,
        };
        Self::new(kind, error.to_string()).because(error)
    }
}

/// A kind of node in the words of the seam.
pub(super) fn kind_of(kind: Lower) -> FileType {
    match kind {
        Lower::Directory => FileType::Directory,
        Lower::Symlink => FileType::Symlink,
        Lower::Fifo => FileType::Fifo,
        Lower::Socket => FileType::Socket,
        Lower::CharacterDevice => FileType::CharDevice,
        Lower::BlockDevice => FileType::BlockDevice,
        _ => FileType::File,
    }
}

/// What a node is.
pub(super) fn file_type(stat: &Statx) -> FileType {
    kind_of(Lower::from_raw_mode(stat.stx_mode.into()))
}

/// The same in the words of the lower file system.
pub(super) fn lower_type(kind: FileType) -> Lower {
    match kind {
        FileType::Fifo => Lower::Fifo,
        FileType::Socket => Lower::Socket,
        FileType::CharDevice => Lower::CharacterDevice,
        FileType::BlockDevice => Lower::BlockDevice,
        _ => Lower::RegularFile,
    }
}

/// A device number in the kernel's encoding, as the system call wants it.
pub(super) fn device(rdev: u32) -> u64 {
    rustix::fs::makedev(rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xfff00)
}

/// What the seam shows of what the lower file system shows.
pub(super) fn attr(stat: &Statx) -> Attr {
    let time =
        |time: rustix::fs::StatxTimestamp| Timestamp { secs: time.tv_sec, nanos: time.tv_nsec };
    let device = rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
    Attr {
        ino: stat.stx_ino,
        kind: file_type(stat),
        perm: stat.stx_mode & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: u32::try_from(device).unwrap_or(0),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        block_len_bytes: stat.stx_blksize,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    }
}
