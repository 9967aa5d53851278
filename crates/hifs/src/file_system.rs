//! HIFS behind the file system seam.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use tacita_clock::Event;
use tacita_vfs::{
    Attr, Change, Cookie, Demand, Entry, Exchange, FileSystem, FileType, FsStats, Kind, Link,
    NewNode, NodeId, Reserve, Result, Seek, Stamps, Target, Timestamp, Wait, XattrMode,
};

use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Table, Times};
use crate::hifs::{Durability, Hifs};
use crate::record::{INLINE_LEN_MAX, NAME_LEN_MAX, XATTRS_LEN_MAX, is_xattr_name, xattrs_len};
use crate::tree::namespace::name_of;
use crate::tree::{Body, Node, ROOT, State};

/// Inodes that a page holds, for `statfs`.
const INODES_PER_PAGE: u64 = 24;

impl Hifs {
    /// Runs a change of a few blocks, see [`Hifs::changing_blocks`].
    fn changing<T>(&self, change: impl Fn(&mut State) -> Result<T>) -> Result<T> {
        self.changing_blocks(|_| Ok(0), change)
    }

    /// Runs a change of so many blocks and some pages, with a commit first if what is pending
    /// leaves it no room, and once more after a commit if there seems to be no room in the image:
    /// what is pending counts generously.
    fn changing_blocks<T>(
        &self,
        blocks: impl Fn(&State) -> Result<u64>,
        change: impl FnMut(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.taking(None, blocks, change)
    }

    /// The same of a change that takes content of `file`. If that is what keeps all from being committed, it
    /// is made, whether or not there is room beside what is pending.
    fn taking<T>(
        &self,
        file: Option<NodeId>,
        blocks: impl Fn(&State) -> Result<u64>,
        mut change: impl FnMut(&mut State) -> Result<T>,
    ) -> Result<T> {
        let mut committed = false;
        loop {
            let mut state = self.exclusive();
            self.check_writable()?;
            let blocks = blocks(&state)?;
            if !state.is_loaded(blocks) || state.pending.is_empty() {
                match change(&mut state) {
                    Err(error)
                        if error.kind() == Kind::NoSpace
                            && !committed
                            && !state.pending.is_empty() => {}
                    done => return done,
                }
                committed = true;
                drop(state);
                self.commit_for(Durability::Room, &|_| true)?;
            } else {
                drop(state);
                match self.make_room(blocks) {
                    Err(e)
                        if e.kind() == crate::Kind::Unreadable
                            && file.is_some_and(|file| self.is_in_the_way(file)) =>
                    {
                        return change(&mut self.exclusive());
                    }
                    done => done?,
                }
            }
        }
    }

    fn reading<T>(&self, read: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        let state = self.shared();
        self.check_usable()?;
        read(&state)
    }
}

impl State {
    /// The inode number: half of the id; 1 for the root, above 2 for all others.
    #[expect(clippy::cast_possible_truncation, reason = "ids are pseudo-random: half is a number")]
    fn ino(&self, node: &Node) -> u64 {
        if node.id == self.root_id { 1 } else { (node.id as u64).max(3) }
    }

    fn attr(&self, node: &Node) -> Attr {
        let geometry = &self.superblock.geometry;
        let (size, blocks, nlink) = match &node.body {
            Body::Directory(dir) => {
                let pages = u64::from(dir.trie.pages()).max(1);
                (pages * BLOCK_LEN as u64, pages * 8, 2 + dir.subdirectories)
            }
            Body::Content(content) => {
                let buckets = if node.size <= INLINE_LEN_MAX { 0 } else { content.buckets };
                (
                    node.size,
                    u64::from(buckets) * u64::from(geometry.bucket_blocks) * 8,
                    node.links.len(),
                )
            }
            Body::Nothing => (0, 0, node.links.len()),
        };
        let [atime, mtime, ctime] = node.times.seen();
        Attr {
            ino: self.ino(node),
            kind: node.kind,
            perm: node.perm,
            nlink: if node.links.is_empty() && node.id != self.root_id { 0 } else { nlink },
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            size,
            blocks,
            block_len_bytes: u32::try_from(geometry.bucket_len_bytes()).expect("1 MiB at most"),
            atime,
            mtime,
            ctime,
        }
    }

