//! Who holds which cell: memory for what is stored, not for the size of the table.

use std::ops::Range;

use crate::placement::Cell;

/// Cells a leaf, a superframe of the largest order; and leaves a branch.
const FANOUT: usize = 64;
const FREE: u32 = u32::MAX;

type Leaf = [u32; FANOUT];
type Branch = [Option<Box<Leaf>>; FANOUT];

/// A sparse array from cell to slot: branches of leaves, each there only while something is in it, and
/// a word for each branch up to the last that ever was.
#[derive(Debug, Default)]
pub(super) struct Cells {
    branches: Vec<Option<Box<Branch>>>,
}

impl Cells {
    /// The slot that holds `cell`.
    pub(super) fn get(&self, cell: Cell) -> Option<u32> {
        let (branch, leaf, at) = path(cell);
        let slot = self.branches.get(branch)?.as_ref()?[leaf].as_ref()?[at];
        (slot != FREE).then_some(slot)
    }

    /// Gives `len` cells from `first` on to `slot`, or frees them.
    pub(super) fn set(&mut self, first: Cell, len: u32, slot: Option<u32>) {
        let end = first.0 + len;
        let mut from = first.0;
        while from < end {
            let (branch, leaf, at) = path(Cell(from));
            let count = (end - from).min(low(FANOUT - at));
            let cells = at..at + count as usize;
            match slot {
                Some(slot) => self.leaf_mut(branch, leaf)[cells].fill(slot),
                None => self.free(branch, leaf, cells),
            }
            from += count;
        }
    }

    /// Gives a cell that is held to another slot; returns which held it.
    pub(super) fn replace(&mut self, cell: Cell, slot: u32) -> Option<u32> {
        let (branch, leaf, at) = path(cell);
        let held = &mut self.branches.get_mut(branch)?.as_mut()?[leaf].as_mut()?[at];
        (*held != FREE).then(|| std::mem::replace(held, slot))
    }

    fn leaf_mut(&mut self, branch: usize, leaf: usize) -> &mut Leaf {
        if self.branches.len() <= branch {
            self.branches.resize_with(branch + 1, || None);
        }
        let leaves =
            self.branches[branch].get_or_insert_with(|| Box::new([const { None }; FANOUT]));
        leaves[leaf].get_or_insert_with(|| Box::new([FREE; FANOUT]))
    }

    fn free(&mut self, branch: usize, leaf: usize, cells: Range<usize>) {
        let Some(leaves) = self.branches.get_mut(branch).and_then(Option::as_mut) else { return };
        let Some(slots) = &mut leaves[leaf] else { return };
        slots[cells].fill(FREE);
        if slots.iter().all(|&slot| slot == FREE) {
            leaves[leaf] = None;
            if leaves.iter().all(Option::is_none) {
                self.branches[branch] = None;
            }
        }
    }
}

/// The branch of a cell, the leaf within that, and the place within that.
const fn path(cell: Cell) -> (usize, usize, usize) {
    let cell = cell.0 as usize;
    (cell / (FANOUT * FANOUT), cell / FANOUT % FANOUT, cell % FANOUT)
}

#[expect(clippy::cast_possible_truncation, reason = "at most a leaf")]
const fn low(count: usize) -> u32 {
    count as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_held_and_freed_across_leaves_and_branches() {
        let mut cells = Cells::default();
        let edge = low(FANOUT * FANOUT);
        cells.set(Cell(edge - 70), 140, Some(7));
        cells.set(Cell(5), 1, Some(8));
        let held: Vec<u32> = (0..2 * edge).filter(|&c| cells.get(Cell(c)).is_some()).collect();
        assert_eq!(held, [5].into_iter().chain(edge - 70..edge + 70).collect::<Vec<_>>());
        cells.set(Cell(edge - 3), 6, Some(9));
        let around: Vec<_> = (edge - 4..edge + 4).map(|c| cells.get(Cell(c))).collect();
        assert_eq!(around[0], Some(7));
        assert!(around[1..7].iter().all(|slot| *slot == Some(9)));
        assert_eq!(around[7], Some(7));
        cells.set(Cell(edge - 70), 140, None);
        assert_eq!(cells.get(Cell(5)), Some(8));
        assert!((6..2 * edge).all(|c| cells.get(Cell(c)).is_none()));
    }

    #[test]
    fn what_is_free_takes_no_room() {
        let mut cells = Cells::default();
        cells.set(Cell(u32::MAX - 64), 64, Some(1));
        cells.set(Cell(3), 1, Some(2));
        assert_eq!(cells.branches.iter().flatten().count(), 2);
        cells.set(Cell(3), 1, None);
        cells.set(Cell(u32::MAX - 64), 64, None);
        assert_eq!(cells.branches.iter().flatten().count(), 0);
        // What was never held is free, and may be freed.
        cells.set(Cell(100), 100, None);
        assert_eq!(cells.get(Cell(u32::MAX)), None);
    }
}
