//! In which order cells can move when one's target is another's source.
//!
//! Every cell is the source of at most one move and the target of at most one, so moves form paths
//! and cycles. A path can be walked from its free end: the last cell moves first. Each step is a
//! layer, with a flush after it. A cell whose content is copied into the journal frees its follower
//! from waiting; that shortens paths and opens cycles where there is room. A cycle for which there
//! is none is opened by *parking* one of its cells behind the journal's body until the others have
//! moved, so that any number of moves needs no more room than their records.
//!
//! All of it is a function of the moves, given in ascending order, and of the room.

use std::collections::HashMap;

/// Copy up to so many cells into the journal rather than wait for a flush.
const COPY_FREELY: u64 = 64;
/// Longest path of cells that is moved before a commit is durable: each costs a flush.
const CLEAR_LAYERS_MAX: usize = 16;
/// Longest wait, in layers, while the journal has room to copy.
const LAYERS_WANTED: u32 = 2;

/// One cell that moves: first blocks of source and target, and its length in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u32,
}

/// How a cell reaches its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It is copied in this layer.
    Layer(u32),
    /// Its content is in the journal.
    Copied,
    /// It is copied to this parking place in the first layer, and from there in the second.
    Parked { place: u64, layers: [u32; 2] },
}

/// The ways of all moves, but for cycles that must be opened by parking.
pub(super) struct Order {
    pub(super) ways: Vec<Way>,
    /// Moves of each such cycle: each one's source is the target of the next; the first is parked.
    pub(super) cycles: Vec<Vec<usize>>,
}

/// Orders the moves of a commit. Up to `copies_max` blocks may be copied into the journal.
pub(super) fn order(steps: &[Step], copies_max: u64) -> Order {
    let blocks: u64 = steps.iter().map(|step| u64::from(step.count)).sum();
    if steps.len() as u64 <= COPY_FREELY && blocks <= copies_max {
        return Order { ways: vec![Way::Copied; steps.len()], cycles: Vec::new() };
    }
    let by_source: HashMap<u64, usize> =
        steps.iter().enumerate().map(|(i, step)| (step.from, i)).collect();
    let by_target = steps.iter().enumerate().map(|(i, step)| (step.to, i)).collect();
    let ways = vec![Way::Layer(0); steps.len()];
    let mut walk =
        Walk { steps, by_target, ways, left: copies_max, done: vec![false; steps.len()] };
    for (i, step) in steps.iter().enumerate() {
        if !by_source.contains_key(&step.to) {
            walk.path(i, Way::Layer(0));
        }
    }
    let mut cycles = Vec::new();
    for i in 0..steps.len() {
        // What is left are cycles.
        if walk.done[i] {
        } else if walk.may_copy(i) {
            walk.path(i, Way::Copied);
        } else {
            cycles.push(walk.cycle(i));
        }
    }
    Order { ways: walk.ways, cycles }
}

struct Walk<'a> {
    steps: &'a [Step],
    by_target: HashMap<u64, usize>,
    ways: Vec<Way>,
    /// Blocks that may still be copied.
    left: u64,
    done: Vec<bool>,
}

impl Walk<'_> {
    fn may_copy(&self, i: usize) -> bool {
        self.left >= u64::from(self.steps[i].count)
    }

    /// The move into the source of `i`, if there is one and its way is not known yet.
    fn follower(&self, i: usize) -> Option<usize> {
        self.by_target.get(&self.steps[i].from).copied().filter(|next| !self.done[*next])
    }

    /// Follows a path against its direction: `i` goes `way`, the move into `i`'s source later.
    fn path(&mut self, mut i: usize, mut way: Way) {
        loop {
            self.done[i] = true;
            if matches!(way, Way::Layer(layer) if layer >= LAYERS_WANTED) && self.may_copy(i) {
                way = Way::Copied;
            }
            if way == Way::Copied {
                self.left -= u64::from(self.steps[i].count);
            }
            self.ways[i] = way;
            let Some(next) = self.follower(i) else {
                return;
            };
            i = next;
            way = Way::Layer(if let Way::Layer(layer) = way { layer + 1 } else { 0 });
        }
    }

    fn cycle(&mut self, first: usize) -> Vec<usize> {
        let mut cycle = vec![first];
        self.done[first] = true;
        while let Some(next) = self.follower(cycle[cycle.len() - 1]) {
            self.done[next] = true;
            cycle.push(next);
        }
        cycle
    }
}

