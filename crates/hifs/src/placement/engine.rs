//! The batch engine: from the canonical layout of one set of pieces to that of another, touching
//! only what changes.
//!
//! A piece remembers nothing; the piece that turned it away remembers it as a *waiter*. When that
//! piece goes, its waiters are looked at again. In cyclic layouts these follow from where everything
//! lies (`runs`). Pieces are handled in strictly decreasing preference, so every decision is final
//! and every bucket moves at most once a batch (proof sketch: design note, section 2.4).

mod cells;
mod load;
mod runs;
mod waiters;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::piece::{Cell, Owner, Piece, Rank, pieces_of_chunk};
use super::procedures::Procedures;
use cells::Cells;
pub use load::Entry;
use runs::{Overflow, Place, Runs};
use waiters::Waiters;

/// The new set of stored buckets of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The owner. If its home differs from before, all its buckets are placed anew.
    pub owner: Owner,
    /// For each chunk that changes: its number and the mask of its stored buckets; 0 removes it.
    pub chunks: Vec<(u32, u64)>,
}

/// One bucket whose cell a batch has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Its owner.
    pub owner: u128,
    /// Its logical bucket.
    pub bucket: u32,
    /// The cell it lay in, if it was stored before.
    pub from: Option<Cell>,
    /// The cell it lies in, if it is stored now.
    pub to: Option<Cell>,
}

/// What a batch cost, in counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Buckets copied from an old cell to a new one.
    pub copied: u64,
    /// Buckets stored for the first time.
    pub fresh: u64,
    /// Entries of preference lists looked at.
    pub probes: u64,
    /// Pieces evaluated.
    pub evaluated: u64,
}

impl Work {
    /// Adds what another batch has cost.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.copied += other.copied;
        self.fresh += other.fresh;
        self.probes += other.probes;
        self.evaluated += other.evaluated;
    }
}

/// A placed (or waiting to be placed) piece.
#[derive(Debug)]
struct Slot {
    piece: Piece,
    at: Option<Cell>,
    /// Counts evaluations: a waiter entry of an earlier one is stale.
    generation: u32,
    alive: bool,
    queued: bool,
    touched: bool,
}

/// The slots of one owner, in ascending order of their buckets. Most have one.
#[derive(Debug)]
enum Volume {
    One(u32),
    Many(Box<[u32]>),
}

impl Volume {
    fn of(slots: Vec<u32>) -> Option<Self> {
        match slots[..] {
            [] => None,
            [one] => Some(Self::One(one)),
            _ => Some(Self::Many(slots.into())),
        }
    }

    fn slots(&self) -> &[u32] {
        match self {
            Self::One(slot) => std::slice::from_ref(slot),
            Self::Many(slots) => slots,
        }
    }
}

/// One table: which piece lies where.
pub struct Engine {
    procedures: Box<dyn Procedures>,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    /// Whether the layout is cyclic: then there are no waiters, otherwise there is no overflow.
    cyclic: bool,
    waiters: Waiters,
    overflow: Overflow,
    volumes: HashMap<u128, Volume>,
    cells: Cells,
    stored: u64,
}

/// What one batch keeps in mind.
#[derive(Default)]
struct Batch {
    queue: BinaryHeap<Reverse<(Rank, u32)>>,
    old: HashMap<(u128, u32), Cell>,
    touched: Vec<u32>,
    runs: Runs,
    work: Work,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("shape", &self.procedures.shape())
            .field("owners", &self.volumes.len())
            .field("stored", &self.stored)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An empty table.
    pub fn new(procedures: Box<dyn Procedures>) -> Self {
        let some = procedures.piece(&Owner { id: 0, home: 0 }, 0, 0, 0);
        let cyclic = procedures.start(&some).is_some();
        assert!(
            !cyclic || procedures.order_max() == 0,
            "pieces of cyclic layouts are single cells"
        );
        Self {
            procedures,
            slots: Vec::new(),
            vacant: Vec::new(),
            cyclic,
            waiters: Waiters::default(),
            overflow: Overflow::default(),
            volumes: HashMap::new(),
            cells: Cells::default(),
            stored: 0,
        }
    }

    /// The layout.
    pub fn procedures(&self) -> &dyn Procedures {
        &*self.procedures
    }

    /// Number of buckets stored.
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Number of pieces they form.
    pub fn pieces(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// All owners that have buckets stored.
    pub fn owners(&self) -> impl Iterator<Item = u128> + '_ {
        self.volumes.keys().copied()
    }

