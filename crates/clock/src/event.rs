//! What ends a wait before its time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Clock;

/// Something that happens again and again and that threads wait for, with a limit on some clock. All
/// clones stand for the same.
///
/// It counts, so that none is missed between a look and the wait.
#[derive(Debug, Clone, Default)]
pub struct Event {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: AtomicU64,
    /// Held by whoever changes something that a waiter looks at before it sleeps.
    lock: Mutex<()>,
    woken: Condvar,
}

impl Event {
    /// It happens: whoever waits for it goes on.
    pub fn notify(&self) {
        let _lock = self.lock();
        self.inner.count.fetch_add(1, Ordering::SeqCst);
        self.inner.woken.notify_all();
    }

    /// How many times it has happened.
    pub fn seen(&self) -> u64 {
        self.inner.count.load(Ordering::SeqCst)
    }

    /// Locks `mutex` when `go_on` no longer holds for what is in it, or when `time` has passed;
    /// whether it no longer holds. Whoever changes that notifies.
    pub fn wait_while<'m, T>(
        &self,
        clock: &dyn Clock,
        mutex: &'m Mutex<T>,
        time: Duration,
        mut go_on: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'m, T>, bool) {
        let begin = clock.monotonic();
        loop {
            let seen = self.seen();
            let mut guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            if !go_on(&mut guard) {
                return (guard, true);
            }
            let left = time.saturating_sub(clock.elapsed(begin));
            if left.is_zero() {
                return (guard, false);
            }
            drop(guard);
            clock.wait_event(self, seen, left);
        }
    }

    /// Blocks until the count differs from `seen`, or `time` of the machine has passed, or, looked at
    /// after each [`Event::wake`], `is_over`; whether it differs.
    pub(crate) fn block(
        &self,
        seen: u64,
        time: Option<Duration>,
        is_over: impl Fn() -> bool,
    ) -> bool {
        let goes_on = |(): &mut ()| self.seen() == seen && !is_over();
        let (lock, woken) = (self.lock(), &self.inner.woken);
        match time {
            Some(time) => drop(woken.wait_timeout_while(lock, time, goes_on)),
            None => drop(woken.wait_while(lock, goes_on)),
        }
        self.seen() != seen
    }

    /// Whoever waits looks whether it is over.
    pub(crate) fn wake(&self) {
        let _lock = self.lock();
        self.inner.woken.notify_all();
    }

    // Nothing can be half done under it.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.inner.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends waits once and for all. All clones stand for the same.
#[derive(Debug, Clone, Default)]
pub struct Cancellation {
    event: Event,
}

impl Cancellation {
    /// Ends every [`Clock::wait_or`] with it, now and later.
    pub fn cancel(&self) {
        self.event.notify();
    }

    /// Whether it has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.event.seen() > 0
    }

    pub(crate) const fn event(&self) -> &Event {
        &self.event
    }
}
