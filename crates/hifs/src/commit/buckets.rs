//! Data buckets in a commit: which are stored, and what goes where.

use std::collections::{BTreeMap, HashMap};

use tacita_vfs::NodeId;

use super::{Cells, blocks_held};
use crate::content::Content;
use crate::error::{Result, damaged};
use crate::geometry::{BLOCK_LEN, Geometry, Table};
use crate::journal::{Plan, Target};
use crate::names::FileId;
use crate::placement::{Cell, Change, Owner, Relocation};
use crate::record::INLINE_LEN_MAX;
use crate::tree::{Node, State};

/// The chunk masks of every owner that changes.
#[derive(Default)]
struct Wanted(BTreeMap<FileId, (u64, BTreeMap<u32, u64>)>);

impl Wanted {
    /// Everything stored under `id` goes, unless a file that follows wants it.
    fn remove_all(&mut self, state: &State, id: FileId) {
        let home = state.buckets.home(id).unwrap_or_default();
        let entry = self.0.entry(id).or_insert_with(|| (home, BTreeMap::new()));
        for (chunk, _) in state.buckets.chunks(id) {
            entry.1.entry(chunk).or_insert(0);
        }
    }
}

/// What every pending file stores from now on.
pub(super) fn changes(state: &State) -> Vec<Change> {
    let mut wanted = Wanted::default();
    for (id, _) in &state.pending.dead {
        wanted.remove_all(state, *id);
    }
    for node in state.pending.files.iter().filter_map(|id| state.nodes.get(*id)) {
        let base = node.content().and_then(Content::base);
        if let Some(base) = base.filter(|base| *base != node.id) {
            wanted.remove_all(state, base);
        }
    }
    for node in state.pending.files.iter().filter_map(|id| state.nodes.get(*id)) {
        let Some(content) = node.content() else {
            continue;
        };
        let masks = masks(state, node, content);
        let home = state.home(node);
        let entry = wanted.0.entry(node.id).or_insert_with(|| (home, BTreeMap::new()));
        entry.0 = home;
        entry.1.extend(masks);
    }
    let change = |(id, (home, chunks)): (FileId, (u64, BTreeMap<u32, u64>))| Change {
        owner: Owner { id, home },
        chunks: chunks.into_iter().collect(),
    };
    wanted.0.into_iter().map(change).collect()
}

/// The chunks of a file that may change, with the masks of their stored buckets.
fn masks(state: &State, node: &Node, content: &Content) -> BTreeMap<u32, u64> {
    let source = state.source();
    let k = state.buckets.procedures().order_max();
    let mut masks = BTreeMap::new();
    let same = content.base() == Some(node.id);
    // A large file of which little changes is not looked through.
    let looked_at = content.base().filter(|_| !same || content.has_dropped());
    for (chunk, mask) in looked_at.map_or_else(Vec::new, |base| state.buckets.chunks(base)) {
        let first = chunk << k;
        let kept = (0..1u32 << k)
            .filter(|i| mask >> i & 1 == 1 && !content.is_dropped(first + i))
            .fold(0, |kept, i| kept | 1u64 << i);
        if !same || kept != mask {
            masks.insert(chunk, kept);
        }
    }
    let inline = node.size <= INLINE_LEN_MAX;
    for bucket in content.pending_buckets(source.geometry) {
        let chunk = bucket >> k;
        let bit = 1u64 << (bucket & ((1 << k) - 1));
        let base_mask = |base| state.buckets.chunk(base, chunk);
        let mask = masks.entry(chunk).or_insert_with(|| content.base().map_or(0, base_mask));
        if !inline && content.is_stored(source, bucket, node.size) {
            *mask |= bit;
        } else {
            *mask &= !bit;
        }
    }
    if inline {
        for mask in masks.values_mut() {
            *mask = 0;
        }
    }
    masks
}

