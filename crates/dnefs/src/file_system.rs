//! DNEFS behind the file system seam.

mod namespace;
mod nodes;
mod sensitive;
mod xattrs;

use std::ffi::{OsStr, OsString};
use std::ops::Range;

use tacita_vfs::{
    Attr, Change, Cookie, Demand, Entry, Exchange, FileSystem, FsStats, Kind, Link, NewNode,
    NodeId, Reserve, Result, Seek, Stamps, Target, Timestamp, Wait, XattrMode, check_noted_flags,
};

use crate::dnefs::Dnefs;
use crate::inodes::{self, Evicted};
use crate::store::ROOT_INO;

/// Inode flags that are kept: immutable and append-only, which only older versions let be set; nodump,
/// noatime; sync.
const FLAGS: u32 = 0x0000_0010 | 0x0000_0020 | 0x0000_0040 | 0x0000_0080 | 0x0000_0008;

impl FileSystem for Dnefs {
    fn root(&self) -> NodeId {
        NodeId(ROOT_INO)
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        Ok(self.attr_of(&self.cell(node)?.lock()))
    }

    fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)> {
        let found = self.find(dir, name)?.ok_or(Kind::NotFound)?;
        let node = NodeId(found.1.ino);
        Ok((node, self.attr(node)?))
    }

    fn parent(&self, dir: NodeId) -> Result<NodeId> {
        Ok(NodeId(self.cell(dir)?.lock().inode.parent))
    }

    fn create(&self, dir: NodeId, name: &OsStr, new: &NewNode) -> Result<(NodeId, Attr)> {
        self.check_writable()?;
        self.create_node(dir, name, new)
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &OsStr, now: Timestamp) -> Result<Attr> {
        self.check_writable()?;
        self.link_node(node, dir, name, now)
    }

    fn remove(&self, link: Link<'_>, now: Timestamp) -> Result<u32> {
        self.check_writable()?;
        let left = self.remove_name(link, now)?;
        // Of the last name of what is sensitive `unlinked` tells.
        if left > 0 || !self.is_sensitive(link.node) {
            self.purge_if_sensitive(&[link.node, link.dir])?;
        }
        Ok(left)
    }

    fn rename(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        exchange: Exchange,
        now: Timestamp,
    ) -> Result<u32> {
        self.check_writable()?;
        let left = match exchange {
            Exchange::No => self.rename_name(from, to, now)?,
            Exchange::Yes => self.exchange_names(from, to, now)?,
        };
        let mut renamed = vec![from.node, from.dir, to.dir];
        if let Some(other) = to.node {
            // Of the last name `unlinked` tells, when all that waits is purged.
            if exchange == Exchange::No && left == 0 && self.is_sensitive(other) {
                return Ok(left);
            }
            renamed.push(other);
        }
        self.purge_if_sensitive(&renamed)?;
        Ok(left)
    }

    fn forget(&self, node: NodeId) {
        let nameless = self.cell(node).is_ok_and(|cell| cell.lock().inode.nlink == 0);
        if nameless {
            self.erase_nameless(node);
            self.store().forget(node.0);
            self.inodes().forget(node.0);
        } else {
            self.evict(node);
        }
    }

    fn unused(&self, node: NodeId) {
        self.erase_nameless(node);
    }

    fn unlinked(&self, node: NodeId, is_open: &dyn Fn() -> bool) -> Result<()> {
        self.purge_unlinked(node, is_open)
    }

    fn evict(&self, node: NodeId) {
        match self.inodes().evict(self.store(), node.0) {
            // Its last name went with a failure: what that had deleted could not be purged then.
            Ok(Evicted::Nameless) => self.forget(node),
            Ok(Evicted::Overwritten) => self.note_overwritten(),
            // What cannot be written now stays in memory, and the next sync says why.
            Ok(Evicted::Whole) | Err(_) => {}
        }
    }

    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        self.list_entries(dir, from, each)
    }

    fn change(&self, node: NodeId, change: &Change) -> Result<Attr> {
        self.check_writable()?;
        let attr = self.change_node(node, change)?;
        if change.size.is_some() {
            self.purge_if_sensitive(&[node])?;
        }
        Ok(attr)
    }

    fn read_link(&self, node: NodeId) -> Result<OsString> {
        self.link_target(node)
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let size = self.cell(node)?.lock().inode.size;
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        self.store().read_content(node.0, offset, &mut buf[..len])?;
        Ok(len)
    }

    fn write(&self, node: NodeId, offset: u64, data: &[u8], stamps: Stamps) -> Result<()> {
        self.check_writable()?;
        self.write_node(node, offset, data, stamps)
    }

    fn reserve(&self, node: NodeId, range: Range<u64>, how: Reserve) -> Result<()> {
        self.check_writable()?;
        self.reserve_range(node, range, how)?;
        self.purge_if_sensitive(&[node])
    }

    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64> {
        let size = self.cell(node)?.lock().inode.size;
        if offset >= size {
            return Err(Kind::NoMore.into());
        }
        let data = what == Seek::Data;
        match self.store().seek_content(node.0, offset, size, data) {
            found if data && found >= size => Err(Kind::NoMore.into()),
            found => Ok(found),
        }
    }

    fn xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.get_xattr(node, name)
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<OsString>> {
        self.list_xattrs(node)
    }

    fn set_xattr(&self, node: NodeId, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        self.check_writable()?;
        self.put_xattr(node, name, value, mode)?;
        self.purge_if_sensitive(&[node])
    }

    fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        self.check_writable()?;
        self.drop_xattr(node, name)?;
        self.purge_if_sensitive(&[node])
    }

    fn inode_flags(&self, node: NodeId) -> Result<u32> {
        Ok(self.cell(node)?.lock().inode.flags & FLAGS)
    }

    fn set_inode_flags(&self, node: NodeId, flags: u32) -> Result<()> {
        self.check_writable()?;
        if flags & !FLAGS != 0 {
            return Err(Kind::Unsupported.into());
        }
        let cell = self.cell(node)?;
        let mut node = cell.lock();
        check_noted_flags(node.inode.flags, flags)?;
        node.inode.flags = node.inode.flags & !FLAGS | flags;
        node.is_dirty = true;
        Ok(())
    }

    fn stats(&self) -> Result<FsStats> {
        Ok(self.fs_stats())
    }

    fn wait(&self, node: NodeId, demand: Demand) -> Wait {
        match demand {
            Demand::Sync => Wait::Device,
            Demand::Resize | Demand::Unlinked if self.is_sensitive(node) => Wait::Device,
            _ => Wait::No,
        }
    }

    fn sync_node(&self, node: NodeId) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let cell = self.cell(node)?;
        let mut locked = cell.lock();
        inodes::write(self.store(), &mut locked)?;
        let (overwrites, purged) = (locked.overwrites, locked.overwrites_purged);
        drop(locked);
        self.store().sync()?;
        if overwrites > purged || self.has_let_go_of_overwritten() {
            self.purge_if_sensitive(&[node])?;
            let mut locked = cell.lock();
            locked.overwrites_purged = locked.overwrites_purged.max(overwrites);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.inodes().write_all(self.store())?;
        Ok(self.store().sync()?)
    }
}
