//! The redo journal: a commit is in it whole or not at all, and afterwards it is all zero.
//!
//! ```text
//! header | records, padded to a block | data blocks, in the order of the records that use them
//! ```
//! The header's hash covers header, records and data, so a torn journal is no journal. There is no
//! counter and no sequence number: an idle journal is zero in every byte. It redoes only; an undo
//! journal would keep what has been deleted.
//!
//! A cell that moves unchanged is not copied into the journal: its record names source and target
//! with a hash. A target is overwritten only after what it held has reached its own new place and
//! been flushed (its *layer*), so until then the source is whole. Where moves form a cycle one cell
//! is parked behind the journal's body meanwhile.
//!
//! New content of a large commit is not in the journal where its cells were free, or can be cleared,
//! for what they held moves on, over other cells that do the same, to a free one. These moves are
//! made as soon as the journal is durable, then the content is written, and the commit is durable
//! when this content is. Until then a crash takes all of it back, moves too, for the journal tells
//! the places, with a hash of what belongs there.
//!
//! Format: docs/spec/hifs.md, section 8. Source: design note, sections 3.1 and 3.4.

mod in_flight;
mod layers;
mod packed;
mod plan;
mod records;
mod recovery;
mod sources;

use std::collections::{BTreeMap, HashMap};

use tacita_block::{BlockNo, is_zero};
use tacita_secret::digest;

use crate::content::Block;
use crate::error::{Result, damaged};
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Geometry};
use crate::medium::Medium;
use crate::superblock::{Superblock, u32_at, u64_at};
pub(crate) use in_flight::InFlight;
pub(crate) use packed::{SECTORS, sectors};
pub(crate) use plan::{Plan, Target, Unread, Unsealed, too_large};
pub use recovery::Recovery;
pub(crate) use recovery::{inspect, recover};

const MAGIC: [u8; 8] = *b"TACITAJL";
const RECORD_LEN: usize = 32;
const RECORDS_PER_BLOCK: u64 = (BLOCK_LEN / RECORD_LEN) as u64;
const HASH_AT: usize = 32;
const KIND_MOVE: u8 = 1;
const KIND_PUT: u8 = 2;
const KIND_ZERO: u8 = 3;
const KIND_PARK: u8 = 4;
const KIND_FILL: u8 = 5;
const KIND_CLEAR: u8 = 6;
/// The journal is searched for anything but zeros in pieces of so many blocks, and cells that lie in a row
/// are read and moved so.
const PIECE_BLOCKS: u32 = 256;
/// Longest run that is filled, in blocks.
const FILL_BLOCKS_MAX: u32 = 256;
/// A record has 24 bits for the layer.
const LAYERS_MAX: u32 = 1 << 24;

/// A cell that moves unchanged, or is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    layer: u32,
    count: u32,
    from: u64,
    to: u64,
    tag: u64,
    /// Where a parked cell goes later.
    later: Option<u64>,
    /// Whether the target is known to be zero.
    to_free: bool,
}

/// A run of blocks that gets new content, or zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    at: u64,
    count: u32,
}

/// A commit in the form of the journal: the bytes, and what they say.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// The journal; nothing if there is nothing in it.
    bytes: Vec<u8>,
    contents: Contents,
    /// Blocks behind it where cells are parked.
    parked: u64,
    /// New content of cells that were free or are cleared, by where each run begins.
    fills: Vec<(u64, Vec<Block>)>,
    /// Overwritten content, by where each run begins.
    loose: Vec<(u64, Vec<Block>)>,
}

impl Sealed {
    /// Blocks of the journal that it takes.
    pub(crate) const fn blocks(&self) -> u64 {
        (self.bytes.len() / BLOCK_LEN) as u64 + self.parked
    }

