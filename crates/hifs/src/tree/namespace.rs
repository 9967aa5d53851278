//! Names come, go and move.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use tacita_vfs::{Error, Exchange, FileType, Kind, NewNode, NodeId, Result, Timestamp};

use super::links::Links;
use super::node::{Body, Node, NodeTimes};
use super::{Name, ROOT, State};
use crate::faults::{Fault, planted};
use crate::geometry::{Ids, Table, Times};
use crate::record::{NAME_LEN_MAX, Xattrs};

const MTIME: usize = 1;
const CTIME: usize = 2;

/// A name in a form that directories share.
pub(crate) fn name_of(name: &OsStr) -> Result<Name> {
    let bytes = name.as_bytes();
    if bytes.len() > NAME_LEN_MAX {
        return Err(Kind::NameTooLong.into());
    }
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(Kind::Invalid.into());
    }
    Ok(bytes.into())
}

fn inode_table_full() -> Error {
    Error::new(Kind::NoSpace, "the inode table is full")
}

impl State {
    /// The node under a name.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; [`Kind::NotDirectory`].
    pub(crate) fn find(&self, dir: NodeId, name: &Name) -> Result<NodeId> {
        let parent = self.node(dir)?;
        let directory = parent.directory().ok_or(Kind::NotDirectory)?;
        let (_, hash) = self.names.entry(parent.id, name);
        let key = (hash, Name::clone(name));
        directory.entries.get(&key).copied().ok_or_else(|| Kind::NotFound.into())
    }

