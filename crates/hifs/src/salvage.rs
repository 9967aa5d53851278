//! What is left of a damaged image, to be copied out.
//!
//! Where [`crate::load`] refuses, this goes on, and tells what is lost. A damaged block costs what it alone
//! told. A group descriptor tells nothing. Pages say themselves what they are, so below a damaged block of
//! their map all cells are looked at. Where the buckets below a damaged block of the other map lie follows
//! from which there are: the layout is canonical. An inode that is lost leaves its name and its content, and
//! a name that is lost its file, in a folder for what was found.
//!
//! A cell that an undamaged map calls free is not looked at: nothing that was deleted comes back.

mod buckets;
pub(crate) mod draft;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;

use tacita_block::{AlignedBuf, BlockNo, is_zero};
use tacita_vfs::{FileType, NodeId};

use crate::error::{Error, Result, damaged};
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, MAP_ENTRIES, Table};
use crate::map_block;
use crate::medium::Medium;
use crate::names::{FileId, Names};
use crate::page::{PageKey, read_page};
use crate::placement::{Cell, Entry};
use crate::record::{DirEntry, Inode, Xattrs};
use crate::superblock::Superblock;
use crate::tree::{Name, Node, ROOT, RandomId, State};

/// What is lost with the inode of a directory.
const FOLDER_INODE: &str = "its inode: owner, rights and times";
/// With that of a file.
const FILE_INODE: &str = "its inode: owner, rights and times, and its size if it ended in zeros";
/// With the page of its directory.
const NAME: &str = "its name";
/// Of a directory, with one of its pages.
const NAMES: &str = "names in it";
/// Of a file that still has one.
const OTHER_NAME: &str = "another name";
/// With an inode that held the content, or of which nothing lies elsewhere.
const ALL_BUT_NAME: &str = "all but its name";

/// What of a damaged image is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    /// What is damaged, with the place.
    pub damage: Vec<String>,
    /// What is lost, but for content.
    pub lost: Vec<Loss>,
    /// Bytes of content that are missing of a file, at most: they are read as zeros.
    pub(crate) missing: HashMap<NodeId, u64>,
}

/// Something that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Of which file; one that has lost its name has got another.
    pub path: PathBuf,
    /// What of it.
    pub what: &'static str,
}

/// Reads what is left of an image; that it is at rest means that no commit was interrupted.
pub(crate) fn salvage(
    superblock: Superblock,
    medium: Medium,
    names: Names,
    random_id: RandomId,
    at_rest: bool,
) -> (State, Losses) {
    let mut salvage = Salvage {
        state: State::empty(superblock, medium, names, random_id),
        at_rest,
        losses: Losses::default(),
        names: Vec::new(),
        told: HashMap::new(),
        buckets: BTreeMap::new(),
        blind: Vec::new(),
        unmapped: Vec::new(),
        stand_ins: Vec::new(),
        bare_names: Vec::new(),
        found: None,
    };
    salvage.read_descriptors();
    salvage.read_pages();
    salvage.read_buckets();
    salvage.plant_tree();
    salvage.place_buckets();
    salvage.look_at_targets();
    (salvage.state, salvage.losses)
}

struct Salvage {
    state: State,
    at_rest: bool,
    losses: Losses,
    /// Entries of directories, in the order in which they were found.
    names: Vec<FoundName>,
    /// Number of names as each inode tells it, and of a directory the number of its entries.
    told: HashMap<NodeId, (u32, u64)>,
    /// The buckets of each owner that the map tells, and where they lie.
    buckets: BTreeMap<FileId, BTreeMap<u32, Cell>>,
    /// Cells of buckets that no map block tells of.
    blind: Vec<Range<u32>>,
    /// Cells of buckets whose map block is zero.
    unmapped: Vec<Range<u32>>,
    /// Nodes that stand for those whose inodes are lost.
    stand_ins: Vec<NodeId>,
    /// Names of which nothing else is left.
    bare_names: Vec<(NodeId, Name)>,
    /// The folder for what has no name any more, and its own name.
    found: Option<(NodeId, String)>,
}

/// What the blocks of a map tell.
#[derive(Default)]
struct Map {
    entries: Vec<Entry>,
    /// Cells whose block is damaged.
    blind: Vec<Range<u32>>,
    /// Cells whose block is zero, as it is where all of them are free.
    unmapped: Vec<Range<u32>>,
}

/// An entry of a directory.
struct FoundName {
    dir: FileId,
    name: Name,
    id: FileId,
    kind: FileType,
}

