//! Set-id bits that somebody gives. The kernel lets owners give them, and members of the group; where it is
//! shown others than are stored it would let somebody lend the rights of those whose a file is.

use super::attributes::{GROUP_EXECUTE, SET_GID, SET_UID};
use super::{Caller, Posix};
use crate::{FileSystem, NodeId, Result};

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

    /// The same of the mode of what is to be made in a directory, and is none itself: it may take the group of that.
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
