//! From an image at rest to the state in memory, everything verified on the way.
//!
//! What is wrong is named with its place; nothing is guessed and nothing is dropped silently.

use std::collections::HashMap;

use tacita_block::BlockNo;
use tacita_vfs::{FileType, NodeId};

use crate::error::{Error, Kind, Result, damaged};
use crate::geometry::{BLOCK_LEN, Ids, MAP_ENTRIES, Table, Times};
use crate::map_block;
use crate::medium::Medium;
use crate::names::{FileId, Names};
use crate::page::{PageKey, read_page};
use crate::placement::{Cell, Entry};
use crate::record::{DirEntry, Inode};
use crate::superblock::Superblock;
use crate::tree::{Name, Node, ROOT, RandomId, State};

/// Longest target of a symbolic link in bytes: what the kernel takes.
const TARGET_LEN_MAX: u64 = 4095;

/// Reads the superblock, from its copy if the first one is damaged.
///
/// # Errors
/// [`Kind::NotAnImage`], [`Kind::Version`], [`Kind::Damaged`] if both are, [`Kind::Device`].
pub(crate) fn read_superblock(medium: &Medium) -> Result<(Superblock, Option<Error>)> {
    if medium.blocks() < 2 {
        return Err(Error::new(Kind::NotAnImage, "too small for a HIFS image"));
    }
    let first = Superblock::decode(&*medium.read_block(BlockNo(0))?);
    let error = match first {
        Ok(superblock) if superblock.geometry.image_blocks <= medium.blocks() => {
            return Ok((superblock, None));
        }
        Ok(superblock) => {
            return Err(damaged(format!(
                "the image is truncated: {} blocks of {}",
                medium.blocks(),
                superblock.geometry.image_blocks
            )));
        }
        Err(error) if error.kind() == Kind::Version => return Err(error),
        Err(error) => error,
    };
    let copy = Superblock::decode(&*medium.read_block(BlockNo(medium.blocks() - 1))?);
    match copy {
        Ok(copy) if copy.geometry.image_blocks == medium.blocks() => {
            Ok((copy, Some(damaged(format!("block 0: {error}")))))
        }
        _ => Err(error),
    }
}

/// Reads the whole tree of an image whose journal is zero.
///
/// # Errors
/// [`Kind::Damaged`] with the place; [`Kind::Device`].
pub(crate) fn load(
    superblock: Superblock,
    medium: Medium,
    names: Names,
    random_id: RandomId,
) -> Result<State> {
    let mut loader = Loader {
        state: State::empty(superblock, medium, names, random_id),
        by_id: HashMap::new(),
        told: HashMap::new(),
        entries: HashMap::new(),
    };
    loader.read_descriptors()?;
    loader.read_pages()?;
    loader.link_tree()?;
    loader.check_tree()?;
    loader.read_buckets()?;
    loader.check_targets()?;
    let mut state = loader.state;
    state.pending = crate::tree::PendingWork::default();
    Ok(state)
}

struct Loader {
    state: State,
    by_id: HashMap<FileId, NodeId>,
    /// Links and size as each inode's record tells them.
    told: HashMap<NodeId, (u32, u64)>,
    /// Entries of each directory by its id.
    entries: HashMap<FileId, Vec<DirEntry>>,
}

impl Loader {
    /// Descriptors hold nothing that the superblock does not tell, so one that differs is a sign
    /// that blocks were overwritten or belong to another image.
    fn read_descriptors(&self) -> Result<()> {
        let State { superblock, medium, .. } = &self.state;
        for group in 0..superblock.geometry.buckets.groups {
            let at = superblock.geometry.descriptor(group);
            if *medium.read_block(at)? != superblock.descriptor(group) {
                return Err(damaged(format!(
                    "block {}: not the descriptor of group {group}",
                    at.0
                )));
            }
        }
        Ok(())
    }