impl Salvage {
    /// Notes what is damaged; what lies behind the end of a truncated image is told once.
    fn damaged(&mut self, at: BlockNo, what: &str, error: &Error) {
        if at.0 < self.state.medium.blocks() {
            self.losses.damage.push(format!("{what} {}: {error}", at.0));
        }
    }

    fn read_descriptors(&mut self) {
        for group in 0..self.state.superblock.geometry.buckets.groups {
            let at = self.state.superblock.geometry.descriptor(group);
            let wanted = self.state.superblock.descriptor(group);
            match self.state.medium.read_block(at) {
                Ok(block) if *block == wanted => {}
                Ok(_) => {
                    let text = format!("block {}: not the descriptor of group {group}", at.0);
                    self.losses.damage.push(text);
                }
                Err(error) => self.damaged(at, "descriptor in block", &error),
            }
        }
    }

    /// What a map tells.
    fn read_map(&mut self, table: Table) -> Map {
        let geometry = self.state.superblock.geometry;
        let shape = geometry.shape(table);
        let mut map = Map::default();
        for group in 0..shape.groups {
            let start = geometry.map_start(table, group);
            for block in 0..geometry.map_blocks(table) {
                let at = BlockNo(start.0 + block);
                let first = u32::try_from(block).expect("within a group") * MAP_ENTRIES;
                let len = MAP_ENTRIES.min(shape.cells_per_group - first);
                let base = group * shape.cells_per_group + first;
                let cells = base..base + len;
                let read = self.state.medium.read_block(at);
                match read.and_then(|bytes| map_block::decode(&bytes[..])) {
                    Ok(entries) if entries.is_empty() => map.unmapped.push(cells),
                    Ok(entries) => {
                        let inside = entries.into_iter().filter(|(index, ..)| *index < len);
                        map.entries.extend(inside.map(|(index, owner, bucket)| Entry {
                            cell: Cell(base + index),
                            owner,
                            bucket,
                        }));
                    }
                    Err(error) => {
                        self.damaged(at, "map block", &error);
                        map.blind.push(cells);
                    }
                }
            }
        }
        map
    }

    /// Which of these cells, whose map block is zero, are in use all the same: then that is damaged, too. While a
    /// commit is under way it may be what has been deleted.
    fn used_though_unmapped(&mut self, table: Table, unmapped: Vec<Range<u32>>) -> Vec<Range<u32>> {
        let mut used = unmapped;
        used.retain(|cells| {
            let is_used = |cell| self.is_zero(table, Cell(cell)) == Some(false);
            (self.at_rest || planted(Fault::SalvagedFree)) && cells.clone().any(is_used)
        });
        for cells in &used {
            let (at, _) = self.state.superblock.geometry.map_entry(table, Cell(cells.start));
            let text = format!("map block {}: zero, though something lies in its cells", at.0);
            self.losses.damage.push(text);
        }
        used
    }

    /// Whether nothing is in a cell, for what is free is zero and what is stored is not; none if it cannot be read.
    fn is_zero(&self, table: Table, cell: Cell) -> Option<bool> {
        let geometry = &self.state.superblock.geometry;
        let len = match table {
            Table::Pages => BLOCK_LEN,
            Table::Buckets => usize::try_from(geometry.bucket_len_bytes()).expect("1 MiB at most"),
        };
        let mut content = AlignedBuf::new(len);
        let read = self.state.medium.read(geometry.cell_start(table, cell), &mut content);
        read.ok().map(|()| is_zero(&content))
    }

    fn read_pages(&mut self) {
        let root = Self::stand_in_for(self.state.root_id, FileType::Directory, 0, 0);
        let placed = self.state.nodes.insert(root);
        debug_assert_eq!(placed, ROOT, "it is the first");
        let Map { entries, mut blind, unmapped } = self.read_map(Table::Pages);
        for entry in &entries {
            self.read_page(entry.cell, Some(entry.owner));
        }
        blind.extend(self.used_though_unmapped(Table::Pages, unmapped));
        for cell in blind.into_iter().flatten() {
            self.read_page(Cell(cell), None);
        }
        if !self.state.dirs.contains_key(&self.state.root_id) {
            self.know(self.state.root_id, ROOT);
            self.losses.lost.push(Loss { path: "/".into(), what: FOLDER_INODE });
        }
    }

