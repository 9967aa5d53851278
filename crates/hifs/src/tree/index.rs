//! The tries: which page each inode and each directory entry belongs to.

use std::collections::{BTreeMap, HashSet};

use tacita_vfs::{Kind, NodeId, Result};

use super::node::{Directory, Nodes};
use super::{Name, State};
use crate::names::FileId;
use crate::page::PageKey;
use crate::record::entry_len;
use crate::trie::{LeafKey, Trie};

/// All inodes in canonical order: by hash, then id, which is the order of the ids.
#[derive(Debug)]
pub(crate) struct InodeTable {
    pub(crate) id: FileId,
    pub(crate) entries: BTreeMap<FileId, NodeId>,
    pub(crate) trie: Trie,
}

impl InodeTable {
    pub(crate) fn new(id: FileId) -> Self {
        Self { id, entries: BTreeMap::new(), trie: Trie::default() }
    }

    fn sum(
        entries: &BTreeMap<FileId, NodeId>,
        nodes: &Nodes,
        ids: std::ops::RangeInclusive<FileId>,
    ) -> u32 {
        entries
            .range(ids)
            .filter_map(|(_, node)| nodes.get(*node))
            .map(|node| node.record_len)
            .sum()
    }
}

impl Directory {
    /// Entries whose hashes lie in a range.
    pub(crate) fn range(
        &self,
        hashes: std::ops::RangeInclusive<u64>,
    ) -> impl Iterator<Item = (&(u64, Name), &NodeId)> {
        let end = *hashes.end();
        let start = (*hashes.start(), Name::default());
        self.entries.range(start..).take_while(move |((hash, _), _)| *hash <= end)
    }

    fn sum(entries: &BTreeMap<(u64, Name), NodeId>, hashes: &std::ops::RangeInclusive<u64>) -> u32 {
        entries
            .range((*hashes.start(), Name::default())..)
            .take_while(|((hash, _), _)| hash <= hashes.end())
            .map(|((_, name), _)| entry_len(name.len()))
            .sum()
    }

    /// Adds an entry and reports the leaves that it touches.
    pub(crate) fn add(
        &mut self,
        hash: u64,
        name: Name,
        node: NodeId,
        touched: &mut impl FnMut(LeafKey),
    ) {
        let len = entry_len(name.len());
        self.entries.insert((hash, name), node);
        let entries = &self.entries;
        self.trie.add(hash, len, |hashes| Self::sum(entries, &hashes), touched);
    }

    /// Whether one page can hold another name with this hash.
    pub(crate) fn has_room(&self, hash: u64, name_len: usize) -> bool {
        !Trie::overflows(Self::sum(&self.entries, &(hash..=hash)), entry_len(name_len))
    }
}

fn touch(pages: &mut HashSet<PageKey>, trie: FileId) -> impl FnMut(LeafKey) {
    move |leaf| {
        pages.insert(PageKey { trie, leaf });
    }
}

impl State {
    /// Brings an inode into the trie of inodes, or brings its entry's length up to date.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if too many inodes share one hash.
    pub(crate) fn index_inode(&mut self, id: NodeId) -> Result<()> {
        let Self { nodes, inodes, names, pending, .. } = self;
        let node = nodes.get_mut(id).ok_or(Kind::Stale)?;
        let (hash, len) = (names.inode(node.id), node.record_len_now());
        let before = inodes.trie.pages();
        let mut touched = touch(&mut pending.pages, inodes.id);
        if node.record_len == len {
            touched(inodes.trie.leaf(hash));
            return Ok(());
        }
        let (old_len, key) = (node.record_len, node.id);
        if old_len > 0 {
            inodes.trie.remove(hash, old_len, &mut touched);
        }
        let others =
            InodeTable::sum(&inodes.entries, nodes, names.inodes(&(hash..=hash))) - old_len;
        let fits = !Trie::overflows(others, len);
        let new_len = if fits { len } else { old_len };
        if new_len > 0 {
            nodes.get_mut(id).ok_or(Kind::Stale)?.record_len = new_len;
            inodes.entries.insert(key, id);
            let InodeTable { entries, trie, .. } = inodes;
            let sum = |hashes| InodeTable::sum(entries, nodes, names.inodes(&hashes));
            trie.add(hash, new_len, sum, &mut touched);
        }
        self.pages_used = self.pages_used + u64::from(inodes.trie.pages()) - u64::from(before);
        if fits { Ok(()) } else { Err(Kind::NoSpace.into()) }
    }

