//! What the user sees: nodes, names and pending content, kept in memory; and, for each change, which
//! pages and files the next commit has to look at.
//!
//! Everything here is bookkeeping on [`State`]; [`crate::commit`] brings it into the image.

mod data;
mod identity;
mod index;
pub(crate) mod namespace;
mod node;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::content::Source;
use crate::geometry::{Ids, Table};
use crate::medium::Medium;
use crate::names::{FileId, Names};
use crate::page::PageKey;
use crate::placement::Engine;
use crate::superblock::Superblock;
pub(crate) use index::InodeTable;
pub(crate) use node::{Body, Directory, Node, Nodes};
use tacita_vfs::{Kind, NodeId, Result};

/// The root directory's node.
pub(crate) const ROOT: NodeId = NodeId(1);

/// A source of random ids.
pub(crate) type RandomId = Box<dyn FnMut() -> FileId + Send + Sync>;

/// All that a mounted image is in memory.
pub(crate) struct State {
    pub(crate) superblock: Superblock,
    pub(crate) medium: Medium,
    pub(crate) names: Names,
    pub(crate) root_id: FileId,
    pub(crate) random_id: RandomId,
    pub(crate) nodes: Nodes,
    /// Directories by their id.
    pub(crate) dirs: HashMap<FileId, NodeId>,
    pub(crate) inodes: InodeTable,
    /// Where buckets lie in the image as it is.
    pub(crate) buckets: Engine,
    /// Where pages lie in the image as it is.
    pub(crate) pages: Engine,
    /// The key of each page in the image.
    pub(crate) page_keys: HashMap<FileId, PageKey>,
    pub(crate) pending: PendingWork,
    /// Buckets of all files, as programs see them.
    pub(crate) buckets_used: u64,
    /// Pages of all tries, as programs see them.
    pub(crate) pages_used: u64,
}

/// What the next commit has to look at.
#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    /// Pages that may have appeared, changed or vanished.
    pub(crate) pages: HashSet<PageKey>,
    /// Files whose content, id or home may have changed.
    pub(crate) files: BTreeSet<NodeId>,
    /// Ids whose buckets have no file any more.
    pub(crate) dead: Vec<FileId>,
    /// Files without a name that are still in use.
    pub(crate) nameless: BTreeSet<NodeId>,
    /// Buckets to be written, an upper bound.
    pub(crate) buckets: u64,
}

impl PendingWork {
    /// Whether the image shows the present state already.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.files.is_empty() && self.dead.is_empty()
    }
}

impl State {
    /// The state of an image without files, to be filled by `format` or by reading.
    pub(crate) fn empty(
        superblock: Superblock,
        medium: Medium,
        names: Names,
        random_id: RandomId,
    ) -> Self {
        let (layout, geometry) = (superblock.layout, superblock.geometry);
        let inodes = InodeTable::new(names.inode_table());
        Self {
            root_id: names.root(),
            names,
            medium,
            random_id,
            nodes: Nodes::default(),
            dirs: HashMap::new(),
            inodes,
            buckets: Engine::new(geometry.procedures(layout, Table::Buckets)),
            pages: Engine::new(geometry.procedures(layout, Table::Pages)),
            page_keys: HashMap::new(),
            pending: PendingWork::default(),
            buckets_used: 0,
            pages_used: 0,
            superblock,
        }
    }

    /// Where committed content is read from.
    pub(crate) const fn source(&self) -> Source<'_> {
        Source { engine: &self.buckets, geometry: &self.superblock.geometry, medium: &self.medium }
    }

    /// A node.
    ///
    /// # Errors
    /// [`Kind::Stale`] if it is gone.
    pub(crate) fn node(&self, node: NodeId) -> Result<&Node> {
        self.nodes.get(node).ok_or_else(|| Kind::Stale.into())
    }

    /// A node, to be changed.
    ///
    /// # Errors
    /// [`Kind::Stale`] if it is gone.
    pub(crate) fn node_mut(&mut self, node: NodeId) -> Result<&mut Node> {
        self.nodes.get_mut(node).ok_or_else(|| Kind::Stale.into())
    }

    /// A directory.
    ///
    /// # Errors
    /// [`Kind::NotDirectory`]; [`Kind::Stale`].
    pub(crate) fn directory(&self, node: NodeId) -> Result<&Directory> {
        self.node(node)?.directory().ok_or_else(|| Kind::NotDirectory.into())
    }

    /// What the home group of a file follows from: its user in layout C, its directory in layout D.
    pub(crate) fn home(&self, node: &Node) -> u64 {
        use crate::geometry::Layout;
        match self.superblock.layout {
            Layout::A | Layout::B => 0,
            Layout::C => u64::from(node.uid),
            Layout::D if self.superblock.ids == Ids::Random => home_of_id(node.id),
            Layout::D => {
                let owner = node.owner_link().map(|(dir, _)| *dir);
                owner.and_then(|dir| self.nodes.get(dir)).map_or(0, |dir| home_of_id(dir.id))
            }
        }
    }

    /// Files that were in use without a name when the image was left.
    pub(crate) fn nameless_after_load(&self) -> Vec<NodeId> {
        self.nodes
            .iter()
            .filter(|(id, node)| *id != ROOT && node.links.is_empty())
            .map(|(id, _)| id)
            .collect()
    }

    /// Blocks of journal that the pending work may need, generously counted.
    pub(crate) fn pending_blocks(&self) -> u64 {
        let g = &self.superblock.geometry;
        let maps = |table| g.map_blocks(table) * u64::from(g.shape(table).groups);
        let pages = self.pending.pages.len() as u64;
        let buckets = self.pending.buckets;
        buckets * u64::from(g.bucket_blocks)
            + (buckets * 8).min(maps(Table::Buckets))
            + pages * 3
            + (pages * 6).min(maps(Table::Pages))
            + (buckets * 8 + pages * 4) / 128
            + 8
    }

    /// Whether the next change should wait for a commit.
    pub(crate) fn is_loaded(&self) -> bool {
        self.pending_blocks() > self.superblock.geometry.journal_blocks / 2
    }
}

#[expect(clippy::cast_possible_truncation, reason = "ids are pseudo-random: half is a hash")]
const fn home_of_id(id: FileId) -> u64 {
    id as u64
}

/// A name, shared between a directory and the node it names.
pub(crate) type Name = Arc<[u8]>;
