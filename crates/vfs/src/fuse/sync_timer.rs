//! Puts everything on the medium from time to time, and when programs have been quiet.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{FileSystem, Posix};

/// A thread that syncs until dropped.
#[derive(Debug)]
pub(super) struct SyncTimer {
    stop: Option<Sender<()>>,
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
        let (stop, stopped) = channel::<()>();
        let thread =
            std::thread::Builder::new().name("tacita-sync".to_owned()).spawn(move || {
                let mut due = Due::new(schedule, Instant::now());
                while stopped.recv_timeout(schedule.step()) == Err(RecvTimeoutError::Timeout) {
                    if due.now(posix.changes(), Instant::now()) {
                        // Not lost: the final sync meets the same failure and reports it.
                        if let Err(e) = posix.sync() {
                            log::error!("not everything is on the medium: {}", e.kind());
                        }
                    }
                }
            })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SyncTimer {
    fn drop(&mut self) {
        drop(self.stop.take());
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
    synced: Instant,
    /// Changes so far, and when the last one was seen.
    seen: (u64, Instant),
    is_changed: bool,
}

impl Due {
    const fn new(schedule: Schedule, now: Instant) -> Self {
        Self { schedule, synced: now, seen: (0, now), is_changed: false }
    }

    fn now(&mut self, changes: u64, now: Instant) -> bool {
        if changes != self.seen.0 {
            self.seen = (changes, now);
            self.is_changed = true;
        }
        let Schedule { interval, quiet } = self.schedule;
        let periodic = !interval.is_zero() && now - self.synced >= interval;
        let is_quiet = quiet.is_some_and(|quiet| now - self.seen.1 >= quiet);
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
    use super::*;

    #[test]
    fn is_due_in_quiet_and_at_intervals() {
        let schedule =
            Schedule { interval: Duration::from_secs(5), quiet: Some(Duration::from_millis(500)) };
        let start = Instant::now();
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
