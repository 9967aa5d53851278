//! What a commit does to the image, collected before anything is written, and then put into the
//! form of the journal.
//!
//! The journal is a function of the old and the new image alone, so that a crash does not tell by
//! which way the one became the other: blocks that do not differ are left out, and whether a bucket
//! moves or is written follows from contents, not from how the file got them.
//!
//! Content that only overwrites content need not be in the journal: whichever of its sectors a crash
//! keeps, the image is the canonical one of some content. Small commits go through the journal all
//! the same and are whole or not at all; in large ones such blocks are *loose*.
//!
//! What fills cells that were free need not be in the journal either, if the journal tells where it
//! goes: a commit that did not become durable is taken back by zeroing these places. What fills cells
//! that can be cleared need not, for their content can move back. Small commits do without, because
//! it costs flushes.

mod joined;
mod target;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tacita_block::{BlockNo, is_zero};
use tacita_secret::Digest;

use super::layers::{self, Step, Way};
use super::packed::{self, SECTORS, sectors};
use super::records::{Record, encode, records_of};
use super::sources::{Sources, read_cell};
use super::{Contents, KIND_CLEAR, LAYERS_MAX, RECORDS_PER_BLOCK, Run, Sealed, coalesce};
use crate::content::Block;
use crate::error::{Error, Kind};
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Geometry, Table};
use crate::medium::Medium;
use crate::superblock::{Superblock, u64_at};
pub(crate) use target::{Target, Unread, Unsealed};
use target::{block_of, blocks_of};

/// Blocks compared with the image, or written beside the journal, at once.
const RUN_BLOCKS_MAX: usize = 256;
/// Up to so many blocks of overwritten content go through the journal with the rest of a commit, and
/// up to so many of new content in cells that were free.
const WHOLE_BLOCKS_MAX: u64 = 256;
/// In a small image it is less: this share of the journal.
const WHOLE_SHARE: u64 = 8;

/// What happens to the cells of one table.
#[derive(Debug, Default)]
struct Cells {
    targets: Vec<Target>,
    /// Cells whose content lies elsewhere, or nowhere, from now on: first blocks.
    left: Vec<BlockNo>,
}

/// What a commit does to the image.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    buckets: Cells,
    pages: Cells,
    /// Blocks that may differ from the image.
    blocks: Vec<(u64, Block)>,
    zeros: Vec<Run>,
    zeros_in_part: Vec<Run>,
}

/// Blocks to be written, and runs to be zeroed, that differ from the image.
#[derive(Default)]
pub(super) struct Differing {
    pub(super) puts: Vec<(u64, Block)>,
    zeros: Vec<Run>,
    /// New content where all was zero.
    fresh: Vec<(u64, Block)>,
    /// Still to be compared.
    unsure: Vec<(u64, Block)>,
    /// Overwritten content.
    loose: Vec<(u64, Block)>,
    /// What could not be read, and is needed.
    unread: Vec<Unread>,
}

/// Content that moves unchanged, and its tag.
pub(super) type Moves = BTreeMap<Step, u64>;

impl Plan {
    /// This block gets this content.
    pub(crate) fn put(&mut self, at: BlockNo, block: &[u8; BLOCK_LEN]) {
        self.blocks.push((at.0, Arc::new(*block)));
    }

    /// These blocks, which held something, become zero.
    pub(crate) fn zero(&mut self, at: BlockNo, count: u32) {
        self.zeros.push(Run { at: at.0, count });
    }

    /// The same for blocks of which at least one held something, and the last ones may have been zero:
    /// they are looked at.
    pub(crate) fn zero_in_part(&mut self, at: BlockNo, count: u32) {
        let zeros = if count > 1 { &mut self.zeros_in_part } else { &mut self.zeros };
        zeros.push(Run { at: at.0, count });
    }

    /// A cell gets this content. What it held moves or goes, unless it only changes there.
    pub(crate) fn target(&mut self, table: Table, target: Target) {
        let stays = target.base == Some(target.to);
        if !stays && !target.fresh {
            self.leave(table, target.to);
        }
        if !stays || !target.blocks.is_empty() {
            self.cells_mut(table).targets.push(target);
        }
    }

