//! The seam: what the rules of POSIX above ask for.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use tacita_vfs::{
    Attr, Change, Cookie, Demand, Entry, Exchange, FileSystem, FsStats, Kind, Link, NewNode,
    NodeId, Opened, Reserve, Result, Seek, Stamps, Target, Timestamp, Wait, XattrMode,
    check_noted_flags,
};

use crate::content::{self, Writing};
use crate::faults::{Fault, planted};
use crate::ids::{BLOCK_LEN, Id};
use crate::inode::Inode;
use crate::links::{self, directory};
use crate::privatefs::{Need, Pad, PrivateFs, random};
use crate::tree::{self, Fresh, Move, attr};
use crate::view::{Step, View};

/// Longest name in bytes.
const NAME_LEN_MAX: u32 = 255;

/// Largest file in bytes: beyond it no block of it could be told from another.
const SIZE_MAX: u64 = 1 << 60;

/// Cookies begin after those of `.` and `..`.
const COOKIES_FROM: u64 = 3;

/// Inode flags that are kept: immutable and append-only, which only older versions let be set; nodump,
/// noatime; sync.
const FLAGS: u32 = 0x0000_0010 | 0x0000_0020 | 0x0000_0040 | 0x0000_0080 | 0x0000_0008;

const LEN: u64 = BLOCK_LEN as u64;

impl PrivateFs {
    fn id(&self, node: NodeId) -> Result<Id> {
        self.core.lock().nodes.id(node)
    }

    fn number(&self, id: &Id) -> NodeId {
        self.core.lock().nodes.number(id)
    }

