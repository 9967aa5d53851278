//! When to purge: after a time, and when much was deleted.

use std::time::Duration;

/// When to purge besides at unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// So long after the last time, if anything was deleted.
    pub every: Option<Duration>,
    /// When there are so many keys to purge.
    pub after_keys: Option<u64>,
    /// When there are so many bytes of deleted nodes.
    pub after_bytes: Option<u64>,
}