    /// Whether the commit only overwrites content, and nothing is in the journal.
    pub(crate) const fn is_loose(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether content is overwritten beside the journal.
    pub(crate) const fn has_loose(&self) -> bool {
        !self.loose.is_empty()
    }

    /// Writes the journal, clears cells, and writes what fills these and those that were free; when
    /// this returns, the commit is durable. `flushed` is told each layer of moves when it is durable.
    ///
    /// # Errors
    /// [`Kind::Device`]: the commit has not happened.
    pub(crate) fn write(
        &self,
        medium: &Medium,
        geometry: &Geometry,
        flushed: &mut dyn FnMut(u32),
    ) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        medium.write(geometry.journal(), &self.bytes)?;
        if self.fills.is_empty() {
            return if planted(Fault::SkippedFlush) { Ok(()) } else { medium.flush() };
        }
        if !planted(Fault::UnannouncedFill) {
            medium.flush()?;
        }
        move_all(self.contents.clears(), medium, false, flushed)?;
        for (at, run) in &self.fills {
            medium.write_before_flush(BlockNo(*at), run)?;
        }
        if planted(Fault::UnflushedFill) { Ok(()) } else { medium.flush() }
    }

    /// Takes back what [`Sealed::write`] has written of a commit that has not happened. `returned` is
    /// told each layer of moves when it is durable where it came from.
    ///
    /// # Errors
    /// [`Kind::Device`]: recovery must do it, or another try.
    pub(crate) fn take_back(
        &self,
        medium: &Medium,
        geometry: &Geometry,
        returned: &mut dyn FnMut(u32),
    ) -> Result<()> {
        self.contents.take_back(medium, returned)?;
        erase(medium, geometry)
    }

    /// Brings the image to the new state. The last writes are not flushed yet. `flushed` is told
    /// each layer of moves when it is durable, before the next one overwrites its sources.
    ///
    /// # Errors
    /// [`Kind::Device`]: recovery must finish it.
    pub(crate) fn apply(&self, medium: &Medium, flushed: &mut dyn FnMut(u32)) -> Result<()> {
        for (at, run) in &self.loose {
            medium.write_before_flush(BlockNo(*at), run)?;
        }
        move_all(self.contents.later_moves(), medium, false, flushed)?;
        self.contents.overwrite(medium)
    }

    /// Makes the applied state durable and zeroes what the journal holds.
    ///
    /// # Errors
    /// [`Kind::Device`]: recovery must finish it.
    pub(crate) fn finish(&self, medium: &Medium, geometry: &Geometry) -> Result<()> {
        medium.flush()?;
        if self.bytes.is_empty() {
            return Ok(());
        }
        let blocks = if planted(Fault::JournalResidue) { 1 } else { self.blocks() };
        medium.zero(geometry.journal(), blocks)?;
        medium.flush()
    }
}

/// Zeroes the whole journal.
///
/// # Errors
/// [`Kind::Device`].
pub(crate) fn erase(medium: &Medium, geometry: &Geometry) -> Result<()> {
    medium.zero(geometry.journal(), geometry.journal_blocks)?;
    medium.flush()
}

/// What a journal says.
#[derive(Debug, Default)]
struct Contents {
    /// By layer, and of these the first ones clear cells.
    moves: Vec<Move>,
    clears: usize,
    /// First block and content of each run.
    puts: Vec<(u64, Vec<u8>)>,
    zeros: Vec<Run>,
    /// Runs of new content in cells that were free or are cleared, and their tags.
    fills: Vec<(Run, u64)>,
}

