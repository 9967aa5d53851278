//! A clock that tells every time once.

use std::sync::atomic::{AtomicI64, Ordering};

use tacita_vfs::{Clock, Timestamp};

/// Goes on by one second each time it is read, so that no two stamps are equal.
#[derive(Debug, Default)]
pub struct StepClock {
    secs: AtomicI64,
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp { secs: self.secs.fetch_add(1, Ordering::Relaxed) + 1, nanos: 0 }
    }
}
