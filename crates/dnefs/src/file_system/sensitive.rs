//! Sensitive files and directories: what is deleted of them is purged before the program hears of it.
//! Paper: DNEFS, section 5, where an application asks for that by an attribute.

use std::ffi::OsStr;

use tacita_dnefs_format::record::SENSITIVE;
use tacita_vfs::{Kind, NodeId, Result, XattrMode};

use crate::dnefs::{Dnefs, PurgeScope};
use crate::faults::{Fault, planted};
use crate::inodes::Node;

/// The attribute: `1` or `0`. It is a flag of the inode, so that it is inherited and costs nothing.
pub(super) const ATTRIBUTE: &str = "user.dnefs.sensitive";

pub(super) fn is_attribute(name: &OsStr) -> bool {
    name == ATTRIBUTE
}

/// The value of the attribute.
pub(super) fn value(node: &Node) -> Result<Vec<u8>> {
    if node.inode.is_sensitive() { Ok(b"1".to_vec()) } else { Err(Kind::NoAttribute.into()) }
}

/// Sets the attribute.
pub(super) fn set(node: &mut Node, value: &[u8], mode: XattrMode) -> Result<()> {
    match (mode, node.inode.is_sensitive()) {
        (XattrMode::Create, true) => return Err(Kind::Exists.into()),
        (XattrMode::Replace, false) => return Err(Kind::NoAttribute.into()),
        _ => {}
    }
    match value {
        b"1" => node.inode.flags |= SENSITIVE,
        b"0" => node.inode.flags &= !SENSITIVE,
        _ => return Err(Kind::Invalid.into()),
    }
    node.is_dirty = true;
    Ok(())
}

/// Takes the attribute away.
pub(super) fn unset(node: &mut Node) -> Result<()> {
    value(node)?;
    set(node, b"0", XattrMode::Any)
}

impl Dnefs {
    pub(super) fn is_sensitive(&self, node: NodeId) -> bool {
        self.cell(node).is_ok_and(|cell| cell.lock().inode.is_sensitive())
    }

    /// Something was deleted of nodes: if one of them is sensitive, it is purged. No inode is locked.
    pub(super) fn purge_if_sensitive(&self, nodes: &[NodeId]) -> Result<()> {
        if planted(Fault::SensitiveWaits) {
            return Ok(());
        }
        if nodes.iter().any(|node| self.is_sensitive(*node)) {
            self.purge_what_waits()?;
        }
        Ok(())
    }

    /// Nobody has a node without a name open any more: all of it goes, and is purged if it is sensitive.
    pub(super) fn erase_nameless(&self, node: NodeId) {
        if self.store().erase(node.0) && self.is_sensitive(node) {
            // What cannot be purged now waits for the next purge, which says why.
            let _ = self.purge(PurgeScope::Deleted);
        }
        self.after_deletion();
    }

    /// A node has lost its last name. What a program has open goes when it is closed.
    pub(super) fn purge_unlinked(&self, node: NodeId, is_open: &dyn Fn() -> bool) -> Result<()> {
        if !self.is_sensitive(node) {
            return Ok(());
        }
        if !is_open() {
            self.store().erase(node.0);
        }
        self.purge_if_sensitive(&[node])
    }
}