impl Contents {
    /// Parses a whole journal, whose hash has been checked.
    fn parse(bytes: &[u8], superblock: &Superblock) -> Result<Self> {
        let geometry = &superblock.geometry;
        let records = u32_at(bytes, 8) as usize;
        let head = BLOCK_LEN + (records * RECORD_LEN).next_multiple_of(BLOCK_LEN);
        let mut data = &bytes[head..];
        let mut this = Self::default();
        let first = geometry.journal().0 + geometry.journal_blocks;
        let in_image = |at: u64, count: u32| {
            count > 0
                && at >= first
                && at.checked_add(count.into()).is_some_and(|end| end < geometry.image_blocks)
        };
        // What is parked lies behind the journal's body.
        let parking = geometry.journal().0 + (bytes.len() / BLOCK_LEN) as u64..first;
        let is_parked = |at: u64| {
            parking.contains(&at) && parking.end - at >= u64::from(geometry.bucket_blocks)
        };
        // The move that has parked something in each place.
        let mut parked: HashMap<u64, usize> = HashMap::new();
        for record in bytes[BLOCK_LEN..head].chunks_exact(RECORD_LEN).take(records) {
            let (layer, count) = (u32_at(record, 0) >> 8, u32_at(record, 4));
            let (at, from, tag) = (u64_at(record, 8), u64_at(record, 16), u64_at(record, 24));
            let parks = record[0] == KIND_PARK && is_parked(at);
            if !parks && !in_image(at, count) {
                return Err(damaged(format!(
                    "journal: record about block {at}, outside the groups"
                )));
            }
            let is_cell = count == geometry.bucket_blocks || count == 1;
            let moved = Move { layer, count, from, to: at, tag, later: None, to_free: false };
            match record[0] {
                KIND_MOVE if is_cell && (in_image(from, count) || parked.contains_key(&from)) => {
                    if let Some(index) = parked.remove(&from) {
                        this.moves[index].later = Some(at);
                    }
                    this.moves.push(moved);
                }
                KIND_CLEAR
                    if is_cell
                        && superblock.clears_cells()
                        && in_image(from, count)
                        && this.clears == this.moves.len() =>
                {
                    // A path of cleared cells ends in one that was free.
                    this.moves.push(Move { to_free: layer == 0, ..moved });
                    this.clears += 1;
                }
                KIND_PARK if is_cell && parks && in_image(from, count) => {
                    parked.insert(at, this.moves.len());
                    this.moves.push(moved);
                }
                KIND_PUT if superblock.packs_content() => {
                    this.puts.push((at, packed::take(&mut data, count, from)?));
                }
                KIND_PUT => {
                    let (content, rest) = data
                        .split_at_checked(count as usize * BLOCK_LEN)
                        .ok_or_else(|| damaged("journal: truncated data"))?;
                    this.puts.push((at, content.to_vec()));
                    data = rest;
                }
                KIND_ZERO => this.zeros.push(Run { at, count }),
                KIND_FILL if count <= FILL_BLOCKS_MAX => this.fills.push((Run { at, count }, tag)),
                kind => return Err(damaged(format!("journal: unknown record {kind}"))),
            }
        }
        if parked.is_empty() {
            Ok(this)
        } else {
            Err(damaged("journal: a parked cell goes nowhere"))
        }
    }

    /// The moves that clear cells, made before the commit is durable.
    fn clears(&self) -> &[Move] {
        &self.moves[..self.clears]
    }

    /// The moves that are made afterwards.
    fn later_moves(&self) -> &[Move] {
        &self.moves[self.clears..]
    }

    /// Takes back what has arrived of a commit that is not durable: what has moved returns, layer by
    /// layer from the last one on, and all that was free is zero again. What is missing stays
    /// missing, and each cell is whole where it was or where it went, so a crash meanwhile changes
    /// nothing.
    ///
    /// # Errors
    /// [`Kind::Damaged`] if a cell is at neither: nothing has changed; [`Kind::Device`].
    fn take_back(&self, medium: &Medium, returned: &mut dyn FnMut(u32)) -> Result<()> {
        for one in self.clears() {
            one.look_for(medium)?;
        }
        if !planted(Fault::KeptClear) {
            for layer in self.clears().chunk_by(|a, b| a.layer == b.layer).rev() {
                for one in layer {
                    medium.write(BlockNo(one.from), &one.look_for(medium)?)?;
                }
                medium.flush()?;
                returned(layer[0].layer);
            }
        }
        let cleared: BTreeMap<u64, u64> =
            self.clears().iter().map(|one| (one.from, one.count.into())).collect();
        for one in self.clears().iter().filter(|one| !cleared.contains_key(&one.to)) {
            medium.zero(BlockNo(one.to), one.count.into())?;
        }
        if planted(Fault::KeptFill) {
            return medium.flush();
        }
        let is_cleared = |at: u64| {
            let cell = cleared.range(..=at).next_back();
            cell.is_some_and(|(start, blocks)| at - start < *blocks)
        };
        for (run, _) in &self.fills {
            let free = (run.at..run.at + u64::from(run.count)).filter(|at| !is_cleared(*at));
            for run in coalesce(free.map(|at| Run { at, count: 1 })) {
                medium.zero(BlockNo(run.at), run.count.into())?;
            }
        }
        medium.flush()
    }

    /// Everything that overwrites.
    fn overwrite(&self, medium: &Medium) -> Result<()> {
        for (at, content) in &self.puts {
            medium.write(BlockNo(*at), content)?;
        }
        for run in &self.zeros {
            medium.zero(BlockNo(run.at), run.count.into())?;
        }
        Ok(())
    }
}

