//! Memory for content on its way, used again: fresh memory costs a page fault every 4 KiB.

use std::sync::{Mutex, PoisonError};

use tacita_block::AlignedBuf;

/// Memory in bytes that is kept for the next request.
const IDLE_LEN_MAX_BYTES: usize = 4 << 20;

/// Shortest buffer in bytes.
const BUFFER_LEN_MIN_BYTES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Buffers {
    idle: Mutex<Vec<AlignedBuf>>,
}

/// Memory that a request of `len` bytes takes.
pub(crate) fn allocated(len: usize) -> usize {
    len.next_power_of_two().max(BUFFER_LEN_MIN_BYTES)
}

impl Buffers {
    /// A buffer of `allocated(len)` bytes, with anything in it that this connection has moved.
    pub(crate) fn take(&self, len: usize) -> AlignedBuf {
        let wanted = allocated(len);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The latest is the one that the processor still has at hand.
        match idle.iter().rposition(|buf| buf.len() == wanted) {
            Some(index) => idle.remove(index),
            None => AlignedBuf::new(wanted),
        }
    }

    /// Gives a buffer back.
    pub(crate) fn give_back(&self, buf: AlignedBuf) {
        if buf.len() > IDLE_LEN_MAX_BYTES {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(buf);
        // What has not been asked for is given up first.
        while idle.iter().map(|buf| buf.len()).sum::<usize>() > IDLE_LEN_MAX_BYTES {
            idle.remove(0);
        }
    }
}
