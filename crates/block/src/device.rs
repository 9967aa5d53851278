//! The seam: an array of blocks that are read, written, flushed and discarded.

use crate::Result;

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

    /// The content of these blocks is needed no more; they may read as anything afterwards.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfRange`]; [`crate::Kind::Io`].
    fn discard(&self, range: BlockRange) -> Result<()>;
}
