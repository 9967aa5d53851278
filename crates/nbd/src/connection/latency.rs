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
const UNKNOWN_NS: u64 = 100_000;

/// Weight of the past in the mean: so many times that of the latest request. With less, a device
/// that takes a millisecond once in a hundred requests, as a log does which then writes them all,
/// would have those behind it handed over, though all of them take 10 microseconds each.
const PAST_WEIGHT: u64 = 63;

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
        let device = Device::new();
        assert!(!device.is_quick());
        assert!((20..100).contains(&device.count(2, true).unwrap()));
        assert_eq!(device.count(5000, false), Some(0));
        assert!((20..100).contains(&device.count(2, true).unwrap()));
        assert!(device.count(60, false).is_some());
        assert_eq!(device.count(60, true), None);
        for _ in 0..100 {
            device.takes(320, 1 << 20);
        }
        assert!(device.is_quick(), "20 microseconds for each 64 KiB");
    }

    #[test]
    fn who_works_off_a_hundred_requests_with_one_of_them_is_quick() {
        let device = Device::new();
        (0..500).for_each(|_| device.takes(2, 4096));
        for _ in 0..100 {
            device.takes(1000, 4096);
            assert!(device.is_quick());
            (0..99).for_each(|_| device.takes(2, 4096));
        }
    }

    /// A device that takes as long as it is told.
    struct Device(Arc<Simulated>, Latency);

    impl Device {
        fn new() -> Self {
            let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
            Self(Arc::clone(&clock), Latency::new(clock))
        }

        fn is_quick(&self) -> bool {
            self.1.is_quick()
        }

        fn takes(&self, micros: u64, len: usize) {
            self.1.measured(len, || self.0.advance(Duration::from_micros(micros)));
        }

        /// Requests of so many microseconds before it is quick, or is not.
        fn count(&self, micros: u64, until: bool) -> Option<usize> {
            (0..1000).find(|_| {
                self.takes(micros, 4096);
                self.is_quick() == until
            })
        }
    }
}
