//! The seam: an array of blocks that are read, written, flushed and discarded.

use std::ops::Range;
use std::sync::Arc;

use crate::{AlignedBuf, Error, Kind, Result};

/// Zeros written at once in bytes; more gain nothing.
const ZEROES_LEN_BYTES: u64 = 1 << 20;

/// Smallest block length in bytes: the sector of every disk.
const BLOCK_LEN_MIN_BYTES: u32 = 512;

/// Number of a block, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockNo(pub u64);

/// Blocks `start..start + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// First block.
    pub start: BlockNo,
    /// How many.
    pub count: u64,
}

/// Shape of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Size of a block in bytes: a power of two, 512 at least.
    pub block_len_bytes: u32,
    /// Number of blocks.
    pub blocks: u64,
}

impl Geometry {
    /// As many whole blocks of `block_len_bytes` as fit into `len_bytes`; the rest is left out.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`] if the block length is not a power of two, or below 512.
    pub fn within(len_bytes: u64, block_len_bytes: u32) -> Result<Self> {
        if !block_len_bytes.is_power_of_two() || block_len_bytes < BLOCK_LEN_MIN_BYTES {
            return Err(Error::new(
                Kind::OutOfRange,
                format!("block length {block_len_bytes} is not a power of two from 512 on"),
            ));
        }
        Ok(Self { block_len_bytes, blocks: len_bytes / u64::from(block_len_bytes) })
    }

    /// Where a buffer of `len_bytes` read or written at `at` lies, in bytes from the device start.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`] if it is not whole blocks, or reaches beyond the end.
    pub fn byte_range(&self, at: BlockNo, len_bytes: usize) -> Result<Range<u64>> {
        let len = len_bytes as u64;
        if !len.is_multiple_of(u64::from(self.block_len_bytes)) {
            return Err(Error::new(
                Kind::OutOfRange,
                format!(
                    "{len} bytes at block {} are not whole blocks of {} bytes",
                    at.0, self.block_len_bytes
                ),
            ));
        }
        let count = len / u64::from(self.block_len_bytes);
        self.byte_range_of(BlockRange { start: at, count })
    }

    /// Where these blocks lie, in bytes from the device start.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`] if they reach beyond the end.
    pub fn byte_range_of(&self, range: BlockRange) -> Result<Range<u64>> {
        let block = u64::from(self.block_len_bytes);
        match range.start.0.checked_add(range.count) {
            Some(end) if end <= self.blocks => Ok(range.start.0 * block..end * block),
            _ => Err(Error::new(
                Kind::OutOfRange,
                format!(
                    "{} blocks at block {} reach beyond the end, block {}",
                    range.count, range.start.0, self.blocks
                ),
            )),
        }
    }

    /// Size of the device in bytes.
    pub const fn len_bytes(&self) -> u64 {
        self.blocks * self.block_len_bytes as u64
    }
}

/// What blocks hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// Anything.
    Data,
    /// Nothing: they take no room, and read as zeros.
    Hole,
}

/// Blocks that hold the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// How many.
    pub count: u64,
    /// What they hold.
    pub allocation: Allocation,
}

/// A block device.
///
/// Buffers are whole numbers of blocks. A write is durable, and ordered before later writes, only
/// after [`BlockDevice::flush`] returns; until then a power cut may keep any subset of its
/// 512-byte sectors.
pub trait BlockDevice: Send + Sync {
    /// Shape of the device; it never changes.
    fn geometry(&self) -> Geometry;

