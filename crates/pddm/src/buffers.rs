//! Buffers of runs and tails, used again: the system takes its time to make new ones.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Buffers kept.
const BUFFERS_MAX: usize = 32;

/// Buffers that nobody uses at the moment.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer with anything in it.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut kept = self.lock();
        // A long one is kept for whoever needs that.
        let fits = len..2 * len;
        let fitting = kept.iter().position(|buffer| fits.contains(&buffer.capacity()));
        let mut buffer = fitting.map_or_else(Vec::new, |index| kept.swap_remove(index));
        drop(kept);
        buffer.resize(len, 0);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let mut kept = self.lock();
        if kept.len() < BUFFERS_MAX {
            kept.push(buffer);
        }
    }
}
