//! The device in the image's own blocks of 4 KiB.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo, BlockRange};

use crate::content::Block;
use crate::error::{Error, Kind, Result};
use crate::geometry::BLOCK_LEN;

/// A block device addressed in blocks of the image.
#[derive(Clone)]
pub(crate) struct Medium {
    device: Arc<dyn BlockDevice>,
    /// Device blocks in a block of the image.
    scale: u64,
}

impl std::fmt::Debug for Medium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Medium").field("geometry", &self.device.geometry()).finish_non_exhaustive()
    }
}

impl Medium {
    /// Takes a device whose blocks are 4 KiB or a fraction of that.
    ///
    /// # Errors
    /// [`Kind::Geometry`] for larger device blocks.
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let block_len = device.geometry().block_len_bytes as usize;
        if block_len > BLOCK_LEN {
            return Err(Error::new(Kind::Geometry, "the device's blocks are larger than 4 KiB"));
        }
        Ok(Self { device, scale: (BLOCK_LEN / block_len) as u64 })
    }

    /// Whole blocks of the device.
    pub(crate) fn blocks(&self) -> u64 {
        self.device.geometry().blocks / self.scale
    }

    /// What lies behind them: less than a block of the image.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub(crate) fn rest(&self) -> Result<Vec<u8>> {
        let (first, mut rest) = self.blocks_behind();
        self.device.read(first, &mut rest)?;
        rest.extend(self.device.rest()?);
        Ok(rest)
    }

    /// Writes zeros there.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub(crate) fn zero_rest(&self) -> Result<()> {
        let (first, zeros) = self.blocks_behind();
        self.device.write(first, &zeros)?;
        Ok(self.device.zero_rest()?)
    }

    /// Blocks of the device behind the last whole one of the image's: where, and zeros for all.
    fn blocks_behind(&self) -> (BlockNo, Vec<u8>) {
        let geometry = self.device.geometry();
        let first = self.blocks() * self.scale;
        let len = (geometry.blocks - first) * u64::from(geometry.block_len_bytes);
        (BlockNo(first), vec![0; usize::try_from(len).expect("less than 4 KiB")])
    }

    /// Reads whole blocks.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub(crate) fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        Ok(self.device.read(BlockNo(at.0 * self.scale), buf)?)
    }

    /// These blocks will be read soon.
    pub(crate) fn will_read(&self, at: BlockNo, count: u64) {
        let (start, count) = (BlockNo(at.0 * self.scale), count * self.scale);
        self.device.will_read(BlockRange { start, count });
    }

    /// Reads one block.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub(crate) fn read_block(&self, at: BlockNo) -> Result<Box<[u8; BLOCK_LEN]>> {
        let mut block = Box::new([0; BLOCK_LEN]);
        self.read(at, &mut block[..])?;
        Ok(block)
    }

    /// Writes whole blocks.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub(crate) fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        Ok(self.device.write(BlockNo(at.0 * self.scale), buf)?)
    }

    /// The same with blocks that lie anywhere, where a flush comes when the rest is written: the medium
    /// can begin with it.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub(crate) fn write_before_flush(&self, at: BlockNo, blocks: &[Block]) -> Result<()> {
        let bufs: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        let (start, count) = (BlockNo(at.0 * self.scale), blocks.len() as u64 * self.scale);
        self.device.write_gathered(start, &bufs)?;
        self.device.will_flush(BlockRange { start, count });
        Ok(())
    }

    /// Writes zeros to `count` blocks.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub(crate) fn zero(&self, at: BlockNo, count: u64) -> Result<()> {
        static ZEROS: [u8; 64 * BLOCK_LEN] = [0; 64 * BLOCK_LEN];
        let mut done = 0;
        while done < count {
            let now = (count - done).min(64);
            self.write(
                BlockNo(at.0 + done),
                &ZEROS[..usize::try_from(now).expect("64 at most") * BLOCK_LEN],
            )?;
            done += now;
        }
        Ok(())
    }

    /// Everything written is on the medium.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}