    /// Takes the page in a cell: the one that the map names, or any.
    fn read_page(&mut self, cell: Cell, wanted: Option<FileId>) {
        let at = self.state.superblock.geometry.cell_start(Table::Pages, cell);
        let block = match self.state.medium.read_block(at) {
            Ok(block) => block,
            Err(error) => return self.damaged(at, "inode table page in block", &error),
        };
        if wanted.is_none() && is_zero(&block[..]) {
            return;
        }
        let taken = read_page(&block).and_then(|(key, count, payload)| {
            let id = self.state.names.page(key.trie, key.leaf.start, key.leaf.depth);
            if wanted.is_some_and(|wanted| wanted != id) {
                return Err(damaged("not the page that the map names"));
            }
            self.take_page(key, count, payload)
        });
        if let Err(error) = taken {
            self.damaged(at, "inode table page in block", &error);
        }
    }

    fn take_page(&mut self, key: PageKey, count: u16, mut payload: &[u8]) -> Result<()> {
        for _ in 0..count {
            if key.trie == self.state.inodes.id {
                self.take_inode(Inode::decode(&mut payload)?);
            } else {
                let DirEntry { id, kind, name } = DirEntry::decode(&mut payload)?;
                self.names.push(FoundName { dir: key.trie, name: name.into(), id, kind });
            }
        }
        Ok(())
    }

    fn take_inode(&mut self, inode: Inode) {
        let (id, told) = (inode.id, (inode.nlink, inode.size));
        let is_root = id == self.state.root_id;
        if self.state.inodes.entries.contains_key(&id)
            || is_root && inode.kind != FileType::Directory
        {
            self.losses.damage.push(format!("inode {id:032x}: found twice, or impossible"));
            return;
        }
        let mut node = Node::from_record(inode);
        node.size = node.size.min(self.state.size_max());
        let number = if is_root {
            *self.state.nodes.get_mut(ROOT).expect("placed first") = node;
            ROOT
        } else {
            self.state.nodes.insert(node)
        };
        self.know(id, number);
        self.told.insert(number, told);
    }

    /// Enters a node under its id.
    fn know(&mut self, id: FileId, number: NodeId) {
        self.state.inodes.entries.insert(id, number);
        if self.state.nodes.get(number).is_some_and(|node| node.directory().is_some()) {
            self.state.dirs.insert(id, number);
        }
    }

    /// A node that stands for one whose inode is lost: root's, and nobody else's.
    fn stand_in_for(id: FileId, kind: FileType, size: u64, buckets: u32) -> Node {
        Node::from_record(Inode {
            id,
            kind,
            perm: if kind == FileType::Directory { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            buckets,
            times: [None; 3],
            inline: Vec::new(),
            xattrs: Xattrs::new(),
        })
    }

    fn read_buckets(&mut self) {
        let Map { entries, blind, unmapped } = self.read_map(Table::Buckets);
        (self.blind, self.unmapped) = (blind, unmapped);
        for Entry { cell, owner, bucket } in entries {
            if self.buckets.entry(owner).or_default().insert(bucket, cell).is_some() {
                let text = format!("bucket {bucket} of file {owner:032x}: found twice");
                self.losses.damage.push(text);
            }
        }
    }

    /// The size that a file of these buckets has at least: up to its last byte that is not zero.
    fn size_of(&self, buckets: &BTreeMap<u32, Cell>) -> u64 {
        let geometry = &self.state.superblock.geometry;
        let len = geometry.bucket_len_bytes();
        let Some((&bucket, &cell)) = buckets.last_key_value() else { return 0 };
        let mut content = AlignedBuf::new(usize::try_from(len).expect("1 MiB at most"));
        let read = self.state.medium.read(geometry.cell_start(Table::Buckets, cell), &mut content);
        let used = match read {
            Ok(()) => content.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1),
            Err(_) => len,
        };
        u64::from(bucket) * len + used
    }

    /// Targets that no link can have, or that are missing, are lost.
    fn look_at_targets(&mut self) {
        let mut odd = Vec::new();
        for (id, node) in self.state.nodes.iter() {
            if node.kind != FileType::Symlink {
                continue;
            }
            let mut target = vec![0; usize::try_from(node.size).unwrap_or(0).min(BLOCK_LEN)];
            // One that cannot be read is told of by who copies it.
            let is_read = self.state.read(id, 0, &mut target).is_ok();
            if is_read && (target.is_empty() || target.contains(&0)) {
                odd.push((id, node.size.max(1)));
            }
        }
        self.losses.missing.extend(odd);
    }
}