    /// What lies behind the last block: less than one. Devices that are made of blocks have nothing
    /// there.
    ///
    /// # Errors
    /// [`Kind::Io`].
    fn rest(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Writes zeros to what lies behind the last block.
    ///
    /// # Errors
    /// [`Kind::Io`], [`Kind::ReadOnly`].
    fn zero_rest(&self) -> Result<()> {
        Ok(())
    }

    /// Reads whole blocks from `at` on.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfRange`] beyond the end; [`crate::Kind::Io`].
    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()>;

    /// Writes whole blocks from `at` on.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfRange`] beyond the end (nothing is written); [`crate::Kind::Io`],
    /// [`crate::Kind::NoSpace`], [`crate::Kind::ReadOnly`].
    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()>;

    /// The same with content that lies in several buffers, of whole blocks each.
    ///
    /// # Errors
    /// As [`BlockDevice::write`].
    fn write_gathered(&self, at: BlockNo, bufs: &[&[u8]]) -> Result<()> {
        self.write(at, &bufs.concat())
    }

    /// Returns when every write before it is on the medium.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]: then any of the writes since the last flush may be lost.
    fn flush(&self) -> Result<()>;

    /// These blocks will be read soon: a hint, which may be passed over.
    fn will_read(&self, range: BlockRange) {
        let _ = range;
    }

    /// Nobody will read soon, and which blocks were read or written is to be seen from no cache: a hint. What
    /// is not flushed stays.
    fn forget_cached(&self) {}

    /// These blocks have been written and will be flushed soon: a hint to begin with it.
    fn will_flush(&self, range: BlockRange) {
        let _ = range;
    }

    /// The content of these blocks is needed no more; they may read as anything afterwards.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfRange`]; [`crate::Kind::Io`].
    fn discard(&self, range: BlockRange) -> Result<()>;

    /// These blocks read as zeros afterwards. Whether they still take room is up to the device: one
    /// that can give blocks up so that they read as zeros does it here.
    ///
    /// # Errors
    /// As [`BlockDevice::write`]; some of the blocks may be zero by then.
    fn write_zeroes(&self, range: BlockRange) -> Result<()> {
        fill_with_zeroes(self, range)
    }

    /// What the first of these blocks holds, and how many of them do; none if there are none.
    ///
    /// The answer may be short, and may say data of a hole, but not the other way round.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfRange`]; [`crate::Kind::Io`].
    fn extent(&self, range: BlockRange) -> Result<Extent> {
        self.geometry().byte_range_of(range)?;
        Ok(Extent { count: range.count, allocation: Allocation::Data })
    }
}

/// Writes zeros block by block: what [`BlockDevice::write_zeroes`] does where there is no better
/// way.
pub(crate) fn fill_with_zeroes<D: BlockDevice + ?Sized>(
    device: &D,
    range: BlockRange,
) -> Result<()> {
    let geometry = device.geometry();
    geometry.byte_range_of(range)?;
    let block = u64::from(geometry.block_len_bytes);
    let at_once = range.count.min((ZEROES_LEN_BYTES / block).max(1));
    let len = |count: u64| usize::try_from(count * block).expect("fits into memory");
    let zeroes = AlignedBuf::new(len(at_once));
    let mut done = 0;
    while done < range.count {
        let count = at_once.min(range.count - done);
        device.write(BlockNo(range.start.0 + done), &zeroes[..len(count)])?;
        done += count;
    }
    Ok(())
}

/// The extent of a device that is alike from the start of `bytes` to byte `end`. A
/// hole that ends within a block is none there.
pub(crate) fn extent_within(
    bytes: &Range<u64>,
    end: u64,
    allocation: Allocation,
    block_len_bytes: u32,
) -> Extent {
    let block = u64::from(block_len_bytes);
    let len = end.min(bytes.end).saturating_sub(bytes.start);
    match allocation {
        Allocation::Data => Extent { count: len.div_ceil(block), allocation },
        Allocation::Hole if len >= block || bytes.is_empty() => {
            Extent { count: len / block, allocation }
        }
        Allocation::Hole => Extent { count: 1, allocation: Allocation::Data },
    }
}

/// A reference or owner of a device is that device.
macro_rules! forward {
    ($($owner:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $owner {
            fn geometry(&self) -> Geometry {
                (**self).geometry()
            }

            fn rest(&self) -> Result<Vec<u8>> {
                (**self).rest()
            }

            fn zero_rest(&self) -> Result<()> {
                (**self).zero_rest()
            }

            fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
                (**self).read(at, buf)
            }

            fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
                (**self).write(at, buf)
            }

            fn write_gathered(&self, at: BlockNo, bufs: &[&[u8]]) -> Result<()> {
                (**self).write_gathered(at, bufs)
            }

            fn flush(&self) -> Result<()> {
                (**self).flush()
            }

            fn will_read(&self, range: BlockRange) {
                (**self).will_read(range);
            }

            fn forget_cached(&self) {
                (**self).forget_cached();
            }

            fn will_flush(&self, range: BlockRange) {
                (**self).will_flush(range);
            }

            fn discard(&self, range: BlockRange) -> Result<()> {
                (**self).discard(range)
            }

            fn write_zeroes(&self, range: BlockRange) -> Result<()> {
                (**self).write_zeroes(range)
            }

            fn extent(&self, range: BlockRange) -> Result<Extent> {
                (**self).extent(range)
            }
        }
    )*};
}

forward!(&D, Box<D>, Arc<D>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_left_out() {
        let geometry = Geometry::within(10_000, 4096).unwrap();
        assert_eq!(geometry.blocks, 2);
        assert_eq!(geometry.len_bytes(), 8192);
    }

    #[test]
    fn odd_block_lengths_are_refused() {
        for block_len_bytes in [0, 1, 256, 513, 4095] {
            let error = Geometry::within(1 << 20, block_len_bytes).unwrap_err();
            assert_eq!(error.kind(), Kind::OutOfRange);
        }
    }

    #[test]
    fn ranges_do_not_wrap_around() {
        let geometry = Geometry::within(1 << 20, 512).unwrap();
        assert!(geometry.byte_range(BlockNo(u64::MAX), 512).is_err());
        assert_eq!(geometry.byte_range(BlockNo(2), 1024).unwrap(), 1024..2048);
    }
}
