//! The paper's generic procedures, INSERT, SEARCH and DELETE, as they stand in procedure set 1 with
//! the design note's repairs: one bucket a key, one key at a time.
//!
//! They are the reproduction of the paper and a second witness beside the oracle; mounts use
//! [`super::Engine`], which handles whole batches.
//!
//! Paper: HIFS, section 4.5.1, procedure set 1. Deviations: D-01, D-02, D-04, D-05 in
//! docs/design/hifs.md.

use super::piece::{Cell, Piece, Shape};
use super::procedures::Procedures;

/// Which DELETE [`HashTable::delete`] runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delete {
    /// The repaired one (design note, section 1.6).
    Repaired,
    /// The printed one with its two gaps closed: it advances when nothing moves and clears the last
    /// hole, but follows the deleted key's order and the printed, backward `KEY_PREFERS`. It loses
    /// keys, which a test shows.
    Printed,
}

/// A history-independent hash table of single buckets.
#[derive(Clone)]
pub struct HashTable<'a> {
    procedures: &'a dyn Procedures,
    cells: Vec<Option<Piece>>,
}

impl std::fmt::Debug for HashTable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashTable").field("cells", &self.cells).finish_non_exhaustive()
    }
}

impl<'a> HashTable<'a> {
    /// An empty table.
    pub fn new(procedures: &'a dyn Procedures) -> Self {
        Self { procedures, cells: vec![None; procedures.shape().cells() as usize] }
    }

    /// What lies in each cell.
    pub fn cells(&self) -> &[Option<Piece>] {
        &self.cells
    }

    /// Puts `key` in and returns where *it* landed, or `None` if the table is full. Displaced keys
    /// travel on in their own order of preference.
    pub fn insert(&mut self, key: Piece) -> Option<Cell> {
        if self.cells.iter().all(Option::is_some) {
            return None;
        }
        let (mut travelling, mut t, mut landed) = (key, 0, None);
        loop {
            let cell = self.procedures.choice(&travelling, t);
            let slot = &mut self.cells[cell.0 as usize];
            match slot {
                None => {
                    *slot = Some(travelling);
                    return landed.or(Some(cell));
                }
                Some(held) if self.procedures.rank(&travelling) < self.procedures.rank(held) => {
                    std::mem::swap(&mut travelling, held);
                    landed = landed.or(Some(cell));
                    t = self.position(&travelling, cell);
                }
                Some(_) => {}
            }
            t += 1;
        }
    }

    /// Where `key` lies. Stops at an empty cell and at one whose key is less preferred.
    pub fn search(&self, key: &Piece) -> Option<Cell> {
        let rank = self.procedures.rank(key);
        for t in 0..self.procedures.shape().cells() {
            let cell = self.procedures.choice(key, t);
            let held = self.cells[cell.0 as usize].as_ref()?;
            if held == key {
                return Some(cell);
            }
            if rank < self.procedures.rank(held) {
                return None;
            }
        }
        None
    }

    /// Takes `key` out and closes the hole. Returns whether it was there.
    pub fn delete(&mut self, key: &Piece, how: Delete) -> bool {
        let Some(hole) = self.search(key) else {
            return false;
        };
        match how {
            Delete::Repaired => self.close(hole),
            Delete::Printed => self.close_as_printed(hole, *key),
        }
        true
    }

    fn close(&mut self, mut hole: Cell) {
        loop {
            let shape = self.procedures.shape();
            let group = shape.group(hole);
            let full = self.group_cells(group).all(|c| self.cells[c as usize].is_some());
            self.cells[hole.0 as usize] = None;
            let mover = self
                .first_claimant(hole)
                .or_else(|| if full { self.claimant_from_later_groups(hole) } else { None });
            let Some(from) = mover else { return };
            self.cells[hole.0 as usize] = self.cells[from.0 as usize];
            hole = from;
        }
    }

    /// In the hole's group, cyclically after it and up to an empty cell: the first key that prefers
    /// the hole. It is the most preferred one, for it passed over the later ones' cells.
    fn first_claimant(&self, hole: Cell) -> Option<Cell> {
        let shape = self.procedures.shape();
        let (len, first) = (shape.cells_per_group, shape.group(hole) * shape.cells_per_group);
        for step in 1..len {
            let cell = Cell(first + (hole.0 - first + step) % len);
            let key = self.cells[cell.0 as usize].as_ref()?;
            if self.prefers(key, hole, cell) {
                return Some(cell);
            }
        }
        None
    }

    /// Keys that overflowed from a full group: the most preferred claimant of the nearest later
    /// group that has one.
    fn claimant_from_later_groups(&self, hole: Cell) -> Option<Cell> {
        let shape = self.procedures.shape();
        for step in 1..shape.groups {
            let group = (shape.group(hole) + step) % shape.groups;
            let claimant = self
                .group_cells(group)
                .filter_map(|c| self.cells[c as usize].map(|key| (key, Cell(c))))
                .filter(|(key, cell)| self.prefers(key, hole, *cell))
                .min_by_key(|(key, _)| self.procedures.rank(key));
            if let Some((_, cell)) = claimant {
                return Some(cell);
            }
            if self.group_cells(group).any(|c| self.cells[c as usize].is_none()) {
                return None;
            }
        }
        None
    }

    fn close_as_printed(&mut self, mut hole: Cell, key: Piece) {
        let (mut leader, mut t) = (key, self.position(&key, hole));
        for _ in 0..self.cells.len() {
            t += 1;
            let cell = self.procedures.choice(&leader, t);
            let Some(held) = self.cells[cell.0 as usize] else {
                break;
            };
            if cell != hole && self.prefers_as_printed(&held, hole, cell) {
                self.cells[hole.0 as usize] = Some(held);
                self.cells[cell.0 as usize] = None;
                hole = cell;
                leader = held;
                t = self.position(&leader, hole);
            }
        }
        self.cells[hole.0 as usize] = None;
    }

    fn prefers(&self, key: &Piece, a: Cell, b: Cell) -> bool {
        self.position(key, a) < self.position(key, b)
    }

    /// `KEY_PREFERS` with the printed distance, `(home - x) mod n`: backward.
    fn prefers_as_printed(&self, key: &Piece, a: Cell, b: Cell) -> bool {
        let Shape { groups, cells_per_group: len } = self.procedures.shape();
        let home = self.procedures.choice(key, 0);
        let back = |from: u32, x: u32, n: u32| (from + n - x) % n;
        let shape = self.procedures.shape();
        if shape.group(a) == shape.group(b) {
            back(home.0 % len, a.0 % len, len) < back(home.0 % len, b.0 % len, len)
        } else {
            let home = shape.group(home);
            back(home, shape.group(a), groups) < back(home, shape.group(b), groups)
        }
    }

    fn position(&self, key: &Piece, cell: Cell) -> u32 {
        self.procedures
            .position(key, cell)
            .expect("layouts of procedure set 1 list every cell once")
    }

    fn group_cells(&self, group: u32) -> std::ops::Range<u32> {
        let len = self.procedures.shape().cells_per_group;
        group * len..(group + 1) * len
    }
}
