//! The seam, method by method.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::ops::Range;

use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, Mode, OFlags, RawDir, SeekFrom, StatxFlags, fstatvfs, openat2, seek, statx,
};
use tacita_vfs::{
    Attr, Change, Cookie, Demand, Entry, Exchange, FileSystem, FileType, FsStats, Kind, Link,
    NewNode, NodeId, Opened, Reserve, Result, Seek, Stamps, Target, Timestamp, Wait, XattrMode,
};

use super::conversions::{attr, kind_of, refused};
use super::table::Node;
use super::{Overlay, opaque};
use crate::names;
use crate::spool::{BENEATH, SPOOL_NAME};

/// Memory for listing a folder.
const LISTING_LEN_BYTES: usize = 32 << 10;

/// Cookies up to this one are the seam's own.
const COOKIE_RESERVED: Cookie = 2;

impl Overlay {
    /// What `stat` shows: a node in the spool has no name, and the spool is not seen.
    pub(super) fn shown(&self, node: &Node, stat: &rustix::fs::Statx) -> Attr {
        let mut attr = attr(stat);
        if node.is_opaque {
            attr.kind = FileType::Symlink;
            attr.perm = 0o777;
        }
        if node.state().nameless {
            attr.nlink = 0;
        } else if node.id == self.table.root.id {
            attr.nlink = attr.nlink.saturating_sub(1).max(2);
        }
        attr
    }

    /// What a listed name is.
    fn listed_kind(&self, folder: &OwnedFd, name: &OsStr, kind: rustix::fs::FileType) -> FileType {
        let kind = kind_of(kind);
        if !self.table.has_opaque || kind != FileType::File {
            return kind;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let is_opaque = statx(folder, name, flags, StatxFlags::BASIC_STATS).is_ok_and(|stat| {
            let open = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            opaque::may_be(&stat)
                && openat2(folder, name, open, Mode::empty(), BENEATH)
                    .is_ok_and(|file| opaque::is(&file, &stat))
        });
        if is_opaque { FileType::Symlink } else { kind }
    }

    /// Whether a name is the spool's.
    pub(super) fn is_hidden(&self, dir: NodeId, name: &OsStr) -> bool {
        dir == self.table.root.id && name == SPOOL_NAME
    }
}

impl FileSystem for Overlay {
    fn root(&self) -> NodeId {
        self.table.root.id
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        let node = self.shown_for(node)?;
        let stat = node.stat().map_err(refused)?;
        Ok(self.shown(&node, &stat))
    }

    fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)> {
        if self.is_hidden(dir, name) {
            return Err(Kind::NotFound.into());
        }
        let dir = self.table.get(dir)?;
        if dir.kind != FileType::Directory {
            return Err(Kind::NotDirectory.into());
        }
        let (node, stat) = self.table.find(&dir, name).map_err(refused)?;
        Ok((node.id, self.shown(&node, &stat)))
    }

    fn parent(&self, dir: NodeId) -> Result<NodeId> {
        Ok(self.table.get(dir)?.place().0)
    }

    fn create(&self, dir: NodeId, name: &OsStr, new: &NewNode) -> Result<(NodeId, Attr)> {
        self.make(dir, name, new)
    }

    fn create_open(
        &self,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
        _: bool,
    ) -> Result<(NodeId, Attr, Opened)> {
        self.create_file(dir, name, new)
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &OsStr, _: Timestamp) -> Result<Attr> {
        self.add_link(node, dir, name)
    }

    fn remove(&self, link: Link<'_>, _: Timestamp) -> Result<u32> {
        self.take_away(link)
    }

    fn rename(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        exchange: Exchange,
        _: Timestamp,
    ) -> Result<u32> {
        self.move_name(from, to, exchange)
    }

    fn forget(&self, node: NodeId) {
        // Whatever is still to be purged is known by its number in the spool.
        if let Ok(found) = self.table.get(node) {
            self.hand_over(&found);
        }
        self.table.remove(node);
    }

    fn evict(&self, node: NodeId) {
        self.table.remove(node);
    }

