//! The seam.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use crate::event::{Cancellation, Event};

/// Tells the time and waits.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time of day, which may be set back.
    fn wall(&self) -> SystemTime;

    /// The time of day in whole seconds since 1970.
    fn unix_seconds(&self) -> u64 {
        self.wall().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// Time since a fixed moment of this clock, which never goes back. While the machine sleeps it stands still,
    /// and so do waits.
    fn monotonic(&self) -> Duration;

    /// Time since another fixed moment, which goes on while the machine sleeps: for what others may do meanwhile.
    fn boottime(&self) -> Duration;

    /// Waits until an event has been notified more than `seen` times, but no longer than `time`;
    /// whether it has been.
    fn wait_event(&self, event: &Event, seen: u64, time: Duration) -> bool;

    /// Waits.
    fn wait(&self, time: Duration) {
        let event = Event::default();
        self.wait_event(&event, event.seen(), time);
    }

    /// Waits, but only until it is cancelled; whether it has been.
    fn wait_or(&self, cancellation: &Cancellation, time: Duration) -> bool {
        self.wait_event(cancellation.event(), 0, time)
    }

    /// Time since `begin`, a reading of [`Clock::monotonic`].
    fn elapsed(&self, begin: Duration) -> Duration {
        self.monotonic().saturating_sub(begin)
    }
}