    fn change(&mut self, id: NodeId, change: &Change) -> Result<Attr> {
        let kept = self.superblock.times;
        let node = self.node_mut(id)?;
        let before = (node.perm, node.uid, node.gid, node.times.clone());
        let moved = change.uid.is_some_and(|uid| uid != node.uid);
        node.perm = change.perm.unwrap_or(node.perm);
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        for (i, time) in [change.atime, change.mtime, change.ctime].into_iter().enumerate() {
            let Some(time) = time else { continue };
            node.times.set(i, time);
            let by_user = change.user_times && i < 2;
            let keep = match kept {
                Times::None => planted(Fault::ClockTimes),
                Times::User => by_user,
                Times::Full => by_user || i > 0,
            };
            if keep {
                node.times.keep(i, time);
            }
        }
        let mut done = self.index_again(id);
        if let (Ok(()), Some(size)) = (&done, change.size) {
            done = self.truncate(id, size);
        }
        if let Err(error) = done {
            let node = self.node_mut(id)?;
            (node.perm, node.uid, node.gid, node.times) = before;
            self.index_again(id)?;
            return Err(error);
        }
        if moved && self.node(id)?.content().is_some() {
            self.note_moved(id);
        }
        Ok(self.attr(self.node(id)?))
    }

    fn set_xattr(&mut self, id: NodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if name.len() > NAME_LEN_MAX {
            return Err(Kind::NameTooLong.into());
        }
        if !is_xattr_name(name) {
            return Err(Kind::Unsupported.into());
        }
        let node = self.node_mut(id)?;
        match (node.xattrs.contains_key(name), mode) {
            (true, XattrMode::Create) => return Err(Kind::Exists.into()),
            (false, XattrMode::Replace) => return Err(Kind::NoAttribute.into()),
            _ => {}
        }
        let before = node.xattrs.insert(name.to_vec(), value.to_vec());
        let fits = xattrs_len(&node.xattrs) <= XATTRS_LEN_MAX && u16::try_from(value.len()).is_ok();
        let done = if fits { self.index_again(id) } else { Err(Kind::NoSpace.into()) };
        if done.is_err() {
            let node = self.node_mut(id)?;
            node.xattrs.remove(name);
            node.xattrs.extend(before.map(|value| (name.to_vec(), value)));
            self.index_again(id)?;
        }
        done
    }

    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let directory = self.directory(dir)?;
        let start = if from == 0 { 0 } else { first_hash_after(from) };
        let entries = directory.entries.range((start, crate::tree::Name::default())..);
        for ((hash, name), child) in entries {
            let cookie = cookie_of(*hash);
            if from != 0 && cookie <= from {
                continue;
            }
            let node = self.node(*child)?;
            let name = OsStr::from_bytes(name);
            let attr = self.attr(node);
            let (ino, kind) = (attr.ino, attr.kind);
            if !each(Entry { name, node: *child, ino, kind, attr: Some(attr), cookie }) {
                break;
            }
        }
        Ok(())
    }

    fn stats(&self) -> FsStats {
        let g = &self.superblock.geometry;
        let buckets = g.cells_max(Table::Buckets);
        let pages = g.cells_max(Table::Pages);
        let free = buckets.saturating_sub(self.buckets_used);
        let free_pages = pages.saturating_sub(self.pages_used);
        FsStats {
            block_len_bytes: u32::try_from(g.bucket_len_bytes()).expect("1 MiB at most"),
            blocks: buckets,
            blocks_free: free,
            blocks_available: free,
            files: self.nodes.len() + free_pages * INODES_PER_PAGE,
            files_free: free_pages * INODES_PER_PAGE,
            name_len_max: 255,
        }
    }

    fn reserve(&mut self, id: NodeId, range: Range<u64>, how: Reserve) -> Result<()> {
        let size = self.node(id)?.size;
        match how {
            Reserve::Allocate { keep_size } | Reserve::Zero { keep_size } => {
                if matches!(how, Reserve::Zero { .. }) {
                    self.zero(id, range.start.min(size)..range.end.min(size))?;
                } else {
                    // Zeros are never stored, so nothing can be set aside; what cannot fit is told.
                    let free =
                        self.stats().blocks_free * self.superblock.geometry.bucket_len_bytes();
                    if range.end.saturating_sub(range.start.max(size)) > free {
                        return Err(Kind::NoSpace.into());
                    }
                }
                if !keep_size && range.end > size { self.truncate(id, range.end) } else { Ok(()) }
            }
            Reserve::Punch => self.zero(id, range.start.min(size)..range.end.min(size)),
            Reserve::Collapse | Reserve::Insert => Err(Kind::Unsupported.into()),
        }
    }
}

