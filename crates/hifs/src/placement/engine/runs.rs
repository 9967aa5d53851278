//! Cyclic layouts, whose pieces are single cells: who is looked at again follows from where everything
//! lies, and nobody keeps a list of who was turned away. In a full group that would be a list of as
//! many as the square of its cells.
//!
//! A piece *claims* a hole, a cell that a batch has vacated, if it tries that before the cell where it
//! lies. Of two pieces in the hole's group that both claim it, the one that lies nearer behind it is the
//! more preferred: the other has passed it. So the first that claims a hole, going on from it, is the
//! one to look at, and what is behind a cell that was free before claims nothing in front of that. The
//! invariant between two evaluations: the first claimant of each hole is in the queue. It holds for
//! what is taken out; when a claimant has been placed, only the holes that it claimed can have lost
//! their first claimant, and no other is nearer than it was, so the search goes on from there.
//!
//! Pieces that have overflowed into a later group have passed all of their home and of the groups
//! between, and claim every hole in them. They are less preferred than all that lay there, and of
//! several those of one home come in the order of the groups where they lie.

mod finals;
mod holes;
mod overflow;

use super::{Batch, Engine, Work};
use crate::placement::{Cell, Piece, Rank};
pub(super) use finals::Finals;
pub(super) use holes::Holes;
pub(super) use overflow::{Overflow, Place};

/// What a batch in a cyclic layout keeps in mind.
#[derive(Debug, Default)]
pub(super) struct Runs {
    pub(super) finals: Finals,
    pub(super) holes: Holes,
    /// The piece that is being placed: all that are more preferred lie where they will.
    pub(super) placed: Option<Rank>,
}

impl Engine {
    /// The first cell of the piece's choices that is free or held by a less preferred one, or by
    /// itself. All more preferred ones are final; that is how cells become so, and are passed once.
    pub(super) fn first_cell(&self, id: u32, finals: &mut Finals, work: &mut Work) -> Cell {
        let piece = &self.slots[id as usize].piece;
        let rank = self.procedures.rank(piece);
        let shape = self.procedures.shape();
        let start = self.start(piece);
        for step in 0..shape.groups {
            let group = (piece.home + step) % shape.groups;
            while let Some(cell) = finals.next(shape, group, start) {
                work.probes += 1;
                match self.cells.get(cell) {
                    Some(other) if other != id && self.rank(other) < rank => {
                        finals.settle(shape, cell);
                    }
                    _ => return cell,
                }
            }
        }
        unreachable!("the caller has checked that the pieces fit")
    }

    /// Queues the first claimants of the holes that the batch begins with.
    pub(super) fn close_holes(&mut self, batch: &mut Batch) {
        let shape = self.procedures.shape();
        for (first, len) in batch.runs.holes.blocks(shape.cells_per_group) {
            self.queue_claimants(Cell(first.0 + len - 1), len - 1, batch);
            self.queue_overflow(shape.group(first), batch);
        }
    }

    /// Queues the next claimants of the holes that a piece claimed which lay in `old` and has been
    /// placed anew.
    pub(super) fn close_behind(&mut self, id: u32, old: Cell, batch: &mut Batch) {
        let piece = self.slots[id as usize].piece;
        let shape = self.procedures.shape();
        let passed = self.displacement(&piece, old);
        if let Some(back) = batch.runs.holes.farthest(shape, old, passed) {
            self.queue_claimants(old, back, batch);
        }
        if self.overflow.is_empty() {
            return;
        }
        let away = (shape.group(old) + shape.groups - piece.home) % shape.groups;
        for step in 0..=away {
            self.queue_overflow((piece.home + step) % shape.groups, batch);
        }
    }

    /// Queues the first claimants of the holes among `last` and the `back` cells before it. None of
    /// these holes has one up to `last`. Those that turn out to have none never will in this batch.
    fn queue_claimants(&mut self, last: Cell, back: u32, batch: &mut Batch) {
        let shape = self.procedures.shape();
        let len = shape.cells_per_group;
        let mut unclaimed = batch.runs.holes.nearest(shape, last, 0, back);
        for step in 1..len - back {
            let Some(near) = unclaimed else { return };
            let cell = shape.ahead(last, step);
            let Some(id) = self.cells.get(cell) else {
                if batch.runs.holes.is_claimed(cell) {
                    continue;
                }
                break;
            };
            let piece = &self.slots[id as usize].piece;
            let is_final =
                batch.runs.placed.is_some_and(|rank| self.procedures.rank(piece) <= rank);
            let passed = self.displacement(piece, cell);
            if !is_final && passed >= step + near {
                self.enqueue(id, batch);
                unclaimed = batch.runs.holes.nearest(shape, last, passed - step + 1, back);
            }
        }
        while let Some(near) = unclaimed {
            batch.runs.holes.give_up(shape.behind(last, near));
            unclaimed = batch.runs.holes.nearest(shape, last, near + 1, back);
        }
    }

    /// Queues the most preferred of the pieces that have passed all of a group, if it has a hole.
    fn queue_overflow(&mut self, group: u32, batch: &mut Batch) {
        let shape = self.procedures.shape();
        if batch.runs.holes.is_in(shape, group)
            && let Some(id) = self.overflow.first_beyond(shape, group, batch.runs.placed)
        {
            self.enqueue(id, batch);
        }
    }

    /// How many cells of the group the piece tries before `cell`.
    fn displacement(&self, piece: &Piece, cell: Cell) -> u32 {
        let len = self.procedures.shape().cells_per_group;
        (cell.0 % len + len - self.start(piece)) % len
    }

    fn start(&self, piece: &Piece) -> u32 {
        self.procedures.start(piece).expect("the layout is cyclic")
    }
}
