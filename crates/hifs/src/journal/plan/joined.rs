//! Two plans that follow each other, as one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tacita_block::BlockNo;

use super::{Cells, Plan, Target};
use crate::content::Pending;
use crate::geometry::{Geometry, Table};
use crate::journal::Run;

impl Plan {
    /// What this plan and then `next` do to the image, done at once. What only this one needs is not read.
    pub(crate) fn followed_by(&self, next: &Self, geometry: &Geometry) -> Self {
        let mut joined = Self::default();
        let mut zeros: HashMap<u64, (Run, bool)> = HashMap::new();
        for plan in [self, next] {
            zeros.extend(plan.zeros.iter().map(|run| (run.at, (*run, false))));
            zeros.extend(plan.zeros_in_part.iter().map(|run| (run.at, (*run, true))));
        }
        for table in [Table::Buckets, Table::Pages] {
            let (cells, later) = (self.cells(table), next.cells(table));
            for target in cells.followed_by(later) {
                joined.target(table, target);
            }
            for (at, has_changed) in cells.vacated(later) {
                joined.leave(table, BlockNo(at));
                // What is found there may not be what the plan that leaves the cell would have found.
                let whole = Run { at, count: geometry.cell_blocks(table) };
                match zeros.get(&at) {
                    Some((run, true)) if !has_changed => joined.zeros_in_part.push(*run),
                    Some(_) => joined.zeros.push(whole),
                    None => {}
                }
            }
        }
        let later: HashSet<u64> = next.blocks.iter().map(|(at, _)| *at).collect();
        let stays = self.blocks.iter().filter(|(at, _)| !later.contains(at));
        joined.blocks = stays.chain(&next.blocks).cloned().collect();
        joined
    }

    const fn cells(&self, table: Table) -> &Cells {
        match table {
            Table::Buckets => &self.buckets,
            Table::Pages => &self.pages,
        }
    }
}

impl Cells {
    fn by_place(&self) -> BTreeMap<u64, &Target> {
        self.targets.iter().map(|target| (target.to.0, target)).collect()
    }

    fn left(&self) -> HashSet<u64> {
        self.left.iter().map(|at| at.0).collect()
    }

    /// What every cell gets in the end.
    fn followed_by(&self, next: &Self) -> Vec<Target> {
        let (first, second) = (self.by_place(), next.by_place());
        let (left, left_later) = (self.left(), next.left());
        let stays = |at: &u64| !second.contains_key(at) && !left_later.contains(at);
        let mut targets: Vec<Target> =
            first.iter().filter(|(at, _)| stays(at)).map(|(_, target)| (*target).clone()).collect();
        for (at, target) in &second {
            let fresh = match first.get(at) {
                Some(before) => before.fresh,
                None => target.fresh && !left.contains(at),
            };
            let mut target = Target { fresh, ..(*target).clone() };
            if let Some(before) = target.base.and_then(|base| first.get(&base.0)) {
                target.base = before.base;
                target.blocks = overlaid(&before.blocks, &target.blocks);
            }
            targets.push(target);
        }
        targets
    }

    /// The cells that hold something in the image and nothing in the end, and whether they would have changed
    /// meanwhile.
    fn vacated(&self, next: &Self) -> Vec<(u64, bool)> {
        let (first, second) = (self.by_place(), next.by_place());
        let (left, left_later) = (self.left(), next.left());
        let all: BTreeSet<u64> = left.union(&left_later).copied().collect();
        let vacated = all.into_iter().filter(|at| !second.contains_key(at)).filter_map(|at| {
            match first.get(&at) {
                Some(before) if before.fresh || !left_later.contains(&at) => None,
                before => Some((at, before.is_some())),
            }
        });
        vacated.collect()
    }
}

/// Blocks by ascending index, those of `upper` where both give one.
fn overlaid(lower: &[(u32, Pending)], upper: &[(u32, Pending)]) -> Vec<(u32, Pending)> {
    let mut blocks: HashMap<u32, &Pending> = HashMap::new();
    blocks.extend(lower.iter().chain(upper).map(|(index, block)| (*index, block)));
    let mut blocks: Vec<_> =
        blocks.into_iter().map(|(index, block)| (index, block.clone())).collect();
    blocks.sort_unstable_by_key(|(index, _)| *index);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Ids, Layout, Parameters, Times};

    const BLOCKS: u32 = 4;

    fn geometry() -> Geometry {
        let parameters = Parameters {
            len_bytes: 4 << 20,
            layout: Layout::D,
            ids: Ids::Path,
            times: Times::None,
            bucket_len_bytes: Some(BLOCKS * 4096),
            groups: None,
            seed: [7; 32],
        };
        Geometry::plan(&parameters).unwrap()
    }

    /// A cell gets what another holds.
    fn moved(plan: &mut Plan, from: u64, to: u64, fresh: bool) {
        let (to, base) = (BlockNo(to), Some(BlockNo(from)));
        plan.target(
            Table::Buckets,
            Target { to, fresh, base, blocks: Vec::new(), within: 0, held: 1 },
        );
    }

    fn vacated(plan: &mut Plan, at: u64, count: u32) {
        plan.leave(Table::Buckets, BlockNo(at));
        plan.zero_in_part(BlockNo(at), count);
    }

    #[test]
    fn a_cell_that_others_held_meanwhile_is_zeroed_to_its_end() {
        let (mut first, mut second) = (Plan::default(), Plan::default());
        // Its own content goes on, short content comes and goes.
        moved(&mut first, 100, 200, true);
        moved(&mut first, 300, 100, false);
        vacated(&mut first, 300, 2);
        vacated(&mut second, 100, 2);
        let joined = first.followed_by(&second, &geometry());
        assert_eq!(joined.zeros, [Run { at: 100, count: BLOCKS }]);
        assert_eq!(joined.zeros_in_part, [Run { at: 300, count: 2 }]);
        let targets = &joined.buckets.targets;
        assert!(targets.len() == 1 && targets[0].to.0 == 200 && targets[0].fresh);
    }

    #[test]
    fn what_comes_back_has_not_moved() {
        let (mut first, mut second) = (Plan::default(), Plan::default());
        moved(&mut first, 100, 200, true);
        vacated(&mut first, 100, 3);
        moved(&mut second, 200, 100, true);
        vacated(&mut second, 200, 3);
        let joined = first.followed_by(&second, &geometry());
        assert!(joined.buckets.targets.is_empty() && joined.buckets.left.is_empty());
        assert!(joined.zeros.is_empty() && joined.zeros_in_part.is_empty());
    }
}
