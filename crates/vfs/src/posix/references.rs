//! Who still refers to a node: lookups of the kernel, open handles, and those at work, counted
//! together.
//!
//! A node with a name that nobody refers to is evicted, under the lock of its count. Who finds a
//! node takes a reference only afterwards, and it may have been evicted in between: the number of
//! evictions tells.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::NodeId;

/// Shards of the table, so that threads seldom wait for one another.
const SHARD_COUNT: usize = 16;

#[derive(Debug, Default)]
struct Holding {
    count: u64,
    nameless: bool,
}

/// What is left of a node's references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Some.
    Referred,
    /// None, and it has a name.
    Named,
    /// None, and it has lost its names.
    Nameless,
}

/// Counted references to nodes.
#[derive(Debug, Default)]
pub(super) struct References {
    shards: [Mutex<HashMap<NodeId, Holding>>; SHARD_COUNT],
    /// Nodes that are nameless and still referred to. Locked within a shard.
    orphans: Mutex<BTreeSet<NodeId>>,
    /// Grows when an eviction begins, and when it ends.
    evictions: AtomicU64,
}

impl References {
    fn with<T>(&self, node: NodeId, f: impl FnOnce(&mut HashMap<NodeId, Holding>) -> T) -> T {
        let index = usize::try_from(node.0 % SHARD_COUNT as u64).unwrap_or(0);
        let mut shard = self.shards[index].lock().unwrap_or_else(PoisonError::into_inner);
        f(&mut shard)
    }

    /// One reference more; tells whether there was one before.
    pub(super) fn take(&self, node: NodeId) -> bool {
        self.with(node, |shard| {
            let holding = shard.entry(node).or_default();
            holding.count += 1;
            holding.count > 1
        })
    }

    /// As long as this stays the same, a node that has been found is there.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::SeqCst)
    }

    /// `count` references fewer; tells what is left. A node that has a name and no reference left is
    /// evicted by `evict`, before anybody can refer to it again.
    pub(super) fn drop(&self, node: NodeId, count: u64, evict: impl FnOnce()) -> Left {
        self.with(node, |shard| {
            let Some(holding) = shard.get_mut(&node) else {
                return Left::Referred;
            };
            holding.count = holding.count.saturating_sub(count);
            if holding.count > 0 {
                return Left::Referred;
            }
            if shard.remove(&node).is_some_and(|holding| holding.nameless) {
                self.lock_orphans().remove(&node);
                return Left::Nameless;
            }
            self.evictions.fetch_add(1, Ordering::SeqCst);
            evict();
            self.evictions.fetch_add(1, Ordering::SeqCst);
            Left::Named
        })
    }

    /// The node, which somebody refers to, has lost its last name.
    pub(super) fn orphan(&self, node: NodeId) {
        self.with(node, |shard| {
            shard.entry(node).or_default().nameless = true;
            self.lock_orphans().insert(node);
        });
    }

    /// The nodes that are nameless and still referred to.
    pub(super) fn orphans(&self) -> Vec<NodeId> {
        self.lock_orphans().iter().copied().collect()
    }

    fn lock_orphans(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No references any more; returns the nodes that had lost their names.
    pub(super) fn drop_all(&self) -> Vec<NodeId> {
        let mut nameless = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let holdings = shard.drain();
            nameless.extend(holdings.filter(|(_, h)| h.nameless).map(|(node, _)| node));
        }
        self.lock_orphans().clear();
        nameless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nameless_node_dies_with_its_last_reference() {
        let references = References::default();
        let node = NodeId(7);
        references.take(node);
        references.take(node);
        references.orphan(node);
        assert_eq!(references.orphans(), [node]);
        let drop = || references.drop(node, 1, || panic!("it has no name"));
        assert_eq!(drop(), Left::Referred);
        assert_eq!(drop(), Left::Nameless);
        assert!(references.orphans().is_empty());
        assert_eq!(drop(), Left::Referred, "it dies once");
    }

    #[test]
    fn a_named_node_is_evicted_with_its_last_reference() {
        let references = References::default();
        assert!(!references.take(NodeId(1)));
        assert!(references.take(NodeId(1)));
        let before = references.evictions();
        let mut evicted = false;
        assert_eq!(references.drop(NodeId(1), 1, || panic!("it is in use")), Left::Referred);
        assert_eq!(references.evictions(), before);
        assert_eq!(references.drop(NodeId(1), 5, || evicted = true), Left::Named);
        assert!(evicted && references.evictions() != before);
        assert!(!references.take(NodeId(1)), "it is found anew");
    }
}