    /// Reads an inode, and something of it.
    fn look<T>(
        &self,
        node: NodeId,
        mut step: impl FnMut(&mut View<'_>, &Inode) -> Step<T>,
    ) -> Result<T> {
        let id = self.id(node)?;
        self.core.operate(Need::Nothing, Pad::Meta, |view| {
            let inode = view.inode(&id)?;
            step(view, &inode)
        })
    }

    /// Changes an inode.
    fn alter<T>(
        &self,
        node: NodeId,
        pad: Pad,
        mut step: impl FnMut(&mut View<'_>, &mut Inode) -> Step<T>,
    ) -> Result<T> {
        let id = self.id(node)?;
        self.core.operate(Need::Room, pad, |view| {
            let mut inode = view.inode(&id)?;
            let done = step(view, &mut inode)?;
            view.put_inode(&inode);
            Ok(done)
        })
    }

    /// Sets the size, in as many steps as it takes.
    fn resize(&self, node: NodeId, size: u64, change: &Change) -> Result<Attr> {
        if size > SIZE_MAX {
            return Err(Kind::FileTooBig.into());
        }
        let id = self.id(node)?;
        loop {
            let fresh = fresh()?;
            let (is_done, cut, attr) = self.core.operate(Need::Room, Pad::Meta, |view| {
                let mut inode = view.inode(&id)?;
                let before = inode.content;
                let is_long = !inode.ranges.all().is_empty();
                let is_done = content::resize(view, &self.core.mount(), &mut inode, size, fresh)?;
                apply(&mut inode, change);
                view.put_inode(&inode);
                let cut = (inode.content != before).then_some((is_long, view.epoch));
                Ok((is_done, cut, attr(&inode)))
            })?;
            if let Some((is_long, epoch)) = cut {
                self.core.lock().nodes.begin_content(node, (fresh.content, epoch));
                if is_long {
                    self.core.add_grave(&self.core.mount(), fresh.inode);
                }
            }
            if is_done {
                return Ok(attr);
            }
            self.core.flush()?;
        }
    }

    fn punch(&self, node: NodeId, range: &Range<u64>) -> Result<()> {
        let mut from = range.start;
        loop {
            from = self.alter(node, Pad::Meta, |view, inode| {
                let end = range.end.min(inode.size.next_multiple_of(LEN));
                if from >= end { Ok(end) } else { content::punch(view, inode, from, end) }
            })?;
            let size = self.look(node, |_, inode| Ok(inode.size))?;
            if from >= range.end.min(size) {
                return Ok(());
            }
            self.core.flush()?;
        }
    }

    fn grow(&self, node: NodeId, end: u64) -> Result<()> {
        if end > SIZE_MAX {
            return Err(Kind::FileTooBig.into());
        }
        let size = self.look(node, |_, inode| Ok(inode.size))?;
        if size < end { self.resize(node, end, &Change::default()).map(drop) } else { Ok(()) }
    }
}

fn fresh() -> Result<Fresh> {
    Ok(Fresh { inode: random()?, content: random()? })
}

fn apply(inode: &mut Inode, change: &Change) {
    inode.perm = change.perm.unwrap_or(inode.perm);
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    inode.atime = change.atime.unwrap_or(inode.atime);
    inode.mtime = change.mtime.unwrap_or(inode.mtime);
    inode.ctime = change.ctime.unwrap_or(inode.ctime);
}

impl FileSystem for PrivateFs {
    fn root(&self) -> NodeId {
        let root = self.core.ids.root();
        self.number(&root)
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        self.look(node, |_, inode| Ok(attr(inode)))
    }

    fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)> {
        let dir = self.id(dir)?;
        let found = self
            .core
            .operate(Need::Nothing, Pad::Meta, |view| tree::lookup(view, &dir, name.as_bytes()))?;
        Ok((self.number(&found.id), attr(&found)))
    }

    fn parent(&self, dir: NodeId) -> Result<NodeId> {
        let parent = self.look(dir, |_, inode| Ok(inode.parent))?;
        Ok(self.number(&parent))
    }

    fn create(&self, dir: NodeId, name: &OsStr, new: &NewNode) -> Result<(NodeId, Attr)> {
        let dir = self.id(dir)?;
        let fresh = fresh()?;
        let (made, epoch) = self.core.operate(Need::Room, Pad::Meta, |view| {
            Ok((tree::create(view, &dir, name.as_bytes(), new, fresh)?, view.epoch))
        })?;
        let mut state = self.core.lock();
        let node = state.nodes.number(&made.id);
        state.nodes.begin_content(node, (made.content, epoch));
        drop(state);
        Ok((node, attr(&made)))
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &OsStr, now: Timestamp) -> Result<Attr> {
        let (node, dir) = (self.id(node)?, self.id(dir)?);
        let linked = self.core.operate(Need::Room, Pad::Meta, |view| {
            tree::link(view, &node, &dir, name.as_bytes(), now)
        })?;
        Ok(attr(&linked))
    }

    fn remove(&self, link: Link<'_>, now: Timestamp) -> Result<u32> {
        let (dir, node) = (self.id(link.dir)?, self.id(link.node)?);
        self.core.operate(Need::Less, Pad::Meta, |view| {
            tree::remove(view, &self.core.mount(), (&dir, link.name.as_bytes()), &node, now)
        })
    }

    fn rename(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        exchange: Exchange,
        now: Timestamp,
    ) -> Result<u32> {
        let (from_dir, node, to_dir) = (self.id(from.dir)?, self.id(from.node)?, self.id(to.dir)?);
        let other = to.node.map(|other| self.id(other)).transpose()?;
        let what = Move {
            from: (&from_dir, from.name.as_bytes()),
            node: &node,
            to: (&to_dir, to.name.as_bytes()),
            other: other.as_ref(),
            exchange,
            now,
        };
        let rename = |view: &mut View<'_>| tree::rename(view, &self.core.mount(), what);
        self.core.operate(Need::Room, Pad::Meta, rename)
    }

    fn forget(&self, node: NodeId) {
        let Some(id) = self.core.lock().nodes.forget(node) else { return };
        let found = self.core.operate(Need::Nothing, Pad::No, |view| view.inode(&id));
        // What cannot be read now is freed when this mount is gone.
        if found.is_ok_and(|inode| inode.nlink == 0) {
            self.core.add_grave(&self.core.mount(), id);
        }
    }

    fn evict(&self, node: NodeId) {
        self.core.lock().nodes.forget(node);
    }

    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let dir = self.id(dir)?;
        let mut next = Some(if from < COOKIES_FROM { 0 } else { from - COOKIES_FROM + 1 });
        while let Some(place) = next {
            let (listed, after) = self.core.operate(Need::Nothing, Pad::Meta, |view| {
                let dir = directory(view, &dir)?;
                links::list(view, &dir, place)
            })?;
            for (place, entry) in listed {
                let ino = Inode::number(&entry.inode);
                // Whoever wants to use it looks it up.
                let node = tree::node_id(&entry.inode);
                let name = OsString::from_vec(entry.name);
                let cookie = place + COOKIES_FROM;
                if !each(Entry { name: &name, node, ino, kind: entry.kind, attr: None, cookie }) {
                    return Ok(());
                }
            }
            next = after;
        }
        Ok(())
    }

    fn change(&self, node: NodeId, change: &Change) -> Result<Attr> {
        if let Some(size) = change.size {
            return self.resize(node, size, change);
        }
        self.alter(node, Pad::Meta, |_, inode| {
            apply(inode, change);
            Ok(attr(inode))
        })
    }

    fn read_link(&self, node: NodeId) -> Result<OsString> {
        self.look(node, content::target)
    }

