//! Memory for the content of requests: of all connections to one export together, and of no other
//! export, for nobody is to wait for clients of another.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Memory {
    len_max: usize,
    taken: Mutex<usize>,
    given_back: Condvar,
}

impl Memory {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len_max, taken: Mutex::new(0), given_back: Condvar::new() }
    }

    /// Takes so many bytes; `None` if there are not enough for so long. A single request always has
    /// room.
    pub(crate) fn take(self: &Arc<Self>, len: usize, wait_max: Duration) -> Option<Taken> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let has_none = |taken: &mut usize| *taken > 0 && *taken + len > self.len_max;
        let waited = self.given_back.wait_timeout_while(taken, wait_max, has_none);
        let (mut taken, timed) = waited.unwrap_or_else(PoisonError::into_inner);
        if timed.timed_out() {
            return None;
        }
        *taken += len;
        Some(Taken { memory: Arc::clone(self), len })
    }
}

/// Memory that is given back when dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    memory: Arc<Memory>,
    len: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.memory.taken.lock().unwrap_or_else(PoisonError::into_inner) -= self.len;
        self.memory.given_back.notify_all();
    }
}
