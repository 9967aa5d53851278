//! The number of each program and erase, and the one at which the power is cut.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Error, Kind, Result};

/// What becomes of the operation at which the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutMode {
    /// It is not done at all.
    Clean,
    /// A page gets the first part of its data; of a block the first part is erased.
    Torn,
    /// A page gets garbage; of a block random bits are erased.
    Garbled,
}

/// Operations that have power.
#[derive(Debug, Clone, Copy)]
pub(super) struct Granted {
    /// Number of the first.
    pub(super) first: u64,
    /// So many are done.
    pub(super) done: u64,
    /// The power is cut at the next one.
    pub(super) cut: Option<CutMode>,
}

/// The power, until it is cut for good.
#[derive(Debug)]
pub(super) struct Power {
    next: AtomicU64,
    /// The first number that has no power.
    cut_at: AtomicU64,
    mode: Mutex<CutMode>,
}

impl Power {
    pub(super) fn on() -> Self {
        Self {
            next: AtomicU64::new(0),
            cut_at: AtomicU64::new(u64::MAX),
            mode: Mutex::new(CutMode::Clean),
        }
    }

    /// Number of the next operation.
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Cuts at the operation `number`, or at once if that is over. What has been cut stays cut.
    pub(super) fn cut_at(&self, number: u64, mode: CutMode) {
        if self.check().is_err() {
            return;
        }
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
        self.cut_at.store(number, Ordering::Release);
    }

    /// Cuts now.
    pub(super) fn cut(&self) {
        self.cut_at(0, CutMode::Clean);
        self.next.fetch_add(1, Ordering::AcqRel);
    }

    /// # Errors
    /// [`Kind::PowerCut`].
    pub(super) fn check(&self) -> Result<()> {
        if self.next() > self.cut_at.load(Ordering::Acquire) {
            return Err(Self::gone());
        }
        Ok(())
    }

    /// Takes power for the next `count` operations.
    ///
    /// # Errors
    /// [`Kind::PowerCut`] if it was cut before the first.
    pub(super) fn take(&self, count: u64) -> Result<Granted> {
        let first = self.next.fetch_add(count, Ordering::AcqRel);
        let cut_at = self.cut_at.load(Ordering::Acquire);
        if first > cut_at {
            return Err(Self::gone());
        }
        let done = count.min(cut_at - first);
        let mode = || *self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Granted { first, done, cut: (done < count).then(mode) })
    }

    pub(super) fn gone() -> Error {
        Error::new(Kind::PowerCut, "the power has been cut")
    }
}
