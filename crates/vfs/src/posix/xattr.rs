//! Extended attributes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::{Caller, Posix};
use crate::{FileSystem, Kind, NodeId, Result, XattrMode};

/// Longest name of an extended attribute in bytes: `XATTR_NAME_MAX` of Linux.
pub const XATTR_NAME_LEN_MAX: usize = 255;

/// Largest value of an extended attribute in bytes: `XATTR_SIZE_MAX` of Linux.
pub const XATTR_VALUE_LEN_MAX: usize = 65536;

/// The access control list of a node.
pub const ACCESS_LIST: &str = "system.posix_acl_access";

/// That of a directory for what is made in it.
pub const DEFAULT_LIST: &str = "system.posix_acl_default";

/// Name spaces that are stored. `system.` is not, but for lists where they are kept: elsewhere they would
/// be stored but never obeyed, which is worse than not having them.
const NAME_SPACES: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];

/// What only root may read and write.
const TRUSTED: &[u8] = b"trusted.";

impl<F: FileSystem> Posix<F> {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Kind::NoAttribute`]; [`Kind::Unsupported`] for a name space that is not stored;
    /// [`Kind::Invalid`] for one alone, without a name.
    pub fn xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.check_xattr_name(name)?;
        self.fs.xattr(node, name)
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// [`Kind::Stale`].
    pub fn xattrs(&self, node: NodeId) -> Result<Vec<OsString>> {
        self.fs.xattrs(node)
    }

    /// Those of them that the caller may know of: whoever may not read one is not told its name.
    ///
    /// # Errors
    /// [`Kind::Stale`].
    pub fn xattrs_for(&self, caller: Caller, node: NodeId) -> Result<Vec<OsString>> {
        let mut names = self.fs.xattrs(node)?;
        names.retain(|name| caller.is_root() || !name.as_bytes().starts_with(TRUSTED));
        Ok(names)
    }

    /// Sets an extended attribute. Who sets an access control list, and is not in the group, takes set-group-id
    /// from it, as by a change of the mode.
    ///
    /// # Errors
    /// [`Kind::TooLarge`]; [`Kind::Range`] for the name; [`Kind::Exists`] and
    /// [`Kind::NoAttribute`] by `mode`; [`Kind::Unsupported`]; [`Kind::NoSpace`].
    pub fn set_xattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.check_xattr_name(name)?;
        if value.len() > XATTR_VALUE_LEN_MAX {
            return Err(Kind::TooLarge.into());
        }
        // A system may be asked by one to make sure that what was deleted is gone.
        self.let_go_of_closed();
        self.fs.set_xattr(node, name, value, mode)?;
        if name == ACCESS_LIST {
            self.take_set_gid(caller, node)?;
        }
        self.stamp_attributes(node)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Kind::NoAttribute`]; [`Kind::Unsupported`].
    pub fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        self.check_xattr_name(name)?;
        self.fs.remove_xattr(node, name)?;
        self.stamp_attributes(node)
    }

    /// Whether there are access control lists, which the kernel is to obey.
    pub(crate) fn keeps_access_lists(&self) -> bool {
        self.fs.keeps_access_lists()
    }

    fn check_xattr_name(&self, name: &OsStr) -> Result<()> {
        let bytes = name.as_bytes();
        if bytes.len() > XATTR_NAME_LEN_MAX {
            return Err(Kind::Range.into());
        }
        match NAME_SPACES.iter().find(|space| bytes.starts_with(space)) {
            None if is_list(name) && self.fs.keeps_access_lists() => Ok(()),
            None => Err(Kind::Unsupported.into()),
            Some(space) if space.len() == bytes.len() => Err(Kind::Invalid.into()),
            Some(_) => Ok(()),
        }
    }
}

fn is_list(name: &OsStr) -> bool {
    name == ACCESS_LIST || name == DEFAULT_LIST
}
