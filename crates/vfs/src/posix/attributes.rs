//! Changing attributes: set-id bits and times.

use super::{FILE_SIZE_MAX, Posix};
use crate::posix::Caller;
use crate::{Attr, Change, FileSystem, FileType, Kind, NodeId, Result, Timestamp};

/// Set-user-id.
pub(super) const SET_UID: u16 = 0o4000;

/// Set-group-id.
pub(super) const SET_GID: u16 = 0o2000;

/// Execution by the group: without it set-gid means something else, and stays within the group.
pub(super) const GROUP_EXECUTE: u16 = 0o0010;

/// Permission and set-id bits.
const PERM_MASK: u16 = 0o7777;

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the clock.
    Now,
    /// A time of the user's.
    At(Timestamp),
}

/// What `chmod`, `chown`, `truncate` and `utimensat` change; what is `None` stays. With nothing
/// at all, or a ctime alone, it is a `chown` to nobody, which still drops set-id bits. (With nothing
/// at all it can also be the kernel's, before somebody writes to a file with such bits.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission and set-id bits.
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Last change of anything, where the kernel keeps it (write-back cache).
    pub ctime: Option<Timestamp>,
}

impl SetAttr {
    /// Whether it changes nothing but, where the kernel keeps it, the ctime.
    fn is_to_nobody(&self) -> bool {
        Self { ctime: None, ..*self } == Self::default()
    }
}

impl<F: FileSystem> Posix<F> {
    /// Changes attributes and returns the new ones.
    ///
    /// # Errors
    /// [`Kind::IsDirectory`] and [`Kind::Invalid`] for the size of anything but a file;
    /// [`Kind::FileTooBig`]; [`Kind::NoSpace`]; [`Kind::NotPermitted`] for a `chown` to nobody that
    /// would drop the set-id bits of somebody else's file.
    pub fn change(&self, caller: Caller, node: NodeId, set: &SetAttr) -> Result<Attr> {
        self.change_by(caller, false, node, set)
    }

    /// The same by somebody who is shown as the owner of all files, and counts as that.
    ///
    /// # Errors
    /// As [`Posix::change`].
    pub fn change_as_owner(&self, caller: Caller, node: NodeId, set: &SetAttr) -> Result<Attr> {
        self.change_by(caller, true, node, set)
    }

    fn change_by(
        &self,
        caller: Caller,
        owns_all: bool,
        node: NodeId,
        set: &SetAttr,
    ) -> Result<Attr> {
        let _guard = self.lock_attributes(node);
        let attr = self.fs.attr(node)?;
        if let Some(size) = set.size {
            check_size(&attr, size)?;
        }
        let now = self.now();
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let by_chown = set.uid.is_some() || set.gid.is_some();
        let by_truncate = set.size.is_some() && !caller.is_root();
        let perm = match set.perm {
            Some(perm) => Some(perm & PERM_MASK),
            None if by_chown || by_truncate => without_set_id_by(caller, &attr),
            None if owns_all && set.is_to_nobody() => without_set_id_by(caller, &attr),
            None if set.is_to_nobody() => self.fallen(caller, node, &attr, set)?,
            None => None,
        };
        let truncated = set.size.map(|_| now);
        let change = Change {
            perm,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(time),
            mtime: set.mtime.map(time).or(truncated),
            ctime: Some(set.ctime.unwrap_or(now)),
            user_times: [set.atime, set.mtime]
                .iter()
                .any(|set| matches!(set, Some(SetTime::At(_)))),
        };
        self.fs.change(node, &change)
    }

    /// What remains of the bits when nothing is asked for. Owners and root drop them so; others only
    /// because they write, which the kernel has the same words for.
    fn fallen(
        &self,
        caller: Caller,
        node: NodeId,
        attr: &Attr,
        set: &SetAttr,
    ) -> Result<Option<u16>> {
        let remaining = without_set_id_by(caller, attr);
        if remaining.is_none() || caller.is_root() || caller.uid == attr.uid {
            return Ok(remaining);
        }
        let writers = self.handles.writers_of(node);
        if set.ctime.is_some() || writers.is_empty() {
            return Err(Kind::NotPermitted.into());
        }
        // Whoever has it open could as well write. Others may have been handed it open: their write
        // tells us itself that bits fall, unless the kernel writes to a lower file past us.
        let drops = writers.iter().any(|writer| writer.user == caller.uid || writer.past_us);
        Ok(remaining.filter(|_| drops))
    }

    /// Stamps mtime and ctime after somebody has changed content, and drops set-id bits but for root.
    pub(super) fn stamp_content(&self, caller: Caller, node: NodeId) -> Result<()> {
        let now = self.now();
        let mut change = Change { mtime: Some(now), ctime: Some(now), ..Change::default() };
        if !caller.is_root() {
            let _guard = self.lock_attributes(node);
            change.perm = without_set_id_by(caller, &self.fs.attr(node)?);
            return self.fs.change(node, &change).map(drop);
        }
        self.fs.change(node, &change).map(drop)
    }

    /// Stamps ctime.
    pub(super) fn stamp_attributes(&self, node: NodeId) -> Result<()> {
        let change = Change { ctime: Some(self.now()), ..Change::default() };
        self.fs.change(node, &change).map(drop)
    }
}

fn check_size(attr: &Attr, size: u64) -> Result<()> {
    match attr.kind {
        FileType::Directory => Err(Kind::IsDirectory.into()),
        FileType::File if size > FILE_SIZE_MAX => Err(Kind::FileTooBig.into()),
        FileType::File => Ok(()),
        _ => Err(Kind::Invalid.into()),
    }
}

/// The bits that remain when somebody makes set-id fall; `None` if there is none that does. Set-gid
/// without execution by the group stays if that is somebody of the group.
pub(super) fn without_set_id_by(caller: Caller, attr: &Attr) -> Option<u16> {
    let is_plain = attr.perm & (SET_GID | GROUP_EXECUTE) == SET_GID;
    if attr.kind != FileType::Directory && is_plain && !caller.is_in(attr.gid) {
        return Some(attr.perm & !(SET_UID | SET_GID));
    }
    without_set_id(attr)
}

/// The bits that remain when set-id falls; `None` if none is set.
pub(super) fn without_set_id(attr: &Attr) -> Option<u16> {
    if attr.kind == FileType::Directory {
        return None;
    }
    let mut perm = attr.perm & !SET_UID;
    if attr.perm & GROUP_EXECUTE != 0 {
        perm &= !SET_GID;
    }
    (perm != attr.perm).then_some(perm)
}
