//! Rule D, the default layout: canonical buddy pieces, hashed probing, bigger pieces first.

use super::piece::{Cell, Owner, Piece, Rank, Shape, fold, mix};
use super::procedures::Procedures;

/// Probes in the home group before the whole table is probed.
const HOME_PROBES: u32 = 16;
/// The first probes, which keep all pieces of one tail side by side.
const COHERENT_PROBES: u32 = 4;
/// After this many probes the frames are swept in order, so that every frame is reached.
const SWEEP_AT: u32 = 1024;

/// Layout D.
///
/// A file is split into aligned pieces of up to `2^order_max` buckets; all cells prefer bigger pieces,
/// then smaller hashes. Pieces are placed in decreasing size, so what is free is always a union of
/// whole frames of the current size, and a piece finds room whenever the volume fits.
///
/// Source: design note, section 2.3.
#[derive(Debug, Clone, Copy)]
pub struct RuleD {
    shape: Shape,
    order_max: u8,
}

impl RuleD {
    /// The rule on a table whose groups hold whole frames of `2^order_max` cells.
    pub fn new(shape: Shape, order_max: u8) -> Self {
        assert!(order_max <= 6, "a chunk is a 64-bit mask");
        assert!(shape.cells_per_group.is_multiple_of(1 << order_max), "groups hold whole frames");
        Self { shape, order_max }
    }
}

impl Procedures for RuleD {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn order_max(&self) -> u8 {
        self.order_max
    }

    fn piece(&self, owner: &Owner, bucket: u32, order: u8, envelope: u8) -> Piece {
        let hash = mix(fold(owner.id), u64::from(bucket >> self.order_max));
        let home = reduce(owner.home, u64::from(self.shape.groups));
        Piece { owner: owner.id, bucket, order, envelope, home, hash }
    }

    fn rank(&self, piece: &Piece) -> Rank {
        Rank(self.order_max - piece.order, piece.hash, piece.owner, piece.bucket)
    }

    fn choice(&self, piece: &Piece, t: u32) -> Cell {
        let k = self.order_max;
        if t >= SWEEP_AT {
            let frames = u64::from(self.shape.cells() >> piece.order);
            let frame = (piece.hash % frames + u64::from(t - SWEEP_AT)) % frames;
            return Cell(reduce(frame, frames) << piece.order);
        }
        let coherent = t < COHERENT_PROBES;
        let x = if coherent {
            mix(piece.hash, u64::from(t))
        } else {
            let own = u64::from(piece.bucket) << 8 | u64::from(piece.order);
            mix(mix(piece.hash, own), u64::from(t))
        };
        let superframes = self.shape.cells_per_group >> k;
        let superframe = if t < HOME_PROBES {
            piece.home * superframes + reduce(x >> 32, u64::from(superframes))
        } else {
            reduce(x >> 32, u64::from(superframes) * u64::from(self.shape.groups))
        };
        let in_chunk = (1u32 << k) - 1;
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
        let low = x as u32 & in_chunk;
        let within = if coherent {
            (low & !((1 << piece.envelope) - 1)) + (piece.bucket & in_chunk)
        } else {
            low & !((1 << piece.order) - 1)
        };
        Cell((superframe << k) + within)
    }
}

/// `x mod count`, where `count` fits in 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the remainder is below a u32")]
const fn reduce(x: u64, count: u64) -> u32 {
    (x % count) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_aligned_frames_and_the_sweep_reaches_all() {
        let shape = Shape { groups: 4, cells_per_group: 64 };
        let rule = RuleD::new(shape, 4);
        let owner = Owner { id: 99, home: 5 };
        for (bucket, order, envelope) in [(0, 4, 4), (16, 3, 4), (24, 1, 4), (26, 0, 4), (3, 0, 2)]
        {
            let piece = rule.piece(&owner, bucket, order, envelope);
            let mut seen = std::collections::BTreeSet::new();
            for t in 0..SWEEP_AT + (shape.cells() >> order) {
                let cell = rule.choice(&piece, t).0;
                assert_eq!(cell % (1 << order), 0);
                assert!(cell + piece.buckets() <= shape.cells());
                if t < HOME_PROBES {
                    assert_eq!(shape.group(Cell(cell)), piece.home);
                }
                if t >= SWEEP_AT {
                    seen.insert(cell);
                }
            }
            assert_eq!(seen.len(), (shape.cells() >> order) as usize);
        }
    }
}
