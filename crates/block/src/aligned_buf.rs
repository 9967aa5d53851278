//! Memory that a device can be read into without the page cache, or fast with it.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A zeroed buffer that starts on a page boundary, as `O_DIRECT` wants it, or on another.
///
/// Some processors copy fifteen times as slowly to a place whose offset in its page is 1 to 31 bytes
/// more than that of what they copy: from the page cache to the beginning of a long vector, which is 16
/// bytes behind that of a page.
#[derive(Default)]
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Alignment in bytes: the page, and the largest logical sector in use.
    pub const ALIGN_BYTES: usize = 4096;

    /// Alignment in bytes that makes copies fast: a line of the processor's cache.
    pub const LINE_BYTES: usize = 64;

    /// A buffer of `len` bytes, all zero.
    pub fn new(len: usize) -> Self {
        Self::aligned(len, Self::ALIGN_BYTES)
    }

    /// The same for what never goes past the page cache: with less room beside it.
    pub fn on_line(len: usize) -> Self {
        Self::aligned(len, Self::LINE_BYTES)
    }

    fn aligned(len: usize, align: usize) -> Self {
        // A vector that is never resized never moves, so the start stays aligned.
        let bytes = vec![0; len + align];
        let start = bytes.as_ptr().align_offset(align);
        Self { bytes, start, len }
    }

    /// Whether a slice starts where an `AlignedBuf` would.
    pub fn is_aligned(slice: &[u8]) -> bool {
        slice.as_ptr().align_offset(Self::ALIGN_BYTES) == 0
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be anybody's data.
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_page_or_a_line_and_has_its_length() {
        for len in [0, 1, 512, 4096, 70_000, 1 << 20] {
            let (page, line) = (AlignedBuf::new(len), AlignedBuf::on_line(len));
            assert!(AlignedBuf::is_aligned(&page));
            assert_eq!(line.as_ptr().align_offset(AlignedBuf::LINE_BYTES), 0);
            for buf in [page, line] {
                assert_eq!(buf.len(), len);
                assert!(buf.iter().all(|&b| b == 0));
            }
        }
    }
}
