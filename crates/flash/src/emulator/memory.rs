//! The blocks of a chip in memory.

use std::sync::{Arc, PoisonError, RwLock};

use super::shape::{Peb, Shape};

/// What each block holds, up to where it has been programmed; copies share what neither has changed.
#[derive(Debug)]
pub(super) struct Memory {
    blocks: Vec<RwLock<Arc<Vec<u8>>>>,
}

impl Memory {
    pub(super) fn new(shape: Shape) -> Self {
        let empty = Arc::new(Vec::new());
        Self { blocks: shape.pebs().map(|_| RwLock::new(empty.clone())).collect() }
    }

    pub(super) fn snapshot(&self) -> Self {
        let blocks = self.blocks.iter();
        let share = |block: &RwLock<Arc<Vec<u8>>>| {
            RwLock::new(block.read().unwrap_or_else(PoisonError::into_inner).clone())
        };
        Self { blocks: blocks.map(share).collect() }
    }

    pub(super) fn read(&self, peb: Peb, offset: u32, buf: &mut [u8]) {
        let block = self.block(peb).read().unwrap_or_else(PoisonError::into_inner);
        let content = block.get(offset as usize..).unwrap_or_default();
        let (there, behind) = buf.split_at_mut(content.len().min(buf.len()));
        there.copy_from_slice(&content[..there.len()]);
        // Whoever looks at a chip that others write may be late.
        behind.fill(0xff);
    }

    pub(super) fn write(&self, peb: Peb, offset: u32, data: &[u8]) {
        let mut block = self.block(peb).write().unwrap_or_else(PoisonError::into_inner);
        let block = Arc::make_mut(&mut block);
        let start = offset as usize;
        if block.len() < start {
            block.resize(start, 0xff);
        }
        let (over, behind) = data.split_at(data.len().min(block.len() - start));
        block[start..start + over.len()].copy_from_slice(over);
        block.extend_from_slice(behind);
    }

    pub(super) fn erase(&self, peb: Peb) {
        *self.block(peb).write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }

    fn block(&self, peb: Peb) -> &RwLock<Arc<Vec<u8>>> {
        &self.blocks[peb.0 as usize]
    }
}
