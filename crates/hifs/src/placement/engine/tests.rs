use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::placement::{LayoutA, LayoutB, LayoutC, RuleD, Shape, oracle};

const SHAPE: Shape = Shape { groups: 4, cells_per_group: 64 };

fn layout(which: usize) -> Box<dyn Procedures> {
    match which {
        0 => Box::new(LayoutA { shape: SHAPE }),
        1 => Box::new(LayoutB { shape: SHAPE }),
        2 => Box::new(LayoutC { shape: SHAPE }),
        3 => Box::new(RuleD::new(SHAPE, 0)),
        4 => Box::new(RuleD::new(SHAPE, 4)),
        _ => Box::new(RuleD::new(SHAPE, 6)),
    }
}

/// A layout whose hashes have three bits: ties everywhere, which must be broken canonically.
struct Ties(Box<dyn Procedures>);

impl Procedures for Ties {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn order_max(&self) -> u8 {
        self.0.order_max()
    }

    fn piece(&self, owner: &Owner, bucket: u32, order: u8, envelope: u8) -> Piece {
        let piece = self.0.piece(owner, bucket, order, envelope);
        Piece { hash: piece.hash & 7, ..piece }
    }

    fn rank(&self, piece: &Piece) -> Rank {
        self.0.rank(piece)
    }

    fn choice(&self, piece: &Piece, t: u32) -> Cell {
        self.0.choice(piece, t)
    }
}

fn layout_of(which: usize, ties: bool) -> Box<dyn Procedures> {
    if ties { Box::new(Ties(layout(which))) } else { layout(which) }
}

fn image(engine: &Engine) -> HashMap<Cell, (u128, u32)> {
    let cells = engine.procedures().shape().cells();
    (0..cells).filter_map(|c| Some((Cell(c), engine.occupant(Cell(c))?))).collect()
}

fn apply(model: &mut HashMap<Cell, (u128, u32)>, relocations: &[Relocation]) {
    for relocation in relocations {
        if let Some(from) = relocation.from {
            assert_eq!(model.remove(&from), Some((relocation.owner, relocation.bucket)));
        }
    }
    for relocation in relocations {
        if let Some(to) = relocation.to {
            let before = model.insert(to, (relocation.owner, relocation.bucket));
            assert_eq!(before, None, "two buckets in one cell");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// After every batch: the oracle's image; the relocations lead from the old image to the new
    /// one; locate agrees; the inverse leads back; a reload verifies.
    #[test]
    fn equals_the_oracle(
        which in 0usize..6,
        ties in any::<bool>(),
        batches in prop::collection::vec(
            prop::collection::vec((0u128..12, 0u64..3, 0u32..8, any::<u64>(), any::<bool>()), 1..6),
            1..12,
        ),
    ) {
        let mut engine = Engine::new(layout_of(which, ties));
        let k = engine.procedures().order_max();
        let full = if k == 6 { u64::MAX } else { (1u64 << (1 << k)) - 1 };
        let mut model = HashMap::new();
        for batch in batches {
            let mut changes: Vec<Change> = Vec::new();
            for (id, home, chunk, mask, dense) in batch {
                let id = id.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
                let mask = if dense { full >> (mask % 64) } else { mask & full };
                if changes.iter().any(|c| c.owner.id == id) {
                    continue;
                }
                let change = Change { owner: Owner { id, home }, chunks: vec![(chunk, mask)] };
                let more: u32 = changes.iter().chain([&change]).flat_map(|c| &c.chunks)
                    .map(|(_, mask)| mask.count_ones()).sum();
                if engine.stored() + u64::from(more) <= u64::from(SHAPE.cells()) {
                    changes.push(change);
                }
            }
            let before = image(&engine);
            let inverse = engine.inverse(&changes);
            let (there, _) = engine.place(&changes);
            apply(&mut model, &there);
            prop_assert_eq!(&image(&engine), &model);
            prop_assert_eq!(&oracle(engine.procedures(), engine.all_pieces()), &model);
            for (cell, (owner, bucket)) in &model {
                prop_assert_eq!(engine.locate(*owner, *bucket).map(|l| l.0), Some(*cell));
            }
            engine.place(&inverse);
            prop_assert_eq!(&image(&engine), &before);
            engine.place(&changes);
            prop_assert_eq!(&image(&engine), &model);

            let mut again = Engine::new(layout_of(which, ties));
            let mut entries: Vec<Entry> = model.iter()
                .map(|(&cell, &(owner, bucket))| Entry { cell, owner, bucket }).collect();
            again.load(&mut entries, |id| engine.home(id).unwrap()).unwrap();
            prop_assert_eq!(&image(&again), &model);
        }
    }
}

#[test]
fn a_full_table_still_places() {
    for which in 0..6 {
        let mut engine = Engine::new(layout(which));
        let k = engine.procedures().order_max();
        for bucket in 0..SHAPE.cells() {
            let owner = Owner { id: u128::from(bucket % 7) * 0x1_0000_0001_0000_0001, home: 0 };
            let bucket = bucket / 7;
            let mask = engine.chunk(owner.id, bucket >> k) | 1 << (bucket & ((1 << k) - 1));
            engine.place(&[Change { owner, chunks: vec![(bucket >> k, mask)] }]);
        }
        assert_eq!(engine.stored(), u64::from(SHAPE.cells()));
        assert_eq!(oracle(engine.procedures(), engine.all_pieces()), image(&engine));
    }
}

#[test]
fn a_moved_cell_is_refused() {
    let mut engine = Engine::new(layout(5));
    let owner = Owner { id: 42, home: 1 };
    engine.place(&[Change { owner, chunks: vec![(0, 0b111)] }]);
    let mut entries: Vec<Entry> = image(&engine)
        .into_iter()
        .map(|(cell, (owner, bucket))| Entry { cell, owner, bucket })
        .collect();
    for entry in &mut entries {
        entry.cell.0 ^= 64;
    }
    assert!(Engine::new(layout(5)).load(&mut entries, |_| 1).is_err());
}

#[test]
fn stale_waiters_do_not_pile_up() {
    let mut engine = Engine::new(layout(4));
    for round in 0..20_000u64 {
        let owner = Owner { id: u128::from(round % 20), home: 0 };
        let mask = (round * 0x9E37_79B9) & 0xFFFF & 0x0F0F;
        engine.place(&[Change { owner, chunks: vec![(0, mask)] }]);
    }
    let entries = engine.waiters.len();
    assert!(entries < 20_000, "{entries} waiter entries for {} pieces", engine.pieces());
}