    fn open(&self, node: NodeId, _write: bool) -> Result<Opened> {
        let mut state = self.core.lock();
        let epoch = state.epoch;
        let is_stale = state.nodes.opened(node, epoch);
        Ok(Opened { drop_cache: is_stale || self.core.options.pad, ..Opened::default() })
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let id = self.id(node)?;
        let blocks = (offset % LEN + buf.len() as u64).div_ceil(LEN);
        self.core.operate(Need::Nothing, Pad::Content(blocks), |view| {
            let inode = view.inode(&id)?;
            let left = usize::try_from(inode.size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let len = buf.len().min(left);
            content::read(view, &inode, offset, &mut buf[..len], self.core.options.read_ahead)?;
            Ok(len)
        })
    }

    fn write(&self, node: NodeId, offset: u64, data: &[u8], stamps: Stamps) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        if end > SIZE_MAX {
            return Err(Kind::FileTooBig.into());
        }
        let blocks = (offset % LEN + data.len() as u64).div_ceil(LEN);
        let (capacity, begun) = {
            let state = self.core.lock();
            (state.usage.room.capacity, state.nodes.begun(node))
        };
        let reads_first = self.core.options.pad && !planted(Fault::OverwritesUnread);
        loop {
            let is_done = self.alter(node, Pad::Content(blocks), |view, inode| {
                let is_new = begun == Some((inode.content, view.epoch));
                let how = Writing { capacity, reads_first, is_new };
                let is_done = content::write(view, inode, (offset, data), how)?;
                if let Some(change) = stamps.change().filter(|_| is_done) {
                    apply(inode, &change);
                }
                Ok(is_done)
            })?;
            if is_done {
                return Ok(());
            }
            self.core.flush()?;
        }
    }

    fn reserve(&self, node: NodeId, range: Range<u64>, how: Reserve) -> Result<()> {
        match how {
            Reserve::Punch => self.punch(node, &range),
            Reserve::Zero { keep_size } => {
                self.punch(node, &range)?;
                if keep_size { Ok(()) } else { self.grow(node, range.end) }
            }
            Reserve::Allocate { keep_size } => {
                let room = self.stats()?;
                if (range.end - range.start).div_ceil(LEN) > room.blocks_available {
                    return Err(Kind::NoSpace.into());
                }
                if keep_size { Ok(()) } else { self.grow(node, range.end) }
            }
            Reserve::Collapse | Reserve::Insert => Err(Kind::Unsupported.into()),
        }
    }

    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64> {
        self.look(node, |_, inode| {
            let within = (offset < inode.size).then_some(());
            let found = within.and_then(|()| content::seek(inode, offset, what == Seek::Data));
            Ok(found.ok_or(Kind::NoMore)?)
        })
    }

    fn xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.look(node, |_, inode| {
            let found = inode.xattrs().into_iter().find(|(other, _)| *other == name.as_bytes());
            Ok(found.ok_or(Kind::NoAttribute)?.1.to_vec())
        })
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<OsString>> {
        self.look(node, |_, inode| {
            let names = inode.xattrs().into_iter().map(|(name, _)| name.to_vec());
            Ok(names.map(OsString::from_vec).collect())
        })
    }

    fn set_xattr(&self, node: NodeId, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        self.alter(node, Pad::Meta, |_, inode| {
            let is_there = inode.xattrs().iter().any(|(other, _)| *other == name.as_bytes());
            match mode {
                XattrMode::Create if is_there => return Err(Kind::Exists.into()),
                XattrMode::Replace if !is_there => return Err(Kind::NoAttribute.into()),
                _ => {}
            }
            if inode.set_xattr(name, Some(value)) { Ok(()) } else { Err(Kind::NoSpace.into()) }
        })
    }

    fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        self.alter(node, Pad::Meta, |_, inode| {
            let is_there = inode.xattrs().iter().any(|(other, _)| *other == name.as_bytes());
            if is_there && inode.set_xattr(name, None) {
                Ok(())
            } else {
                Err(Kind::NoAttribute.into())
            }
        })
    }

    fn inode_flags(&self, node: NodeId) -> Result<u32> {
        self.look(node, |_, inode| Ok(inode.flags & FLAGS))
    }

    fn set_inode_flags(&self, node: NodeId, flags: u32) -> Result<()> {
        if flags & !FLAGS != 0 {
            return Err(Kind::Unsupported.into());
        }
        self.alter(node, Pad::Meta, |_, inode| {
            check_noted_flags(inode.flags, flags)?;
            inode.flags = flags;
            Ok(())
        })
    }

    fn stats(&self) -> Result<FsStats> {
        self.core.ask_for_room()?;
        let state = self.core.lock();
        let capacity = state.usage.room.capacity;
        let (free, available) = state.usage.free(&self.core.options);
        Ok(FsStats {
            block_len_bytes: u32::try_from(BLOCK_LEN).expect("blocks are short"),
            blocks: capacity,
            blocks_free: free,
            blocks_available: available,
            files: capacity,
            files_free: available,
            name_len_max: NAME_LEN_MAX,
        })
    }

    fn wait(&self, _node: NodeId, demand: Demand) -> Wait {
        match demand {
            Demand::Write | Demand::Resize | Demand::Sync => Wait::Others,
            Demand::Unlinked | Demand::Released => Wait::No,
        }
    }

    fn sync_node(&self, node: NodeId) -> Result<()> {
        self.id(node)?;
        Ok(self.core.flush()?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.core.settle()?)
    }
}