    /// The content of this cell moves or goes, and no other takes its place.
    pub(crate) fn leave(&mut self, table: Table, from: BlockNo) {
        self.cells_mut(table).left.push(from);
    }

    const fn cells_mut(&mut self, table: Table) -> &mut Cells {
        match table {
            Table::Buckets => &mut self.buckets,
            Table::Pages => &mut self.pages,
        }
    }

    /// The buckets that get other content.
    pub(super) fn buckets(&self) -> &[Target] {
        &self.buckets.targets
    }

    /// Where pages go that only move, and cannot be read where they are: first blocks.
    pub(crate) fn unread_pages(&self, medium: &Medium) -> Vec<BlockNo> {
        let moved = self.pages.targets.iter().filter(|target| target.blocks.is_empty());
        let is_unread =
            |target: &&Target| target.base.is_some_and(|at| medium.read_block(at).is_err());
        moved.filter(is_unread).map(|target| target.to).collect()
    }

    /// The page that goes there has this content, and need not be read.
    pub(crate) fn give_page(&mut self, to: BlockNo, page: Block) {
        if let Some(target) = self.pages.targets.iter_mut().find(|target| target.to == to) {
            target.blocks = vec![(0, Some(page))];
        }
    }

    /// Blocks of journal that the plan takes at most: a record for each cell and each block, two
    /// for a cell that is parked, and all content that is new.
    pub(crate) fn journal_blocks_max(&self, geometry: &Geometry) -> u64 {
        let mut content = self.blocks.len() as u64 * SECTORS;
        let zeros = self.zeros.len() + self.zeros_in_part.len();
        let mut records = (self.blocks.len() + zeros) as u64;
        for (table, cells) in self.tables() {
            let cell_blocks = u64::from(geometry.cell_blocks(table));
            for target in &cells.targets {
                content += target.new_sectors_max(cell_blocks);
                records += if target.blocks.is_empty() { 1 } else { cell_blocks };
            }
            records += cells.targets.len().min(cells.left.len()) as u64 / 2;
        }
        let content = content.div_ceil(SECTORS);
        1 + records.div_ceil(RECORDS_PER_BLOCK) + content + u64::from(geometry.bucket_blocks)
    }

    fn tables(&self) -> [(Table, &Cells); 2] {
        [(Table::Buckets, &self.buckets), (Table::Pages, &self.pages)]
    }

