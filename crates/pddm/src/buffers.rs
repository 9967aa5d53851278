//! Buffers of units and of what waits, used again: the system takes its time to make new ones.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tacita_block::AlignedBuf;

/// Bytes kept: 8 MiB.
const KEPT_LEN_MAX: usize = 8 << 20;

/// Buffers that are looked at for one that fits, the last that came back first. Nearly all are of one
/// length.
const LOOKS: usize = 16;

#[derive(Debug, Default)]
struct Kept {
    /// The one that came back first is at the front.
    buffers: VecDeque<AlignedBuf>,
    /// Bytes in them.
    len: usize,
}

/// Buffers that nobody uses at the moment.
#[derive(Debug)]
pub(crate) struct Buffers {
    kept: Mutex<Kept>,
    make: fn(usize) -> AlignedBuf,
}

impl Buffers {
    /// Buffers that are made like this.
    pub(crate) fn new(make: fn(usize) -> AlignedBuf) -> Self {
        Self { kept: Mutex::default(), make }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `len` bytes, or up to twice as many, with anything in it.
    pub(crate) fn take(&self, len: usize) -> AlignedBuf {
        let kept = self.lock().take(len);
        kept.unwrap_or_else(|| (self.make)(len))
    }

    /// Takes a buffer back. Those that have been kept longest make room for it: what comes back now is
    /// of the length that is needed now.
    pub(crate) fn give(&self, buffer: AlignedBuf) {
        let mut kept = self.lock();
        kept.len += buffer.len();
        kept.buffers.push_back(buffer);
        while kept.len > KEPT_LEN_MAX
            && let Some(oldest) = kept.buffers.pop_front()
        {
            kept.len -= oldest.len();
        }
    }
}

impl Kept {
    fn take(&mut self, len: usize) -> Option<AlignedBuf> {
        // A long one is kept for whoever needs that.
        let fits = len..2 * len;
        let mut last = self.buffers.iter().enumerate().rev().take(LOOKS);
        let (index, _) = last.find(|(_, buffer)| fits.contains(&buffer.len()))?;
        let buffer = self.buffers.swap_remove_back(index)?;
        self.len -= buffer.len();
        Some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_used_again_and_no_more_is_kept() {
        let buffers = Buffers::new(AlignedBuf::on_line);
        let mut first = buffers.take(4096);
        first.fill(7);
        let at = first.as_ptr();
        buffers.give(first);
        let short = buffers.take(2000);
        assert_ne!(short.as_ptr(), at, "it is kept for whoever needs so much");
        let again = buffers.take(4000);
        assert_eq!((again.len(), again.as_ptr()), (4096, at));
        buffers.give(again);
        for _ in 0..3000 {
            buffers.give(AlignedBuf::on_line(4096));
        }
        let kept = buffers.lock();
        assert!(kept.len <= KEPT_LEN_MAX && kept.buffers.len() == KEPT_LEN_MAX / 4096, "{kept:?}");
    }

    #[test]
    fn what_was_needed_before_makes_room_for_what_is_needed_now() {
        let buffers = Buffers::new(AlignedBuf::on_line);
        for _ in 0..KEPT_LEN_MAX / 4096 {
            buffers.give(AlignedBuf::on_line(4096));
        }
        let mut long = AlignedBuf::on_line(1 << 20);
        long.fill(7);
        buffers.give(long);
        let again = buffers.take(1 << 20);
        assert!(again.iter().all(|byte| *byte == 7), "it is another one");
        // Nothing is kept of what is longer than all that is.
        buffers.give(again);
        buffers.give(AlignedBuf::on_line(KEPT_LEN_MAX + 1));
        let kept = buffers.lock();
        assert_eq!((kept.len, kept.buffers.len()), (0, 0));
    }
}
