//! From an image at rest to the state in memory, everything verified on the way.
//!
//! What is wrong is named with its place; nothing is guessed and nothing is dropped silently.

use std::collections::HashMap;

use tacita_block::{AlignedBuf, BlockNo};
use tacita_vfs::{FileType, NodeId};

use crate::error::{Error, Kind, Result, damaged};
use crate::geometry::{BLOCK_LEN, Ids, MAP_ENTRIES, Table, Times};
use crate::map_block;
use crate::medium::Medium;
use crate::names::{FileId, Names};
use crate::page::{PageKey, read_page};
use crate::placement::{Cell, Engine, Entry};
use crate::record::{DirEntry, Inode, entry_len};
use crate::superblock::Superblock;
use crate::tree::{Directory, Name, Node, ROOT, RandomId, State};
use crate::trie::Trie;

/// Pages that are read at once, in blocks.
const PAGES_READ: usize = 64;
/// Longest target of a symbolic link in bytes: what the kernel takes.
const TARGET_LEN_MAX: u64 = 4095;

/// Reads the superblock, from its copy if the first one is damaged or cannot be read.
///
/// # Errors
/// [`Kind::NotAnImage`], [`Kind::Version`], [`Kind::Damaged`] if both are, [`Kind::Device`].
pub(crate) fn read_superblock(medium: &Medium) -> Result<(Superblock, Option<Error>)> {
    if medium.blocks() < 2 {
        return Err(Error::new(Kind::NotAnImage, "too small for a HIFS image"));
    }
    let read = |at| medium.read_block(BlockNo(at)).and_then(|block| Superblock::decode(&block));
    let first = read(0);
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
    match read(medium.blocks() - 1) {
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
        told: HashMap::new(),
        nlinks: Vec::new(),
        folder_pages: Vec::new(),
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
    /// Size of what has no content as its inode tells it: of a directory the number of entries.
    told: HashMap<NodeId, u64>,
    /// Number of names as each inode tells it, by the node's number.
    nlinks: Vec<u32>,
    /// Pages of directories, whose entries wait until all inodes are known.
    folder_pages: Vec<FolderPage>,
}

/// A page of a directory as it was read.
struct FolderPage {
    at: BlockNo,
    key: PageKey,
    count: u16,
    payload: Box<[u8]>,
}

impl FolderPage {
    fn place(&self, error: &Error) -> Error {
        in_page(self.at, error)
    }
}

/// What is wrong in a page, with its place.
fn in_page(at: BlockNo, error: &Error) -> Error {
    damaged(format!("inode table page in block {}: {error}", at.0))
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
        let mut buffer =
            AlignedBuf::new(usize::try_from(blocks).expect("fits in memory") * BLOCK_LEN);
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
        let mut entries = self.read_map(Table::Pages)?;
        let mut homes = HashMap::with_capacity(entries.len());
        let mut buffer = AlignedBuf::new(PAGES_READ * BLOCK_LEN);
        let geometry = self.state.superblock.geometry;
        let mut rest = &entries[..];
        while let Some(first) = rest.first() {
            let start = geometry.cell_start(Table::Pages, first.cell);
            // Pages that lie near each other are read at once, with what is free between them.
            let near = |entry: &&Entry| {
                geometry.cell_start(Table::Pages, entry.cell).0 - start.0 < PAGES_READ as u64
            };
            let mut count = rest.iter().take_while(near).count();
            if count < PAGES_READ / 8 {
                count = 1;
            }
            let last = geometry.cell_start(Table::Pages, rest[count - 1].cell);
            let len = usize::try_from(last.0 - start.0 + 1).expect("few") * BLOCK_LEN;
            if self.state.medium.read(start, &mut buffer[..len]).is_err() {
                // It may be one that is free, or another's.
                count = 1;
                self.state.medium.read(start, &mut buffer[..BLOCK_LEN])?;
            }
            let (now, later) = rest.split_at(count);
            for entry in now {
                let at = geometry.cell_start(Table::Pages, entry.cell);
                let offset = usize::try_from(at.0 - start.0).expect("few") * BLOCK_LEN;
                let block = buffer[offset..].first_chunk().expect("a block");
                let (id, home) = self.read_page(at, block, entry).map_err(|e| in_page(at, &e))?;
                homes.insert(id, home);
            }
            rest = later;
        }
        let placed = self.state.pages.load(&mut entries, |id| homes.get(&id).copied().unwrap_or(0));
        placed.map_err(|cell| misplaced(&self.state.superblock, Table::Pages, cell))
    }

    /// Takes one page; its id and home.
    fn read_page(
        &mut self,
        at: BlockNo,
        block: &[u8; BLOCK_LEN],
        entry: &Entry,
    ) -> Result<(FileId, u64)> {
        let (key, count, payload) = read_page(block)?;
        let id = self.state.names.page(key.trie, key.leaf.start, key.leaf.depth);
        if id != entry.owner || entry.bucket != 0 {
            return Err(damaged("not the page that the map names"));
        }
        self.state.page_keys.insert(id, key);
        if key.trie == self.state.inodes.id {
            self.read_inodes(key, count, payload)?;
        } else {
            self.folder_pages.push(FolderPage { at, key, count, payload: payload.into() });
        }
        Ok((id, self.state.page_home(key, id)))
    }

    fn read_inodes(&mut self, key: PageKey, count: u16, mut payload: &[u8]) -> Result<()> {
        for _ in 0..count {
            let inode = Inode::decode(&mut payload)?;
            let (id, directory) = (inode.id, inode.kind == FileType::Directory);
            let root = id == self.state.root_id;
            if root && (self.state.inodes.entries.contains_key(&id) || !directory) {
                return Err(damaged("a second root"));
            }
            let (nlink, size) = (inode.nlink, inode.size);
            let node = Node::from_record(inode);
            let has_content = node.content().is_some();
            let number = if root { self.insert_root(node) } else { self.insert(node) };
            if self.state.inodes.entries.insert(id, number).is_some() {
                return Err(damaged("an inode twice"));
            }
            if !key.leaf.hashes().contains(&self.state.names.inode(id)) {
                return Err(damaged("an inode that belongs to another page"));
            }
            let index = usize::try_from(number.0).expect("a slot's number");
            if self.nlinks.len() <= index {
                self.nlinks.resize(index + 1, 0);
            }
            self.nlinks[index] = nlink;
            if !has_content {
                self.told.insert(number, size);
            }
            if directory {
                self.state.dirs.insert(id, number);
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

    /// Puts every entry into its directory, and makes the tries.
    fn link_tree(&mut self) -> Result<()> {
        if !self.state.inodes.entries.contains_key(&self.state.root_id) {
            return Err(damaged("the root directory is missing"));
        }
        self.index_inodes()?;
        let mut pages = std::mem::take(&mut self.folder_pages);
        pages.sort_by_key(|page| page.key.trie);
        let mut pages = pages.into_iter().peekable();
        while let Some(first) = pages.next() {
            let trie = first.key.trie;
            let dir = *self.state.dirs.get(&trie).ok_or_else(|| {
                damaged(format!("directory pages of {trie:032x} without a directory"))
            })?;
            let mut entries = Vec::new();
            self.read_folder(&first, &mut entries)?;
            while let Some(page) = pages.next_if(|page| page.key.trie == trie) {
                self.read_folder(&page, &mut entries)?;
            }
            self.fill_folder(dir, entries)?;
        }
        Ok(())
    }

    /// The trie of inodes, all at once.
    fn index_inodes(&mut self) -> Result<()> {
        let State { nodes, inodes, names, .. } = &mut self.state;
        let mut lens = Vec::with_capacity(inodes.entries.len());
        for (id, number) in &inodes.entries {
            if let Some(node) = nodes.get_mut(*number) {
                node.record_len = node.record_len_now();
                lens.push((names.inode(*id), node.record_len));
            }
        }
        inodes.trie = Trie::build(lens.into_iter()).ok_or_else(too_many)?;
        // Made anew in order it takes less memory.
        inodes.entries = std::mem::take(&mut inodes.entries).into_iter().collect();
        self.state.pages_used += u64::from(self.state.inodes.trie.pages());
        Ok(())
    }

    /// The entries of one page of a directory, as that holds them.
    fn read_folder(
        &self,
        page: &FolderPage,
        entries: &mut Vec<((u64, Name), NodeId)>,
    ) -> Result<()> {
        let (names, trie) = (&self.state.names, page.key.trie);
        let hashes = page.key.leaf.hashes();
        let mut payload = &page.payload[..];
        for _ in 0..page.count {
            let entry = DirEntry::decode(&mut payload).map_err(|e| page.place(&e))?;
            let (_, hash) = names.entry(trie, entry.name);
            if !hashes.contains(&hash) {
                return Err(page.place(&damaged("an entry that belongs to another page")));
            }
            let child = *self.state.inodes.entries.get(&entry.id).ok_or_else(|| {
                damaged(format!("{:?} names an inode that is missing", show(entry.name)))
            })?;
            let node = self.state.nodes.get(child);
            if child == ROOT || node.is_none_or(|node| node.kind != entry.kind) {
                return Err(disagrees(entry.name));
            }
            entries.push(((hash, entry.name.into()), child));
        }
        if payload.is_empty() {
            Ok(())
        } else {
            Err(page.place(&damaged("bytes behind the last entry")))
        }
    }

    fn fill_folder(&mut self, dir: NodeId, mut entries: Vec<((u64, Name), NodeId)>) -> Result<()> {
        entries.sort_unstable();
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(disagrees(&twice[0].0.1));
        }
        let mut subdirectories = 0;
        for ((_, name), child) in &entries {
            if let Some(node) = self.state.nodes.get_mut(*child) {
                node.links.add((dir, Name::clone(name)));
                subdirectories += u32::from(node.directory().is_some());
            }
        }
        let lens = entries.iter().map(|((hash, name), _)| (*hash, entry_len(name.len())));
        let trie = Trie::build(lens).ok_or_else(too_many)?;
        self.state.pages_used += u64::from(trie.pages());
        let folder = self.state.nodes.get_mut(dir).and_then(Node::directory_mut);
        if let Some(folder) = folder {
            *folder = Directory { entries: entries.into_iter().collect(), trie, subdirectories };
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
            if at > self.state.inodes.entries.len() {
                return Err(damaged("directories form a circle"));
            }
        }
        let directories = self.state.dirs.len();
        if order.len() != directories {
            return Err(damaged("a directory that no name leads to, or several"));
        }
        for index in 0..self.nlinks.len() {
            let id = NodeId(index as u64);
            if self.state.nodes.get(id).is_some() {
                self.check_node(id)?;
            }
        }
        // As many pages as leaves, and each of them one: then every leaf has its page.
        if self.state.page_keys.values().any(|key| !self.state.is_page(*key)) {
            return Err(damaged("pages are split in another way than their entries ask for"));
        }
        if self.state.pages.stored() != self.state.pages_used {
            return Err(damaged("a page is missing or left over"));
        }
        Ok(())
    }

    fn check_node(&mut self, id: NodeId) -> Result<()> {
        let index = usize::try_from(id.0).expect("a slot's number");
        let nlink = self.nlinks.get(index).copied().unwrap_or_default();
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
        let kept = node.times.kept().map(|time| time.is_some());
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
        let size = self.told.get(&id).copied();
        if now.nlink != nlink || size.is_some_and(|size| now.size != size) {
            return wrong("its counts do not agree with the tree");
        }
        Ok(())
    }

    /// Targets of links are what the kernel can follow. One that cannot be read is lost alone: whoever
    /// follows that link is told.
    fn check_targets(&self) -> Result<()> {
        let links = self.state.inodes.entries.iter().filter_map(|(id, number)| {
            let node = self.state.nodes.get(*number)?;
            (node.kind == FileType::Symlink).then_some((id, *number, node.size))
        });
        for (id, number, size) in links {
            let mut target = vec![0; usize::try_from(size).expect("4095 at most")];
            if self.state.read(number, 0, &mut target).is_err() {
                continue;
            }
            if target.is_empty() || target.contains(&0) {
                return Err(damaged(format!("link {id:032x}: an impossible target")));
            }
        }
        Ok(())
    }

    fn read_buckets(&mut self) -> Result<()> {
        let mut entries = self.read_map(Table::Buckets)?;
        entries.sort_unstable_by_key(|entry| (entry.owner, entry.bucket, entry.cell));
        let State { nodes, superblock, inodes, .. } = &self.state;
        let node_of = |id: u128| inodes.entries.get(&id).and_then(|number| nodes.get(*number));
        let bucket_len = superblock.geometry.bucket_len_bytes();
        let mut owners = 0;
        for buckets in entries.chunk_by(|a, b| a.owner == b.owner) {
            let (owner, last) = (buckets[0].owner, buckets[buckets.len() - 1]);
            let node = node_of(owner);
            let told = node.and_then(Node::content).map(|content| content.told_buckets as usize);
            if told != Some(buckets.len()) {
                return Err(damaged(format!(
                    "buckets map: {} buckets of file {owner:032x}, which its inode does not tell",
                    buckets.len()
                )));
            }
            if u64::from(last.bucket) * bucket_len >= node.map_or(0, |node| node.size) {
                return Err(misplaced(superblock, Table::Buckets, last.cell));
            }
            owners += 1;
        }
        let told = |node: &Node| node.content().map_or(0, |content| content.told_buckets);
        if nodes.iter().filter(|(_, node)| told(node) > 0).count() != owners {
            let is_there =
                |id: u128| entries.binary_search_by(|entry| entry.owner.cmp(&id)).is_ok();
            let lost = nodes.iter().find(|(_, node)| told(node) > 0 && !is_there(node.id));
            let (buckets, id) = lost.map_or((0, 0), |(_, node)| (told(node), node.id));
            return Err(damaged(format!(
                "buckets map: {buckets} buckets of file {id:032x} are missing"
            )));
        }
        let procedures = superblock.geometry.procedures(superblock.layout, Table::Buckets);
        let mut buckets = Engine::new(procedures);
        let home = |id| node_of(id).map_or(0, |node| self.state.home(node));
        let placed = buckets.load(&mut entries, home);
        self.state.buckets = buckets;
        self.state.buckets_used = entries.len() as u64;
        placed.map_err(|cell| misplaced(&self.state.superblock, Table::Buckets, cell))
    }
}

fn too_many() -> Error {
    damaged("too many equal hashes")
}

fn disagrees(name: &[u8]) -> Error {
    damaged(format!("{:?} disagrees with its inode", show(name)))
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
