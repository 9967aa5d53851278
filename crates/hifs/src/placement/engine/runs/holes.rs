//! The cells that a batch has vacated and not yet filled.

use std::collections::BTreeSet;

use crate::placement::{Cell, Shape};

/// Holes, those apart that nothing in their group claims any more.
#[derive(Debug, Default)]
pub(in crate::placement::engine) struct Holes {
    claimed: BTreeSet<Cell>,
    given_up: BTreeSet<Cell>,
}

impl Holes {
    /// The cell has been vacated.
    pub(in crate::placement::engine) fn insert(&mut self, cell: Cell) {
        self.claimed.insert(cell);
    }

    /// The cell is held, whether it was a hole or not.
    pub(in crate::placement::engine) fn remove(&mut self, cell: Cell) {
        if !self.claimed.remove(&cell) {
            self.given_up.remove(&cell);
        }
    }

    /// Nothing in its group claims the hole.
    pub(super) fn give_up(&mut self, cell: Cell) {
        self.claimed.remove(&cell);
        self.given_up.insert(cell);
    }

    /// Whether the cell is a hole that something behind it may claim.
    pub(super) fn is_claimed(&self, cell: Cell) -> bool {
        self.claimed.contains(&cell)
    }

    /// Whether a group has a hole.
    pub(super) fn is_in(&self, shape: Shape, group: u32) -> bool {
        let cells = Cell(group * shape.cells_per_group)..=last(shape, group);
        let mut sets = [&self.claimed, &self.given_up].into_iter();
        sets.any(|holes| holes.range(cells.clone()).next().is_some())
    }

    /// First cell and number of cells of each row of holes that nothing interrupts.
    pub(super) fn blocks(&self, cells_per_group: u32) -> Vec<(Cell, u32)> {
        let mut blocks: Vec<(Cell, u32)> = Vec::new();
        for &hole in &self.claimed {
            match blocks.last_mut() {
                Some((first, len))
                    if first.0 + *len == hole.0 && !hole.0.is_multiple_of(cells_per_group) =>
                {
                    *len += 1;
                }
                _ => blocks.push((hole, 1)),
            }
        }
        blocks
    }

    /// Of the claimed holes among `cell` and the `back` cells before it, in the cyclic order of its
    /// group, the nearest that is at least `from` before it: how far that is.
    pub(super) fn nearest(&self, shape: Shape, cell: Cell, from: u32, back: u32) -> Option<u32> {
        if from > back {
            return None;
        }
        let (near, far) = (shape.behind(cell, from), shape.behind(cell, back));
        let hole = if far <= near {
            self.claimed.range(far..=near).next_back()
        } else {
            let group = shape.group(cell);
            let before = self.claimed.range(first(shape, group)..=near).next_back();
            before.or_else(|| self.claimed.range(far..=last(shape, group)).next_back())
        }?;
        Some(shape.distance(*hole, cell))
    }

    /// The same for the farthest of them.
    pub(super) fn farthest(&self, shape: Shape, cell: Cell, back: u32) -> Option<u32> {
        let far = shape.behind(cell, back);
        let hole = if far <= cell {
            self.claimed.range(far..=cell).next()
        } else {
            let group = shape.group(cell);
            let behind = self.claimed.range(far..=last(shape, group)).next();
            behind.or_else(|| self.claimed.range(first(shape, group)..=cell).next())
        }?;
        Some(shape.distance(*hole, cell))
    }
}

const fn first(shape: Shape, group: u32) -> Cell {
    Cell(group * shape.cells_per_group)
}

const fn last(shape: Shape, group: u32) -> Cell {
    Cell(group * shape.cells_per_group + (shape.cells_per_group - 1))
}
