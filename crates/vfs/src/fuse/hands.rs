//! Who does what takes long, so that other requests are served meanwhile.
//!
//! What waits for a device stays with the thread that serves it as long as another one is free to
//! serve: that saves waking somebody. Everything else goes to threads beside those that serve. Each
//! has one thing to wait for; it is used again, and goes when there has been nothing to do for a
//! while.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use crate::Wait;

/// Threads at most: what comes on top waits for one of them. Far more than the flushes that a disk
/// gains from, or the round trips that are under way to a slow system.
const THREADS_MAX: usize = 128;

/// How long a thread waits for more to do.
const IDLE_MAX: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    idle: usize,
    threads: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

/// Hands out work.
pub(super) struct Hands {
    shared: Arc<Shared>,
    /// Threads that serve and may be kept from it at once: all but one.
    spare: usize,
    /// How many of them are.
    staying: AtomicUsize,
}

/// As long as it lives a thread that serves is kept from it.
pub(super) struct Staying<'a>(Option<&'a AtomicUsize>);

impl Drop for Staying<'_> {
    fn drop(&mut self) {
        if let Some(staying) = self.0 {
            staying.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Hands {
    /// Threads beside so many that serve.
    pub(super) fn beside(threads: usize) -> Self {
        let spare = threads.saturating_sub(1);
        Self { shared: Arc::default(), spare, staying: AtomicUsize::new(0) }
    }

    /// Whether the thread that serves may do itself what waits so; `None` if it is to be handed over.
    pub(super) fn stay(&self, wait: Wait) -> Option<Staying<'_>> {
        let one_more = |staying| (staying < self.spare).then_some(staying + 1);
        match wait {
            Wait::No => Some(Staying(None)),
            Wait::Device => self
                .staying
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_ok()
                .then(|| Staying(Some(&self.staying))),
            Wait::Others => None,
        }
    }

    /// Has something done by a thread that does nothing else. Without any it is done here.
    pub(super) fn take(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        state.queue.push_back(Box::new(work));
        if state.queue.len() <= state.idle {
            drop(state);
            self.shared.ready.notify_one();
            return;
        }
        if state.threads == THREADS_MAX {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let name = "fuse-change".to_owned();
        if Builder::new().name(name).spawn(move || shared.work()).is_err() {
            let mut state = self.shared.lock();
            state.threads -= 1;
            // Any other thread will come to it.
            let work = if state.threads == 0 { state.queue.pop_back() } else { None };
            drop(state);
            if let Some(work) = work {
                work();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                drop(state);
                work();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let nothing = |state: &mut State| state.queue.is_empty();
            let waited = self.ready.wait_timeout_while(state, IDLE_MAX, nothing);
            let (woken, timed) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timed.timed_out() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_thread_is_always_free_to_serve() {
        let hands = Hands::beside(3);
        assert!(hands.stay(Wait::Others).is_none());
        let (first, second) = (hands.stay(Wait::Device), hands.stay(Wait::Device));
        assert!(first.is_some() && second.is_some());
        assert!(hands.stay(Wait::Device).is_none() && hands.stay(Wait::Device).is_none());
        assert!(hands.stay(Wait::No).is_some());
        drop(first);
        assert!(hands.stay(Wait::Device).is_some());
    }

    #[test]
    fn what_comes_on_top_is_done_when_a_thread_is_free() {
        let hands = Hands::beside(1);
        let (done, finished) = channel();
        let (open, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let count = THREADS_MAX + 10;
        for number in 0..count {
            let (gate, done) = (Arc::clone(&gate), done.clone());
            hands.take(move || {
                gate.lock().expect("nobody panics").recv().expect("it is opened");
                done.send(number).expect("somebody listens");
            });
        }
        assert_eq!(hands.shared.lock().threads, THREADS_MAX);
        for _ in 0..count {
            open.send(()).expect("somebody waits");
        }
        let all: std::collections::BTreeSet<usize> = finished.iter().take(count).collect();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn what_waits_holds_up_nothing() {
        let hands = Hands::beside(1);
        let (done, finished) = channel();
        let mut gates = Vec::new();
        // Each waits for those that come after it.
        for number in 0..20 {
            let (open, gate) = channel::<()>();
            gates.push(open);
            let done = done.clone();
            hands.take(move || {
                gate.recv().expect("it is opened");
                done.send(number).expect("somebody listens");
            });
        }
        for (number, gate) in gates.iter().enumerate().rev() {
            gate.send(()).expect("it waits");
            assert_eq!(finished.recv().expect("it is done"), number);
        }
    }
}
