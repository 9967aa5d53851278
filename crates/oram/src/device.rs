//! An oblivious store as a block device: block `n` of the device is block `n` of the store.

use std::sync::Arc;

use bytes::Bytes;
use tacita_block::{BlockDevice, BlockNo, BlockRange, Geometry};

use crate::error::{Error, Kind};
use crate::keys::Id;
use crate::log_view::Outcome;
use crate::record::Operation;
use crate::store::Store;

/// Queries that one request of the device has under way at once.
const AT_ONCE: usize = 64;

/// A block device in a store. What a write has returned of is durable; each block is a query of its
/// own, so requests of so many blocks are seen as so many queries.
#[derive(Debug, Clone)]
pub struct Device {
    store: Arc<Store>,
}

impl Device {
    /// The device in `store`, as large as its capacity.
    pub const fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    fn query(
        &self,
        blocks: impl Iterator<Item = (u64, Operation)>,
        mut done: impl FnMut(usize, Outcome),
    ) -> tacita_block::Result<()> {
        let mut blocks = blocks.map(|(number, operation)| (id_of(number), operation)).peekable();
        let mut first = 0;
        while blocks.peek().is_some() {
            let some: Vec<_> = blocks.by_ref().take(AT_ONCE).collect();
            let outcomes = self.store.all(some).map_err(|e| failed(&e))?;
            let count = outcomes.len();
            for (index, outcome) in outcomes.into_iter().enumerate() {
                if outcome == Outcome::Full {
                    return Err(tacita_block::Error::new(
                        tacita_block::Kind::NoSpace,
                        "the store has as many blocks as it was made for",
                    ));
                }
                done(first + index, outcome);
            }
            first += count;
        }
        Ok(())
    }
}

/// The id of block `number`: nobody but clients ever sees it.
fn id_of(number: u64) -> Id {
    let mut id = Id::default();
    id[..8].copy_from_slice(&number.to_le_bytes());
    id
}

fn failed(error: &Error) -> tacita_block::Error {
    let kind = match error.kind() {
        Kind::NoSpace => tacita_block::Kind::NoSpace,
        Kind::Busy => tacita_block::Kind::Busy,
        _ => tacita_block::Kind::Io,
    };
    tacita_block::Error::new(kind, error.to_string())
}

impl BlockDevice for Device {
    fn geometry(&self) -> Geometry {
        let shapes = self.store.geometry();
        let block_len_bytes = u32::try_from(shapes.block_len()).expect("blocks are short");
        Geometry { block_len_bytes, blocks: shapes.capacity() }
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> tacita_block::Result<()> {
        self.geometry().byte_range(at, buf.len())?;
        let len = self.store.geometry().block_len();
        let numbers = (at.0..).take(buf.len() / len);
        let mut parts: Vec<&mut [u8]> = buf.chunks_mut(len).collect();
        self.query(
            numbers.map(|number| (number, Operation::Read)),
            |index, outcome| match outcome {
                Outcome::Was(Some(block)) => parts[index].copy_from_slice(&block),
                _ => parts[index].fill(0),
            },
        )
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> tacita_block::Result<()> {
        self.geometry().byte_range(at, buf.len())?;
        let blocks = buf.chunks(self.store.geometry().block_len());
        let writes = (at.0..)
            .zip(blocks)
            .map(|(number, block)| (number, Operation::Write(Bytes::copy_from_slice(block))));
        self.query(writes, |_, _| ())
    }

    /// Nothing: a write has returned when it is durable.
    fn flush(&self) -> tacita_block::Result<()> {
        Ok(())
    }

    fn discard(&self, range: BlockRange) -> tacita_block::Result<()> {
        self.write_zeroes(range)
    }

    fn write_zeroes(&self, range: BlockRange) -> tacita_block::Result<()> {
        self.geometry().byte_range_of(range)?;
        let numbers = range.start.0..range.start.0 + range.count;
        self.query(numbers.map(|number| (number, Operation::Free)), |_, _| ())
    }
}
