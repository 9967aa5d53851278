//! Units at the tail: what is live there is carried to the head.
//!
//! Which unit comes next is known before it is needed, so a run of them is read while the run before
//! is sealed. Units are always read as a whole, whatever is live in them.

use std::collections::VecDeque;
use std::ops::Range;

use tacita_block::BlockDevice;

use crate::engine::Engine;
use crate::error::Result;
use crate::geometry::{BLOCK_LEN, Seq};
use crate::sequencer::Sequencer;
use crate::unit::Header;

/// A unit at the tail.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The number under which it was written.
    pub(crate) seq: Seq,
    pub(crate) unit: u32,
    /// `None` if it cannot be read.
    pub(crate) header: Option<Header>,
    pub(crate) bytes: Vec<u8>,
}

/// Units that have been read before they are needed, in their order.
pub(crate) type Ahead = VecDeque<Tail>;

impl Engine {
    /// The unit at the tail while unit `seq` is made; `None` as long as there is none.
    pub(crate) fn tail(&self, head: &mut Sequencer, seq: Seq) -> Result<Option<Tail>> {
        let Some(left) = self.log.geometry.left_by(seq) else {
            return Ok(None);
        };
        while let Some(tail) = head.ahead.pop_front() {
            if tail.seq == left {
                return Ok(Some(tail));
            }
            self.buffers.give(tail.bytes);
        }
        self.read_tail(left).map(Some)
    }

    /// The units that will be made next and whose tails are to be read, when `planned` have been
    /// planned.
    pub(crate) fn to_read_ahead(&self, head: &Sequencer, planned: usize) -> Range<u64> {
        let start = head.next.0 + (planned + head.ahead.len()) as u64;
        if head.ahead.len() >= self.run_units || self.log.geometry.left_by(Seq(start)).is_none() {
            return start..start;
        }
        start..start + self.run_units as u64
    }

    /// Reads tails. What cannot be read is left to be read when it is needed.
    pub(crate) fn read_ahead(&self, made: Range<u64>) -> Ahead {
        let left = made.map_while(|seq| self.log.geometry.left_by(Seq(seq)));
        left.map_while(|left| self.read_tail(left).ok()).collect()
    }

    fn read_tail(&self, left: Seq) -> Result<Tail> {
        let geometry = &self.log.geometry;
        let unit = geometry.unit_of(left);
        let mut bytes = self.buffers.take(geometry.unit_len());
        if let Err(error) = self.log.device.read(geometry.unit_start(unit), &mut bytes) {
            // A bad sector costs its block; where nothing can be read the device is gone.
            if self.read_by_blocks(unit, &mut bytes) == 0 {
                return Err(error.into());
            }
        }
        let block = bytes[..BLOCK_LEN].try_into().expect("one block");
        let header = self.log.open(unit, block).filter(|header| header.head.seq == left);
        Ok(Tail { seq: left, unit, header, bytes })
    }

    /// Reads what can be read of a unit; the rest is zero, which no seal fits. Returns how many
    /// blocks were read.
    fn read_by_blocks(&self, unit: u32, bytes: &mut [u8]) -> usize {
        let blocks = (0..).zip(bytes.chunks_exact_mut(BLOCK_LEN));
        let read = blocks.filter_map(|(block, bytes)| {
            let read = self.log.device.read(self.log.block_of(unit, block), bytes);
            read.inspect_err(|_| bytes.fill(0)).ok()
        });
        read.count()
    }
}
