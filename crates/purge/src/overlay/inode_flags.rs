//! Inode flags, as `chattr` sets them: kept by the lower file system, set through the mount.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, openat};
use tacita_vfs::{FileType, Kind, NodeId, Result};

use super::Overlay;
use super::conversions::refused;
use super::table::Node;
use crate::xattrs;

/// Flags that can be set through the mount: those that are the owner's, and those that the kernel
/// has checked the caller's capability for. The others would be set with the daemon's.
const SETTABLE: IFlags = IFlags::SECURE_REMOVAL
    .union(IFlags::UNRM)
    .union(IFlags::SYNC)
    .union(IFlags::IMMUTABLE)
    .union(IFlags::APPEND)
    .union(IFlags::NODUMP)
    .union(IFlags::NOATIME)
    .union(IFlags::DIRSYNC);

impl Overlay {
    /// The inode flags of a file or folder.
    pub(super) fn flags_of(&self, node: NodeId) -> Result<u32> {
        let node = self.living(node)?;
        Ok(ioctl_getflags(open(&node)?).map_err(refused)?.bits())
    }

    /// Sets inode flags; refuses a change of any that are not to be set from here.
    pub(super) fn set_flags_of(&self, node: NodeId, flags: u32) -> Result<()> {
        let node = self.living(node)?;
        let file = open(&node)?;
        let flags = IFlags::from_bits_retain(flags);
        let changed = ioctl_getflags(&file).map_err(refused)?.symmetric_difference(flags);
        if !SETTABLE.contains(changed) {
            return Err(Kind::Unsupported.into());
        }
        ioctl_setflags(&file, flags).map_err(refused)
    }
}

fn open(node: &Node) -> Result<OwnedFd> {
    if !matches!(node.kind, FileType::File | FileType::Directory) {
        return Err(Kind::Unsupported.into());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = node.fd().map_err(refused)?;
    openat(CWD, &*xattrs::path_of(&fd), flags, Mode::empty()).map_err(refused)
}
