//! Who holds which cell: memory for what is stored, not for the size of the table.

use std::collections::HashMap;

use crate::placement::Cell;

/// Cells a leaf: one superframe of the largest order.
const LEAF_CELLS: u32 = 64;
const FREE: u32 = u32::MAX;

/// A sparse array from cell to slot.
#[derive(Debug, Default)]
pub(super) struct Cells {
    leaves: HashMap<u32, Box<[u32; LEAF_CELLS as usize]>>,
}

impl Cells {
    /// The slot that holds `cell`.
    pub(super) fn get(&self, cell: Cell) -> Option<u32> {
        let leaf = self.leaves.get(&(cell.0 / LEAF_CELLS))?;
        let slot = leaf[(cell.0 % LEAF_CELLS) as usize];
        (slot != FREE).then_some(slot)
    }

    /// Gives `len` cells from `first` on to `slot`, or frees them.
    pub(super) fn set(&mut self, first: Cell, len: u32, slot: Option<u32>) {
        for cell in first.0..first.0 + len {
            let index = cell / LEAF_CELLS;
            let leaf =
                self.leaves.entry(index).or_insert_with(|| Box::new([FREE; LEAF_CELLS as usize]));
            leaf[(cell % LEAF_CELLS) as usize] = slot.unwrap_or(FREE);
            if slot.is_none() && cell % LEAF_CELLS == LEAF_CELLS - 1 || cell + 1 == first.0 + len {
                self.drop_if_free(index);
            }
        }
    }

    fn drop_if_free(&mut self, index: u32) {
        if self.leaves.get(&index).is_some_and(|leaf| leaf.iter().all(|&slot| slot == FREE)) {
            self.leaves.remove(&index);
        }
    }
}
