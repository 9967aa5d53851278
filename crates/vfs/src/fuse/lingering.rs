//! Inode numbers that programs have seen before a file got another name.
//!
//! A system may give a file another number by that: HIFS does where the new path comes first. Who makes a link may
//! compare what it made with what it knew, and give up (`git clone` of a folder does). So the number that was shown
//! stays for a moment, unless the file loses a name or moves: then what is made next may be due to have the number.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::NodeId;

/// How long a number stays.
const LINGERS: Duration = Duration::from_secs(5);

/// A number, and until when it is shown.
type Until = (u64, Duration);

/// Numbers that are still shown. Times are those of a monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Lingering(RwLock<HashMap<NodeId, Until>>);

impl Lingering {
    /// A node that was shown as `before` has another number now.
    pub(super) fn stay(&self, node: NodeId, before: u64, now: Duration) {
        let mut numbers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        numbers.retain(|_, (_, until)| *until > now);
        numbers.entry(node).or_insert((before, now)).1 = now + LINGERS;
    }

    /// The number that is shown in place of the node's own.
    pub(super) fn of(&self, node: NodeId, now: impl FnOnce() -> Duration) -> Option<u64> {
        let numbers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (number, until) = numbers.get(&node)?;
        (*until > now()).then_some(*number)
    }

    /// Nodes are shown as what they are from now on.
    pub(super) fn end(&self, nodes: impl IntoIterator<Item = NodeId>) {
        let mut numbers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for node in nodes {
            numbers.remove(&node);
        }
    }

    /// So are all: a folder with who knows what has moved.
    pub(super) fn end_all(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
