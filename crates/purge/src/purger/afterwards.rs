//! What is left to do of a file that has been overwritten ahead of the loss of its name: it is read
//! back and freed. The program that has deleted it need not wait for that, so a thread does it while
//! the next one is overwritten.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{Job, Purger, lock};
use crate::erasure::{Erasure, Paused};
use crate::verdict::Verdict;
use crate::{Error, Result};

/// Files that wait at most: their room is not free yet.
const WAITING_COUNT_MAX: usize = 32;

/// Files that are to be read back and freed.
#[derive(Debug, Default)]
pub(super) struct Afterwards {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Job, File, Paused)>,
    in_hand: usize,
    stop: bool,
}

impl Afterwards {
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = lock(&self.state);
        state.waiting.is_empty() && state.in_hand == 0
    }

    pub(super) fn stop(&self) {
        lock(&self.state).stop = true;
        self.changed.notify_all();
    }
}

impl Purger {
    /// A file has been overwritten: what is left to do is done by the thread, or here if that does
    /// not come after.
    pub(super) fn conclude_later(&self, job: Job, file: File, paused: Paused) {
        let mut state = lock(&self.afterwards.state);
        if state.waiting.len() < WAITING_COUNT_MAX {
            state.waiting.push_back((job, file, paused));
            drop(state);
            self.afterwards.changed.notify_all();
        } else {
            drop(state);
            self.conclude(job, file, paused, &mut None);
        }
    }

    /// Judges a file that has been overwritten, and lets go of it.
    pub(super) fn conclude(&self, job: Job, file: File, paused: Paused, first: &mut Option<Error>) {
        let done =
            self.judge(&job, &file, paused).and_then(|verdict| self.let_go(&job, &file, verdict));
        drop(file);
        if let Err(e) = done {
            self.fail(job, e, first);
        }
    }

    fn judge(&self, job: &Job, file: &File, paused: Paused) -> Result<Verdict> {
        let erasure = Erasure::go_on(&self.lower, file, &job.method, paused);
        let mut verdict = Verdict::new(None, job.inode, job.size, job.method.to_string());
        verdict.content = erasure.judge()?;
        verdict.overwritten = erasure.overwritten;
        verdict.in_memory = erasure.in_memory;
        Ok(verdict)
    }

    /// Works in the background until told to stop.
    pub(crate) fn conclude_all(&self) {
        let mut state = lock(&self.afterwards.state);
        while !state.stop {
            state = match state.waiting.pop_front() {
                Some(next) => self.take_in_hand(state, next),
                None => self.afterwards.wait(state),
            };
        }
    }

    /// Returns when every file that has been overwritten is judged and freed.
    pub(crate) fn settle(&self) {
        let mut state = lock(&self.afterwards.state);
        loop {
            state = match state.waiting.pop_front() {
                Some(next) => self.take_in_hand(state, next),
                None if state.in_hand > 0 => self.afterwards.wait(state),
                None => return,
            };
        }
    }

    fn take_in_hand<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        (job, file, paused): (Job, File, Paused),
    ) -> MutexGuard<'a, State> {
        state.in_hand += 1;
        drop(state);
        // A failure is on record in the verdict, and is tried again.
        self.conclude(job, file, paused, &mut None);
        let mut state = lock(&self.afterwards.state);
        state.in_hand -= 1;
        self.afterwards.changed.notify_all();
        state
    }
}