    /// Whether `owner` has buckets stored.
    pub fn contains(&self, owner: u128) -> bool {
        self.volumes.contains_key(&owner)
    }

    /// A home that leads to the group by which the owner's buckets were placed.
    pub fn home(&self, owner: u128) -> Option<u64> {
        let slot = *self.volumes.get(&owner)?.slots().first()?;
        Some(self.slots[slot as usize].piece.home.into())
    }

    /// The cell of a bucket and how many of the following buckets of the owner, itself included,
    /// lie in the cells after it.
    pub fn locate(&self, owner: u128, bucket: u32) -> Option<(Cell, u32)> {
        let slots = self.volumes.get(&owner)?.slots();
        let at = slots.partition_point(|&slot| self.slots[slot as usize].piece.bucket <= bucket);
        let slot = &self.slots[*slots.get(at.checked_sub(1)?)? as usize];
        let offset = bucket - slot.piece.bucket;
        if offset >= slot.piece.buckets() {
            return None;
        }
        Some((Cell(slot.at?.0 + offset), slot.piece.buckets() - offset))
    }

    /// The owner and logical bucket in a cell.
    pub fn occupant(&self, cell: Cell) -> Option<(u128, u32)> {
        let slot = &self.slots[self.cells.get(cell)? as usize];
        let offset = cell.0 - slot.at?.0;
        Some((slot.piece.owner, slot.piece.bucket + offset))
    }

