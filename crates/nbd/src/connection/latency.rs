//! How fast the device has been lately: whether a request is best served where it was received.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tacita_clock::Clock;

/// Mean time up to which serving a request costs less than handing it to another thread, or little
/// more.
const QUICK_NS: u64 = 50_000;

/// Longer requests count as several of this length in bytes.
const UNIT_LEN_BYTES: usize = 64 << 10;

/// What the mean begins with: slow until shown otherwise.
const UNKNOWN_NS: u64 = 1_000_000;

/// Weight of the past in the mean: so many times that of the latest request.
const PAST_WEIGHT: u64 = 7;

/// A moving mean of how long reads and writes take. Updates may get lost between threads,
/// which makes it no worse.
#[derive(Debug)]
pub(super) struct Latency {
    clock: Arc<dyn Clock>,
    mean_ns: AtomicU64,
}

impl Latency {
    pub(super) const fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, mean_ns: AtomicU64::new(UNKNOWN_NS) }
    }

    /// Whether the device answers at once.
    pub(super) fn is_quick(&self) -> bool {
        self.mean_ns.load(Ordering::Relaxed) <= QUICK_NS
    }

    /// Reads or writes `len` bytes of the device, and counts how long that took.
    pub(super) fn measured<R>(&self, len: usize, work: impl FnOnce() -> R) -> R {
        let start = self.clock.monotonic();
        let result = work();
        self.count(self.clock.elapsed(start), len);
        result
    }

    fn count(&self, took: Duration, len: usize) {
        let units = (len / UNIT_LEN_BYTES).max(1) as u64;
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 16) / units;
        let mean = self.mean_ns.load(Ordering::Relaxed);
        let mean = mean.saturating_mul(PAST_WEIGHT).saturating_add(took) / (PAST_WEIGHT + 1);
        self.mean_ns.store(mean, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tacita_clock::Simulated;

    use super::*;

    #[test]
    fn one_slow_request_is_enough_and_some_quick_ones_make_up_for_it() {
        let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
        let latency = Latency::new(Arc::<Simulated>::clone(&clock));
        let takes = |took, len| {
            latency.measured(len, || clock.advance(Duration::from_micros(took)));
        };
        assert!(!latency.is_quick());
        let counts = |took: u64, until: bool| {
            (0..1000).find(|_| {
                takes(took, 4096);
                latency.is_quick() == until
            })
        };
        assert!((10..40).contains(&counts(2, true).unwrap()));
        assert_eq!(counts(5000, false), Some(0));
        assert!((10..40).contains(&counts(2, true).unwrap()));
        assert!(counts(60, false).is_some());
        assert_eq!(counts(60, true), None);
        for _ in 0..100 {
            takes(320, 1 << 20);
        }
        assert!(latency.is_quick(), "20 microseconds for each 64 KiB");
    }
}