    /// Puts the plan into the form of the journal, reading what moves and what may be equal.
    ///
    /// # Errors
    /// What has to move and cannot be read. [`Kind::NoSpace`] if it does not fit in the journal;
    /// [`Kind::Device`].
    pub(crate) fn seal(
        &self,
        medium: &Medium,
        superblock: &Superblock,
    ) -> std::result::Result<Sealed, Unsealed> {
        let geometry = &superblock.geometry;
        let (mut out, mut moves) = self.divided(medium, geometry)?;
        let whole = WHOLE_BLOCKS_MAX.min(geometry.journal_blocks / WHOLE_SHARE);
        if out.loose.len() as u64 <= whole {
            let loose = std::mem::take(&mut out.loose);
            out.unsure.extend(loose);
        }
        if !superblock.fills_free_cells() || out.fresh.len() as u64 <= whole {
            let fresh = std::mem::take(&mut out.fresh);
            out.puts.extend(fresh);
        }
        out.compare(medium);
        let mut clears = Vec::new();
        if superblock.clears_cells() {
            clears = self.clear(&mut moves, &mut out, whole);
        }
        out.fresh.sort_unstable_by_key(|(at, _)| *at);
        let fills = runs(std::mem::take(&mut out.fresh));
        let parking = u64::from(geometry.bucket_blocks);
        let pack = superblock.packs_content();
        let taken = parking + body_blocks(clears.len() + moves.len() + fills.len(), &out, pack);
        let steps: Vec<Step> = moves.keys().copied().collect();
        let copies_max = geometry.journal_blocks.saturating_sub(taken) / 2;
        let mut order = layers::order(&steps, copies_max);
        if planted(Fault::CyclesCopied) {
            for cycle in std::mem::take(&mut order.cycles) {
                order.ways[cycle[0]] = Way::Copied;
            }
        }
        for (step, _) in steps.iter().zip(&order.ways).filter(|(_, way)| **way == Way::Copied) {
            let content = read_cell(medium, BlockNo(step.from), step.count)?;
            out.write_all(BlockNo(step.to), false, blocks_of(&content));
        }
        out.compare(medium);
        let copied = order.ways.iter().filter(|way| **way == Way::Copied).count();
        let others = clears.len() + steps.len() - copied + order.cycles.len() + fills.len();
        let body = body_blocks(others, &out, pack);
        let room = geometry.journal_blocks.saturating_sub(body);
        if body > geometry.journal_blocks || !order.cycles.is_empty() && room < parking {
            return Err(too_large(body + parking, geometry.journal_blocks).into());
        }
        let places = usize::try_from(room / parking).unwrap_or(usize::MAX);
        order.park(places);
        let first_place = geometry.journal().0 + body;
        let first_layer = clears.iter().map(|record| record.layer + 1).max().unwrap_or(0);
        let place_of = |place| first_place + place * parking;
        let mut records = records_of(&moves, &order.ways, first_layer, place_of);
        records.extend(clears);
        records.sort_unstable_by_key(|record| (record.layer, record.at));
        if records.last().is_some_and(|last| last.layer >= LAYERS_MAX) {
            return Err(Error::new(Kind::NoSpace, "one commit moves too many cells in turn").into());
        }
        out.loose.sort_unstable_by_key(|(at, _)| *at);
        let empty =
            records.is_empty() && out.puts.is_empty() && out.zeros.is_empty() && fills.is_empty();
        let bytes = if empty { Vec::new() } else { encode(records, &out, &fills, pack) };
        let parked = parking * places.min(order.cycles.len()) as u64;
        debug_assert!(empty || bytes.len() as u64 == body * BLOCK_LEN as u64);
        let contents =
            if empty { Contents::default() } else { Contents::parse(&bytes, superblock)? };
        Ok(Sealed { bytes, contents, parked, fills, loose: runs(out.loose) })
    }

    /// What is written and what moves.
    fn divided(
        &self,
        medium: &Medium,
        geometry: &Geometry,
    ) -> std::result::Result<(Differing, Moves), Unsealed> {
        let mut out = Differing {
            zeros: self.all_zeros(medium),
            unsure: self.blocks.clone(),
            ..Differing::default()
        };
        let mut moves = Moves::new();
        for (table, cells) in self.tables() {
            let len = geometry.cell_blocks(table);
            cells.divide(medium, len, &mut out, &mut moves);
            if !out.unread.is_empty() {
                out.unread.dedup_by_key(|unread| unread.at);
                return Err(Unsealed::Unread(out.unread));
            }
        }
        Ok((out, moves))
    }

    /// The runs that become zero: of those that may be zero in part up to the last block that is not, or
    /// cannot be read.
    fn all_zeros(&self, medium: &Medium) -> Vec<Run> {
        let mut zeros = self.zeros.clone();
        for run in &self.zeros_in_part {
            // Mostly the last one holds something.
            let last = run.count - 1;
            let mut count = run.count;
            if medium.read_block(BlockNo(run.at + u64::from(last))).is_ok_and(|b| is_zero(&b[..])) {
                count = last;
                if let Ok(content) = (Run { at: run.at, count: last }).read(medium) {
                    let empty = content.rchunks_exact(BLOCK_LEN).take_while(|block| is_zero(block));
                    count -= u32::try_from(empty.count()).expect("within a cell");
                }
            }
            zeros.extend((count > 0).then_some(Run { at: run.at, count }));
        }
        zeros
    }

