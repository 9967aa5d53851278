//! Where the blocks of a chip are kept.

use std::sync::Arc;

use super::image::Image;
use super::memory::Memory;
use super::shape::{Peb, Shape};
use super::state::State;
use crate::Result;

/// A file or memory; what the chip does with it is the same.
///
/// A block is read only where it has been programmed.
#[derive(Debug, Clone)]
pub(super) enum Medium {
    Memory(Arc<Memory>),
    File(Arc<Image>),
}

impl Medium {
    pub(super) fn read(&self, peb: Peb, offset: u32, buf: &mut [u8]) -> Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.read(peb, offset, buf);
                Ok(())
            }
            Self::File(image) => image.read(peb, offset, buf),
        }
    }

    pub(super) fn write(&self, peb: Peb, offset: u32, data: &[u8]) -> Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.write(peb, offset, data);
                Ok(())
            }
            Self::File(image) => image.write(peb, offset, data),
        }
    }

    pub(super) fn erase(&self, peb: Peb) -> Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.erase(peb);
                Ok(())
            }
            Self::File(image) => image.erase(peb),
        }
    }

    /// # Errors
    /// [`crate::Kind::ReadOnly`] if it was opened for reading.
    pub(super) fn check_writable(&self) -> Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(image) => image.check_writable(),
        }
    }

    /// Keeps the state of a block for the next time.
    pub(super) fn set_state(&self, peb: Peb, state: State) -> Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(image) => image.set_state(peb, state),
        }
    }

    /// Makes durable what has been written.
    pub(super) fn sync(&self) -> Result<()> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(image) => image.sync(),
        }
    }

    /// The same blocks, which nobody else writes.
    pub(super) fn snapshot(&self, shape: Shape, states: &[State]) -> Result<Self> {
        let memory = match self {
            Self::Memory(memory) => memory.snapshot(),
            Self::File(image) => {
                let memory = Memory::new(shape);
                let mut buf = vec![0; shape.block_len_bytes() as usize];
                for (peb, state) in shape.pebs().zip(states) {
                    let content = &mut buf[..state.programmed as usize];
                    image.read(peb, 0, content)?;
                    memory.write(peb, 0, content);
                }
                memory
            }
        };
        Ok(Self::Memory(Arc::new(memory)))
    }
}
