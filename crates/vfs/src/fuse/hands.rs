//! Threads for changes that may wait for something which other requests bring about: they must not
//! occupy the threads that serve those. Each waiting change has one; it is used again, and goes when
//! there has been nothing to do for a while.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

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
#[derive(Default)]
pub(super) struct Hands(Arc<Shared>);

impl Hands {
    /// Has something done by a thread that does nothing else. Without any it is done here.
    pub(super) fn take(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        state.queue.push_back(Box::new(work));
        if state.queue.len() <= state.idle {
            drop(state);
            self.0.ready.notify_one();
            return;
        }
        if state.threads == THREADS_MAX {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.0);
        let name = "fuse-change".to_owned();
        if Builder::new().name(name).spawn(move || shared.work()).is_err() {
            let mut state = self.0.lock();
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
    fn what_comes_on_top_is_done_when_a_thread_is_free() {
        let hands = Hands::default();
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
        assert_eq!(hands.0.lock().threads, THREADS_MAX);
        for _ in 0..count {
            open.send(()).expect("somebody waits");
        }
        let all: std::collections::BTreeSet<usize> = finished.iter().take(count).collect();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn what_waits_holds_up_nothing() {
        let hands = Hands::default();
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
