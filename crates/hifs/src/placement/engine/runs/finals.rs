//! Which cells hold what will not move any more: a forest of links to the next that may.

use std::collections::HashMap;

use crate::placement::engine::cells::Cells;
use crate::placement::{Cell, Shape};

/// The cells that are passed by whatever is placed from now on.
#[derive(Debug, Default)]
pub(in crate::placement::engine) struct Finals {
    /// For each such cell one further on in its group, all between which are such cells.
    links: Cells,
    /// How many there are in each group.
    counts: HashMap<u32, u32>,
}

impl Finals {
    /// The first cell of the group from its cell `start` on, in cyclic order, that is not final.
    pub(super) fn next(&mut self, shape: Shape, group: u32, start: u32) -> Option<Cell> {
        if self.counts.get(&group) == Some(&shape.cells_per_group) {
            return None;
        }
        let from = Cell(group * shape.cells_per_group + start);
        let mut next = from;
        while let Some(further) = self.links.get(next) {
            next = Cell(further);
        }
        let mut at = from;
        while at != next {
            at = Cell(self.links.replace(at, next.0).expect("it was followed"));
        }
        Some(next)
    }

    /// The cell is final from now on.
    pub(super) fn settle(&mut self, shape: Shape, cell: Cell) {
        self.links.set(cell, 1, Some(shape.ahead(cell, 1).0));
        *self.counts.entry(shape.group(cell)).or_default() += 1;
    }
}
