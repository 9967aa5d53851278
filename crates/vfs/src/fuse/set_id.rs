//! Set-id bits where owners, groups and bits are shown that are not the files' own: the kernel decides by what it is
//! shown who may give them.

use super::adapter::Adapter;
use crate::posix::{Caller, SetAttr};
use crate::{FileSystem, NodeId, Result};

impl<F: FileSystem> Adapter<F> {
    /// What is to be set, without set-id bits that are not the caller's to give.
    pub(super) fn to_set(&self, caller: Caller, node: NodeId, set: SetAttr) -> Result<SetAttr> {
        let shown = self.behaviour.shown;
        let perm = match set.perm {
            Some(perm) if shown.uid.is_some() || shown.gid.is_some() => {
                Some(self.posix.perm_to_give(caller, node, perm)?)
            }
            perm => perm,
        };
        Ok(SetAttr { perm, ..set })
    }

    /// The mode of what is to be made, without a set-group-id bit that is not the caller's to give.
    pub(super) fn to_make(&self, caller: Caller, dir: NodeId, mode: u32) -> Result<u32> {
        let shown = self.behaviour.shown;
        // With a mask the kernel does not see that a directory hands on its group.
        if shown.gid.is_some() || shown.umask.is_some() {
            return self.posix.mode_to_give(caller, dir, mode);
        }
        Ok(mode)
    }
}
