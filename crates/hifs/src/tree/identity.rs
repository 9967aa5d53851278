//! Who is who: ids that follow from paths, and what a rename does to them.
//!
//! With `ids=path` the id of a file is a hash of its parent's id and its name; of a file with
//! several names, of the least path. A rename therefore gives new ids to everything below, and
//! their content moves. Source: design note, section 3.5.

use tacita_vfs::NodeId;

use super::{Name, ROOT, State};
use crate::geometry::Ids;
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
        let Some(node) = self.nodes.get(id).filter(|node| node.links.len() > 1) else {
            return;
        };
        let least = (0..node.links.len())
            .min_by_key(|&i| self.path(node.links[i].0, &node.links[i].1))
            .expect("there are several");
        if let Some(node) = self.nodes.get_mut(id) {
            node.links.swap(0, least);
        }
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
            self.touch_links(id);
            if self.nodes.get(id).is_some_and(|node| node.content().is_some()) {
                self.note_moved(id);
            }
        }
        Ok(())
    }

    /// A file's id or home may have changed: the commit looks at it, and may move all its buckets.
    pub(crate) fn note_moved(&mut self, id: NodeId) {
        if self.pending.files.insert(id)
            && let Some(content) = self.nodes.get(id).and_then(|node| node.content())
        {
            self.pending.buckets += u64::from(content.buckets);
        }
    }

    fn assign_id(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        if self.superblock.ids == Ids::Random || id == ROOT {
            return;
        }
        let Some((dir, name)) = node.owner_link() else {
            return;
        };
        let Some(parent) = self.nodes.get(*dir) else {
            return;
        };
        let (new, _) = self.names.entry(parent.id, name);
        if let Some(node) = self.nodes.get_mut(id) {
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
