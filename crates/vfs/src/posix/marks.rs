//! Marks of nodes, as `chattr` sets them. Who may do so the kernel has decided: the owner, and for
//! immutable and append-only who has the capability.

use super::Posix;
use crate::{FileSystem, NodeId, Result};

impl<F: FileSystem> Posix<F> {
    /// The marks of a file or directory, in the numbers of `FS_IOC_GETFLAGS`.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] where there are none.
    pub fn marks(&self, node: NodeId) -> Result<u32> {
        self.fs.marks(node)
    }

    /// Sets all marks of a file or directory.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for a mark that cannot be set.
    pub fn set_marks(&self, node: NodeId, marks: u32) -> Result<()> {
        self.fs.set_marks(node, marks)
    }
}
