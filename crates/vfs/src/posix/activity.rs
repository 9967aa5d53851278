//! Whether programs are changing something: for whoever waits until they are quiet, or asks what
//! waits.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts changes, and how many of them a sync has met.
#[derive(Debug, Default)]
pub(super) struct Activity {
    noted: AtomicU64,
    synced: AtomicU64,
}

impl Activity {
    pub(super) fn note(&self) {
        self.noted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }

    /// A sync that began at this count is done.
    pub(super) fn note_synced(&self, count: u64) {
        self.synced.fetch_max(count, Ordering::Relaxed);
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Relaxed) == self.count()
    }
}
