//! Extended attributes of nodes: a value that is replaced or removed is overwritten first.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, XattrFlags, openat};
use rustix::io::Errno;
use tacita_vfs::credentials::act_for_oneself;
use tacita_vfs::{ACCESS_LIST, DEFAULT_LIST, FileType, Kind, NodeId, Result, XattrMode};

use super::Overlay;
use super::conversions::refused;
use super::opaque::LINK_ATTRIBUTE;
use super::table::Node;
use crate::error::tells_nothing;
use crate::faults::{Fault, planted};
use crate::lower_fs::LowerFs;
use crate::policy::POLICY_ATTRIBUTE;
use crate::xattrs;
use crate::xattrs::{Overwritten, Owner};

/// Name spaces that are shown: what the rules above would refuse is not listed either.
const SHOWN: [&str; 5] = ["user.", "trusted.", "security.", ACCESS_LIST, DEFAULT_LIST];

impl Overlay {
    pub(super) fn attribute(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.ask_living(node, |node| {
            let _steady = node.values_to_read();
            // The kernel asks for the capabilities of every file that is written for the first time.
            let open = node.state().file.as_ref().map(|(file, _, _)| Arc::clone(file));
            let value = match open {
                Some(file) => xattrs::value_of_open(&file, name),
                None => node.fd().and_then(|fd| xattrs::value(fd, name)),
            };
            value.map_err(missing)
        })
    }

    pub(super) fn attribute_names(&self, node: NodeId) -> Result<Vec<OsString>> {
        self.ask_living(node, |node| {
            let _steady = node.values_to_read();
            let mut names = node.fd().and_then(xattrs::names).map_err(refused)?;
            names.retain(|name| {
                if node.is_opaque && name == LINK_ATTRIBUTE {
                    return false;
                }
                let name = name.to_string_lossy();
                SHOWN.iter().any(|space| name.starts_with(space))
            });
            Ok(names)
        })
    }

    pub(super) fn set_attribute(
        &self,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        check_settable(name)?;
        let node = self.living(node)?;
        let _alone = node.values_to_change();
        let flags = match mode {
            XattrMode::Any => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        let is_hooked = mode != XattrMode::Create && !planted(Fault::SetAttributeUnhooked);
        let is_there = || match node.fd().and_then(|fd| xattrs::value(fd, name)) {
            Ok(old) => old != value,
            // What nobody knows may be there.
            Err(e) => tells_nothing(e),
        };
        let replaced = is_hooked
            && is_there()
            && self.purge_value(&node, name, |lower, owner| {
                if planted(Fault::ValuesTorn) {
                    return xattrs::overwrite_values(lower, owner, &[name]);
                }
                xattrs::replace_value(lower, owner, name, value)
            })?;
        let set = if replaced && !planted(Fault::ValuesTorn) {
            Ok(())
        } else {
            node.fd().and_then(|fd| xattrs::set(fd, name, value, flags)).map_err(missing)
        };
        if name == POLICY_ATTRIBUTE {
            node.forget_policy();
        }
        set
    }

    pub(super) fn remove_attribute(&self, node: NodeId, name: &OsStr) -> Result<()> {
        check_settable(name)?;
        let node = self.living(node)?;
        let _alone = node.values_to_change();
        if !planted(Fault::RemoveAttributeUnhooked) {
            self.purge_value(&node, name, |lower, owner| {
                xattrs::overwrite_values(lower, owner, &[name])
            })?;
        }
        let removed = node.fd().and_then(|fd| xattrs::remove(fd, name)).map_err(missing);
        if name == POLICY_ATTRIBUTE {
            node.forget_policy();
        }
        removed
    }

    /// Overwrites a value that is about to go by `overwrite`; false if it is not to be purged, and
    /// nothing was done.
    fn purge_value(
        &self,
        node: &Node,
        name: &OsStr,
        overwrite: impl FnOnce(&LowerFs, Owner<'_>) -> crate::Result<Overwritten>,
    ) -> Result<bool> {
        let method = self.decide_in_place(node, 0).filter(|_| xattrs::is_data(name));
        let Some(method) = method else {
            return Ok(false);
        };
        let _acting = act_for_oneself()?;
        let fd = node.fd().map_err(refused)?;
        let stat = node.stat().map_err(refused)?;
        let lower = &self.purger.lower;
        let overwritten = match node.lower_kind() {
            FileType::File | FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = openat(CWD, &*xattrs::path_of(&fd), flags, Mode::empty());
                let file = file.map_err(refused)?;
                overwrite(lower, Owner::open(&file))
            }
            _ => overwrite(lower, Owner::unopened(&fd, &self.purger.spool.dir())),
        };
        // Whatever failed, the journal may have what was there.
        let overwritten = overwritten.inspect_err(|_| self.purger.touch(None))?;
        if matches!(overwritten, Overwritten::Nothing) {
            return Ok(false);
        }
        self.purger.statistics.attributes.add(1);
        self.purger.touch(None);
        self.purger.tell_of_values(stat.stx_ino, &method, &overwritten);
        Ok(true)
    }
}

/// Nobody turns a file into a link.
fn check_settable(name: &OsStr) -> Result<()> {
    if name == LINK_ATTRIBUTE { Err(Kind::NotPermitted.into()) } else { Ok(()) }
}

/// The kernel's word for a missing attribute, and for file systems without any.
fn missing(errno: Errno) -> tacita_vfs::Error {
    match errno {
        Errno::OPNOTSUPP => Kind::Unsupported.into(),
        other => refused(other),
    }
}