    fn unlinked(&self, node: NodeId, _is_open: &dyn Fn() -> bool) -> Result<()> {
        self.purge_unless_open(node)
    }

    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let node = self.table.get(dir)?;
        if node.state().nameless {
            return Ok(());
        }
        let folder = node.fd().and_then(names::reopen_folder).map_err(refused)?;
        if from > 0 {
            seek(&folder, SeekFrom::Start(from)).map_err(refused)?;
        }
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); LISTING_LEN_BYTES];
        let mut listing = RawDir::new(&folder, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(refused)?;
            let name = entry.file_name().to_bytes();
            let name: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(name);
            let is_filler = self.purger.spool.is_filler(entry.ino());
            if name == "." || name == ".." || is_filler || self.is_hidden(dir, name) {
                continue;
            }
            let listed = Entry {
                name,
                node: NodeId(entry.ino()),
                ino: entry.ino(),
                kind: self.listed_kind(&folder, name, entry.file_type()),
                attr: None,
                cookie: entry.next_entry_cookie().max(COOKIE_RESERVED + 1),
            };
            if !each(listed) {
                break;
            }
        }
        Ok(())
    }

    fn change(&self, node: NodeId, change: &Change) -> Result<Attr> {
        self.apply(node, change)
    }

    fn read_link(&self, node: NodeId) -> Result<OsString> {
        self.target_of(node)
    }

    fn open(&self, node: NodeId, write: bool) -> Result<Opened> {
        self.open_file(node, write)
    }

    fn released(&self, node: NodeId) {
        self.close_file(node);
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_file(node, offset, buf)
    }

    fn write(&self, node: NodeId, offset: u64, data: &[u8], stamps: Stamps) -> Result<()> {
        self.write_file(node, offset, data, stamps)
    }

    fn reserve(&self, node: NodeId, range: Range<u64>, how: Reserve) -> Result<()> {
        self.reserve_range(node, range, how)
    }

    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64> {
        let node = self.living(node)?;
        let file = Self::file_of(&node, false)?;
        let to = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        seek(&*file, to).map_err(refused)
    }

    fn xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.attribute(node, name)
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<OsString>> {
        self.attribute_names(node)
    }

    fn set_xattr(&self, node: NodeId, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        self.set_attribute(node, name, value, mode)
    }

    fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        self.remove_attribute(node, name)
    }

    fn keeps_access_lists(&self) -> bool {
        self.keeps_lists
    }

    fn has_default_list(&self, dir: NodeId) -> Result<bool> {
        self.has_default(dir)
    }

    fn inode_flags(&self, node: NodeId) -> Result<u32> {
        self.flags_of(node)
    }

    fn set_inode_flags(&self, node: NodeId, flags: u32) -> Result<()> {
        self.set_flags_of(node, flags)
    }

    fn stats(&self) -> Result<FsStats> {
        let stat = self.table.root.fd().and_then(fstatvfs).map_err(refused)?;
        Ok(FsStats {
            block_len_bytes: u32::try_from(stat.f_frsize).unwrap_or(4096),
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            blocks_available: stat.f_bavail,
            files: stat.f_files,
            files_free: stat.f_ffree,
            name_len_max: u32::try_from(stat.f_namemax).unwrap_or(255),
        })
    }

    fn wait(&self, node: NodeId, demand: Demand) -> Wait {
        let leaves_much =
            |node: &Node| !self.purger.manner.asynchronous && node.state().leaves_much();
        match demand {
            Demand::Write => Wait::No,
            Demand::Resize | Demand::Sync => Wait::Device,
            Demand::Unlinked | Demand::Released => match self.table.get(node) {
                Ok(node) if leaves_much(&node) => Wait::Device,
                _ => Wait::No,
            },
        }
    }

    fn sync_node(&self, node: NodeId) -> Result<()> {
        let node = self.living(node)?;
        if node.kind == FileType::Directory {
            if node.state().nameless {
                return Ok(());
            }
            return Ok(names::flush_folder(node.fd().map_err(refused)?)?);
        }
        // Nothing else can be synced by itself.
        if node.kind != FileType::File {
            return Ok(());
        }
        let file = Self::file_of(&node, false)?;
        rustix::fs::fsync(&*file).map_err(refused)
    }

    fn sync_content(&self, node: NodeId) -> Result<()> {
        let node = self.living(node)?;
        if node.kind == FileType::Directory {
            return self.sync_node(node.id);
        }
        let file = Self::file_of(&node, false)?;
        rustix::fs::fdatasync(&*file).map_err(refused)
    }

    fn sync(&self) -> Result<()> {
        let finished = self.finish();
        // What programs have written is in the lower file system's memory, whatever became of what they have deleted.
        self.purger.write_back()?;
        Ok(finished?)
    }
}