    fn read_map(&self, table: Table) -> Result<Vec<Entry>> {
        let State { superblock, medium, .. } = &self.state;
        let geometry = &superblock.geometry;
        let shape = geometry.shape(table);
        let blocks = geometry.map_blocks(table);
        let mut entries = Vec::new();
        let mut buffer = vec![0; usize::try_from(blocks).expect("fits in memory") * BLOCK_LEN];
        for group in 0..shape.groups {
            let start = geometry.map_start(table, group);
            medium.read(start, &mut buffer)?;
            for (block, bytes) in (0..).zip(buffer.chunks_exact(BLOCK_LEN)) {
                let place =
                    |error: Error| damaged(format!("map block {}: {error}", start.0 + block));
                let first = block * u64::from(MAP_ENTRIES);
                for (index, owner, bucket) in map_block::decode(bytes).map_err(place)? {
                    let index = first + u64::from(index);
                    if index >= shape.cells_per_group.into() {
                        return Err(place(damaged("an entry behind the last cell")));
                    }
                    let index = u32::try_from(index).expect("a cell of the group");
                    let cell = Cell(group * shape.cells_per_group + index);
                    entries.push(Entry { cell, owner, bucket });
                }
            }
        }
        Ok(entries)
    }

    fn read_pages(&mut self) -> Result<()> {
        let entries = self.read_map(Table::Pages)?;
        let mut homes = HashMap::new();
        for entry in &entries {
            let at = self.state.superblock.geometry.cell_start(Table::Pages, entry.cell);
            let place =
                |error: Error| damaged(format!("inode table page in block {}: {error}", at.0));
            let block = self.state.medium.read_block(at)?;
            let (key, count, payload) = read_page(&block).map_err(place)?;
            let id = self.state.names.page(key.trie, key.leaf.start, key.leaf.depth);
            if id != entry.owner || entry.bucket != 0 {
                return Err(place(damaged("not the page that the map names")));
            }
            homes.insert(id, self.state.page_home(key, id));
            self.state.page_keys.insert(id, key);
            self.read_entries(key, count, payload).map_err(place)?;
        }
        let placed = self.state.pages.load(&entries, |id| homes.get(&id).copied().unwrap_or(0));
        placed.map_err(|cell| misplaced(&self.state.superblock, Table::Pages, cell))
    }

    fn read_entries(&mut self, key: PageKey, count: u16, mut payload: &[u8]) -> Result<()> {
        for _ in 0..count {
            if key.trie == self.state.inodes.id {
                let inode = Inode::decode(&mut payload)?;
                let (id, directory) = (inode.id, inode.kind == FileType::Directory);
                let root = id == self.state.root_id;
                if root && (self.by_id.contains_key(&id) || !directory) {
                    return Err(damaged("a second root"));
                }
                let told = (inode.nlink, inode.size);
                let node = Node::from_record(inode);
                let number = if root { self.insert_root(node) } else { self.insert(node) };
                if self.by_id.insert(id, number).is_some() {
                    return Err(damaged("an inode twice"));
                }
                if !key.leaf.hashes().contains(&self.state.names.inode(id)) {
                    return Err(damaged("an inode that belongs to another page"));
                }
                self.told.insert(number, told);
                if directory {
                    self.state.dirs.insert(id, number);
                }
            } else {
                let entry = DirEntry::decode(&mut payload)?;
                let (_, hash) = self.state.names.entry(key.trie, &entry.name);
                if !key.leaf.hashes().contains(&hash) {
                    return Err(damaged("an entry that belongs to another page"));
                }
                self.entries.entry(key.trie).or_default().push(entry);
            }
        }
        if payload.is_empty() { Ok(()) } else { Err(damaged("bytes behind the last entry")) }
    }

    fn insert(&mut self, node: Node) -> NodeId {
        if self.state.nodes.len() == 0 {
            // Number 1 is kept for the root.
            let placeholder = self.state.nodes.insert(placeholder());
            debug_assert_eq!(placeholder, ROOT);
        }
        self.state.nodes.insert(node)
    }

    fn insert_root(&mut self, node: Node) -> NodeId {
        match self.state.nodes.get_mut(ROOT) {
            Some(slot) => *slot = node,
            None => {
                self.state.nodes.insert(node);
            }
        }
        ROOT
    }

