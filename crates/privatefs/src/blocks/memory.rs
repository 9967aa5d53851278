//! Blocks in memory, for tests: ways to them can be cut at a query, or held up.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tacita_oram::log_view::Outcome;
use tacita_oram::record::{Operation, digest_of};

use super::{Blocks, Room};
use crate::error::{Error, Kind, Result};
use crate::ids::Id;

/// What a way says that it has under way at once: as a mount has by default.
const AT_ONCE: usize = 16;

/// A store in memory.
#[derive(Debug)]
pub struct Memory {
    blocks: Mutex<HashMap<Id, Bytes>>,
    capacity: u64,
}

impl Memory {
    /// With room for so many blocks.
    pub fn new(capacity: u64) -> Arc<Self> {
        Arc::new(Self { blocks: Mutex::default(), capacity })
    }

    /// With room for so many blocks, of which these are there.
    pub fn of(capacity: u64, blocks: impl IntoIterator<Item = (Id, Vec<u8>)>) -> Arc<Self> {
        let blocks = blocks.into_iter().map(|(id, block)| (id, Bytes::from(block))).collect();
        Arc::new(Self { blocks: Mutex::new(blocks), capacity })
    }

    /// A way to it, which asks in an order that follows from `seed` where none is given.
    pub fn way(self: &Arc<Self>, seed: u64) -> Arc<Way> {
        let state = State { seed, ..State::default() };
        Arc::new(Way { store: Arc::clone(self), state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Blocks that are there.
    pub fn count(&self) -> usize {
        lock(&self.blocks).len()
    }

    /// All blocks, each its id and its content, in the order of ids.
    pub fn dump(&self) -> Vec<u8> {
        let blocks = lock(&self.blocks);
        let mut all: Vec<_> = blocks.iter().collect();
        all.sort_unstable();
        all.into_iter().flat_map(|(id, block)| id.iter().chain(block).copied()).collect()
    }

    fn run(&self, id: Id, operation: Operation) -> Outcome {
        let mut blocks = lock(&self.blocks);
        let was = blocks.get(&id).cloned();
        let is_full = was.is_none() && blocks.len() as u64 >= self.capacity;
        match operation {
            Operation::Read | Operation::Dummy => Outcome::Was(was),
            Operation::Write(_) if is_full => Outcome::Full,
            Operation::Write(new) => {
                blocks.insert(id, new);
                Outcome::Was(was)
            }
            Operation::Free => {
                blocks.remove(&id);
                Outcome::Was(was)
            }
            Operation::CompareAndWrite { expected, new } => {
                let written = was.as_ref().map(|block| digest_of(block)) == expected;
                if written && is_full {
                    return Outcome::Full;
                }
                if written {
                    blocks.insert(id, new);
                }
                Outcome::Compared { written, was }
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    seed: u64,
    asked: u64,
    /// Queries after which nothing is asked any more.
    cut_at: Option<u64>,
    hold_at: Option<u64>,
    is_held: bool,
    waiting: usize,
}

/// A way to a store in memory: that of one mount.
#[derive(Debug)]
pub struct Way {
    store: Arc<Memory>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Way {
    /// Queries so far.
    pub fn asked(&self) -> u64 {
        lock(&self.state).asked
    }

    /// After so many queries from the first on, nothing is asked any more.
    pub fn cut_at(&self, queries: u64) {
        lock(&self.state).cut_at = Some(queries);
    }

    /// The way is as it was before it was cut.
    pub fn mend(&self) {
        lock(&self.state).cut_at = None;
    }

    /// Holds up whoever asks after so many queries from the first on.
    pub fn hold_at(&self, queries: u64) {
        lock(&self.state).hold_at = Some(queries);
    }

    /// Lets those who are held up go on.
    pub fn let_go(&self) {
        let mut state = lock(&self.state);
        state.hold_at = None;
        state.is_held = false;
        self.changed.notify_all();
    }

    /// Whether somebody is held up.
    pub fn has_held(&self) -> bool {
        lock(&self.state).waiting > 0
    }
}

impl Blocks for Way {
    fn all(&self, operations: Vec<(Id, Operation)>) -> Result<Vec<Outcome>> {
        let count = operations.len();
        let mut outcomes = vec![Outcome::Void; count];
        let mut left: Vec<_> = operations.into_iter().enumerate().collect();
        while !left.is_empty() {
            let mut state = lock(&self.state);
            state.is_held |= state.hold_at.is_some_and(|at| state.asked >= at);
            if state.is_held {
                state.waiting += 1;
                state = self
                    .changed
                    .wait_while(state, |state| state.is_held)
                    .unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
            }
            if state.cut_at.is_some_and(|cut| state.asked >= cut) {
                return Err(Error::new(Kind::TimedOut, "the way to the store is cut"));
            }
            state.asked += 1;
            state.seed = state.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let at = usize::try_from((state.seed >> 33) % left.len() as u64).unwrap_or(0);
            drop(state);
            let (number, (id, operation)) = left.swap_remove(at);
            outcomes[number] = self.store.run(id, operation);
        }
        Ok(outcomes)
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn room(&self) -> Result<Room> {
        let present = self.store.count() as u64;
        Ok(Room { capacity: self.store.capacity, present })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
