//! Inode flags, as `chattr` sets them. Who may do so the kernel has decided: the owner, and for
//! immutable and append-only who has the capability.

use super::Posix;
use crate::{FileSystem, NodeId, Result};

impl<F: FileSystem> Posix<F> {
    /// The inode flags of a file or directory, in the numbers of `FS_IOC_GETFLAGS`.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] where there are none.
    pub fn inode_flags(&self, node: NodeId) -> Result<u32> {
        self.fs.inode_flags(node)
    }

    /// Sets all inode flags of a file or directory, and its ctime.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for a flag that cannot be set.
    pub fn set_inode_flags(&self, node: NodeId, flags: u32) -> Result<()> {
        self.fs.set_inode_flags(node, flags)?;
        self.stamp_attributes(node)
    }
}
