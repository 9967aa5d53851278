//! Whether programs are changing something: for whoever waits until they are quiet.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts changes.
#[derive(Debug, Default)]
pub(super) struct Activity(AtomicU64);

impl Activity {
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
