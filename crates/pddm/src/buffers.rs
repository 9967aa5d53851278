//! Buffers of units and of what waits, used again: the system takes its time to make new ones.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes kept: 8 MiB.
const KEPT_LEN_MAX: usize = 8 << 20;

/// Buffers that are looked at for one that fits, the last that came back first. Nearly all are of one
/// length.
const LOOKS: usize = 16;

#[derive(Debug, Default)]
struct Kept {
    /// The one that came back first is at the front.
    buffers: VecDeque<Vec<u8>>,
    /// Bytes in them.
    len: usize,
}

/// Buffers that nobody uses at the moment.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Kept>);

impl Buffers {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer with anything in it.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.lock().take(len).unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// Takes a buffer back. Those that have been kept longest make room for it: what comes back now is
    /// of the length that is needed now.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let mut kept = self.lock();
        kept.len += buffer.capacity();
        kept.buffers.push_back(buffer);
        while kept.len > KEPT_LEN_MAX
            && let Some(oldest) = kept.buffers.pop_front()
        {
            kept.len -= oldest.capacity();
        }
    }
}

impl Kept {
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        // A long one is kept for whoever needs that.
        let fits = len..2 * len;
        let mut last = self.buffers.iter().enumerate().rev().take(LOOKS);
        let (index, _) = last.find(|(_, buffer)| fits.contains(&buffer.capacity()))?;
        let buffer = self.buffers.swap_remove_back(index)?;
        self.len -= buffer.capacity();
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_used_again_and_no_more_is_kept() {
        let buffers = Buffers::default();
        let mut first = buffers.take(4096);
        first.fill(7);
        let at = first.as_ptr();
        buffers.give(first);
        let short = buffers.take(2000);
        assert_ne!(short.as_ptr(), at, "it is kept for whoever needs so much");
        let again = buffers.take(4000);
        assert_eq!((again.len(), again.as_ptr()), (4000, at));
        buffers.give(again);
        for _ in 0..3000 {
            buffers.give(vec![0; 4096]);
        }
        let kept = buffers.lock();
        assert!(kept.len <= KEPT_LEN_MAX && kept.buffers.len() == KEPT_LEN_MAX / 4096, "{kept:?}");
    }

    #[test]
    fn what_was_needed_before_makes_room_for_what_is_needed_now() {
        let buffers = Buffers::default();
        for _ in 0..KEPT_LEN_MAX / 4096 {
            buffers.give(vec![0; 4096]);
        }
        buffers.give(vec![7; 1 << 20]);
        let again = buffers.take(1 << 20);
        assert!(again.iter().all(|byte| *byte == 7), "it is another one");
        // Nothing is kept of what is longer than all that is.
        buffers.give(again);
        buffers.give(vec![0; KEPT_LEN_MAX + 1]);
        let kept = buffers.lock();
        assert_eq!((kept.len, kept.buffers.len()), (0, 0));
    }
}
