//! What the user sees: nodes, names and pending content, kept in memory; and, for each change, which
//! pages and files the next commit has to look at.
//!
//! Everything here is bookkeeping on [`State`]; [`crate::commit`] brings it into the image.

mod data;
mod identity;
mod index;
mod links;
pub(crate) mod namespace;
mod node;
mod read_ahead;
mod walks;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::content::{Growth, Source};
use crate::geometry::{Ids, Table};
use crate::journal::{InFlight, SECTORS};
use crate::medium::Medium;
use crate::names::{FileId, Names};
use crate::page::PageKey;
use crate::placement::Engine;
use crate::superblock::Superblock;
pub(crate) use index::InodeTable;
pub(crate) use node::{Body, Directory, Node, Nodes};
pub(crate) use read_ahead::Streams;
use tacita_vfs::{Kind, NodeId, Result};
pub(crate) use walks::Walks;

/// The root directory's node.
pub(crate) const ROOT: NodeId = NodeId(1);

/// Pages that one change of a few names and inodes touches, splits included.
const CHANGE_PAGES: u64 = 24;
/// For so many sectors of new content, or blocks, another block of records is counted: each may be a
/// run of its own, beside which one may become zero, and one more in its bucket.
const CONTENT_PER_RECORDS: u64 = 64;
/// Most blocks of content that wait in memory: 64 MiB.
const HELD_BLOCKS_MAX: u64 = 16384;
/// Blocks of a commit that are kept from the names of one file: those of two changes, but for the pages of its
/// inode.
const KEPT_FROM_NAMES: u64 = 2 * CHANGE_PAGES - 8;

/// Blocks that a commit changes, at least, where a file can have so many names.
pub(crate) const fn commit_blocks_for(names: u64) -> u64 {
    names.saturating_add(KEPT_FROM_NAMES)
}

/// A source of random ids.
pub(crate) type RandomId = Box<dyn FnMut() -> FileId + Send + Sync>;

/// All that a mounted image is in memory.
pub(crate) struct State {
    pub(crate) superblock: Superblock,
    pub(crate) medium: Medium,
    /// The commit that is on its way into the image.
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) names: Names,
    pub(crate) streams: Streams,
    pub(crate) walks: Walks,
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
    /// Files of which something has to move and could not be read, so that the last commit was not made.
    pub(crate) in_the_way: BTreeSet<NodeId>,
}

/// What the next commit has to look at.
#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    /// Pages that may have appeared, changed or vanished.
    pub(crate) pages: HashSet<PageKey>,
    /// Files whose content, id or home may have changed.
    pub(crate) files: BTreeSet<NodeId>,
    /// Ids whose buckets have no file any more, and the size of what the image has of it, if that is
    /// known.
    pub(crate) dead: Vec<(FileId, Option<u64>)>,
    /// Files of several names whose id has changed: all pages that hold these are to be written.
    pub(crate) renamed: BTreeSet<NodeId>,
    /// How many names these have, at most; later ones touch their own pages.
    pub(crate) names: u64,
    /// Files without a name that are still in use.
    pub(crate) nameless: BTreeSet<NodeId>,
    /// Those of them that have no id in the image yet.
    pub(crate) undrawn: BTreeSet<NodeId>,
    /// New content, an upper bound: all of a stored bucket that changes, and what is there of a new
    /// one. Buckets that only move do not count.
    pub(crate) content: Growth,
}

impl PendingWork {
    /// Whether the image shows the present state already.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
            && self.files.is_empty()
            && self.dead.is_empty()
            && self.renamed.is_empty()
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
            in_flight: Arc::default(),
            streams: Streams::default(),
            walks: Walks::default(),
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
            in_the_way: BTreeSet::new(),
            superblock,
        }
    }

    /// Where committed content is read from.
    pub(crate) fn source(&self) -> Source<'_> {
        Source {
            engine: &self.buckets,
            geometry: &self.superblock.geometry,
            medium: &self.medium,
            in_flight: &self.in_flight,
        }
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

    /// The node that has this id.
    pub(crate) fn node_of(&self, id: FileId) -> Option<(NodeId, &Node)> {
        let number = *self.inodes.entries.get(&id)?;
        Some((number, self.nodes.get(number)?))
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

    /// Blocks of buckets and pages that the pending work changes, at most: of each file a page
    /// too, for its inode counts what is stored. What is zero beside new content takes a record.
    fn pending_blocks(&self) -> u64 {
        let pending = &self.pending;
        let inodes = pending.files.len().min(self.inodes.trie.pages() as usize);
        let Growth { blocks, sectors, .. } = pending.content;
        let content = if self.superblock.packs_content() {
            sectors.div_ceil(SECTORS) + sectors / CONTENT_PER_RECORDS
        } else {
            blocks + blocks / CONTENT_PER_RECORDS
        };
        content + (pending.pages.len() + inodes + 2 * pending.undrawn.len()) as u64
    }

    /// Whether a change of so many blocks, or of some pages, must wait for a commit.
    pub(crate) fn is_loaded(&self, blocks: u64) -> bool {
        self.pending_blocks() + blocks + CHANGE_PAGES > self.superblock.geometry.commit_blocks()
            || self.pending.content.held + blocks > HELD_BLOCKS_MAX
    }

    /// Whether one commit can hold a change of so many blocks.
    pub(crate) fn fits_one_commit(&self, blocks: u64) -> bool {
        blocks + CHANGE_PAGES <= self.superblock.geometry.commit_blocks()
    }

    /// Most names of a file: a change of its id writes all of them again, in one commit.
    pub(crate) fn links_max(&self) -> u32 {
        let room = self.superblock.geometry.commit_blocks() - KEPT_FROM_NAMES;
        u32::try_from(room).unwrap_or(u32::MAX)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "ids are pseudo-random: half is a hash")]
const fn home_of_id(id: FileId) -> u64 {
    id as u64
}

/// A name, shared between a directory and the node it names.
pub(crate) type Name = Arc<[u8]>;
