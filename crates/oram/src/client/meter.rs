//! How far builds are, and how far they have to be: a query is let in only when all of them are, so that
//! no query ever waits for a whole build.
//!
//! Paper: figure 9. Note: oram.md 1.8.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::geometry::{Generation, Geometry};
use crate::schedule::Build;

/// How far a build is: shares of its work, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// What is built.
    pub generation: Generation,
    /// What has been read and written, of all that will have been.
    pub reported: f64,
    /// How far it has to be for the next query to be let in.
    pub enforced: f64,
}

/// The builds that are under way.
#[derive(Debug)]
pub(super) struct Meter {
    geometry: Geometry,
    builds: Mutex<Vec<Arc<Metered>>>,
}

/// A build that is under way.
#[derive(Debug)]
pub(super) struct Metered {
    build: Build,
    work: u64,
    done: AtomicU64,
    /// Queries after which progress begins to be asked for: by then those before it have results.
    from: u64,
    /// Queries after which it is to be all but complete: those that are under way then fill up the period
    /// while the rest is done.
    to: u64,
}

impl Meter {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self { geometry, builds: Mutex::default() }
    }

    /// A build is due, or begins anew after so many `queries`: what is left of its time is what it has.
    pub(super) fn begin(&self, build: Build, queries: u64) -> Arc<Metered> {
        let work = crate::build::work(&self.geometry, &build).max(1);
        let period = self.geometry.period();
        let from = (build.from + period / 4).max(queries).min(build.until - 1);
        let reserve = ((build.until - from) / 10).max(period / 8);
        let to = build.until.saturating_sub(reserve).max(from + 1);
        let metered = Arc::new(Metered { build, work, done: AtomicU64::new(0), from, to });
        self.lock().push(metered.clone());
        metered
    }

    /// A build is complete.
    pub(super) fn end(&self, metered: &Arc<Metered>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, metered));
    }

    /// Whether a query may be let in when there have been `queries`.
    pub(super) fn admits(&self, queries: u64) -> bool {
        self.lock().iter().all(|build| build.reported() >= build.enforced(queries))
    }

    /// The first query that may not be let in as far as builds are; as large as there is if none waits.
    pub(super) fn limit(&self) -> u64 {
        self.lock().iter().map(|build| build.limit()).min().unwrap_or(u64::MAX)
    }

    pub(super) fn progress(&self, queries: u64) -> Vec<Progress> {
        self.lock()
            .iter()
            .map(|metered| Progress {
                generation: metered.build.generation,
                reported: share(metered.reported()),
                enforced: share(metered.enforced(queries)),
            })
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Metered>>> {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a share is of.
const WHOLE: u64 = 1 << 32;
/// As far as a build is asked to be at the end of its time: what is left then is no more than an answer.
const NEARLY: u64 = WHOLE / 100 * 99;

#[allow(clippy::cast_precision_loss, reason = "below 2^32")]
fn share(part: u64) -> f64 {
    part as f64 / WHOLE as f64
}

impl Metered {
    /// Items have been read or written.
    pub(super) fn moved(&self, items: u64) {
        self.done.fetch_add(items, Ordering::Relaxed);
    }

    /// The build begins anew.
    pub(super) fn again(&self) {
        self.done.store(0, Ordering::Relaxed);
    }

    /// Whether it is so far ahead that it may wait for queries.
    pub(super) fn is_ahead(&self, queries: u64) -> bool {
        let window = self.build.until - self.build.from;
        let ahead = self.enforced(queries + window / 8 + 1);
        self.reported() > ahead && ahead < NEARLY
    }

    fn reported(&self) -> u64 {
        portion(self.done.load(Ordering::Relaxed), self.work)
    }

    /// The first number of queries for which more is asked than there is.
    fn limit(&self) -> u64 {
        let reported = self.reported();
        if reported >= NEARLY {
            return u64::MAX;
        }
        let line = u128::from(reported + 1) * u128::from(self.to - self.from);
        let queries = line.div_ceil(u128::from(WHOLE));
        self.from + u64::try_from(queries).expect("at most the line's length")
    }

    /// In a straight line, up to all but complete.
    fn enforced(&self, queries: u64) -> u64 {
        portion(queries.saturating_sub(self.from), self.to - self.from).min(NEARLY)
    }
}

fn portion(part: u64, whole: u64) -> u64 {
    let portion = u128::from(part.min(whole)) * u128::from(WHOLE) / u128::from(whole);
    u64::try_from(portion).expect("at most the whole")
}
