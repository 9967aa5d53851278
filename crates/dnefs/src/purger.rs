//! When to purge: after a time, and when much was deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tacita_clock::{Clock, Event};

/// When to purge besides at unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// So long after the last time, if anything was deleted.
    pub every: Option<Duration>,
    /// When there are so many keys to purge.
    pub after_keys: Option<u64>,
    /// When there are so many bytes of deleted nodes.
    pub after_bytes: Option<u64>,
}

/// A thread that purges by a policy, until it is dropped.
#[derive(Debug)]
pub struct Purger {
    over: Arc<AtomicBool>,
    due: Event,
    thread: Option<JoinHandle<()>>,
}

/// As good as for ever.
const LONG: Duration = Duration::from_secs(1 << 32);

impl Purger {
    /// Calls `purge` whenever the time of the policy has passed, or `due` has happened.
    pub fn start(
        clock: Arc<dyn Clock>,
        policy: Policy,
        due: Event,
        mut purge: impl FnMut() + Send + 'static,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (is_over, happened) = (Arc::clone(&over), due.clone());
        let thread = std::thread::spawn(move || {
            // What has happened before this thread runs counts.
            let mut seen = 0;
            loop {
                clock.wait_event(&happened, seen, policy.every.unwrap_or(LONG));
                seen = happened.seen();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                purge();
            }
        });
        Self { over, due, thread: Some(thread) }
    }
}

impl Drop for Purger {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.due.notify();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
