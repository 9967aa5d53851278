//! Attributes and content of nodes.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use tacita_dnefs_format::record::{Inode, NAME_LEN_MAX, Time};
use tacita_vfs::{
    Attr, Change, FileType, FsStats, Kind, NodeId, Reserve, Result, Stamps, Timestamp,
};

use crate::dnefs::Dnefs;
use crate::inodes::{Cell, Node};

/// Largest size of a file: that of an offset.
const SIZE_MAX: u64 = i64::MAX.unsigned_abs();
const TYPE_MASK: u32 = 0o170_000;

/// File types as they are in `st_mode`.
const TYPES: [(u32, FileType); 7] = [
    (0o100_000, FileType::File),
    (0o040_000, FileType::Directory),
    (0o120_000, FileType::Symlink),
    (0o010_000, FileType::Fifo),
    (0o140_000, FileType::Socket),
    (0o020_000, FileType::CharDevice),
    (0o060_000, FileType::BlockDevice),
];

/// A file type as it is in `st_mode`.
pub(super) fn mode_of(kind: FileType) -> u32 {
    TYPES.iter().find(|(_, of)| *of == kind).expect("all are listed").0
}

/// The file type in `mode`.
pub(super) fn type_of(mode: u32) -> Result<FileType> {
    let found = TYPES.iter().find(|(bits, _)| *bits == mode & TYPE_MASK);
    Ok(found.map(|(_, kind)| *kind).ok_or(Kind::Corrupt)?)
}

pub(super) const fn time(stamp: Timestamp) -> Time {
    Time { secs: stamp.secs, nanos: stamp.nanos }
}

const fn stamp(time: Time) -> Timestamp {
    Timestamp { secs: time.secs, nanos: time.nanos }
}

/// Sets what a change says, but for the size.
fn set(inode: &mut Inode, change: &Change) {
    if let Some(perm) = change.perm {
        inode.mode = inode.mode & TYPE_MASK | u32::from(perm);
    }
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    inode.atime = change.atime.map_or(inode.atime, time);
    inode.mtime = change.mtime.map_or(inode.mtime, time);
    inode.ctime = change.ctime.map_or(inode.ctime, time);
}

impl Dnefs {
    pub(super) fn cell(&self, node: NodeId) -> Result<Arc<Cell>> {
        Ok(self.inodes().get(self.store(), node.0)?.ok_or(Kind::Stale)?)
    }

    pub(super) fn attr_of(&self, node: &Node) -> Attr {
        let inode = &node.inode;
        let kind = type_of(inode.mode).unwrap_or(FileType::File);
        let node_len = self.store().parameters.node_len_bytes;
        let blocks = if kind == FileType::File { self.store().stored_blocks(node.ino) } else { 0 };
        let perm = u16::try_from(inode.mode & 0o7777).expect("12 bits");
        Attr {
            ino: node.ino,
            kind,
            perm,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: if kind == FileType::Symlink { inode.target.len() as u64 } else { inode.size },
            blocks: blocks * u64::from(node_len / 512),
            block_len_bytes: node_len,
            atime: stamp(inode.atime),
            mtime: stamp(inode.mtime),
            ctime: stamp(inode.ctime),
        }
    }

    pub(super) fn change_node(&self, node: NodeId, change: &Change) -> Result<Attr> {
        let cell = self.cell(node)?;
        let mut node = cell.lock();
        match change.size {
            Some(size) if size > SIZE_MAX => return Err(Kind::FileTooBig.into()),
            Some(size) if size < node.inode.size => {
                let mut writes = self.store().truncation(&node, size)?;
                let before = node.inode.clone();
                set(&mut node.inode, change);
                node.inode.size = size;
                writes.push(node.record());
                if let Err(e) = self.store().write_group(&writes) {
                    node.inode = before;
                    return Err(e.into());
                }
                node.is_dirty = false;
                self.after_deletion();
            }
            size => {
                set(&mut node.inode, change);
                node.inode.size = size.unwrap_or(node.inode.size);
                node.is_dirty = true;
            }
        }
        Ok(self.attr_of(&node))
    }

    pub(super) fn link_target(&self, node: NodeId) -> Result<OsString> {
        let cell = self.cell(node)?;
        let node = cell.lock();
        if type_of(node.inode.mode)? != FileType::Symlink {
            return Err(Kind::Invalid.into());
        }
        Ok(OsString::from_vec(node.inode.target.clone()))
    }

    pub(super) fn write_node(
        &self,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stamps: Stamps,
    ) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= SIZE_MAX);
        end.ok_or(Kind::FileTooBig)?;
        let cell = self.cell(node)?;
        let mut node = cell.lock();
        self.store().write_content(&mut node, offset, data)?;
        if let Some(change) = stamps.change() {
            set(&mut node.inode, &change);
            node.is_dirty = true;
        }
        node.overwrites += u64::from(node.inode.is_sensitive());
        drop(node);
        self.after_deletion();
        Ok(())
    }

    /// Room cannot be promised: what is written goes elsewhere, whatever was there before.
    pub(super) fn reserve_range(
        &self,
        node: NodeId,
        range: Range<u64>,
        how: Reserve,
    ) -> Result<()> {
        if range.end > SIZE_MAX {
            return Err(Kind::FileTooBig.into());
        }
        let keep_size = match how {
            Reserve::Punch => true,
            Reserve::Zero { keep_size } => keep_size,
            Reserve::Allocate { .. } | Reserve::Collapse | Reserve::Insert => {
                return Err(Kind::Unsupported.into());
            }
        };
        let cell = self.cell(node)?;
        let mut node = cell.lock();
        self.store().punch(&mut node, range.clone())?;
        if !keep_size && range.end > node.inode.size {
            node.inode.size = range.end;
            node.is_dirty = true;
        }
        drop(node);
        self.after_deletion();
        Ok(())
    }

    pub(super) fn fs_stats(&self) -> FsStats {
        let block = self.store().parameters.node_len_bytes;
        let core = self.store().core();
        let all = core.log.capacity_bytes() / u64::from(block);
        let free = core.room_for(block as usize);
        FsStats {
            block_len_bytes: block,
            blocks: all,
            blocks_free: free,
            blocks_available: free,
            files: core.keys.count().into(),
            files_free: u64::from(core.keys.count()).saturating_sub(core.index.len() as u64),
            name_len_max: u32::try_from(NAME_LEN_MAX).expect("names are short"),
        }
    }
}