impl Order {
    /// Opens the cycles that are left, as many at once as there are parking places.
    pub(super) fn park(&mut self, places: usize) {
        let mut begin = 0;
        for round in self.cycles.chunks(places.max(1)) {
            let mut end = begin;
            for (place, cycle) in (0..).zip(round) {
                let mut layer = begin;
                for i in &cycle[1..] {
                    layer += 1;
                    self.ways[*i] = Way::Layer(layer);
                }
                self.ways[cycle[0]] = Way::Parked { place, layers: [begin, layer + 1] };
                end = end.max(layer + 1);
            }
            begin = end + 1;
        }
    }
}

/// The layers of the moves that clear cells for new content before a commit is durable, the others
/// being `None`: paths of up to [`CLEAR_LAYERS_MAX`] cells that end in a cell that is free, so that
/// they can be walked back, and begin with one for which `is_filled`.
pub(super) fn clearing(
    steps: &[Step],
    is_free: impl Fn(u64) -> bool,
    is_filled: impl Fn(&Step) -> bool,
) -> Vec<Option<u32>> {
    let by_target: HashMap<u64, usize> =
        steps.iter().enumerate().map(|(i, step)| (step.to, i)).collect();
    let mut layers = vec![None; steps.len()];
    for (end, _) in steps.iter().enumerate().filter(|(_, step)| is_free(step.to)) {
        let follower = |i: &usize| by_target.get(&steps[*i].from).copied();
        let path: Vec<usize> =
            std::iter::successors(Some(end), follower).take(CLEAR_LAYERS_MAX + 1).collect();
        if path.len() <= CLEAR_LAYERS_MAX && is_filled(&steps[path[path.len() - 1]]) {
            for (layer, i) in (0..).zip(path) {
                layers[i] = Some(layer);
            }
        }
    }
    layers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(moves: impl IntoIterator<Item = (u64, u64)>) -> Vec<Step> {
        moves.into_iter().map(|(from, to)| Step { from, to, count: 1 }).collect()
    }

    /// Runs the moves as the journal does: what is read and written in a layer, by layer.
    fn run(steps: &[Step], order: &Order, cells: &mut HashMap<u64, u64>) {
        const PARKING: u64 = 1 << 40;
        let mut copies: Vec<(u32, u64, u64)> = Vec::new();
        let mut journal = Vec::new();
        for (step, way) in steps.iter().zip(&order.ways) {
            match *way {
                Way::Layer(layer) => copies.push((layer, step.from, step.to)),
                Way::Copied => journal.push((step.to, cells[&step.from])),
                Way::Parked { place, layers: [park, fetch] } => {
                    assert!(park < fetch);
                    copies.push((park, step.from, PARKING + place));
                    copies.push((fetch, PARKING + place, step.to));
                }
            }
        }
        copies.sort_unstable();
        for layer in copies.chunk_by(|a, b| a.0 == b.0) {
            // Nothing in a layer overwrites what another of the same layer still reads.
            for (_, from, to) in layer {
                assert!(!layer.iter().any(|(_, f, _)| f == to));
                let content = cells[from];
                cells.insert(*to, content);
            }
        }
        cells.extend(journal);
    }

    proptest! {
        /// Compares with moving all at once.
        #[test]
        fn every_cell_arrives(
            targets in Just((0u64..200).collect::<Vec<_>>()).prop_shuffle(),
            kept in prop::collection::vec(prop::bool::weighted(0.9), 200),
            copies_max in 0u64..100,
            places in 1usize..5,
        ) {
            let steps = steps((0..200).zip(targets)
                .filter(|(from, to)| from != to && kept[usize::try_from(*from).unwrap()]));
            let mut order = order(&steps, copies_max);
            order.park(places);
            let copied = order.ways.iter().filter(|way| **way == Way::Copied).count();
            prop_assert!(copied as u64 <= copies_max);
            let mut cells: HashMap<u64, u64> = (0..200).map(|cell| (cell, cell)).collect();
            run(&steps, &order, &mut cells);
            for step in &steps {
                prop_assert_eq!(cells[&step.to], step.from);
            }
        }
    }

    #[test]
    fn a_cycle_is_opened_by_one_cell() {
        let steps = steps((0..100).map(|i| (i, (i + 1) % 100)));
        let mut parked = order(&steps, 0);
        parked.park(1);
        let is_parked = |way: &&Way| matches!(way, Way::Parked { .. });
        assert_eq!(parked.ways.iter().filter(is_parked).count(), 1);
        assert!(!parked.ways.contains(&Way::Copied));
        assert_eq!(order(&steps, 1).ways.iter().filter(|way| **way == Way::Copied).count(), 1);
    }
}
