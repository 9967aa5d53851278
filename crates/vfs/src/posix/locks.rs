//! Locks over names: one for each directory, one over the names that a node has, and one for
//! renames across directories.
//!
//! Order: across, directories, the names of a node, then whatever the system locks. Directories are
//! taken all at once, so that two threads never wait for one another.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::NodeId;

/// Locks of each kind; far more than threads, so that strangers seldom meet.
const STRIPE_COUNT: usize = 1 << STRIPE_BITS;

const STRIPE_BITS: u32 = 8;

/// Spreads numbers that are apart by powers of two, as those of directories often are.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Keeps names from changing for as long as it lives.
pub(super) type Reading<'a> = RwLockReadGuard<'a, ()>;

/// Keeps names from being read or changed by others for as long as it lives.
pub(super) type Changing<'a, const N: usize> = [Option<RwLockWriteGuard<'a, ()>>; N];

/// All locks over names. They guard no data of their own, so a panic under them leaves nothing half
/// done.
#[derive(Debug)]
pub(super) struct Locks {
    across: Mutex<()>,
    directories: [RwLock<()>; STRIPE_COUNT],
    nodes: [Mutex<()>; STRIPE_COUNT],
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            across: Mutex::default(),
            directories: std::array::from_fn(|_| RwLock::default()),
            nodes: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Locks {
    /// No name moves from one directory to another: what lies beneath what stays as it is.
    pub(super) fn across(&self) -> MutexGuard<'_, ()> {
        self.across.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of a directory stay as they are.
    pub(super) fn read(&self, dir: NodeId) -> Reading<'_> {
        self.directories[stripe(dir)].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of these directories are to change. A directory may be told twice.
    pub(super) fn change<const N: usize>(&self, dirs: [NodeId; N]) -> Changing<'_, N> {
        let mut stripes = dirs.map(stripe);
        stripes.sort_unstable();
        std::array::from_fn(|i| {
            let is_new = i == 0 || stripes[i] != stripes[i - 1];
            let lock = || self.directories[stripes[i]].write();
            is_new.then(|| lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// A node gets or loses a name, in whatever directory.
    pub(super) fn names_of(&self, node: NodeId) -> MutexGuard<'_, ()> {
        self.nodes[stripe(node)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stripe(node: NodeId) -> usize {
    usize::try_from(node.0.wrapping_mul(SPREAD) >> (u64::BITS - STRIPE_BITS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_apart_by_powers_of_two_do_not_share_a_lock() {
        for distance in [1, 2, 8192, 1 << 20] {
            let stripes: std::collections::BTreeSet<usize> =
                (0..8).map(|i| stripe(NodeId(12 + i * distance))).collect();
            assert!(stripes.len() >= 7, "{distance}: {stripes:?}");
        }
    }

    #[test]
    fn a_directory_told_twice_is_locked_once() {
        let locks = Locks::default();
        let held = locks.change([NodeId(7), NodeId(9), NodeId(7)]);
        assert_eq!(held.iter().flatten().count(), 2);
    }
}
