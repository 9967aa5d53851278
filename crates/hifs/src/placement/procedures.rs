//! The customisable procedures: all that distinguishes one layout from another.

use super::piece::{Cell, Owner, Piece, Rank, Shape, fold, mix};

/// A layout: how owners are split, what keys and cells prefer.
///
/// `choice(p, 0)` is the paper's `MOST_PREFERRED`, `choice(p, t + 1)` its `NEXT` after
/// `choice(p, t)`, and `rank` orders what its `BUCKET_PREFERS` compares.
pub trait Procedures: Send + Sync {
    /// The shape of the table.
    fn shape(&self) -> Shape;

    /// Pieces have at most `2^order_max` buckets; 6 at most.
    fn order_max(&self) -> u8 {
        0
    }

    /// The piece of `owner` that begins at `bucket`.
    fn piece(&self, owner: &Owner, bucket: u32, order: u8, envelope: u8) -> Piece;

    /// How much every cell prefers the piece.
    fn rank(&self, piece: &Piece) -> Rank;

    /// First cell of the piece's `t`-th choice. Every frame of the piece's size occurs.
    fn choice(&self, piece: &Piece, t: u32) -> Cell;

    /// Where in each group the piece begins, if the layout is cyclic: a piece tries the groups in
    /// cyclic order from its home, and in each the cells in cyclic order from there.
    fn start(&self, piece: &Piece) -> Option<u32> {
        let _ = piece;
        None
    }

    /// The inverse of `choice` for cyclic layouts: `KEY_PREFERS` says yes to the cell with the
    /// smaller position.
    fn position(&self, piece: &Piece, cell: Cell) -> Option<u32> {
        Some(cyclic_position(self.shape(), piece.home, self.start(piece)?, cell))
    }
}

/// Groups in cyclic order from home; inside each group cells in cyclic order from `start`.
fn cyclic_choice(shape: Shape, home: u32, start: u32, t: u32) -> Cell {
    let len = shape.cells_per_group;
    let group = (u64::from(home) + u64::from(t / len)) % u64::from(shape.groups);
    let index = (u64::from(start) + u64::from(t % len)) % u64::from(len);
    Cell(low(group) * len + low(index))
}

fn cyclic_position(shape: Shape, home: u32, start: u32, cell: Cell) -> u32 {
    let len = shape.cells_per_group;
    let group = (shape.group(cell) + shape.groups - home) % shape.groups;
    let index = (cell.0 % len + len - start) % len;
    group * len + index
}

/// `hash mod count`.
fn modulo(hash: u64, count: u32) -> u32 {
    low(hash % u64::from(count))
}

#[expect(clippy::cast_possible_truncation, reason = "callers reduce modulo a u32 first")]
const fn low(x: u64) -> u32 {
    x as u32
}

macro_rules! hashed_start {
    ($name:ident, $doc:literal, $home:expr) => {
        #[doc = $doc]
        #[derive(Debug, Clone, Copy)]
        pub struct $name {
            /// Shape of the table.
            pub shape: Shape,
        }

        impl Procedures for $name {
            fn shape(&self) -> Shape {
                self.shape
            }

            fn piece(&self, owner: &Owner, bucket: u32, order: u8, envelope: u8) -> Piece {
                let hash = mix(fold(owner.id), u64::from(bucket));
                let home: fn(&Owner) -> u64 = $home;
                let home = modulo(home(owner), self.shape.groups);
                Piece { owner: owner.id, bucket, order, envelope, home, hash }
            }

            fn rank(&self, piece: &Piece) -> Rank {
                Rank(0, !piece.hash, piece.owner, piece.bucket)
            }

            fn choice(&self, piece: &Piece, t: u32) -> Cell {
                let start = modulo(piece.hash, self.shape.cells_per_group);
                cyclic_choice(self.shape, piece.home, start, t)
            }

            fn start(&self, piece: &Piece) -> Option<u32> {
                Some(modulo(piece.hash, self.shape.cells_per_group))
            }
        }
    };
}

hashed_start!(
    LayoutA,
    "Layout A, block group locality: home group from the file, cell from file and bucket.\n\n\
     With one bucket an owner it is also procedure set 5, the inode table.\n\n\
     Paper: HIFS, procedure sets 2 and 5. Deviation: D-01, D-02 in docs/design/hifs.md.",
    |owner| fold(owner.id)
);
hashed_start!(
    LayoutC,
    "Layout C, locality by user: as A, the home group from the owner of the file.\n\n\
     Paper: HIFS, procedure set 4.",
    |owner| owner.home
);

/// Layout B, complete sequential: a file's buckets lie in order from the first cell of its group.
///
/// Paper: HIFS, procedure set 3. Deviation: D-03 in docs/design/hifs.md (order of files with equal
/// hash).
#[derive(Debug, Clone, Copy)]
pub struct LayoutB {
    /// Shape of the table.
    pub shape: Shape,
}

impl Procedures for LayoutB {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn piece(&self, owner: &Owner, bucket: u32, order: u8, envelope: u8) -> Piece {
        let hash = fold(owner.id);
        let home = modulo(hash, self.shape.groups);
        Piece { owner: owner.id, bucket, order, envelope, home, hash }
    }

    fn rank(&self, piece: &Piece) -> Rank {
        Rank(0, !piece.hash, piece.owner, piece.bucket)
    }

    fn choice(&self, piece: &Piece, t: u32) -> Cell {
        cyclic_choice(self.shape, piece.home, 0, t)
    }

    fn start(&self, _: &Piece) -> Option<u32> {
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_inverts_choice() {
        let shape = Shape { groups: 3, cells_per_group: 8 };
        let owner = Owner { id: 0x1234_5678_9abc_def0_0f1e_2d3c, home: 77 };
        let layouts: [&dyn Procedures; 3] =
            [&LayoutA { shape }, &LayoutB { shape }, &LayoutC { shape }];
        for layout in layouts {
            let piece = layout.piece(&owner, 5, 0, 0);
            let mut seen = [false; 24];
            for t in 0..24 {
                let cell = layout.choice(&piece, t);
                assert_eq!(layout.position(&piece, cell), Some(t));
                assert!(!std::mem::replace(&mut seen[cell.0 as usize], true));
            }
        }
    }
}