    /// The stored buckets of an owner: first bucket, first cell and length of each piece, in
    /// ascending order.
    pub fn extents(&self, owner: u128) -> impl Iterator<Item = (u32, Cell, u32)> + '_ {
        self.volumes.get(&owner).into_iter().flat_map(Volume::slots).filter_map(|&slot| {
            let slot = &self.slots[slot as usize];
            Some((slot.piece.bucket, slot.at?, slot.piece.buckets()))
        })
    }

    /// The stored buckets of an owner as chunk masks, in ascending order.
    pub fn chunks(&self, owner: u128) -> Vec<(u32, u64)> {
        let k = self.procedures.order_max();
        let mut chunks: Vec<(u32, u64)> = Vec::new();
        for (bucket, _, len) in self.extents(owner) {
            let ones = if len == 64 { u64::MAX } else { (1 << len) - 1 };
            let mask = ones << (bucket & ((1 << k) - 1));
            match chunks.last_mut() {
                Some((chunk, sum)) if *chunk == bucket >> k => *sum |= mask,
                _ => chunks.push((bucket >> k, mask)),
            }
        }
        chunks
    }

    /// The mask of one chunk of an owner.
    pub fn chunk(&self, owner: u128, chunk: u32) -> u64 {
        let k = self.procedures.order_max();
        let Some(slots) = self.volumes.get(&owner).map(Volume::slots) else {
            return 0;
        };
        let first =
            slots.partition_point(|&slot| self.slots[slot as usize].piece.bucket < chunk << k);
        let mut mask = 0;
        for &slot in &slots[first..] {
            let piece = &self.slots[slot as usize].piece;
            if piece.bucket >> k != chunk {
                break;
            }
            let ones = if piece.order == 6 { u64::MAX } else { (1 << piece.buckets()) - 1 };
            mask |= ones << (piece.bucket & ((1 << k) - 1));
        }
        mask
    }

    /// The changes that lead back from `changes` to the present state. The layout being canonical,
    /// placing them restores every cell.
    pub fn inverse(&self, changes: &[Change]) -> Vec<Change> {
        let back = |change: &Change| {
            let id = change.owner.id;
            let home = self.home(id).unwrap_or(change.owner.home);
            let chunks = change.chunks.iter().map(|&(q, _)| (q, self.chunk(id, q))).collect();
            Change { owner: Owner { id, home }, chunks }
        };
        changes.iter().map(back).collect()
    }

    /// Goes to the canonical layout after `changes` and tells which buckets have changed cells.
    /// The caller has checked that everything fits.
    pub fn place(&mut self, changes: &[Change]) -> (Vec<Relocation>, Work) {
        let mut batch = Batch::default();
        let mut dead = Vec::new();
        for change in changes {
            self.recut(change, &mut batch, &mut dead);
        }
        for &slot in &dead {
            self.remember(slot, &mut batch);
            self.leave(slot, &mut batch);
            let slot = &mut self.slots[slot as usize];
            slot.alive = false;
            slot.generation += 1;
        }
        if self.cyclic {
            self.close_holes(&mut batch);
        } else {
            for &slot in &dead {
                self.wake(slot, &mut batch);
            }
        }
        while let Some(Reverse((_, slot))) = batch.queue.pop() {
            self.evaluate(slot, &mut batch);
        }
        let relocations = self.relocations(&mut batch);
        self.vacant.extend(dead);
        (relocations, batch.work)
    }

    /// Replaces the pieces of the chunks that change; equal pieces stay where they are.
    fn recut(&mut self, change: &Change, batch: &mut Batch, dead: &mut Vec<u32>) {
        let k = self.procedures.order_max();
        let id = change.owner.id;
        let group = u64::from(self.procedures.piece(&change.owner, 0, 0, 0).home);
        let moved_home = self.home(id).is_some_and(|home| home != group);
        let mut chunks = change.chunks.clone();
        if moved_home {
            let mut all: std::collections::BTreeMap<u32, u64> =
                self.chunks(id).into_iter().collect();
            all.extend(chunks);
            chunks = all.into_iter().collect();
        }
        let mut slots = match self.volumes.remove(&id) {
            Some(Volume::Many(slots)) => slots.into_vec(),
            Some(Volume::One(slot)) => vec![slot],
            None => Vec::new(),
        };
        for (chunk, mask) in chunks {
            let range = self.slots_of_chunk(&slots, chunk, k);
            let before: Vec<u32> = slots[range.clone()].to_vec();
            let (pieces, envelope) = pieces_of_chunk(mask, k);
            let mut kept = vec![false; before.len()];
            let mut after = Vec::with_capacity(pieces.len());
            for (first, order) in pieces {
                let bucket = (chunk << k) + first;
                let piece = self.procedures.piece(&change.owner, bucket, order, envelope);
                let same = before.iter().position(|&s| self.slots[s as usize].piece == piece);
                if let Some(i) = same {
                    kept[i] = true;
                    after.push(before[i]);
                } else {
                    let slot = self.new_slot(piece);
                    self.enqueue(slot, batch);
                    after.push(slot);
                }
            }
            dead.extend(before.iter().zip(kept).filter(|(_, kept)| !kept).map(|(&s, _)| s));
            slots.splice(range, after);
        }
        if let Some(volume) = Volume::of(slots) {
            self.volumes.insert(id, volume);
        }
    }

    fn slots_of_chunk(&self, slots: &[u32], chunk: u32, k: u8) -> std::ops::Range<usize> {
        let chunk_of = |slot: &u32| self.slots[*slot as usize].piece.bucket >> k;
        let start = slots.partition_point(|slot| chunk_of(slot) < chunk);
        let len = slots[start..].iter().take_while(|slot| chunk_of(slot) == chunk).count();
        start..start + len
    }

    fn new_slot(&mut self, piece: Piece) -> u32 {
        let fresh = |generation| Slot {
            piece,
            at: None,
            generation,
            alive: true,
            queued: false,
            touched: false,
        };
        if let Some(slot) = self.vacant.pop() {
            let place = &mut self.slots[slot as usize];
            *place = fresh(place.generation + 1);
            return slot;
        }
        self.slots.push(fresh(0));
        self.waiters.push_slot();
        u32::try_from(self.slots.len() - 1).expect("there are no more pieces than cells")
    }

    /// Gives the piece its first frame that no more preferred piece holds.
    fn evaluate(&mut self, id: u32, batch: &mut Batch) {
        batch.work.evaluated += 1;
        let slot = &mut self.slots[id as usize];
        slot.queued = false;
        if !slot.alive {
            return;
        }
        slot.generation += 1;
        let (piece, at) = (slot.piece, slot.at);
        let frame = if self.cyclic {
            batch.runs.placed = Some(self.procedures.rank(&piece));
            self.first_cell(id, &mut batch.runs.finals, &mut batch.work)
        } else {
            self.first_frame(id, &mut batch.work)
        };
        if at == Some(frame) {
            return;
        }
        self.remember(id, batch);
        if at.is_some() {
            self.leave(id, batch);
            self.wake(id, batch);
        }
        self.evict(frame, piece.buckets(), id, batch);
        self.occupy(id, frame);
        self.touch(id, batch);
        if self.cyclic {
            batch.runs.holes.remove(frame);
            if let Some(&old) = batch.old.get(&(piece.owner, piece.bucket)) {
                self.close_behind(id, old, batch);
            }
        }
    }

    /// Takes the piece out of its frame, which stays behind as a hole.
    fn leave(&mut self, id: u32, batch: &mut Batch) {
        if let (true, Some(at)) = (self.cyclic, self.slots[id as usize].at) {
            batch.runs.holes.insert(at);
        }
        self.vacate(id);
    }

    /// Only the first cell of a frame need be looked at: a more preferred piece is at least as
    /// large, so it covers the frame.
    fn first_frame(&mut self, id: u32, work: &mut Work) -> Cell {
        let (piece, generation) = {
            let slot = &self.slots[id as usize];
            (slot.piece, slot.generation)
        };
        let rank = self.procedures.rank(&piece);
        for t in 0.. {
            let frame = self.procedures.choice(&piece, t);
            work.probes += 1;
            match self.cells.get(frame) {
                Some(other) if other != id && self.rank(other) < rank => {
                    let slots = &self.slots;
                    let is_current = |waiter: u32, then| slots[waiter as usize].generation == then;
                    self.waiters.add(other, id, generation, is_current);
                }
                _ => return frame,
            }
        }
        unreachable!("the caller has checked that the pieces fit")
    }

    fn rank(&self, slot: u32) -> Rank {
        self.procedures.rank(&self.slots[slot as usize].piece)
    }

    fn evict(&mut self, frame: Cell, len: u32, by: u32, batch: &mut Batch) {
        let mut cell = frame.0;
        while cell < frame.0 + len {
            let Some(other) = self.cells.get(Cell(cell)) else {
                cell += 1;
                continue;
            };
            self.remember(other, batch);
            cell += self.slots[other as usize].piece.buckets();
            self.vacate(other);
            self.waiters.inherit(by, other);
            self.enqueue(other, batch);
        }
    }

    fn occupy(&mut self, id: u32, frame: Cell) {
        let slot = &mut self.slots[id as usize];
        slot.at = Some(frame);
        self.cells.set(frame, slot.piece.buckets(), Some(id));
        self.stored += u64::from(slot.piece.buckets());
        if self.cyclic {
            let place = Place::of(&*self.procedures, &slot.piece, id, frame);
            self.overflow.extend(place);
        }
    }

    fn vacate(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        if let Some(frame) = slot.at.take() {
            self.cells.set(frame, slot.piece.buckets(), None);
            self.stored -= u64::from(slot.piece.buckets());
            if self.cyclic {
                let place = Place::of(&*self.procedures, &slot.piece, id, frame);
                self.overflow.remove(place);
            }
        }
    }

    fn enqueue(&mut self, id: u32, batch: &mut Batch) {
        let rank = self.rank(id);
        let slot = &mut self.slots[id as usize];
        if slot.alive && !slot.queued {
            slot.queued = true;
            batch.queue.push(Reverse((rank, id)));
        }
    }

    fn wake(&mut self, id: u32, batch: &mut Batch) {
        for (waiter, generation) in self.waiters.take(id) {
            if self.slots[waiter as usize].generation == generation {
                self.enqueue(waiter, batch);
            }
        }
    }

    /// Notes where the piece's buckets lay when the batch began.
    fn remember(&mut self, id: u32, batch: &mut Batch) {
        let slot = &self.slots[id as usize];
        let Some(at) = slot.at else { return };
        for i in 0..slot.piece.buckets() {
            let key = (slot.piece.owner, slot.piece.bucket + i);
            batch.old.entry(key).or_insert(Cell(at.0 + i));
        }
        self.touch(id, batch);
    }

    fn touch(&mut self, id: u32, batch: &mut Batch) {
        let slot = &mut self.slots[id as usize];
        if !slot.touched {
            slot.touched = true;
            batch.touched.push(id);
        }
    }

    /// Compares where the touched buckets lay with where they lie.
    fn relocations(&mut self, batch: &mut Batch) -> Vec<Relocation> {
        let mut out = Vec::new();
        for &id in &batch.touched {
            let slot = &mut self.slots[id as usize];
            slot.touched = false;
            if !slot.alive {
                continue;
            }
            let at = slot.at.expect("every piece of the batch has been placed");
            for i in 0..slot.piece.buckets() {
                let (owner, bucket) = (slot.piece.owner, slot.piece.bucket + i);
                let to = Cell(at.0 + i);
                let from = batch.old.remove(&(owner, bucket));
                if from == Some(to) {
                    continue;
                }
                match from {
                    Some(_) => batch.work.copied += 1,
                    None => batch.work.fresh += 1,
                }
                out.push(Relocation { owner, bucket, from, to: Some(to) });
            }
        }
        for (&(owner, bucket), &from) in &batch.old {
            out.push(Relocation { owner, bucket, from: Some(from), to: None });
        }
        out
    }
}

#[cfg(test)]
mod tests;
