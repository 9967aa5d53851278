//! Set-id bits that somebody gives. The kernel lets owners give them, and members of the group; where it is
//! shown others than are stored it would let somebody lend the rights of those whose a file is.

use super::attributes::{GROUP_EXECUTE, SET_GID, SET_UID};
use super::{Caller, Posix};
use crate::{Change, FileSystem, NodeId, Result};

impl<F: FileSystem> Posix<F> {
    /// What of the bits that somebody gives a node is his to give: set-user-id for the stored owner alone,
    /// set-group-id for who is in the stored group.
    ///
    /// # Errors
    /// [`crate::Kind::Stale`] if there is no such node.
    pub fn perm_to_give(&self, caller: Caller, node: NodeId, perm: u16) -> Result<u16> {
        if perm & (SET_UID | SET_GID) == 0 || caller.is_root() {
            return Ok(perm);
        }
        let attr = self.fs.attr(node)?;
        let mut perm = perm;
        if caller.uid != attr.uid {
            perm &= !SET_UID;
        }
        if perm & SET_GID != 0 && !caller.is_in(attr.gid) {
            perm &= !SET_GID;
        }
        Ok(perm)
    }

    /// Takes set-group-id from a node whose group the caller is not in.
    pub(super) fn take_set_gid(&self, caller: Caller, node: NodeId) -> Result<()> {
        let _guard = self.lock_attributes(node);
        let attr = self.fs.attr(node)?;
        if attr.perm & SET_GID == 0 || caller.is_in(attr.gid) {
            return Ok(());
        }
        let perm = Some(attr.perm & !SET_GID);
        self.fs.change(node, &Change { perm, ..Change::default() }).map(drop)
    }

    /// What of the mode is his to give of what he makes in a directory, and is none itself: it may take the group of
    /// that.
    ///
    /// # Errors
    /// [`crate::Kind::Stale`] if there is no such directory.
    pub fn mode_to_give(&self, caller: Caller, dir: NodeId, mode: u32) -> Result<u32> {
        let lends = u32::from(SET_GID | GROUP_EXECUTE);
        if mode & lends != lends || caller.is_root() {
            return Ok(mode);
        }
        let dir = self.fs.attr(dir)?;
        let is_given = dir.perm & SET_GID == 0 || caller.is_in(dir.gid);
        Ok(if is_given { mode } else { mode & !u32::from(SET_GID) })
    }
}
