//! Who is writing which blocks: those who write blocks in part, alone.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Claims under way. They are few (one for each request that is being served), so a list will do.
#[derive(Debug, Default)]
pub(super) struct Writers {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    claims: Vec<Held>,
    last: u64,
    waiting: usize,
}

#[derive(Debug)]
struct Held {
    number: u64,
    blocks: Range<u64>,
    alone: bool,
}

/// The right to write some blocks, until dropped.
#[derive(Debug)]
pub(super) struct Claim<'w> {
    writers: &'w Writers,
    number: u64,
}

impl Writers {
    /// Waits until nobody's claim stands against it. Claims on the same blocks stand against each
    /// other if one of them is `alone`; others the device keeps apart.
    pub(super) fn claim(&self, blocks: Range<u64>, alone: bool) -> Claim<'_> {
        let mut state = self.lock();
        let against = |held: &Held| {
            (alone || held.alone)
                && held.blocks.start < blocks.end
                && blocks.start < held.blocks.end
        };
        while state.claims.iter().any(against) {
            state.waiting += 1;
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.last += 1;
        let number = state.last;
        state.claims.push(Held { number, blocks, alone });
        Claim { writers: self, number }
    }

    // Claims are added and removed in one step each, so a panic elsewhere leaves them whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.writers.lock();
        state.claims.retain(|held| held.number != self.number);
        // Waking costs a system call even if nobody sleeps.
        if state.waiting > 0 {
            self.writers.released.notify_all();
        }
    }
}
