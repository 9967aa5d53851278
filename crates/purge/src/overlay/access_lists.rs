//! Access control lists of POSIX, which the lower file system keeps and the kernel obeys.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use rustix::fs::{Mode, Statx};
use rustix::io::Errno;
use tacita_vfs::{ACCESS_LIST, DEFAULT_LIST, NewNode, NodeId, Result};

use super::Overlay;
use super::conversions::refused;
use super::table::Node;
use crate::xattrs;

/// Permission bits without those that `chmod` alone gives.
const BITS: u16 = 0o777;

/// Whether the lower file system keeps any.
pub(super) fn are_kept(root: impl AsFd) -> bool {
    xattrs::value(root, OsStr::new(ACCESS_LIST)).err() != Some(Errno::OPNOTSUPP)
}

/// Permission bits of what is made in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bits {
    /// Those that were asked for.
    Asked(u16),
    /// Those that the folder's list leaves of them.
    Inherited(u16),
}

impl Bits {
    /// What the lower file system is to make it with, where nobody else may use it before it has its owner.
    pub(super) fn made_with(self, private: Mode) -> Mode {
        match self {
            Self::Asked(_) => private,
            Self::Inherited(bits) => Mode::from_raw_mode((bits & BITS).into()),
        }
    }

    /// What it is to have in the end.
    pub(super) const fn wanted(self, made: &Statx) -> u16 {
        match self {
            Self::Asked(bits) => bits,
            Self::Inherited(bits) => made.stx_mode & BITS | bits & !BITS,
        }
    }
}

impl Overlay {
    /// The bits of what is to be made in a folder.
    pub(super) fn bits_in(&self, dir: &Node, new: &NewNode) -> rustix::io::Result<Bits> {
        let asked = || dir.state().gives_list.take().map_or_else(|| gives_list(dir), Ok);
        let inherits = self.keeps_lists && asked()?;
        Ok(if inherits { Bits::Inherited(new.perm) } else { Bits::Asked(new.perm) })
    }

    /// Whether a folder has a list for what is made in it; whoever makes something then need not ask again.
    pub(super) fn has_default(&self, dir: NodeId) -> Result<bool> {
        if !self.keeps_lists {
            return Ok(false);
        }
        let dir = self.table.get(dir)?;
        let gives = gives_list(&dir).map_err(refused)?;
        dir.state().gives_list = Some(gives);
        Ok(gives)
    }
}

fn gives_list(dir: &Node) -> rustix::io::Result<bool> {
    match xattrs::value(dir.fd()?, OsStr::new(DEFAULT_LIST)) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(e),
    }
}
