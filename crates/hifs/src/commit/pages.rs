//! Pages of the inode table in a commit.

use std::collections::HashMap;

use crate::error::{Result, damaged};
use crate::geometry::Table;
use crate::journal::Plan;
use crate::mutant::{Mutant, planted};
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
pub(super) fn write(state: &State, relocations: &[Relocation], plan: &mut Plan) -> Result<()> {
    let mut keys: HashMap<FileId, PageKey> = HashMap::new();
    for relocation in relocations.iter().filter(|relocation| relocation.to.is_some()) {
        if let Some(key) = state.page_keys.get(&relocation.owner) {
            keys.insert(relocation.owner, *key);
        }
    }
    for key in state.pending.pages.iter().filter(|key| state.is_page(**key)) {
        keys.insert(state.names.page(key.trie, key.leaf.start, key.leaf.depth), *key);
    }
    for (id, key) in keys {
        let (cell, _) =
            state.pages.locate(id, 0).ok_or_else(|| damaged("a page without a cell"))?;
        let at = state.superblock.geometry.cell_start(Table::Pages, cell);
        plan.put(at, state.encode_page(key)?);
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
            let hashes = key.leaf.hashes();
            let range = (*hashes.start(), 0)..=(*hashes.end(), FileId::MAX);
            for id in self.inodes.entries.range(range).map(|(_, id)| *id) {
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
        if planted(Mutant::InsertionOrder) {
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
    /// mount erases what it finds of them.
    pub(crate) fn name_the_nameless(&mut self) -> Result<()> {
        let nameless: Vec<_> = self.pending.nameless.iter().copied().collect();
        for id in nameless {
            let fresh = (self.random_id)().max(1);
            match self.nodes.get_mut(id) {
                Some(node) if node.record_len == 0 => node.id = fresh,
                _ => continue,
            }
            self.index_inode(id).map_err(|_| damaged("too many equal inode hashes"))?;
        }
        Ok(())
    }
}
