//! Opaque links: symbolic links whose target the lower file system would keep where no call reaches
//! it. They are kept as regular files, which can be overwritten, and shown as links.
//!
//! Such a file holds the target, has the permissions `01600`, which hardly any other file has, and
//! the attribute that says what it is, empty.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Statx, XattrFlags, fchmod, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use tacita_vfs::{FileType, Kind, Result};

use super::Overlay;
use super::conversions::{file_type, refused};
use super::table::Node;
use crate::lower_fs::{LowerFs, Names};
use crate::verdict::SHORT_TARGET_LEN_MAX;
use crate::xattrs;

/// Says that a file stands for a link.
pub(super) const LINK_ATTRIBUTE: &str = "user.tacita.link";

/// Its permissions.
const LINK_MODE: u16 = 0o1600;

/// Longest target of any.
const TARGET_LEN_MAX: u64 = 4095;

/// Whether a target of that length would be left behind by a link of the lower file system.
pub(super) fn leaves(lower: &LowerFs, len: usize) -> bool {
    len as u64 > SHORT_TARGET_LEN_MAX || lower.names != Names::Cleared
}

/// Whether a file could stand for a link, as far as `stat` tells.
pub(super) fn may_be(stat: &Statx) -> bool {
    stat.stx_mode & 0o7777 == LINK_MODE
        && file_type(stat) == FileType::File
        && (1..=TARGET_LEN_MAX).contains(&stat.stx_size)
}

/// Whether a file stands for a link.
pub(super) fn is(file: &OwnedFd, stat: &Statx) -> bool {
    may_be(stat) && xattrs::value(file, OsStr::new(LINK_ATTRIBUTE)).is_ok()
}

impl Overlay {
    /// Makes one: whole in the spool, so that a crash leaves nothing of it under its name.
    pub(super) fn make_opaque(&self, dir: &Node, name: &OsStr, target: &OsStr) -> Result<()> {
        let spool = &self.purger.spool;
        let seq = spool.next().name();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let file = openat(spool.dir(), seq.as_str(), flags, private).map_err(refused)?;
        let mut file = File::from(file);
        let made = file
            .write_all(target.as_bytes())
            .map_err(|e| crate::error::errno_of(&e))
            .and_then(|()| {
                let name = OsStr::new(LINK_ATTRIBUTE);
                xattrs::set(&file, name, b"", XattrFlags::empty())
            })
            .and_then(|()| fchmod(&file, Mode::from_raw_mode(LINK_MODE.into())))
            .and_then(|()| {
                let flags = RenameFlags::NOREPLACE;
                renameat_with(spool.dir(), seq.as_str(), dir.fd()?, name, flags)
            });
        if made.is_err() {
            // Nobody has seen it, and nothing of it has been written back.
            let _ = unlinkat(spool.dir(), seq.as_str(), AtFlags::empty());
        }
        made.map_err(refused)
    }

    /// Its target.
    pub(super) fn opaque_target(node: &Node) -> Result<OsString> {
        let file = Self::file_of(node, false)?;
        let len = file.metadata().map_err(|e| refused(crate::error::errno_of(&e)))?.len();
        if len > TARGET_LEN_MAX {
            return Err(Kind::Corrupt.into());
        }
        let mut target = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(&mut target, 0).map_err(|_| refused(Errno::IO))?;
        Ok(OsString::from_vec(target))
    }
}