    /// Makes a node under a free name.
    ///
    /// # Errors
    /// [`Kind::Exists`], [`Kind::NoSpace`]: nothing has changed.
    pub(crate) fn create(&mut self, dir: NodeId, name: &Name, new: &NewNode) -> Result<NodeId> {
        match self.find(dir, name) {
            Ok(_) => return Err(Kind::Exists.into()),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
        let target = new.target.as_bytes();
        if new.kind == FileType::Symlink && (target.is_empty() || target.contains(&0)) {
            return Err(Kind::Invalid.into());
        }
        let id = match self.superblock.ids {
            Ids::Path => self.names.entry(self.node(dir)?.id, name).0,
            Ids::Random => (self.random_id)(),
        };
        let body = match new.kind {
            FileType::Directory => Body::Directory(Box::default()),
            FileType::File | FileType::Symlink => Body::Content(Box::default()),
            _ => Body::Nothing,
        };
        let node = Node {
            id,
            kind: new.kind,
            perm: new.perm,
            uid: new.uid,
            gid: new.gid,
            rdev: match new.kind {
                FileType::CharDevice | FileType::BlockDevice => new.rdev,
                _ => 0,
            },
            size: 0,
            times: NodeTimes::new(new.now),
            xattrs: Xattrs::new(),
            links: Links::default(),
            body,
            record_len: 0,
        };
        let before = self.pages_used;
        let node = self.nodes.insert(node);
        if new.kind == FileType::Directory {
            self.dirs.insert(id, node);
        }
        let made = self
            .fill_new(node, new)
            .and_then(|()| self.add_entry(dir, name, node))
            .and_then(|()| self.index_inode(node))
            .and_then(|()| self.check_pages(before));
        if let Err(error) = made {
            let _ = self.remove_entry(dir, name);
            self.make_nameless(node);
            self.erase(node);
            return Err(error);
        }
        self.stamp(dir, new.now)?;
        Ok(node)
    }

    fn fill_new(&mut self, node: NodeId, new: &NewNode) -> Result<()> {
        self.keep_clock(node, new.now, &[MTIME, CTIME])?;
        if new.kind == FileType::Symlink {
            self.write(node, 0, new.target.as_bytes(), |_| Ok(()))?;
        }
        Ok(())
    }

    /// Refuses growth of the tables beyond the fixed limit.
    pub(super) fn check_pages(&self, before: u64) -> Result<()> {
        let max = self.superblock.geometry.cells_max(Table::Pages);
        if self.pages_used > max && self.pages_used > before {
            return Err(inode_table_full());
        }
        Ok(())
    }

    /// Gives a node another name.
    ///
    /// # Errors
    /// [`Kind::Exists`], [`Kind::NoSpace`]: nothing has changed.
    pub(crate) fn link(
        &mut self,
        node: NodeId,
        dir: NodeId,
        name: &Name,
        now: Timestamp,
    ) -> Result<()> {
        if self.find(dir, name).is_ok() {
            return Err(Kind::Exists.into());
        }
        if self.node(node)?.links.len() >= self.links_max() {
            return Err(Kind::TooManyLinks.into());
        }
        let before = self.pages_used;
        self.add_entry(dir, name, node)?;
        self.identify_with(node, dir, name)?;
        if let Err(error) = self.check_pages(before) {
            self.remove_entry(dir, name)?;
            self.identify_without(node)?;
            if self.node(node)?.links.is_empty() {
                self.make_nameless(node);
            }
            return Err(error);
        }
        self.not_nameless(node);
        self.stamp(dir, now)?;
        self.keep_clock(node, now, &[CTIME])
    }

    /// Takes a name away; returns the node it named.
    ///
    /// # Errors
    /// [`Kind::NotFound`]. [`Kind::NoSpace`] if the next least path of a file with several names
    /// would need a page and there is not one cell left: nothing has changed.
    pub(crate) fn remove(&mut self, dir: NodeId, name: &Name, now: Timestamp) -> Result<NodeId> {
        self.find(dir, name)?;
        let before = self.pages_used;
        let node = self.remove_entry(dir, name)?;
        if self.node(node)?.links.is_empty() {
            self.make_nameless(node);
        } else {
            self.identify_without(node)?;
            let cells = u64::from(self.superblock.geometry.shape(Table::Pages).cells());
            if self.pages_used > cells && self.pages_used > before {
                self.add_entry(dir, name, node)?;
                self.identify_with(node, dir, name)?;
                return Err(inode_table_full());
            }
        }
        self.stamp(dir, now)?;
        self.keep_clock(node, now, &[CTIME])?;
        Ok(node)
    }

    /// A node has a name again.
    fn not_nameless(&mut self, node: NodeId) {
        self.pending.nameless.remove(&node);
        self.pending.undrawn.remove(&node);
    }

    /// A node without a name is not part of the image's tree; if it has content, it may stay in use.
    fn make_nameless(&mut self, node: NodeId) {
        self.unindex_inode(node);
        let Some(data) = self.nodes.get(node) else {
            return;
        };
        if data.directory().is_some() {
            self.dirs.remove(&data.id);
        } else if data.content().is_some() {
            self.pending.nameless.insert(node);
            self.pending.undrawn.insert(node);
            self.note_moved(node);
        }
    }

    /// Erases a node without a name, and lets its number go.
    pub(crate) fn erase(&mut self, node: NodeId) {
        self.bury(node);
        self.nodes.free(node);
    }

    /// Erases a node without a name; its number stays taken.
    pub(crate) fn bury(&mut self, node: NodeId) {
        if node == ROOT || self.nodes.get(node).is_none_or(|data| !data.links.is_empty()) {
            return;
        }
        self.unindex_inode(node);
        self.not_nameless(node);
        self.pending.files.remove(&node);
        self.pending.renamed.remove(&node);
        if let Some(data) = self.nodes.bury(node)
            && let Some(content) = data.content()
        {
            self.buckets_used -= data.buckets_counted();
            // What waits may have made it shorter than the image has it.
            let is_known = content.is_settled() || planted(Fault::ShortenedResidue);
            let size = is_known.then_some(data.size);
            self.pending.dead.extend(content.base().map(|base| (base, size)));
        }
    }

    /// Moves a name; returns the node that lost its name by being replaced.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; [`Kind::CrossDevice`] if the subtree is too large for one commit.
    pub(crate) fn rename(
        &mut self,
        (from_dir, from): (NodeId, &Name),
        (to_dir, to): (NodeId, &Name),
        exchange: Exchange,
        now: Timestamp,
    ) -> Result<Option<NodeId>> {
        let node = self.find(from_dir, from)?;
        let target = match self.find(to_dir, to) {
            Ok(target) => Some(target),
            Err(error) if error.kind() == Kind::NotFound => None,
            Err(error) => return Err(error),
        };
        let before = self.pages_used;
        self.remove_entry(from_dir, from)?;
        if target.is_some() {
            self.remove_entry(to_dir, to)?;
        }
        self.add_entry(to_dir, to, node)?;
        let mut roots = vec![node];
        let mut replaced = None;
        match (target, exchange) {
            (Some(target), Exchange::Yes) => {
                self.add_entry(from_dir, from, target)?;
                roots.push(target);
            }
            (Some(target), Exchange::No) => replaced = Some(target),
            (None, _) => {}
        }
        if let Some(target) = replaced {
            // Its id may be the one that the moved node now takes.
            self.unindex_inode(target);
            if self.node(target)?.links.is_empty() {
                self.make_nameless(target);
            } else {
                roots.push(target);
            }
        }
        self.identify(&roots)?;
        if let Err(error) = self.check_pages(before) {
            self.rename_back((from_dir, from), (to_dir, to), (node, target), exchange)?;
            return Err(error);
        }
        self.stamp(from_dir, now)?;
        self.stamp(to_dir, now)?;
        for node in roots.into_iter().chain(replaced) {
            self.keep_clock(node, now, &[CTIME])?;
        }
        Ok(replaced)
    }

    fn identify(&mut self, nodes: &[NodeId]) -> Result<()> {
        match self.superblock.ids {
            Ids::Path => self.reidentify(nodes),
            Ids::Random => nodes.iter().try_for_each(|node| self.index_inode(*node)),
        }
    }

    /// Takes a rename back that has filled the inode table beyond its limit.
    fn rename_back(
        &mut self,
        (from_dir, from): (NodeId, &Name),
        (to_dir, to): (NodeId, &Name),
        (node, target): (NodeId, Option<NodeId>),
        exchange: Exchange,
    ) -> Result<()> {
        self.remove_entry(to_dir, to)?;
        if target.is_some() && exchange == Exchange::Yes {
            self.remove_entry(from_dir, from)?;
        }
        self.add_entry(from_dir, from, node)?;
        if let Some(target) = target {
            self.add_entry(to_dir, to, target)?;
            self.not_nameless(target);
            let data = self.node(target)?;
            if data.directory().is_some() {
                self.dirs.insert(data.id, target);
            }
        }
        let nodes: Vec<NodeId> = [Some(node), target].into_iter().flatten().collect();
        self.identify(&nodes)
    }

    /// Blocks that renaming a node changes: all pages below a directory, and the pages of all
    /// inodes there, of which each leaves one and enters another; and where else files of the
    /// subtree are named. Buckets only move. `None` if that is more than one commit can hold, or
    /// the inode table.
    pub(crate) fn rename_blocks(&self, node: NodeId) -> Option<u64> {
        if self.superblock.ids == Ids::Random {
            return Some(0);
        }
        let (mut nodes, mut pages, mut names) = (0u64, 0u64, 0u64);
        let mut stack = vec![node];
        while let Some(at) = stack.pop().and_then(|id| self.nodes.get(id)) {
            nodes += 1;
            names += u64::from(at.links.len()).saturating_sub(1);
            if let Body::Directory(dir) = &at.body {
                pages += u64::from(dir.trie.pages());
                stack.extend(dir.entries.values());
            }
        }
        let inode_pages = u64::from(self.inodes.trie.pages());
        let moved = pages + nodes.min(inode_pages);
        let blocks = 2 * moved + names.min(self.pages_used);
        let g = &self.superblock.geometry;
        let room = g.cells_max(Table::Pages).saturating_sub(self.pages_used);
        let fits = self.fits_one_commit(blocks) && (nodes <= 64 || (2 * moved + 8) / 8 <= room);
        fits.then_some(blocks)
    }

    /// The content of a directory has changed.
    fn stamp(&mut self, dir: NodeId, now: Timestamp) -> Result<()> {
        self.keep_clock(dir, now, &[MTIME, CTIME])
    }

    /// Sets times from the clock, and keeps them if the image does.
    pub(crate) fn keep_clock(&mut self, id: NodeId, now: Timestamp, which: &[usize]) -> Result<()> {
        let keep = self.superblock.times == Times::Full || planted(Fault::ClockTimes);
        let node = self.node_mut(id)?;
        for &i in which {
            node.times.set(i, now);
            if keep {
                node.times.keep(i, now);
            }
        }
        if keep && node.record_len > 0 { self.index_inode(id) } else { Ok(()) }
    }
}
