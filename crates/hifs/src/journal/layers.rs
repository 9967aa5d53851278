//! In which order buckets can move when one's target is another's source.
//!
//! Every cell is the source of at most one move and the target of at most one, so moves form paths
//! and cycles. A path can be walked from its free end: the last bucket moves first. Each step is a
//! layer, with a flush after it. A bucket whose content is copied into the journal frees its
//! follower from waiting; that breaks cycles and, where there is room, long paths.

use std::collections::HashMap;

/// Copy up to so many buckets into the journal rather than wait for a flush.
const COPY_FREELY: u64 = 64;
/// Longest wait, in layers, while the journal has room to copy.
const LAYERS_WANTED: u8 = 2;

/// Gives each move, `(source, target)`, its layer, or `None` if its content is to be copied into the
/// journal. `copies_max` bounds how many are copied beyond those that break cycles.
pub(super) fn order(moves: &[(u64, u64)], copies_max: u64) -> Vec<((u64, u64), Option<u8>)> {
    if moves.len() as u64 <= COPY_FREELY.min(copies_max) {
        return moves.iter().map(|&one| (one, None)).collect();
    }
    let by_source: HashMap<u64, usize> =
        moves.iter().enumerate().map(|(i, (from, _))| (*from, i)).collect();
    let by_target: HashMap<u64, usize> =
        moves.iter().enumerate().map(|(i, (_, to))| (*to, i)).collect();
    let mut order =
        Order { moves, by_target, layers: vec![None; moves.len()], copies: 0, copies_max };
    let mut done = vec![false; moves.len()];
    for (i, (_, to)) in moves.iter().enumerate() {
        if !by_source.contains_key(to) {
            order.walk(i, Some(0), &mut done);
        }
    }
    for i in 0..moves.len() {
        if !done[i] {
            // What is left are cycles: copying one bucket opens each.
            order.walk(i, None, &mut done);
        }
    }
    moves.iter().copied().zip(order.layers).collect()
}

struct Order<'a> {
    moves: &'a [(u64, u64)],
    by_target: HashMap<u64, usize>,
    layers: Vec<Option<u8>>,
    copies: u64,
    copies_max: u64,
}

impl Order<'_> {
    /// Follows a path against its direction: `i` gets `layer`, the move into `i`'s source the next.
    fn walk(&mut self, mut i: usize, mut layer: Option<u8>, done: &mut [bool]) {
        loop {
            done[i] = true;
            let may_copy = self.copies < self.copies_max;
            if layer.is_some_and(|l| l >= LAYERS_WANTED && may_copy || l == u8::MAX) {
                layer = None;
            }
            self.layers[i] = layer;
            self.copies += u64::from(layer.is_none());
            match self.by_target.get(&self.moves[i].0) {
                Some(&next) if !done[next] => i = next,
                _ => return,
            }
            layer = Some(layer.map_or(0, |l| l + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Run the moves as the journal does and compare with moving all at once.
        #[test]
        fn every_bucket_arrives(
            targets in Just((0u64..200).collect::<Vec<_>>()).prop_shuffle(),
            kept in prop::collection::vec(any::<bool>(), 200),
            copies_max in 0u64..100,
        ) {
            let moves: Vec<(u64, u64)> = (0..200).zip(targets)
                .filter(|(from, to)| from != to && kept[usize::try_from(*from).unwrap()]).collect();
            let ordered = order(&moves, copies_max);
            let mut cells: HashMap<u64, u64> = (0..200).map(|cell| (cell, cell)).collect();
            let journal: Vec<(u64, u64)> = ordered.iter()
                .filter(|(_, layer)| layer.is_none()).map(|((from, to), _)| (*to, cells[from])).collect();
            let mut layered: Vec<(u8, u64, u64)> =
                ordered.iter().filter_map(|((f, t), l)| l.map(|l| (l, *f, *t))).collect();
            layered.sort_unstable();
            for layer in layered.chunk_by(|a, b| a.0 == b.0) {
                // Nothing in a layer overwrites what another of the same layer still reads.
                for (_, from, to) in layer {
                    prop_assert!(!layer.iter().any(|(_, f, _)| f == to));
                    let content = cells[from];
                    cells.insert(*to, content);
                }
            }
            cells.extend(journal);
            for (from, to) in &moves {
                prop_assert_eq!(cells[to], *from);
            }
        }
    }

    #[test]
    fn a_cycle_copies_one_bucket() {
        let moves: Vec<(u64, u64)> = (0..100).map(|i| (i, (i + 1) % 100)).collect();
        let ordered = order(&moves, 0);
        assert_eq!(ordered.iter().filter(|(_, layer)| layer.is_none()).count(), 1);
    }
}
