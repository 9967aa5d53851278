//! Who still refers to a node: lookups of the kernel and open handles, counted together.

use std::collections::{BTreeSet, HashMap};
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
}

impl References {
    fn with<T>(&self, node: NodeId, f: impl FnOnce(&mut HashMap<NodeId, Holding>) -> T) -> T {
        let index = usize::try_from(node.0 % SHARD_COUNT as u64).unwrap_or(0);
        let mut shard = self.shards[index].lock().unwrap_or_else(PoisonError::into_inner);
        f(&mut shard)
    }

    /// One reference more.
    pub(super) fn take(&self, node: NodeId) {
        self.with(node, |shard| shard.entry(node).or_default().count += 1);
    }

    /// `count` references fewer; tells what is left.
    pub(super) fn drop(&self, node: NodeId, count: u64) -> Left {
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
            Left::Named
        })
    }

    /// Whether anything refers to the node.
    pub(super) fn any(&self, node: NodeId) -> bool {
        self.with(node, |shard| shard.contains_key(&node))
    }

    /// The node has lost its last name; true if nothing refers to it either.
    pub(super) fn orphan(&self, node: NodeId) -> bool {
        self.with(node, |shard| match shard.get_mut(&node) {
            Some(holding) => {
                holding.nameless = true;
                self.lock_orphans().insert(node);
                false
            }
            None => true,
        })
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
        assert!(!references.orphan(node));
        assert_eq!(references.orphans(), [node]);
        assert_eq!(references.drop(node, 1), Left::Referred);
        assert_eq!(references.drop(node, 1), Left::Nameless);
        assert!(references.orphans().is_empty());
        assert_eq!(references.drop(node, 1), Left::Referred, "it dies once");
        assert!(references.orphan(node), "nothing refers to it");
    }

    #[test]
    fn a_named_node_outlives_its_references() {
        let references = References::default();
        references.take(NodeId(1));
        assert!(references.any(NodeId(1)));
        assert_eq!(references.drop(NodeId(1), 5), Left::Named);
        assert!(!references.any(NodeId(1)));
    }
}
