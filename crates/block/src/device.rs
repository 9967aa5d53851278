//! The seam: an array of blocks that are read, written, flushed and discarded.

use std::ops::Range;
use std::sync::Arc;

use crate::{Error, Kind, Result};

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

/// A block device.
///
/// Buffers are whole numbers of blocks. A write is durable, and ordered before later writes, only
/// after [`BlockDevice::flush`] returns; until then a power cut may keep any subset of its
/// 512-byte sectors.
pub trait BlockDevice: Send + Sync {
    /// Shape of the device; it never changes.
    fn geometry(&self) -> Geometry;

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

    /// Returns when every write before it is on the medium.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]: then any of the writes since the last flush may be lost.
    fn flush(&self) -> Result<()>;

    /// These blocks will be read soon: a hint, which may be passed over.
    fn will_read(&self, range: BlockRange) {
        let _ = range;
    }

    /// The content of these blocks is needed no more; they may read as anything afterwards.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfRange`]; [`crate::Kind::Io`].
    fn discard(&self, range: BlockRange) -> Result<()>;
}

/// A reference or owner of a device is that device.
macro_rules! forward {
    ($($owner:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $owner {
            fn geometry(&self) -> Geometry {
                (**self).geometry()
            }

            fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
                (**self).read(at, buf)
            }

            fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
                (**self).write(at, buf)
            }

            fn flush(&self) -> Result<()> {
                (**self).flush()
            }

            fn will_read(&self, range: BlockRange) {
                (**self).will_read(range);
            }

            fn discard(&self, range: BlockRange) -> Result<()> {
                (**self).discard(range)
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