/// Collects what every cell gets.
pub(super) fn write(
    state: &State,
    relocations: &[Relocation],
    cells: &Cells,
    plan: &mut Plan,
) -> Result<()> {
    let files: HashMap<FileId, &Node> = state
        .pending
        .files
        .iter()
        .filter_map(|id: &NodeId| state.nodes.get(*id))
        .map(|node| (node.id, node))
        .collect();
    let writer = Writer { state, cells };
    let start = |cell| state.superblock.geometry.cell_start(Table::Buckets, cell);
    for relocation in relocations {
        let Some(to) = relocation.to else { continue };
        let file = files.get(&relocation.owner);
        let file = file.and_then(|node| Some((node.content()?, node.size)));
        match (file, relocation.from) {
            (Some(file), _) => writer.bucket(file, relocation.bucket, to, plan),
            (None, Some(from)) => {
                let (to, fresh) = (start(to), cells.fresh.contains(&to));
                let base = Some(start(from));
                let size = state.node_of(relocation.owner).map_or(u64::MAX, |(_, node)| node.size);
                let held = blocks_held(&state.superblock.geometry, size, relocation.bucket);
                let target = Target { to, fresh, base, blocks: Vec::new(), within: 0, held };
                plan.target(Table::Buckets, target);
            }
            (None, None) => return Err(damaged("a bucket without a file")),
        }
    }
    for (&id, node) in &files {
        let Some(content) = node.content() else {
            continue;
        };
        if content.base() == Some(id) {
            for bucket in content.pending_buckets(&state.superblock.geometry) {
                writer.bucket_in_place(id, (content, node.size), bucket, plan);
            }
        } else {
            // Another file's cells may have become this file's without moving.
            for (first, _, len) in state.buckets.extents(id) {
                for bucket in first..first + len {
                    writer.bucket_in_place(id, (content, node.size), bucket, plan);
                }
            }
        }
    }
    Ok(())
}

struct Writer<'a> {
    state: &'a State,
    cells: &'a Cells,
}

impl Writer<'_> {
    fn bucket_in_place(&self, id: FileId, file: (&Content, u64), bucket: u32, plan: &mut Plan) {
        if self.cells.from.contains_key(&(id, bucket)) {
            return;
        }
        if let Some((cell, _)) = self.state.buckets.locate(id, bucket) {
            self.bucket(file, bucket, cell, plan);
        }
    }

    /// Where the image before this commit holds a bucket of the file.
    fn old_cell(&self, content: &Content, bucket: u32) -> Option<Cell> {
        let base = content.base().filter(|_| !content.is_dropped(bucket))?;
        match self.cells.from.get(&(base, bucket)) {
            Some(from) => *from,
            None => self.state.buckets.locate(base, bucket).map(|(cell, _)| cell),
        }
    }

    /// The content of one bucket goes to cell `to`.
    fn bucket(&self, file: (&Content, u64), bucket: u32, to: Cell, plan: &mut Plan) {
        let (content, size) = file;
        let geometry = &self.state.superblock.geometry;
        let start = |cell| geometry.cell_start(Table::Buckets, cell);
        let blocks = content.pending_blocks(geometry, bucket);
        let target = Target {
            to: start(to),
            fresh: self.cells.fresh.contains(&to),
            base: self.old_cell(content, bucket).map(start),
            blocks: blocks.map(|(index, block)| (index, block.clone())).collect(),
            within: blocks_within(geometry, size, bucket),
            held: blocks_held(geometry, size, bucket),
        };
        plan.target(Table::Buckets, target);
    }
}

/// How many blocks of a bucket lie wholly before the end of the file.
fn blocks_within(geometry: &Geometry, size: u64, bucket: u32) -> u32 {
    let left = size.saturating_sub(u64::from(bucket) * geometry.bucket_len_bytes());
    u32::try_from(left / BLOCK_LEN as u64).unwrap_or(u32::MAX)
}

/// Inodes tell how many buckets are stored and hold short content: those that change are touched.
pub(super) fn tell_inodes(state: &mut State) -> Result<()> {
    let files: Vec<NodeId> = state.pending.files.iter().copied().collect();
    for id in files {
        let State { nodes, buckets, .. } = state;
        let Some(node) = nodes.get_mut(id) else {
            continue;
        };
        let (file, inline) = (node.id, node.size <= INLINE_LEN_MAX);
        let before = node.buckets_counted();
        let Some(content) = node.content_mut() else {
            continue;
        };
        let stored: u32 = buckets.extents(file).map(|(_, _, len)| len).sum();
        content.buckets = stored;
        let told = content.told_buckets;
        let indexed = node.record_len > 0;
        state.buckets_used = state.buckets_used + node.buckets_counted() - before;
        if indexed && (inline || told != stored) {
            state.index_inode(id).map_err(|_| damaged("too many equal inode hashes"))?;
        }
    }
    Ok(())
}