/// Cookies are hashes of 63 bits, above those of `.` and `..`.
fn cookie_of(hash: u64) -> Cookie {
    (hash >> 1).max(3)
}

fn first_hash_after(cookie: Cookie) -> u64 {
    if cookie <= 3 { 0 } else { cookie.saturating_add(1) << 1 }
}

impl FileSystem for Hifs {
    fn root(&self) -> NodeId {
        ROOT
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        self.reading(|state| Ok(state.attr(state.node(node)?)))
    }

    fn lookup(&self, dir: NodeId, name: &OsStr) -> Result<(NodeId, Attr)> {
        let name = name_of(name)?;
        self.reading(|state| {
            let node = state.find(dir, &name)?;
            Ok((node, state.attr(state.node(node)?)))
        })
    }

    fn parent(&self, dir: NodeId) -> Result<NodeId> {
        self.reading(|state| {
            state.directory(dir)?;
            Ok(state.node(dir)?.owner_link().map_or(ROOT, |(parent, _)| *parent))
        })
    }

    fn create(&self, dir: NodeId, name: &OsStr, new: &NewNode) -> Result<(NodeId, Attr)> {
        let name = name_of(name)?;
        let blocks = |state: &State| Ok(state.write_blocks(new.target.len()));
        self.changing_blocks(blocks, |state| {
            let node = state.create(dir, &name, new)?;
            Ok((node, state.attr(state.node(node)?)))
        })
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &OsStr, now: Timestamp) -> Result<Attr> {
        let name = name_of(name)?;
        let blocks = |state: &State| state.link_blocks(node, dir, &name);
        self.changing_blocks(blocks, |state| {
            state.link(node, dir, &name, now)?;
            Ok(state.attr(state.node(node)?))
        })
    }

    fn remove(&self, link: Link<'_>, now: Timestamp) -> Result<u32> {
        let name = name_of(link.name)?;
        let blocks = |state: &State| state.link_blocks(link.node, link.dir, &name);
        self.taking(Some(link.node), blocks, |state| {
            let node = state.remove(link.dir, &name, now)?;
            Ok(state.node(node)?.links.len())
        })
    }

    fn rename(
        &self,
        from: Link<'_>,
        to: Target<'_>,
        exchange: Exchange,
        now: Timestamp,
    ) -> Result<u32> {
        let (from_name, to_name) = (name_of(from.name)?, name_of(to.name)?);
        // A directory takes its whole subtree along, and a file of several names takes these; all
        // of it must fit in one commit.
        let blocks = |state: &State| {
            let mut blocks = 0;
            for node in [Some(from.node), to.node].into_iter().flatten() {
                blocks += state.rename_blocks(node).ok_or(Kind::CrossDevice)?;
            }
            if state.fits_one_commit(blocks) { Ok(blocks) } else { Err(Kind::CrossDevice.into()) }
        };
        self.changing_blocks(blocks, |state| {
            match state.rename((from.dir, &from_name), (to.dir, &to_name), exchange, now)? {
                Some(replaced) => Ok(state.node(replaced)?.links.len()),
                None => Ok(0),
            }
        })
    }

    fn forget(&self, node: NodeId) {
        self.exclusive().erase(node);
    }

    fn unused(&self, node: NodeId) {
        let mut state = self.exclusive();
        if state.nodes.get(node).is_some_and(|data| data.content().is_some()) {
            state.bury(node);
        }
    }

    fn list(
        &self,
        dir: NodeId,
        from: Cookie,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        self.reading(|state| state.list(dir, from, each))
    }

    fn change(&self, node: NodeId, change: &Change) -> Result<Attr> {
        let blocks = |state: &State| Ok(state.write_blocks(0));
        let file = change.size.map(|_| node);
        self.taking(file, blocks, |state| state.change(node, change))
    }

