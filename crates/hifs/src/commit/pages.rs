//! Pages of the inode table in a commit.

use std::collections::HashMap;
use std::sync::Arc;

use super::Cells;
use crate::error::{Result, damaged};
use crate::faults::{Fault, planted};
use crate::geometry::Table;
use crate::journal::{Plan, Target};
use crate::names::FileId;
use crate::page::{PageKey, PageWriter};
use crate::placement::{Change, Owner, Relocation};
use crate::record::DirEntry;
use crate::tree::{Directory, State};

/// The pages that appear or vanish.
pub(super) fn changes(state: &State) -> Vec<Change> {
    let change = |key: &PageKey| {
        let id = state.names.page(key.trie, key.leaf.start, key.leaf.depth);
        let now = state.is_page(*key);
        let owner = Owner { id, home: state.page_home(*key, id) };
        (now != state.pages.contains(id))
            .then(|| Change { owner, chunks: vec![(0, u64::from(now))] })
    };
    let mut changes: Vec<Change> = state.pending.pages.iter().filter_map(change).collect();
    changes.sort_by_key(|change| change.owner.id);
    changes
}

/// Collects the pages that have changed or moved.
pub(super) fn write(
    state: &State,
    relocations: &[Relocation],
    cells: &Cells,
    plan: &mut Plan,
) -> Result<()> {
    let start = |cell| state.superblock.geometry.cell_start(Table::Pages, cell);
    let mut changed: HashMap<FileId, PageKey> = HashMap::new();
    for key in state.pending.pages.iter().filter(|key| state.is_page(**key)) {
        changed.insert(state.names.page(key.trie, key.leaf.start, key.leaf.depth), *key);
    }
    for relocation in relocations {
        let Some(to) = relocation.to.filter(|_| !changed.contains_key(&relocation.owner)) else {
            continue;
        };
        let base = relocation.from.ok_or_else(|| damaged("a new page without content"))?;
        let (fresh, blocks) = (cells.fresh.contains(&to), Vec::new());
        let target =
            Target { to: start(to), fresh, base: Some(start(base)), blocks, within: 0, held: 1 };
        plan.target(Table::Pages, target);
    }
    for (id, key) in changed {
        let (cell, _) =
            state.pages.locate(id, 0).ok_or_else(|| damaged("a page without a cell"))?;
        let moved = cells.from.contains_key(&(id, 0));
        let target = Target {
            to: start(cell),
            fresh: cells.fresh.contains(&cell),
            base: (!moved).then(|| start(cell)),
            blocks: vec![(0, Some(Arc::new(*state.encode_page(key)?)))],
            within: 0,
            held: 1,
        };
        plan.target(Table::Pages, target);
    }
    Ok(())
}

/// Gives the pages to a plan that it moves and that cannot be read: memory has all of them.
pub(super) fn give_unread(state: &State, plan: &mut Plan) -> Result<()> {
    for to in plan.unread_pages(&state.medium) {
        let cell = state.superblock.geometry.cell_at(Table::Pages, to);
        let page = cell.and_then(|cell| state.pages.occupant(cell));
        if let Some(key) = page.and_then(|(id, _)| state.page_keys.get(&id)) {
            plan.give_page(to, Arc::new(*state.encode_page(*key)?));
        }
    }
    Ok(())
}

impl State {
    /// Whether the page is part of the present state.
    pub(crate) fn is_page(&self, key: PageKey) -> bool {
        if key.trie == self.inodes.id {
            return self.inodes.trie.is_stored(key.leaf);
        }
        self.directory_of(key.trie).is_some_and(|dir| dir.trie.is_stored(key.leaf))
    }

    fn directory_of(&self, trie: FileId) -> Option<&Directory> {
        self.nodes.get(*self.dirs.get(&trie)?)?.directory()
    }

    /// Pages of one directory share a home group; pages of inodes are spread.
    #[expect(clippy::cast_possible_truncation, reason = "ids are pseudo-random: half is a hash")]
    pub(crate) fn page_home(&self, key: PageKey, id: FileId) -> u64 {
        if key.trie == self.inodes.id { id as u64 } else { key.trie as u64 }
    }

    /// The block of a page.
    pub(crate) fn encode_page(
        &self,
        key: PageKey,
    ) -> Result<Box<[u8; crate::geometry::BLOCK_LEN]>> {
        let mut page = PageWriter::new(key);
        let mut entry = Vec::new();
        if key.trie == self.inodes.id {
            let ids = self.names.inodes(&key.leaf.hashes());
            for id in self.inodes.entries.range(ids).map(|(_, id)| *id) {
                let Some(node) = self.nodes.get(id) else {
                    continue;
                };
                entry.clear();
                node.record(self.inline_of(id)?).encode(&mut entry);
                page.push(&entry);
            }
            return Ok(page.finish());
        }
        let dir =
            self.directory_of(key.trie).ok_or_else(|| damaged("a page without a directory"))?;
        let mut entries: Vec<_> = dir.range(key.leaf.hashes()).collect();
        if planted(Fault::InsertionOrder) {
            entries.sort_by_key(|(_, node)| **node);
        }
        for ((_, name), child) in entries {
            let Some(child) = self.nodes.get(*child) else {
                continue;
            };
            entry.clear();
            DirEntry::encode(child.id, child.kind, name, &mut entry);
            page.push(&entry);
        }
        Ok(page.finish())
    }

    /// The content that lies in the inode.
    pub(crate) fn inline_of(&self, id: tacita_vfs::NodeId) -> Result<Vec<u8>> {
        match self.nodes.get(id) {
            Some(node) if node.inline_len() > 0 => match node.content() {
                Some(content) => content.head(self.source(), node.inline_len()),
                None => Ok(Vec::new()),
            },
            _ => Ok(Vec::new()),
        }
    }

    /// Files in use without a name get a random id, so that the image can hold their content. A
    /// mount erases what it finds of them. The id is drawn into a page that has room, for deletion
    /// needs none; only where the first pages looked at are full it may take another page.
    pub(crate) fn name_the_nameless(&mut self) -> Result<()> {
        for id in self.pending.undrawn.iter().copied().collect::<Vec<_>>() {
            let Some(node) = self.nodes.get(id).filter(|node| node.record_len == 0) else {
                continue;
            };
            let drawn = (self.random_id)().max(1);
            let hash = self.names.inode(drawn);
            let hash = self.inodes.trie.with_room(hash, node.record_len_now());
            let fresh = u128::from(hash) << 64 | drawn & u128::from(u64::MAX);
            self.nodes.get_mut(id).ok_or_else(|| damaged("a node is gone"))?.id = fresh.max(1);
            self.index_inode(id).map_err(|_| damaged("too many equal inode hashes"))?;
        }
        Ok(())
    }
}
