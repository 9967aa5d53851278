//! What an image holds and where: facts for people.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tacita_vfs::{FileType, NodeId};

use crate::geometry::Table;
use crate::hifs::Hifs;
use crate::names::FileId;
use crate::placement::Cell;
use crate::tree::State;

/// Counts over a whole image.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Survey {
    /// Regular files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Everything else.
    pub others: u64,
    /// Bytes of content.
    pub content_bytes: u64,
    /// Data buckets in use.
    pub buckets_used: u64,
    /// Data buckets.
    pub buckets: u64,
    /// Pages of the inode table in use.
    pub pages_used: u64,
    /// Pages of the inode table.
    pub pages: u64,
    /// Files that have buckets.
    pub files_with_buckets: u64,
    /// Runs of adjacent cells over all files.
    pub extents: u64,
    /// Runs of the file that has most.
    pub extents_max: u64,
}

/// Who lies in a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Path of the file, or what the page holds.
    pub name: PathBuf,
    /// Number of the file in order of paths, from 0.
    pub number: usize,
    /// Logical bucket of the file, 0 for a page.
    pub bucket: u32,
}

/// The cells of one group.
#[derive(Debug, Clone)]
pub struct GroupMap {
    /// Data buckets.
    pub buckets: Vec<Option<Occupant>>,
    /// Pages of the inode table.
    pub pages: Vec<Option<Occupant>>,
}

impl Hifs {
    /// Counts over the image, as it was at the last commit.
    pub fn survey(&self) -> Survey {
        let state = self.shared();
        let state = &state;
        let shape = |table| u64::from(state.superblock.geometry.shape(table).cells());
        let mut survey = Survey {
            buckets_used: state.buckets.stored(),
            buckets: shape(Table::Buckets),
            pages_used: state.pages.stored(),
            pages: shape(Table::Pages),
            ..Survey::default()
        };
        for (_, node) in state.nodes.iter() {
            match node.kind {
                FileType::File => survey.files += 1,
                FileType::Directory => survey.directories += 1,
                _ => survey.others += 1,
            }
            survey.content_bytes = survey.content_bytes.saturating_add(node.size);
            let runs = runs(state, node.id);
            survey.files_with_buckets += u64::from(runs > 0);
            survey.extents += runs;
            survey.extents_max = survey.extents_max.max(runs);
        }
        survey
    }

    /// Who lies where, group by group.
    pub fn map(&self) -> Vec<GroupMap> {
        let state = self.shared();
        let state = &state;
        let mut names: Vec<(OsString, FileId)> =
            state.nodes.iter().map(|(id, node)| (path_of(state, id), node.id)).collect();
        names.push((OsString::from("(inodes)"), state.inodes.id));
        names.sort();
        let numbers: HashMap<FileId, usize> =
            names.iter().enumerate().map(|(i, (_, id))| (*id, i)).collect();
        let occupant = |id: FileId, bucket: u32| {
            let number = *numbers.get(&id)?;
            Some(Occupant { name: names[number].0.clone().into(), number, bucket })
        };
        let cells = |table: Table, group: u32| {
            let len = state.superblock.geometry.shape(table).cells_per_group;
            (group * len..(group + 1) * len).map(Cell)
        };
        let page = |cell| {
            let (id, _) = state.pages.occupant(cell)?;
            occupant(state.page_keys.get(&id)?.trie, 0)
        };
        let bucket = |cell| state.buckets.occupant(cell).and_then(|(id, b)| occupant(id, b));
        (0..state.superblock.geometry.buckets.groups)
            .map(|group| GroupMap {
                buckets: cells(Table::Buckets, group).map(bucket).collect(),
                pages: cells(Table::Pages, group).map(page).collect(),
            })
            .collect()
    }
}

fn runs(state: &State, id: FileId) -> u64 {
    let mut runs = 0;
    let mut end = None;
    for (bucket, cell, len) in state.buckets.extents(id) {
        if end != Some((bucket, cell.0)) {
            runs += 1;
        }
        end = Some((bucket + len, cell.0 + len));
    }
    runs
}

fn path_of(state: &State, id: NodeId) -> OsString {
    match state.nodes.get(id).and_then(|node| node.owner_link()) {
        Some((dir, name)) => OsString::from_vec(state.path(*dir, name)),
        None => OsString::from("/"),
    }
}
