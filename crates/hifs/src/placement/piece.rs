//! What is placed: owners, pieces and their rank; where: cells and the shape of a table.

/// Number of a cell in a table: `group * cells_per_group + index in the group`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell(pub u32);

/// Shape of a table: `Gn` groups of `Bn` cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// `Gn`.
    pub groups: u32,
    /// `Bn` of the buckets map, `In` of the inode table.
    pub cells_per_group: u32,
}

impl Shape {
    /// All cells, `N = Gn * Bn`.
    pub const fn cells(self) -> u32 {
        self.groups * self.cells_per_group
    }

    /// The group of a cell.
    pub const fn group(self, cell: Cell) -> u32 {
        cell.0 / self.cells_per_group
    }

    /// The cell `steps` further on in the cyclic order of its group; fewer than it has cells.
    pub(super) const fn ahead(self, cell: Cell, steps: u32) -> Cell {
        let index = cell.0 % self.cells_per_group;
        let to_end = self.cells_per_group - index;
        Cell(if steps < to_end { cell.0 + steps } else { cell.0 - index + (steps - to_end) })
    }

    /// The cell `steps` before it in the cyclic order of its group; fewer than it has cells.
    pub(super) const fn behind(self, cell: Cell, steps: u32) -> Cell {
        if steps == 0 { cell } else { self.ahead(cell, self.cells_per_group - steps) }
    }

    /// How many steps it is from one cell of a group on to another.
    pub(super) const fn distance(self, from: Cell, to: Cell) -> u32 {
        if from.0 <= to.0 { to.0 - from.0 } else { self.cells_per_group - (from.0 - to.0) }
    }
}

/// Who owns buckets: a file, or a page of the inode table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The owner's identity, pseudo-random by construction: the paper's `fp`.
    pub id: u128,
    /// What the home group follows from: `h(fp)`, `h(u)` or a hash of the parent directory.
    pub home: u64,
}

/// `2^order` consecutive logical buckets of one owner, placed as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Identity of the owner.
    pub owner: u128,
    /// First logical bucket, a multiple of `2^order`.
    pub bucket: u32,
    /// Size class: the piece has `2^order` buckets.
    pub order: u8,
    /// Size class of the whole tail that the piece is part of (rule D's `env`).
    pub envelope: u8,
    /// Home group.
    pub home: u32,
    /// The hash that the layout ranks and probes by.
    pub hash: u64,
}

impl Piece {
    /// Number of buckets.
    pub const fn buckets(&self) -> u32 {
        1 << self.order
    }
}

/// How much every cell prefers a piece: less is more preferred. A strict total order, because no
/// two pieces share owner and bucket.
///
/// Fields in order: class (bigger pieces first), hash key, owner, bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u8, pub u64, pub u128, pub u32);

impl Rank {
    /// The most preferred there could be.
    pub(super) const MIN: Self = Self(0, 0, 0, 0);
}

/// The steps of a well mixed 64-bit hash; placement hashes pseudo-random ids only, so nothing
/// stronger is needed.
pub(super) const fn mix(a: u64, b: u64) -> u64 {
    finish(finish(a) ^ b.wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

const fn finish(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Both halves of an id in one word.
#[expect(clippy::cast_possible_truncation, reason = "the two halves are taken apart")]
pub(super) const fn fold(id: u128) -> u64 {
    mix(id as u64, (id >> 64) as u64)
}

/// Splits the stored buckets of one chunk into maximal aligned pieces.
///
/// Bit `i` of `mask` says that the chunk's bucket `i` is stored; a chunk has `2^order_max <= 64`
/// buckets. Returns `(first bucket in the chunk, order)` ascending, and the chunk's envelope: the
/// smallest `e` with all stored buckets below `2^e`.
///
/// Source: design note, section 2.3 (pieces).
pub fn pieces_of_chunk(mask: u64, order_max: u8) -> (Vec<(u32, u8)>, u8) {
    let mut pieces = Vec::new();
    let chunk_len = 1u32 << order_max;
    let mut at = 0u32;
    while at < chunk_len {
        if mask >> at & 1 == 0 {
            at += 1;
            continue;
        }
        let mut order = 0u8;
        while order < order_max {
            let len = 2u32 << order;
            if !at.is_multiple_of(len) || mask >> at & ones(len) != ones(len) {
                break;
            }
            order += 1;
        }
        pieces.push((at, order));
        at += 1 << order;
    }
    let top = 64 - mask.leading_zeros();
    #[expect(clippy::cast_possible_truncation, reason = "at most 6")]
    let envelope = if top <= 1 { 0 } else { (64 - u64::from(top - 1).leading_zeros()) as u8 };
    (pieces, envelope)
}

const fn ones(count: u32) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_tail_is_its_binary_digits() {
        let (pieces, envelope) = pieces_of_chunk(0b111_1111_1111, 4);
        assert_eq!(pieces, [(0, 3), (8, 1), (10, 0)]);
        assert_eq!(envelope, 4);
    }

    #[test]
    fn holes_split_into_aligned_intervals() {
        let (pieces, envelope) = pieces_of_chunk(0b1101_1110, 4);
        assert_eq!(pieces, [(1, 0), (2, 1), (4, 0), (6, 1)]);
        assert_eq!(envelope, 3);
    }

    #[test]
    fn full_and_single_and_empty() {
        assert_eq!(pieces_of_chunk(u64::MAX, 6), (vec![(0, 6)], 6));
        assert_eq!(pieces_of_chunk(1, 6), (vec![(0, 0)], 0));
        assert_eq!(pieces_of_chunk(1, 0), (vec![(0, 0)], 0));
        assert_eq!(pieces_of_chunk(0, 6), (vec![], 0));
        assert_eq!(pieces_of_chunk(0b10, 4), (vec![(1, 0)], 1));
    }
}
