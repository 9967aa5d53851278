//! The kernel's numbers for nodes.
//!
//! FUSE knows a node by one number as long as it remembers it, and the library that speaks FUSE
//! puts that number where programs see the inode number too. Systems show canonical numbers that
//! may change when a file or a directory above it is renamed. So a node gets its canonical number
//! as the kernel's when the kernel first hears of it, if that number is free, else one of a range
//! of our own; it keeps it until the kernel forgets the node. Whoever replies compares the two:
//! where they differ the kernel must not keep the attributes, so that each `stat` asks anew and
//! gets the canonical number, which only the reply to a question about attributes can carry.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::{Kind, NodeId, Result};

/// The number of the root, fixed by FUSE.
pub(super) const ROOT_NUMBER: u64 = 1;

/// First number of our own range. Canonical numbers can lie in it too: every number is checked.
const PRIVATE_FIRST: u64 = 1 << 63;

#[derive(Debug)]
struct Known {
    /// The node; `None` while the number is only held back, see [`NodeTable::hold_back`].
    node: Option<NodeId>,
    /// How often the kernel has yet to forget the number.
    outstanding: u64,
    /// How many references to the node stand behind that.
    told: u64,
}

#[derive(Debug, Default)]
struct Maps {
    by_number: HashMap<u64, Known>,
    by_node: HashMap<NodeId, u64>,
    private_last: u64,
}

/// Numbers of the nodes that the kernel remembers.
#[derive(Debug)]
pub(super) struct NodeTable {
    root: NodeId,
    maps: RwLock<Maps>,
}

impl NodeTable {
    pub(super) fn new(root: NodeId) -> Self {
        Self { root, maps: RwLock::default() }
    }

    /// The node that the kernel means.
    pub(super) fn node(&self, number: u64) -> Result<NodeId> {
        if number == ROOT_NUMBER {
            return Ok(self.root);
        }
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let known = maps.by_number.get(&number).and_then(|known| known.node);
        known.ok_or_else(|| Kind::Stale.into())
    }

    /// The number of a node, if the kernel knows it.
    pub(super) fn number(&self, node: NodeId) -> Option<u64> {
        if node == self.root {
            return Some(ROOT_NUMBER);
        }
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        maps.by_node.get(&node).copied()
    }

    /// The kernel is told of `node`, whose canonical number is `ino`, once more.
    pub(super) fn tell(&self, node: NodeId, ino: u64) -> u64 {
        if node == self.root {
            return ROOT_NUMBER;
        }
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let maps = &mut *maps;
        let number = *maps.by_node.entry(node).or_insert_with(|| {
            let mut number = ino;
            while number <= ROOT_NUMBER || maps.by_number.contains_key(&number) {
                number = PRIVATE_FIRST + maps.private_last;
                maps.private_last = (maps.private_last + 1) % PRIVATE_FIRST;
            }
            number
        });
        let known = maps.by_number.entry(number).or_insert(Known {
            node: Some(node),
            outstanding: 0,
            told: 0,
        });
        known.outstanding += 1;
        known.told += 1;
        number
    }

    /// The kernel will forget `number` once more than it was told: see [`super::entries`].
    pub(super) fn hold_back(&self, number: u64) {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let known =
            maps.by_number.entry(number).or_insert(Known { node: None, outstanding: 0, told: 0 });
        known.outstanding += 1;
    }

    /// The kernel forgets what it was told `count` times; when that was the last time, returns the
    /// node and how many references to give back.
    pub(super) fn forget(&self, number: u64, count: u64) -> Option<(NodeId, u64)> {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let known = maps.by_number.get_mut(&number)?;
        known.outstanding = known.outstanding.saturating_sub(count);
        if known.outstanding > 0 {
            return None;
        }
        let known = maps.by_number.remove(&number)?;
        let node = known.node?;
        maps.by_node.remove(&node);
        Some((node, known.told))
    }

    /// All numbers that the kernel remembers, but for the root's.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        maps.by_node.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_canonical_unless_taken() {
        let table = NodeTable::new(NodeId(0));
        assert_eq!(table.tell(NodeId(5), 77), 77);
        assert_eq!(table.tell(NodeId(6), 77), PRIVATE_FIRST);
        assert_eq!(table.tell(NodeId(7), 1), PRIVATE_FIRST + 1);
        assert_eq!(table.tell(NodeId(5), 78), 77, "it stays while remembered");
        assert_eq!(table.forget(77, 1), None);
        assert_eq!(table.node(77).unwrap(), NodeId(5));
        assert_eq!(table.forget(77, 1), Some((NodeId(5), 2)));
        assert!(table.node(77).is_err());
        assert_eq!(table.tell(NodeId(8), 77), 77, "free again");
    }

    #[test]
    fn the_root_is_one() {
        let table = NodeTable::new(NodeId(42));
        assert_eq!(table.tell(NodeId(42), 9999), 1);
        assert_eq!(table.node(1).unwrap(), NodeId(42));
        assert_eq!(table.forget(1, 1), None);
    }

    #[test]
    fn a_number_held_back_is_not_given_out() {
        let table = NodeTable::new(NodeId(0));
        table.hold_back(9);
        assert_ne!(table.tell(NodeId(1), 9), 9);
        assert_eq!(table.forget(9, 1), None);
        assert_eq!(table.tell(NodeId(2), 9), 9);
        table.hold_back(9);
        assert_eq!(table.forget(9, 1), None);
        assert_eq!(table.forget(9, 1), Some((NodeId(2), 1)));
    }
}
