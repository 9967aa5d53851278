//! Where content lies, also where no map block tells it.

use std::collections::{BTreeMap, BTreeSet};

use tacita_vfs::NodeId;

use super::Salvage;
use crate::faults::{Fault, planted};
use crate::geometry::Table;
use crate::names::FileId;
use crate::placement::{Cell, Change, Engine, Entry, Owner};

/// The buckets of one owner.
type Buckets = BTreeMap<u32, Cell>;

impl Salvage {
    /// Finds the buckets of which the map tells nothing, notes the others as missing, and gives all that are
    /// known to the state.
    pub(super) fn place_buckets(&mut self) {
        if self.state.nodes.iter().any(|(id, _)| self.missing_bytes(id).is_some()) {
            let unmapped = std::mem::take(&mut self.unmapped);
            let used = self.used_though_unmapped(Table::Buckets, unmapped);
            self.blind.extend(used);
        }
        if !self.blind.is_empty() {
            match self.missing_buckets() {
                Some(found) => {
                    for Entry { cell, owner, bucket } in found {
                        self.buckets.entry(owner).or_default().insert(bucket, cell);
                    }
                }
                None => self.losses.damage.push(
                    "where content lies of which the damaged map tells does not follow from the rest".into(),
                ),
            }
        }
        let missing: Vec<(NodeId, u64)> = self
            .state
            .nodes
            .iter()
            .filter_map(|(id, _)| Some((id, self.missing_bytes(id)?)))
            .collect();
        self.losses.missing.extend(missing);
        let entries = self.buckets.iter().flat_map(|(owner, buckets)| {
            buckets.iter().map(|(bucket, cell)| Entry {
                cell: *cell,
                owner: *owner,
                bucket: *bucket,
            })
        });
        let entries: Vec<Entry> = entries.collect();
        self.state.buckets_used = entries.len() as u64;
        self.state.buckets.hold(&entries);
    }

    /// Bytes of a file that are missing, at most; none if all is there.
    fn missing_bytes(&self, id: NodeId) -> Option<u64> {
        let node = self.state.nodes.get(id)?;
        let told = u64::from(node.content()?.told_buckets);
        let known = self.buckets.get(&node.id).map_or(0, |buckets| buckets.len() as u64);
        let len = self.state.superblock.geometry.bucket_len_bytes();
        let missing = told.checked_sub(known).filter(|missing| *missing > 0)?;
        Some(missing.saturating_mul(len).min(node.size))
    }

    /// The buckets below damaged map blocks: where the canonical layout has them. That it is the layout of this
    /// image is seen by the buckets that are known, and by which cells are occupied; else there are none.
    fn missing_buckets(&self) -> Option<Vec<Entry>> {
        let geometry = &self.state.superblock.geometry;
        let procedures = geometry.procedures(self.state.superblock.layout, Table::Buckets);
        let k = procedures.order_max();
        let all = self.all_buckets()?;
        let changes: Vec<Change> = all
            .iter()
            .map(|(&id, buckets)| {
                let home = self.state.node_of(id).map_or(0, |(_, node)| self.state.home(node));
                let mut chunks = BTreeMap::<u32, u64>::new();
                for bucket in buckets {
                    *chunks.entry(bucket >> k).or_default() |= 1u64 << (bucket & ((1 << k) - 1));
                }
                Change { owner: Owner { id, home }, chunks: chunks.into_iter().collect() }
            })
            .collect();
        let mut canonical = Engine::new(procedures);
        canonical.place(&changes);
        let at = |owner, bucket| canonical.locate(owner, bucket).map(|(cell, _)| cell);
        let agrees = |(owner, buckets): (&FileId, &Buckets)| {
            buckets.iter().all(|(bucket, cell)| at(*owner, *bucket) == Some(*cell))
        };
        let is_proven = self.buckets.iter().all(agrees);
        if !is_proven && !planted(Fault::SalvagedUnproven) {
            return None;
        }
        let mut found = Vec::new();
        for cell in self.blind.iter().cloned().flatten().map(Cell) {
            match (canonical.occupant(cell), self.is_zero(Table::Buckets, cell)) {
                (Some((owner, bucket)), Some(false) | None) => {
                    found.push(Entry { cell, owner, bucket });
                }
                (None, Some(true) | None) => {}
                _ if planted(Fault::SalvagedUnproven) => {}
                _ => return None,
            }
        }
        let stored: u64 = self.buckets.values().map(|buckets| buckets.len() as u64).sum();
        let is_all = stored + found.len() as u64 == canonical.stored();
        (is_all || planted(Fault::SalvagedUnproven)).then_some(found)
    }

    /// Every bucket of every owner, as far as it follows from sizes and counts; none if there cannot be so many.
    fn all_buckets(&self) -> Option<BTreeMap<FileId, BTreeSet<u32>>> {
        let geometry = &self.state.superblock.geometry;
        let cells = u64::from(geometry.shape(Table::Buckets).cells());
        let mut all: BTreeMap<FileId, BTreeSet<u32>> = BTreeMap::new();
        for (owner, buckets) in &self.buckets {
            all.insert(*owner, buckets.keys().copied().collect());
        }
        let mut count: u64 = all.values().map(|buckets| buckets.len() as u64).sum();
        for (_, node) in self.state.nodes.iter() {
            let Some(told) = node.content().map(|content| u64::from(content.told_buckets)) else {
                continue;
            };
            let known = all.get(&node.id).map_or(0, |buckets| buckets.len() as u64);
            // With holes nothing says which buckets are missing.
            if told > known && told == node.size.div_ceil(geometry.bucket_len_bytes()) {
                count += told - known;
                if count > cells {
                    return None;
                }
                all.insert(node.id, (0..u32::try_from(told).ok()?).collect());
            }
        }
        (count <= cells).then_some(all)
    }
}
