use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::placement::{LayoutA, LayoutB, LayoutC, RuleD, Shape, oracle};

const SHAPE: Shape = Shape { groups: 4, cells_per_group: 64 };

/// How many of the layouts are cyclic, the first ones.
const CYCLIC: usize = 3;

fn cyclic(which: usize, shape: Shape) -> Box<dyn Procedures> {
    match which {
        0 => Box::new(LayoutA { shape }),
        1 => Box::new(LayoutB { shape }),
        _ => Box::new(LayoutC { shape }),
    }
}

fn layout(which: usize) -> Box<dyn Procedures> {
    match which {
        0..CYCLIC => cyclic(which, SHAPE),
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

    fn start(&self, piece: &Piece) -> Option<u32> {
        self.0.start(piece)
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

/// Places a batch: the oracle's image, the relocations lead from the old image to the new one, and the
/// inverse leads back.
fn there_and_back(engine: &mut Engine, changes: &[Change], model: &mut HashMap<Cell, (u128, u32)>) {
    let before = image(engine);
    let inverse = engine.inverse(changes);
    let (there, _) = engine.place(changes);
    apply(model, &there);
    assert_eq!(&image(engine), model);
    assert_eq!(&oracle(engine.procedures(), engine.all_pieces()), model);
    engine.place(&inverse);
    assert_eq!(image(engine), before);
    engine.place(changes);
    assert_eq!(&image(engine), model);
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
            there_and_back(&mut engine, &changes, &mut model);
            for (cell, (owner, bucket)) in &model {
                prop_assert_eq!(engine.locate(*owner, *bucket).map(|l| l.0), Some(*cell));
            }

            let mut again = Engine::new(layout_of(which, ties));
            let mut entries: Vec<Entry> = model.iter()
                .map(|(&cell, &(owner, bucket))| Entry { cell, owner, bucket }).collect();
            again.load(&mut entries, |id| engine.home(id).unwrap()).unwrap();
            prop_assert_eq!(&image(&again), &model);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Cyclic layouts in tables that are nearly full, or overflow from group to group: large batches
    /// that put in and take out at a time.
    #[test]
    fn runs_equal_the_oracle(
        which in 0..CYCLIC,
        ties in any::<bool>(),
        groups in 1u32..6,
        few in any::<bool>(),
        batches in prop::collection::vec((any::<u64>(), 0u32..100), 1..16),
    ) {
        let shape = Shape { groups, cells_per_group: 24 };
        let procedures = cyclic(which, shape);
        let procedures = if ties { Box::new(Ties(procedures)) } else { procedures };
        let mut engine = Engine::new(procedures);
        let owners = if few { 2 } else { 40 };
        let mut model = HashMap::new();
        for (seed, load) in batches {
            let mut random = seed;
            let mut draw = |below: u32| {
                random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                u32::try_from((random >> 33) % u64::from(below)).unwrap()
            };
            let mut stored = engine.stored();
            let room = u64::from(shape.cells());
            let wanted = (u64::from(load) * room).div_ceil(98).min(room);
            let mut changes: Vec<Change> = Vec::new();
            for _ in 0..=draw(shape.cells()) {
                let owner = draw(owners);
                let id = u128::from(owner).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
                let bucket = draw(2 * shape.cells() / owners + 1);
                let is_stored = engine.chunk(id, bucket) != 0;
                if is_stored == (stored < wanted) && draw(4) != 0 || !is_stored && stored == room {
                    continue;
                }
                let chunk = (bucket, u64::from(!is_stored));
                let of = changes.iter_mut().find(|change| change.owner.id == id);
                match of {
                    Some(change) if change.chunks.iter().any(|&(b, _)| b == bucket) => continue,
                    Some(change) => change.chunks.push(chunk),
                    None => {
                        let owner = Owner { id, home: u64::from(owner % 3) };
                        changes.push(Change { owner, chunks: vec![chunk] });
                    }
                }
                stored = if is_stored { stored - 1 } else { stored + 1 };
            }
            for change in &mut changes {
                change.chunks.sort_unstable();
            }
            there_and_back(&mut engine, &changes, &mut model);
        }
    }
}

/// A full group of layouts A, B and C costs as many looks as it has cells, a few times over, and no
/// lists of who was turned away.
#[test]
fn a_full_group_costs_what_it_has_cells() {
    let shape = Shape { groups: 3, cells_per_group: 4096 };
    let layouts: [Box<dyn Procedures>; 3] =
        [Box::new(LayoutA { shape }), Box::new(LayoutB { shape }), Box::new(LayoutC { shape })];
    for layout in layouts {
        let mut engine = Engine::new(layout);
        let change = |id: u128, buckets: std::ops::Range<u32>, mask| Change {
            owner: Owner { id, home: 1 },
            chunks: buckets.map(|bucket| (bucket, mask)).collect(),
        };
        // Two groups and a half of one file, a short one before or behind it, and both again without
        // their first halves.
        let mut probes = Vec::new();
        for batch in [
            change(7, 0..10_240, 1),
            change(8, 0..100, 1),
            change(9, 0..100, 1),
            change(7, 0..5_000, 0),
            change(8, 0..50, 0),
            change(7, 0..5_000, 1),
        ] {
            let (_, work) = engine.place(&[batch]);
            probes.push(work.probes);
        }
        assert_eq!(engine.waiters.len(), 0);
        let cells = u64::from(shape.cells());
        assert!(probes.iter().all(|&probes| probes < 4 * cells), "{engine:?}: {probes:?}");
        assert_eq!(oracle(engine.procedures(), engine.all_pieces()), image(&engine));
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
