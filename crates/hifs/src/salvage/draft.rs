//! A device of which what is written stays in memory: what a recovery would make of an image.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tacita_block::{BlockDevice, BlockNo, BlockRange, Geometry, Result};

/// What is read comes from the device, but for what was written.
pub(crate) struct Draft {
    device: Arc<dyn BlockDevice>,
    /// Blocks that were written.
    written: Mutex<HashMap<u64, Box<[u8]>>>,
}

impl Draft {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, written: Mutex::default() }
    }

    fn block_len(&self) -> usize {
        self.device.geometry().block_len_bytes as usize
    }
}

impl BlockDevice for Draft {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn rest(&self) -> Result<Vec<u8>> {
        self.device.rest()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.is_empty() {
            drop(written);
            return self.device.read(at, buf);
        }
        self.device.geometry().byte_range(at, buf.len())?;
        for (number, block) in (at.0..).zip(buf.chunks_mut(self.block_len())) {
            match written.get(&number) {
                Some(content) => block.copy_from_slice(content),
                None => self.device.read(BlockNo(number), block)?,
            }
        }
        Ok(())
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        self.device.geometry().byte_range(at, buf.len())?;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = buf.chunks(self.block_len()).map(Into::into);
        written.extend((at.0..).zip(blocks));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn will_read(&self, range: BlockRange) {
        self.device.will_read(range);
    }

    /// What is not needed any more may stay.
    fn discard(&self, range: BlockRange) -> Result<()> {
        self.device.geometry().byte_range_of(range)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tacita_block::{MemoryDevice, conformance};

    use super::*;

    const GEOMETRY: Geometry = Geometry { block_len_bytes: 512, blocks: 64 };

    #[test]
    fn it_is_a_device_and_leaves_the_one_below_as_it_is() {
        conformance::check(|geometry| Box::new(Draft::new(Arc::new(MemoryDevice::new(geometry)))));
        let below = Arc::new(MemoryDevice::new(GEOMETRY));
        below.write(BlockNo(3), &[7; 1024]).unwrap();
        let before = below.snapshot();
        let draft = Draft::new(below.clone());
        draft.write(BlockNo(4), &[8; 1024]).unwrap();
        let mut found = [0; 2048];
        draft.read(BlockNo(3), &mut found).unwrap();
        let wanted = [[7; 512], [8; 512], [8; 512], [0; 512]].concat();
        assert!(found[..] == wanted[..] && below.snapshot() == before);
    }
}
