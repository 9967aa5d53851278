//! Puts everything on the medium from time to time, and when programs have been quiet.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tacita_clock::{Clock, Event, Worker};

use crate::{FileSystem, Posix};

/// When it syncs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    /// So often; zero for never.
    pub(super) interval: Duration,
    /// And when nothing has been changed for so long after a change.
    pub(super) quiet: Option<Duration>,
}

impl Schedule {
    pub(super) fn is_never(self) -> bool {
        self.interval.is_zero() && self.quiet.is_none()
    }

    /// How often it is looked whether the time has come: in quiet half of it may pass again.
    fn step(self) -> Duration {
        match self.quiet {
            Some(quiet) if self.interval.is_zero() => quiet / 2,
            Some(quiet) => self.interval.min(quiet / 2),
            None => self.interval,
        }
    }
}

/// A thread that syncs when it is due, until dropped.
///
/// # Errors
/// There is none to be had.
pub(super) fn start<F: FileSystem>(posix: Arc<Posix<F>>, schedule: Schedule) -> io::Result<Worker> {
    let (clock, changing) = (Arc::clone(posix.clock()), Arc::clone(&posix));
    let sync = move || {
        // Not lost: the final sync meets the same failure and reports it.
        if let Err(e) = posix.sync() {
            log::error!("not everything is on the medium: {}", e.kind());
        }
    };
    sync_when_due(clock, schedule, move || changing.changes(), sync)
}

/// Calls `sync` when it is due by what `changes` says.
fn sync_when_due(
    clock: Arc<dyn Clock>,
    schedule: Schedule,
    changes: impl Fn() -> u64 + Send + 'static,
    sync: impl Fn() + Send + 'static,
) -> io::Result<Worker> {
    let mut due = Due::new(schedule, clock.monotonic());
    let time = Arc::clone(&clock);
    let look = move || {
        if due.now(changes(), time.monotonic()) {
            sync();
        }
    };
    Worker::start("tacita-sync", clock, Event::default(), Some(schedule.step()), look)
}

/// Says when a sync is due.
#[derive(Debug)]
struct Due {
    schedule: Schedule,
    synced: Duration,
    /// Changes so far, and when the last one was seen.
    seen: (u64, Duration),
    is_changed: bool,
}

impl Due {
    const fn new(schedule: Schedule, now: Duration) -> Self {
        Self { schedule, synced: now, seen: (0, now), is_changed: false }
    }

    fn now(&mut self, changes: u64, now: Duration) -> bool {
        if changes != self.seen.0 {
            self.seen = (changes, now);
            self.is_changed = true;
        }
        let Schedule { interval, quiet } = self.schedule;
        let periodic = !interval.is_zero() && now.saturating_sub(self.synced) >= interval;
        let is_quiet = quiet.is_some_and(|quiet| now.saturating_sub(self.seen.1) >= quiet);
        let due = periodic || self.is_changed && is_quiet;
        if due {
            self.synced = now;
            self.is_changed = false;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::channel;
    use std::time::SystemTime;

    use tacita_clock::Simulated;

    use super::*;

    #[test]
    fn syncs_when_it_is_due() {
        let schedule =
            Schedule { interval: Duration::from_secs(5), quiet: Some(Duration::from_millis(500)) };
        let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
        let (changes, (tell, synced)) = (Arc::new(AtomicU64::new(0)), channel());
        let (seen, time) = (Arc::clone(&changes), Arc::clone(&clock));
        let sync = move || tell.send(time.monotonic().as_millis()).unwrap();
        let see = move || seen.load(Ordering::SeqCst);
        let timer = sync_when_due(clock.clone(), schedule, see, sync).unwrap();
        let pass = |ms| clock.advance_among(1, Duration::from_millis(ms));
        pass(1000);
        changes.store(1, Ordering::SeqCst);
        // Seen at 1250, quiet until 1750; then every five seconds.
        pass(10_800);
        clock.await_waiters(1);
        drop(timer);
        assert_eq!(synced.iter().collect::<Vec<_>>(), [1750, 6750, 11_750]);
    }

    #[test]
    fn is_due_in_quiet_and_at_intervals() {
        let schedule =
            Schedule { interval: Duration::from_secs(5), quiet: Some(Duration::from_millis(500)) };
        let start = Duration::from_secs(9);
        let at = |ms| start + Duration::from_millis(ms);
        let mut due = Due::new(schedule, start);
        assert!(!due.now(0, at(1000)), "nothing has changed");
        assert!(!due.now(1, at(1250)));
        assert!(!due.now(2, at(1500)));
        assert!(!due.now(2, at(1750)));
        assert!(due.now(2, at(2000)), "quiet for half a second");
        assert!(!due.now(2, at(3000)), "once is enough");
        for n in 3..20 {
            assert!(!due.now(n, at(3000 + 200 * n)), "busy");
        }
        assert!(due.now(20, at(7000)), "busy for five seconds");
        let mut never = Due::new(Schedule { interval: Duration::ZERO, ..schedule }, start);
        assert!(!never.now(0, at(60_000)));
    }
}
