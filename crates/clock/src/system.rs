//! The clock of the machine.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::{Clock, Event};

/// The clock of the machine. All values are the same clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

/// The moment that [`System`] counts from.
#[allow(clippy::disallowed_methods, reason = "the one place where time enters")]
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for System {
    #[allow(clippy::disallowed_methods, reason = "the one place where time enters")]
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        BEGIN.elapsed()
    }

    fn boottime(&self) -> Duration {
        Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
    }

    fn wait_event(&self, event: &Event, seen: u64, time: Duration) -> bool {
        event.block(seen, Some(time), || false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancellation;

    #[test]
    fn waits_no_less_than_told() {
        let (begin, time) = (System.monotonic(), Duration::from_millis(20));
        let boottime = System.boottime();
        System.wait(time);
        assert!(System.elapsed(begin) >= time);
        assert!(System.boottime() >= boottime + time);
        assert!(!System.wait_or(&Cancellation::default(), time));
    }

    #[test]
    fn a_cancelled_wait_ends_before_its_time() {
        let cancellation = Cancellation::default();
        let thread = std::thread::spawn({
            let cancellation = cancellation.clone();
            move || System.wait_or(&cancellation, Duration::from_hours(1))
        });
        cancellation.cancel();
        assert!(thread.join().unwrap() && cancellation.is_cancelled());
        assert!(System.wait_or(&cancellation, Duration::from_hours(1)), "and so does every other");
    }
}