/// Moves layer by layer, flushed in between.
fn move_all(
    moves: &[Move],
    medium: &Medium,
    recovering: bool,
    flushed: &mut dyn FnMut(u32),
) -> Result<()> {
    for layer in moves.chunk_by(|a, b| a.layer == b.layer) {
        if recovering {
            layer.iter().try_for_each(|one| one.recover(medium))?;
        } else {
            joined(layer).try_for_each(|one| one.apply(medium))?;
        }
        if !planted(Fault::UnflushedLayer) {
            medium.flush()?;
        }
        flushed(layer[0].layer);
    }
    Ok(())
}

/// The moves of a layer, those joined to one whose cells lie in a row, before and after: to be made, for
/// the tag of one stands for its first cell alone.
fn joined(layer: &[Move]) -> impl Iterator<Item = Move> + '_ {
    let next = |a: &Move| (a.to_free, a.from + u64::from(a.count), a.to + u64::from(a.count));
    let rows = layer.chunk_by(move |a, b| next(a) == (b.to_free, b.from, b.to));
    let pieces = rows.flat_map(|row| row.chunks(PIECE_BLOCKS.div_ceil(row[0].count) as usize));
    pieces.map(|piece| Move { count: piece.iter().map(|one| one.count).sum(), ..piece[0] })
}

impl Run {
    fn read(self, medium: &Medium) -> Result<Vec<u8>> {
        let mut content = vec![0; self.count as usize * BLOCK_LEN];
        medium.read(BlockNo(self.at), &mut content)?;
        Ok(content)
    }
}

impl Move {
    /// The cell, from its target if it has arrived there whole, else from its source.
    ///
    /// # Errors
    /// [`Kind::Damaged`] if it is at neither; [`Kind::Device`].
    fn look_for(&self, medium: &Medium) -> Result<Vec<u8>> {
        for at in [self.to, self.from] {
            let cell = Run { at, count: self.count }.read(medium)?;
            if tag_of(&cell) == self.tag {
                return Ok(cell);
            }
        }
        Err(damaged(format!(
            "journal: what moves from block {} to block {} is at neither",
            self.from, self.to
        )))
    }

    /// Copies the cell, or cells that go the same way in a row.
    fn apply(&self, medium: &Medium) -> Result<()> {
        let cell = Run { at: self.from, count: self.count }.read(medium)?;
        for run in self.differing(&cell, medium) {
            let from = usize::try_from(run.at - self.to).expect("within a cell") * BLOCK_LEN;
            medium.write(BlockNo(run.at), &cell[from..][..run.count as usize * BLOCK_LEN])?;
        }
        Ok(())
    }

    /// What of the target gets other content. Most cells hold less than they could, and what is zero
    /// already stays: of the target only that is read which becomes zero. What cannot be read is written.
    fn differing(&self, cell: &[u8], medium: &Medium) -> Vec<Run> {
        let blocks = || (self.to..).zip(cell.chunks_exact(BLOCK_LEN));
        let one = |at| Run { at, count: 1 };
        let mut written: Vec<Run> =
            blocks().filter(|(_, new)| !is_zero(new)).map(|(at, _)| one(at)).collect();
        if !self.to_free {
            for run in coalesce(blocks().filter(|(_, new)| is_zero(new)).map(|(at, _)| one(at))) {
                let old = run.read(medium).ok();
                let stays = |at: u64| {
                    let within = usize::try_from(at - run.at).expect("within a cell") * BLOCK_LEN;
                    old.as_ref().is_some_and(|old| is_zero(&old[within..][..BLOCK_LEN]))
                };
                let all = run.at..run.at + u64::from(run.count);
                written.extend(all.filter(|at| !stays(*at)).map(one));
            }
            written.sort_unstable_by_key(|run| run.at);
        }
        coalesce(written.into_iter())
    }
}

/// Joins adjacent runs of a sorted sequence.
fn coalesce(runs: impl Iterator<Item = Run>) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    for run in runs {
        match out.last_mut() {
            Some(last) if last.at + u64::from(last.count) == run.at => last.count += run.count,
            _ => out.push(run),
        }
    }
    out
}

fn tag_of(content: &[u8]) -> u64 {
    u64_at(&digest(content), 0)
}