    /// Takes out of `moves` those that clear cells for new content, if that is more than `whole`
    /// blocks, and of what is put this content, which fills them then. The records of these moves.
    fn clear(&self, moves: &mut Moves, out: &mut Differing, whole: u64) -> Vec<Record> {
        let targets = self.tables().into_iter().flat_map(|(_, cells)| &cells.targets);
        let free: HashSet<u64> = targets.filter(|one| one.fresh).map(|one| one.to.0).collect();
        let steps: Vec<Step> = moves.keys().copied().collect();
        let puts = &out.puts;
        let puts_in = |step: &Step| {
            let begin = puts.partition_point(|(at, _)| *at < step.from);
            let end = puts.partition_point(|(at, _)| *at < step.from + u64::from(step.count));
            begin..end
        };
        let is_filled = |step: &Step| !puts_in(step).is_empty();
        let layers = layers::clearing(&steps, |at| free.contains(&at), is_filled);
        let clearing = || steps.iter().zip(&layers).filter(|(_, layer)| layer.is_some());
        let mut fills: Vec<bool> = vec![false; puts.len()];
        for (step, _) in clearing() {
            fills[puts_in(step)].fill(true);
        }
        if fills.iter().filter(|fills| **fills).count() as u64 <= whole {
            return Vec::new();
        }
        let mut fills = fills.into_iter();
        let is_fill = |_: &mut (u64, Block)| fills.next().expect("as many as puts");
        out.fresh.extend(out.puts.extract_if(.., is_fill));
        let record = |(step, layer): (&Step, &Option<u32>)| {
            let tag = moves.remove(step).expect("one of them");
            let Step { from, to, count } = *step;
            Record { kind: KIND_CLEAR, layer: layer.expect("clears"), count, at: to, from, tag }
        };
        clearing().map(record).collect()
    }
}

/// The error of a commit for which the journal has no room.
pub(crate) fn too_large(blocks: u64, room: u64) -> Error {
    let text = format!("one commit of {blocks} blocks is larger than the journal of {room}");
    Error::new(Kind::NoSpace, text)
}

impl Cells {
    /// Decides which cells move and which are written. Content moves if a cell that is left holds
    /// the same, whosever it was.
    fn divide(&self, medium: &Medium, cell_blocks: u32, out: &mut Differing, moves: &mut Moves) {
        // What is read is read in the order of the medium.
        let mut left = self.left.clone();
        left.sort_unstable();
        let mut targets: Vec<&Target> = self.targets.iter().collect();
        targets.sort_unstable_by_key(|target| (target.base, target.to));
        if left.is_empty() || targets.is_empty() {
            for target in targets {
                out.write(target, medium, cell_blocks);
            }
            return;
        }
        let unchanged = targets.iter().filter(|target| target.blocks.is_empty());
        let whole = unchanged.filter_map(|target| target.base).collect();
        let mut sources = Sources::read(medium, cell_blocks, &left, &whole);
        let mut equal: BTreeMap<Digest, Vec<&Target>> = BTreeMap::new();
        for target in targets {
            if let (Some(base), true) = (target.base, target.blocks.is_empty())
                && let Some(hash) = sources.of(base)
            {
                equal.entry(hash).or_default().push(target);
                continue;
            }
            let content = target.content(medium, cell_blocks, &mut out.unread);
            match sources.equal(&content) {
                Some(hash) => equal.entry(hash).or_default().push(target),
                None => out.write_known(target, content),
            }
        }
        let mut sources = sources.looked_at();
        for (hash, mut targets) in equal {
            let mut from = sources.remove(&hash).unwrap_or_default();
            targets.sort_by_key(|target| target.to);
            // What is there already stays.
            targets.retain(|target| match from.binary_search(&target.to.0) {
                Ok(i) => {
                    from.remove(i);
                    false
                }
                Err(_) => true,
            });
            let mut from = from.into_iter();
            for target in targets {
                match from.next() {
                    Some(from) => {
                        let step = Step { from, to: target.to.0, count: cell_blocks };
                        moves.insert(step, u64_at(&hash, 0));
                    }
                    None => out.write(target, medium, cell_blocks),
                }
            }
        }
    }
}

impl Differing {
    /// A cell is written: only the blocks it gives where it stays, else all.
    fn write(&mut self, target: &Target, medium: &Medium, cell_blocks: u32) {
        if target.base == Some(target.to) {
            self.write_in_place(target);
        } else {
            let content = target.content(medium, cell_blocks, &mut self.unread);
            self.write_all(target.to, target.fresh, content);
        }
    }

