//! A block device that is read and written at any byte.
//!
//! Whole blocks go straight to the device. A block that is written in part is read, changed and
//! written back; meanwhile nobody else writes it through the same [`ByteDevice`], or what a
//! neighbour wrote between reading and writing back would be lost. So there must be one
//! `ByteDevice` to a device, shared by all who write.

use std::ops::Range;

use crate::{AlignedBuf, Allocation, BlockDevice, BlockNo, BlockRange, Error, Kind, Result};

mod writers;

use writers::{Claim, Writers};

/// Bytes that hold the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteExtent {
    /// How many.
    pub len_bytes: u64,
    /// What they hold.
    pub allocation: Allocation,
}

/// A block device seen as bytes.
#[derive(Debug)]
pub struct ByteDevice<D> {
    device: D,
    block_len: u64,
    len_bytes: u64,
    writers: Writers,
}

/// A range of bytes by blocks: a part of a block, whole blocks, a part of a block; any may be
/// empty. `head` starts where the range does, `tail` ends where it does.
struct Parts {
    head: Range<u64>,
    whole: BlockRange,
    tail: Range<u64>,
}

impl<D: BlockDevice> ByteDevice<D> {
    /// The bytes of `device`.
    pub fn new(device: D) -> Self {
        let geometry = device.geometry();
        Self {
            block_len: u64::from(geometry.block_len_bytes),
            len_bytes: geometry.len_bytes(),
            device,
            writers: Writers::default(),
        }
    }

    /// The device beneath.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Size in bytes.
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Reads from `offset` on.
    ///
    /// # Errors
    /// As [`BlockDevice::read`].
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let parts = self.parts(offset, buf.len() as u64)?;
        let (head, rest) = buf.split_at_mut(index(parts.head.end - parts.head.start));
        let (whole, tail) = rest.split_at_mut(index(parts.whole.count * self.block_len));
        if !whole.is_empty() {
            self.device.read(parts.whole.start, whole)?;
        }
        for (range, part) in [(parts.head, head), (parts.tail, tail)] {
            if !range.is_empty() {
                let (block, within) = self.read_around(&range)?;
                part.copy_from_slice(&block[within]);
            }
        }
        Ok(())
    }

    /// Writes from `offset` on.
    ///
    /// # Errors
    /// As [`BlockDevice::write`]; what is in range may have been written in part.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let parts = self.parts(offset, data.len() as u64)?;
        let _claim = self.claim(&parts);
        let (head, rest) = data.split_at(index(parts.head.end - parts.head.start));
        let (whole, tail) = rest.split_at(index(parts.whole.count * self.block_len));
        self.write_part(&parts.head, |part| part.copy_from_slice(head))?;
        if !whole.is_empty() {
            self.device.write(parts.whole.start, whole)?;
        }
        self.write_part(&parts.tail, |part| part.copy_from_slice(tail))
    }

    /// These bytes read as zeros afterwards; whole blocks as [`BlockDevice::write_zeroes`] has it.
    ///
    /// # Errors
    /// As [`ByteDevice::write`].
    pub fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let parts = self.parts(offset, len_bytes)?;
        let _claim = self.claim(&parts);
        self.write_part(&parts.head, |part| part.fill(0))?;
        if parts.whole.count > 0 {
            self.device.write_zeroes(parts.whole)?;
        }
        self.write_part(&parts.tail, |part| part.fill(0))
    }

    /// The content of these bytes is needed no more; blocks that they cover in part stay.
    ///
    /// # Errors
    /// As [`BlockDevice::discard`].
    pub fn discard(&self, offset: u64, len_bytes: u64) -> Result<()> {
        let whole = self.parts(offset, len_bytes)?.whole;
        if whole.count == 0 {
            return Ok(());
        }
        let _claim = self.writers.claim(whole.start.0..whole.start.0 + whole.count, false);
        self.device.discard(whole)
    }

    /// Returns when every write before it is on the medium.
    ///
    /// # Errors
    /// As [`BlockDevice::flush`].
    pub fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    /// What the byte at `offset` holds, and how many of the `len_bytes` from there do.
    ///
    /// # Errors
    /// As [`BlockDevice::extent`].
    pub fn extent(&self, offset: u64, len_bytes: u64) -> Result<ByteExtent> {
        let end = self.end(offset, len_bytes)?;
        let first = offset / self.block_len;
        let count = end.div_ceil(self.block_len) - first;
        let extent = self.device.extent(BlockRange { start: BlockNo(first), count })?;
        let until = ((first + extent.count) * self.block_len).clamp(offset, end);
        Ok(ByteExtent { len_bytes: until - offset, allocation: extent.allocation })
    }

    fn end(&self, offset: u64, len_bytes: u64) -> Result<u64> {
        let end = offset.checked_add(len_bytes).filter(|end| *end <= self.len_bytes);
        end.ok_or_else(|| {
            Error::new(
                Kind::OutOfRange,
                format!("{len_bytes} bytes at {offset} reach beyond the end, {}", self.len_bytes),
            )
        })
    }

    fn parts(&self, offset: u64, len_bytes: u64) -> Result<Parts> {
        let end = self.end(offset, len_bytes)?;
        // With a block length that is a power of two, `end` rounded up is at most the size.
        let whole_start = offset.next_multiple_of(self.block_len).min(end);
        let whole_end = (end - end % self.block_len).max(whole_start);
        let count = (whole_end - whole_start) / self.block_len;
        Ok(Parts {
            head: offset..whole_start,
            whole: BlockRange { start: BlockNo(whole_start / self.block_len), count },
            tail: whole_end..end,
        })
    }

    /// Claims all blocks that are about to be written; for itself if some are written in part.
    fn claim(&self, parts: &Parts) -> Claim<'_> {
        let in_part = !parts.head.is_empty() || !parts.tail.is_empty();
        let end = parts.tail.end.div_ceil(self.block_len);
        self.writers.claim(parts.head.start / self.block_len..end, in_part)
    }

    /// Changes a part of one block; its blocks are claimed.
    fn write_part(&self, range: &Range<u64>, change: impl FnOnce(&mut [u8])) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (mut block, within) = self.read_around(range)?;
        change(&mut block[within]);
        self.device.write(BlockNo(range.start / self.block_len), &block)
    }

    /// The block around a part of it, and where in it the part lies.
    fn read_around(&self, range: &Range<u64>) -> Result<(AlignedBuf, Range<usize>)> {
        let start = range.start - range.start % self.block_len;
        let mut block = AlignedBuf::new(index(self.block_len));
        self.device.read(BlockNo(start / self.block_len), &mut block)?;
        Ok((block, index(range.start - start)..index(range.end - start)))
    }
}

fn index(len: u64) -> usize {
    usize::try_from(len).expect("no longer than a buffer in memory, or a block")
}

#[cfg(test)]
mod tests;
