//! Extended attributes: a node each.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use tacita_dnefs_format::record::{IndexKey, Kind as RecordKind, NAME_LEN_MAX, Removal, Xattr};
use tacita_vfs::{Kind, NodeId, Result, XattrMode};

use super::sensitive::{self, ATTRIBUTE, is_attribute};
use crate::content::removal_of;
use crate::dnefs::{Dnefs, PurgeScope};
use crate::entries::{self, Named, Sought};
use crate::error::damaged;
use crate::store::{ROOT_INO, Write};

/// Setting it on the root directory is a purge, of `deleted` keys or of `all`; it is never there.
const PURGE: &str = "user.dnefs.purge";
/// Longest value in bytes: what the kernel passes on.
const VALUE_LEN_MAX: usize = 64 << 10;

impl Dnefs {
    fn seek_xattr(&self, node: NodeId, name: &OsStr) -> Result<Sought> {
        let name = name.as_bytes();
        Ok(entries::seek(self.store(), self.name_hash(), Named::Xattr, node.0, name)?)
    }

    pub(super) fn get_xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        if is_attribute(name) {
            return sensitive::value(&self.cell(node)?.lock());
        }
        let (_, payload) = self.seek_xattr(node, name)?.found.ok_or(Kind::NoAttribute)?;
        let xattr = Xattr::decode(&payload).map_err(damaged("an attribute"));
        Ok(xattr?.value)
    }

    pub(super) fn list_xattrs(&self, node: NodeId) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        if self.is_sensitive(node) {
            names.push(ATTRIBUTE.into());
        }
        let most = self.store().layout.leb_len_bytes as usize;
        let range = IndexKey::xattr(node.0, 0)..IndexKey::end_of(node.0);
        self.store().read(range, |_, opened| {
            names.push(OsString::from_vec(Xattr::decode(&opened.payload(most)?)?.name));
            Ok(())
        })?;
        Ok(names)
    }

    pub(super) fn put_xattr(
        &self,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let most = VALUE_LEN_MAX.min(self.store().layout.leb_len_bytes as usize / 2);
        if value.len() > most || name.len() > NAME_LEN_MAX {
            return Err(Kind::TooLarge.into());
        }
        if name == PURGE {
            return self.purge_on_request(node, value);
        }
        let cell = self.cell(node)?;
        let mut changing = cell.lock();
        if is_attribute(name) {
            return sensitive::set(&mut changing, value, mode);
        }
        let sought = self.seek_xattr(node, name)?;
        match (mode, &sought.found) {
            (XattrMode::Create, Some(_)) => return Err(Kind::Exists.into()),
            (XattrMode::Replace, None) => return Err(Kind::NoAttribute.into()),
            _ => {}
        }
        let xattr = Xattr { name: name.as_bytes().to_vec(), value: value.to_vec() };
        let payload = xattr.encode().into();
        let write = Write { kind: RecordKind::Xattr, at: sought.place()?, payload };
        self.store().write_group(&[write])?;
        self.after_deletion();
        Ok(())
    }

    /// When it returns, nothing that was deleted before can be decrypted.
    fn purge_on_request(&self, node: NodeId, value: &[u8]) -> Result<()> {
        let scope = match value {
            b"deleted" => PurgeScope::Deleted,
            b"all" => PurgeScope::All,
            _ => return Err(Kind::Invalid.into()),
        };
        if node.0 != ROOT_INO {
            return Err(Kind::Unsupported.into());
        }
        if !self.purge(scope)?.is_complete() {
            let why =
                "keys of deleted nodes may be left: a block went bad, or a page of keys is damaged";
            return Err(tacita_vfs::Error::new(Kind::Io, why));
        }
        Ok(())
    }

    pub(super) fn drop_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        let cell = self.cell(node)?;
        let mut changing = cell.lock();
        if is_attribute(name) {
            return sensitive::unset(&mut changing);
        }
        let (at, _) = self.seek_xattr(node, name)?.found.ok_or(Kind::NoAttribute)?;
        let removal = Removal { removed: vec![at], orphans: Vec::new() };
        self.store().write_group(&[removal_of(node.0, &removal)])?;
        self.after_deletion();
        Ok(())
    }
}
