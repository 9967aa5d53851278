//! Puts everything on the medium from time to time, and when programs have been quiet.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tacita_clock::{Cancellation, Clock};

use crate::{FileSystem, Posix};

/// A thread that syncs until dropped.
#[derive(Debug)]
pub(super) struct SyncTimer {
    stop: Cancellation,
    thread: Option<JoinHandle<()>>,
}

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

impl SyncTimer {
    pub(super) fn start<F: FileSystem>(
        posix: Arc<Posix<F>>,
        schedule: Schedule,
    ) -> std::io::Result<Self> {
        let stop = Cancellation::default();
        let stopped = stop.clone();
        let thread =
            std::thread::Builder::new().name("tacita-sync".to_owned()).spawn(move || {
                let sync = || {
                    // Not lost: the final sync meets the same failure and reports it.
                    if let Err(e) = posix.sync() {
                        log::error!("not everything is on the medium: {}", e.kind());
                    }
                };
                run(&**posix.clock(), &stopped, schedule, &|| posix.changes(), &sync);
            })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// Syncs when it is due, until stopped.
fn run(
    clock: &dyn Clock,
    stopped: &Cancellation,
    schedule: Schedule,
    changes: &dyn Fn() -> u64,
    sync: &dyn Fn(),
) {
    let mut due = Due::new(schedule, clock.monotonic());
    while !clock.wait_or(stopped, schedule.step()) {
        if due.now(changes(), clock.monotonic()) {
            sync();
        }
    }
}

impl Drop for SyncTimer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
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
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::SystemTime;

    use tacita_clock::Simulated;

    use super::*;

    #[test]
    fn syncs_when_it_is_due() {
        let schedule =
            Schedule { interval: Duration::from_secs(5), quiet: Some(Duration::from_millis(500)) };
        let (clock, stop) = (Simulated::at(SystemTime::UNIX_EPOCH), Cancellation::default());
        let (changes, synced) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let sync = || synced.lock().unwrap().push(clock.monotonic().as_millis());
                run(&clock, &stop, schedule, &|| changes.load(Ordering::SeqCst), &sync);
            });
            let pass = |ms| clock.advance_among(1, Duration::from_millis(ms));
            pass(1000);
            changes.store(1, Ordering::SeqCst);
            // Seen at 1250, quiet until 1750; then every five seconds.
            pass(10_800);
            clock.await_waiters(1);
            stop.cancel();
        });
        assert_eq!(synced.into_inner().unwrap(), [1750, 6750, 11_750]);
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