    fn read_link(&self, node: NodeId) -> Result<OsString> {
        self.reading(|state| {
            let link = state.node(node)?;
            if link.kind != FileType::Symlink {
                return Err(Kind::Invalid.into());
            }
            let mut target = vec![0; usize::try_from(link.size).map_err(|_| Kind::Corrupt)?];
            state.read(node, 0, &mut target)?;
            Ok(OsString::from_vec(target))
        })
    }

    fn read(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.reading(|state| state.read(node, offset, buf))
    }

    fn write(&self, node: NodeId, offset: u64, data: &[u8], stamps: Stamps) -> Result<()> {
        self.write_and_tell(node, offset, data, stamps, &mut || ())
    }

    fn write_and_tell(
        &self,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stamps: Stamps,
        accepted: &mut dyn FnMut(),
    ) -> Result<()> {
        if planted(Fault::AcceptedEarly) {
            accepted();
        }
        // In pieces, so that one request does not outgrow a small image's journal; but all or
        // nothing where there is no room.
        let piece_len = self.shared().piece_len();
        if data.len() > piece_len {
            self.changing(|state| state.check_write(node, offset, data))?;
        }
        let mut done = 0;
        for piece in data.chunks(piece_len) {
            let blocks = |state: &State| Ok(state.write_blocks(piece.len()));
            let is_last = done + piece.len() as u64 == data.len() as u64;
            self.changing_blocks(blocks, |state| {
                state.write(node, offset.saturating_add(done), piece, |state| {
                    // With the first piece, for set-id bits fall before anybody else's bytes are there.
                    if let Some(change) = stamps.change().filter(|_| done == 0) {
                        state.change(node, &change)?;
                    }
                    // Who asks for anything now waits for the state, and has it when all is there.
                    if is_last && !planted(Fault::AcceptedEarly) {
                        accepted();
                    }
                    Ok(())
                })
            })?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    fn reserve(&self, node: NodeId, range: Range<u64>, how: Reserve) -> Result<()> {
        let blocks = |state: &State| Ok(state.write_blocks(0));
        self.changing_blocks(blocks, |state| state.reserve(node, range.clone(), how))
    }

    fn seek(&self, node: NodeId, offset: u64, what: Seek) -> Result<u64> {
        self.reading(|state| state.seek(node, offset, what))
    }

    fn xattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.reading(|state| {
            let value = state.node(node)?.xattrs.get(name.as_bytes());
            value.cloned().ok_or_else(|| Kind::NoAttribute.into())
        })
    }

    fn xattrs(&self, node: NodeId) -> Result<Vec<OsString>> {
        self.reading(|state| {
            Ok(state
                .node(node)?
                .xattrs
                .keys()
                .map(|name| OsString::from_vec(name.clone()))
                .collect())
        })
    }

    fn set_xattr(&self, node: NodeId, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        self.changing(|state| state.set_xattr(node, name.as_bytes(), value, mode))
    }

    fn remove_xattr(&self, node: NodeId, name: &OsStr) -> Result<()> {
        self.changing(|state| {
            let node_data = state.node_mut(node)?;
            node_data.xattrs.remove(name.as_bytes()).ok_or(Kind::NoAttribute)?;
            if node_data.record_len > 0 { state.index_inode(node) } else { Ok(()) }
        })
    }

    fn stats(&self) -> Result<FsStats> {
        self.reading(|state| Ok(state.stats()))
    }

    fn wait(&self, _: NodeId, demand: Demand) -> Wait {
        // A commit keeps whoever asked for it waiting, or needs the room that it makes; others read on.
        let needs_room = || {
            let state = self.shared();
            state.is_loaded(state.write_blocks(state.piece_len()))
        };
        match demand {
            Demand::Sync => Wait::Device,
            Demand::Write | Demand::Resize if needs_room() => Wait::Device,
            _ => Wait::No,
        }
    }

    fn left_to_do(&self) -> Option<Event> {
        Some(self.left())
    }

    fn catch_up(&self) {
        // What fails stays, and is tried again by the next commit, which tells.
        drop(self.commit_for(Durability::Room, &|_| false));
    }

    fn sync_node(&self, _: NodeId) -> Result<()> {
        Ok(self.commit_for_fsync()?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.commit()?)
    }
}
