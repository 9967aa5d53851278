//! Who is who: ids that follow from paths, and what a rename does to them.
//!
//! With `ids=path` the id of a file is a hash of its parent's id and its name; of a file with
//! several names, of the least path. A rename therefore gives new ids to everything below, and
//! their content moves. Source: design note, section 3.5.

use tacita_vfs::NodeId;

use super::{Name, ROOT, State};
use crate::geometry::Ids;
use crate::names::FileId;
use crate::page::PageKey;

impl State {
    /// The path of a name, for comparing.
    pub(crate) fn path(&self, dir: NodeId, name: &[u8]) -> Vec<u8> {
        let mut parts: Vec<Name> = vec![name.into()];
        let mut at = dir;
        while at != ROOT {
            let Some((parent, name)) = self.nodes.get(at).and_then(|node| node.owner_link()) else {
                break;
            };
            parts.push(Name::clone(name));
            at = *parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend(&part[..]);
        }
        path
    }

    /// Puts the least path of a file first among its links.
    pub(crate) fn settle_owner_link(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id).filter(|node| node.links.len() > 1) else {
            return;
        };
        let mut links = std::mem::take(&mut node.links);
        links.settle(|dir, name| self.path(dir, name));
        if let Some(node) = self.nodes.get_mut(id) {
            node.links = links;
        }
    }

    /// A name of `id` has come: its path may be the least.
    ///
    /// # Errors
    /// [`tacita_vfs::Kind::NoSpace`] if too many inodes share one hash.
    pub(crate) fn identify_with(
        &mut self,
        id: NodeId,
        dir: NodeId,
        name: &Name,
    ) -> tacita_vfs::Result<()> {
        let mut links = std::mem::take(&mut self.node_mut(id)?.links);
        links.prefer((dir, Name::clone(name)), |dir, name| self.path(dir, name));
        self.node_mut(id)?.links = links;
        self.follow_owner(id)
    }

    /// A name of `id` has gone. If it was the least path, the owner is any of the others now.
    ///
    /// # Errors
    /// [`tacita_vfs::Kind::NoSpace`] if too many inodes share one hash.
    pub(crate) fn identify_without(&mut self, id: NodeId) -> tacita_vfs::Result<()> {
        if self.named_by(id) != Some(self.node(id)?.id) {
            self.settle_owner_link(id);
        }
        self.follow_owner(id)
    }

    /// Gives a file the id that its owner asks for, unless it has it.
    fn follow_owner(&mut self, id: NodeId) -> tacita_vfs::Result<()> {
        let node = self.node(id)?;
        let is_indexed = node.record_len > 0;
        let is_named = self.named_by(id) == Some(node.id);
        if is_indexed && is_named { self.index_inode(id) } else { self.reidentify(&[id]) }
    }

    /// How many pages another name of a file, or the loss of this one, takes: all of those that hold
    /// its names if it gets another id, once for each commit.
    pub(crate) fn link_blocks(
        &self,
        id: NodeId,
        dir: NodeId,
        name: &Name,
    ) -> tacita_vfs::Result<u64> {
        let node = self.node(id)?;
        let Some(owner) = node.owner_link() else {
            return Ok(0);
        };
        let is_kept = self.superblock.ids == Ids::Random
            || self.pending.renamed.contains(&id)
            || *owner != (dir, Name::clone(name))
                && self.path(dir, name) > self.path(owner.0, &owner.1);
        Ok(if is_kept { 0 } else { node.links.len().into() })
    }

    /// Gives `roots` and all below them the ids that their paths ask for. Their links are in place;
    /// their old ids may be wanted by others of them.
    ///
    /// # Errors
    /// [`tacita_vfs::Kind::NoSpace`] if too many inodes share one hash.
    pub(crate) fn reidentify(&mut self, roots: &[NodeId]) -> tacita_vfs::Result<()> {
        let mut order: Vec<NodeId> = roots.to_vec();
        if self.superblock.ids == Ids::Path {
            let mut at = 0;
            while let Some(id) = order.get(at) {
                if let Some(dir) = self.nodes.get(*id).and_then(|node| node.directory()) {
                    order.extend(dir.entries.values());
                }
                at += 1;
            }
        }
        for &id in &order {
            self.unindex_inode(id);
            self.forget_directory_id(id);
        }
        // Parents come before children, so each finds its parent's new id.
        for &id in &order {
            self.settle_owner_link(id);
            self.assign_id(id);
            self.adopt_directory_id(id);
        }
        for &id in &order {
            self.index_inode(id)?;
            self.rename_in_links(id);
            if self.nodes.get(id).is_some_and(|node| node.content().is_some()) {
                self.note_moved(id);
            }
        }
        Ok(())
    }

    /// A file's id or home may have changed: the commit looks at it, and may move all its buckets.
    pub(crate) fn note_moved(&mut self, id: NodeId) {
        self.pending.files.insert(id);
    }

    /// The id that a file's least path gives it, or the one it has.
    fn named_by(&self, id: NodeId) -> Option<FileId> {
        let node = self.nodes.get(id)?;
        if self.superblock.ids == Ids::Random || id == ROOT {
            return Some(node.id);
        }
        let (dir, name) = node.owner_link()?;
        Some(self.names.entry(self.nodes.get(*dir)?.id, name).0)
    }

    fn assign_id(&mut self, id: NodeId) {
        if let Some(new) = self.named_by(id)
            && let Some(node) = self.nodes.get_mut(id)
        {
            node.id = new;
        }
    }

    /// Takes a directory's pages out of the account of the id it had.
    fn forget_directory_id(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let Some(directory) = node.directory() else {
            return;
        };
        self.pages_used -= u64::from(directory.trie.pages());
        let trie = node.id;
        self.pending.pages.extend(directory.trie.stored().map(|leaf| PageKey { trie, leaf }));
        self.dirs.remove(&trie);
    }

    /// Sorts a directory's entries by their hashes under its present id.
    fn adopt_directory_id(&mut self, id: NodeId) {
        let Self { nodes, names, pending, .. } = self;
        let Some(node) = nodes.get_mut(id) else {
            return;
        };
        let trie = node.id;
        let Some(directory) = node.directory_mut() else {
            return;
        };
        let entries = std::mem::take(&mut directory.entries);
        directory.trie = crate::trie::Trie::default();
        for ((_, name), child) in entries {
            let (_, hash) = names.entry(trie, &name);
            directory.add(hash, name, child, &mut |leaf| {
                pending.pages.insert(PageKey { trie, leaf });
            });
        }
        self.pages_used += u64::from(directory.trie.pages());
        self.dirs.insert(trie, id);
    }
}
