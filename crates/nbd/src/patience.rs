//! How long a client has kept the server waiting.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tacita_clock::Clock;

/// Whoever waits for a client looks at its time more often than this. Where more has passed, the server
/// itself stood still, as when it is stopped by a signal or frozen: the client could not be quicker.
const GAP_MAX: Duration = Duration::from_secs(1);

/// The time of one client. Of what passes between two looks no more counts than a server takes that waits.
#[derive(Debug)]
pub(crate) struct Patience {
    clock: Arc<dyn Clock>,
    time: Mutex<Time>,
}

#[derive(Debug, Clone, Copy)]
struct Time {
    looked: Duration,
    counted: Duration,
}

impl Patience {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let time = Time { looked: clock.monotonic(), counted: Duration::ZERO };
        Self { clock, time: Mutex::new(time) }
    }

    /// The clock of the machine.
    pub(crate) const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// What has counted so far.
    pub(crate) fn time(&self) -> Duration {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        let passed = now.saturating_sub(time.looked);
        time.counted += passed.min(GAP_MAX);
        // Another thread may have looked later than the clock was asked here.
        time.looked = time.looked.max(now);
        time.counted
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tacita_clock::Simulated;

    use super::*;

    #[test]
    fn what_the_server_sleeps_through_does_not_count() {
        let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
        let patience = Patience::new(Arc::<Simulated>::clone(&clock));
        for _ in 0..120 {
            clock.advance(Duration::from_millis(500));
            patience.time();
        }
        assert_eq!(patience.time(), Duration::from_mins(1));
        clock.advance(Duration::from_hours(8));
        assert_eq!(patience.time(), Duration::from_mins(1) + GAP_MAX);
    }
}