    /// Puts every entry into its directory, and every inode into the trie.
    fn link_tree(&mut self) -> Result<()> {
        if !self.by_id.contains_key(&self.state.root_id) {
            return Err(damaged("the root directory is missing"));
        }
        let no_room = |_| damaged("too many equal hashes");
        // Short of entries, lengths of directories' inodes do not change while they fill.
        let numbers: Vec<NodeId> = self.by_id.values().copied().collect();
        for number in numbers {
            self.state.index_inode(number).map_err(no_room)?;
        }
        for (dir, entries) in std::mem::take(&mut self.entries) {
            let parent = *self.state.dirs.get(&dir).ok_or_else(|| {
                damaged(format!("directory pages of {dir:032x} without a directory"))
            })?;
            for entry in entries {
                let child = *self.by_id.get(&entry.id).ok_or_else(|| {
                    damaged(format!("{:?} names an inode that is missing", show(&entry.name)))
                })?;
                let name: Name = entry.name.as_slice().into();
                let node = self.state.nodes.get(child);
                let agrees = node.is_some_and(|node| node.kind == entry.kind)
                    && child != ROOT
                    && self.state.find(parent, &name).is_err();
                if !agrees {
                    return Err(damaged(format!("{:?} disagrees with its inode", show(&name))));
                }
                self.state.add_entry(parent, &name, child).map_err(no_room)?;
            }
        }
        Ok(())
    }

    /// Counts, ids and shape must be what the tree gives: no inode without a name, none named too
    /// often, no page lost.
    fn check_tree(&mut self) -> Result<()> {
        let mut order = vec![ROOT];
        let mut at = 0;
        while let Some(dir) = order.get(at) {
            let entries = self.state.nodes.get(*dir).and_then(|node| node.directory());
            let children = entries.into_iter().flat_map(|dir| dir.entries.values());
            let is_dir = |id: &&NodeId| {
                self.state.nodes.get(**id).is_some_and(|node| node.directory().is_some())
            };
            order.extend(children.filter(is_dir));
            at += 1;
            if at > self.by_id.len() {
                return Err(damaged("directories form a circle"));
            }
        }
        let directories = self.state.dirs.len();
        if order.len() != directories {
            return Err(damaged("a directory that no name leads to, or several"));
        }
        let nodes: Vec<NodeId> = self.by_id.values().copied().collect();
        for id in nodes {
            self.check_node(id)?;
        }
        for key in self.state.pending.pages.iter().copied() {
            let id = self.state.names.page(key.trie, key.leaf.start, key.leaf.depth);
            if self.state.is_page(key) != self.state.pages.contains(id) {
                return Err(damaged("pages are split in another way than their entries ask for"));
            }
        }
        if self.state.pages.stored() != self.state.pages_used {
            return Err(damaged("a page is missing or left over"));
        }
        Ok(())
    }

    fn check_node(&mut self, id: NodeId) -> Result<()> {
        let (nlink, size) = self.told.get(&id).copied().unwrap_or_default();
        let before = self.state.nodes.get(id).map(|node| node.id);
        self.state.settle_owner_link(id);
        let Some(node) = self.state.nodes.get(id) else {
            return Ok(());
        };
        let wrong = |what: &str| {
            let name = node.owner_link().map(|(_, name)| show(name)).unwrap_or_default();
            Err(damaged(format!("inode of {name:?} ({:032x}): {what}", node.id)))
        };
        if node.links.is_empty() && id != ROOT {
            if nlink != 0 || node.content().is_none() {
                return wrong("no name leads to it");
            }
            self.state.pending.nameless.insert(id);
            return Ok(());
        }
        if self.state.superblock.ids == Ids::Path
            && let Some((dir, name)) = node.owner_link()
        {
            let parent = self.state.nodes.get(*dir).map_or(0, |dir| dir.id);
            if Some(self.state.names.entry(parent, name).0) != before {
                return wrong("its id does not follow from its path");
            }
        }
        let kept = node.kept_times.map(|time| time.is_some());
        let impossible = match self.state.superblock.times {
            Times::None => kept != [false; 3],
            Times::User => kept[2],
            Times::Full => !(kept[1] && kept[2]),
        };
        if impossible {
            return wrong(
                "it tells times that this image does not keep, or lacks those that it does",
            );
        }
        let size_max =
            if node.kind == FileType::Symlink { TARGET_LEN_MAX } else { self.state.size_max() };
        if node.size > size_max {
            return wrong("an impossible size");
        }
        let now = node.record(Vec::new());
        if now.nlink != nlink || now.size != size {
            return wrong("its counts do not agree with the tree");
        }
        Ok(())
    }