    /// The same with the whole content at hand.
    fn write_known(&mut self, target: &Target, content: Vec<Block>) {
        if target.base == Some(target.to) {
            self.write_in_place(target);
        } else {
            self.write_all(target.to, target.fresh, content);
        }
    }

    fn write_in_place(&mut self, target: &Target) {
        let list = if target.only_overwrites() { &mut self.loose } else { &mut self.unsure };
        for (index, block) in &target.blocks {
            list.push((target.to.0 + u64::from(*index), block_of(block)));
        }
    }

    fn write_all(&mut self, to: BlockNo, fresh: bool, content: Vec<Block>) {
        for (at, block) in (to.0..).zip(content) {
            if fresh && is_zero(&block[..]) {
                continue;
            }
            if fresh { &mut self.fresh } else { &mut self.unsure }.push((at, block));
        }
    }

    /// Keeps of the unsure blocks those that differ from the image. Where that cannot be read they do: they are
    /// written.
    fn compare(&mut self, medium: &Medium) {
        let mut unsure = std::mem::take(&mut self.unsure);
        unsure.sort_unstable_by_key(|(at, _)| *at);
        let mut old = Vec::new();
        let mut rest = unsure.into_iter().peekable();
        while let Some(first) = rest.next() {
            let start = first.0;
            let mut run = vec![first];
            while run.len() < RUN_BLOCKS_MAX
                && let Some(next) = rest.next_if(|(at, _)| *at == start + run.len() as u64)
            {
                run.push(next);
            }
            old.resize(run.len() * BLOCK_LEN, 0);
            let whole = medium.read(BlockNo(start), &mut old).is_ok();
            for ((at, block), old) in run.into_iter().zip(old.chunks_exact_mut(BLOCK_LEN)) {
                if (whole || medium.read(BlockNo(at), old).is_ok()) && block[..] == *old {
                    continue;
                }
                if is_zero(&block[..]) {
                    self.zeros.push(Run { at, count: 1 });
                } else {
                    self.puts.push((at, block));
                }
            }
        }
        self.puts.sort_unstable_by_key(|(at, _)| *at);
        self.zeros.sort_unstable_by_key(|run| run.at);
    }

    /// Runs of blocks that are put, packed or not.
    pub(super) fn put_runs(&self, pack: bool) -> Vec<Run> {
        let runs = coalesce(self.puts.iter().map(|(at, _)| Run { at: *at, count: 1 }));
        if !pack {
            return runs;
        }
        let step = packed::RUN_BLOCKS_MAX;
        let parts = |run: Run| {
            (0..run.count).step_by(step as usize).map(move |skip| Run {
                at: run.at + u64::from(skip),
                count: step.min(run.count - skip),
            })
        };
        runs.into_iter().flat_map(parts).collect()
    }

    /// Blocks that what is put takes in the journal.
    fn data_blocks(&self, pack: bool) -> u64 {
        if !pack {
            return self.puts.len() as u64;
        }
        self.puts.iter().map(|(_, block)| sectors(block)).sum::<u64>().div_ceil(SECTORS)
    }

    pub(super) fn zero_runs(&self) -> Vec<Run> {
        coalesce(self.zeros.iter().copied())
    }
}

/// Runs of adjacent blocks, each of which is written at once.
fn runs(blocks: Vec<(u64, Block)>) -> Vec<(u64, Vec<Block>)> {
    let mut runs: Vec<(u64, Vec<Block>)> = Vec::new();
    for (at, block) in blocks {
        match runs.last_mut() {
            Some((first, run)) if run.len() < RUN_BLOCKS_MAX && *first + run.len() as u64 == at => {
                run.push(block);
            }
            _ => runs.push((at, vec![block])),
        }
    }
    runs
}

/// Blocks of a journal with so many records beside those of puts and zeros.
fn body_blocks(others: usize, out: &Differing, pack: bool) -> u64 {
    let records = (others + out.put_runs(pack).len() + out.zero_runs().len()) as u64;
    1 + records.div_ceil(RECORDS_PER_BLOCK) + out.data_blocks(pack)
}