    /// Brings the entry of an inode that is in the trie up to date.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if that takes more pages than there may be: the caller takes its change
    /// back and calls this again.
    pub(crate) fn index_again(&mut self, id: NodeId) -> Result<()> {
        if self.node(id)?.record_len == 0 {
            return Ok(());
        }
        let before = self.pages_used;
        self.index_inode(id)?;
        self.check_pages(before)
    }

    /// Takes an inode out of the trie of inodes.
    pub(crate) fn unindex_inode(&mut self, id: NodeId) {
        let Self { nodes, inodes, names, pending, .. } = self;
        let Some(node) = nodes.get_mut(id).filter(|node| node.record_len > 0) else {
            return;
        };
        let hash = names.inode(node.id);
        let before = inodes.trie.pages();
        inodes.entries.remove(&node.id);
        let touched = &mut touch(&mut pending.pages, inodes.id);
        inodes.trie.remove(hash, node.record_len, touched);
        node.record_len = 0;
        self.pages_used = self.pages_used + u64::from(inodes.trie.pages()) - u64::from(before);
    }

    /// Adds a name to a directory; the inode it names gets the link.
    ///
    /// # Errors
    /// [`Kind::NotDirectory`]; [`Kind::NoSpace`] if too many names share one hash.
    pub(crate) fn add_entry(&mut self, dir: NodeId, name: &Name, node: NodeId) -> Result<()> {
        let Self { nodes, names, pending, .. } = self;
        let is_dir = nodes.get(node).is_some_and(|node| node.directory().is_some());
        let parent = nodes.get_mut(dir).ok_or(Kind::Stale)?;
        let (trie, (_, hash)) = (parent.id, names.entry(parent.id, name));
        let directory = parent.directory_mut().ok_or(Kind::NotDirectory)?;
        if !directory.has_room(hash, name.len()) {
            return Err(Kind::NoSpace.into());
        }
        let before = directory.trie.pages();
        directory.add(hash, Name::clone(name), node, &mut touch(&mut pending.pages, trie));
        directory.subdirectories += u32::from(is_dir);
        let after = directory.trie.pages();
        self.pages_used = self.pages_used + u64::from(after) - u64::from(before);
        let node = nodes.get_mut(node).ok_or(Kind::Stale)?;
        node.links.add((dir, Name::clone(name)));
        // The directory's inode counts its entries.
        self.index_inode(dir)
    }

    /// Takes a name out of a directory, and the link out of the inode.
    pub(crate) fn remove_entry(&mut self, dir: NodeId, name: &Name) -> Result<NodeId> {
        let Self { nodes, names, pending, .. } = self;
        let parent = nodes.get_mut(dir).ok_or(Kind::Stale)?;
        let (trie, (_, hash)) = (parent.id, names.entry(parent.id, name));
        let directory = parent.directory_mut().ok_or(Kind::NotDirectory)?;
        let before = directory.trie.pages();
        let node = directory.entries.remove(&(hash, Name::clone(name))).ok_or(Kind::NotFound)?;
        let len = entry_len(name.len());
        directory.trie.remove(hash, len, &mut touch(&mut pending.pages, trie));
        let after = directory.trie.pages();
        self.pages_used = self.pages_used + u64::from(after) - u64::from(before);
        let child = nodes.get_mut(node).ok_or(Kind::Stale)?;
        child.links.remove(&(dir, Name::clone(name)));
        if child.directory().is_some()
            && let Some(directory) = nodes.get_mut(dir).and_then(|d| d.directory_mut())
        {
            directory.subdirectories -= 1;
        }
        self.index_inode(dir)?;
        Ok(node)
    }

    /// The pages that hold the names of `node` must be written again. Where there are many, that is
    /// left to the commit, so that it is done once.
    pub(crate) fn rename_in_links(&mut self, node: NodeId) {
        let names = self.nodes.get(node).map_or(0, |node| node.links.len());
        if names <= 1 {
            self.touch_links(node);
        } else if self.pending.renamed.insert(node) {
            self.pending.names += u64::from(names);
        }
    }

    /// What [`State::rename_in_links`] has left to the commit.
    pub(crate) fn touch_renamed(&mut self) {
        for node in std::mem::take(&mut self.pending.renamed) {
            self.touch_links(node);
        }
        self.pending.names = 0;
    }

    fn touch_links(&mut self, node: NodeId) {
        let Self { nodes, names, pending, .. } = self;
        let Some(links) = nodes.get(node).map(|node| &node.links) else {
            return;
        };
        for (dir, name) in links.iter() {
            let Some(parent) = nodes.get(dir) else {
                continue;
            };
            let Some(directory) = parent.directory() else {
                continue;
            };
            let leaf = directory.trie.leaf(names.entry(parent.id, name).1);
            pending.pages.insert(PageKey { trie: parent.id, leaf });
        }
    }
}