    /// Targets of links are what the kernel can follow.
    fn check_targets(&self) -> Result<()> {
        let links = self.by_id.iter().filter_map(|(id, number)| {
            let node = self.state.nodes.get(*number)?;
            (node.kind == FileType::Symlink).then_some((id, *number, node.size))
        });
        for (id, number, size) in links {
            let mut target = vec![0; usize::try_from(size).expect("4095 at most")];
            let read = self.state.read(number, 0, &mut target);
            read.map_err(|e| Error::new(Kind::Device, format!("link {id:032x}: {e}")))?;
            if target.is_empty() || target.contains(&0) {
                return Err(damaged(format!("link {id:032x}: an impossible target")));
            }
        }
        Ok(())
    }

    fn read_buckets(&mut self) -> Result<()> {
        let entries = self.read_map(Table::Buckets)?;
        let mut counts: HashMap<FileId, u32> = HashMap::new();
        for entry in &entries {
            *counts.entry(entry.owner).or_default() += 1;
        }
        let State { nodes, superblock, .. } = &self.state;
        for (owner, count) in &counts {
            let content =
                self.by_id.get(owner).and_then(|id| nodes.get(*id)).and_then(|node| node.content());
            if content.is_none_or(|content| content.told_buckets != *count) {
                return Err(damaged(format!(
                    "buckets map: {count} buckets of file {owner:032x}, which its inode does not tell"
                )));
            }
        }
        for (id, number) in &self.by_id {
            let told =
                nodes.get(*number).and_then(|node| node.content()).map_or(0, |c| c.told_buckets);
            if told > 0 && !counts.contains_key(id) {
                return Err(damaged(format!(
                    "buckets map: {told} buckets of file {id:032x} are missing"
                )));
            }
        }
        let bucket_len = superblock.geometry.bucket_len_bytes();
        let behind = |entry: &&Entry| {
            let size = self
                .by_id
                .get(&entry.owner)
                .and_then(|id| nodes.get(*id))
                .map_or(0, |node| node.size);
            u64::from(entry.bucket) * bucket_len >= size
        };
        if let Some(entry) = entries.iter().find(behind) {
            return Err(misplaced(superblock, Table::Buckets, entry.cell));
        }
        let homes: HashMap<FileId, u64> = self
            .by_id
            .iter()
            .filter_map(|(id, number)| Some((*id, self.state.home(nodes.get(*number)?))))
            .collect();
        self.state.buckets_used = entries.len() as u64;
        let placed = self.state.buckets.load(&entries, |id| homes.get(&id).copied().unwrap_or(0));
        placed.map_err(|cell| misplaced(&self.state.superblock, Table::Buckets, cell))
    }
}

fn misplaced(superblock: &Superblock, table: Table, cell: Cell) -> Error {
    let (block, index) = superblock.geometry.map_entry(table, cell);
    damaged(format!(
        "map block {}, entry {index}: not where the canonical layout of these files has it",
        block.0
    ))
}

fn show(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn placeholder() -> Node {
    Node::from_record(Inode {
        id: 1,
        kind: FileType::Directory,
        perm: 0,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        buckets: 0,
        times: [None; 3],
        inline: Vec::new(),
        xattrs: crate::record::Xattrs::new(),
    })
}
