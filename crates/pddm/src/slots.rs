//! Reading slots of units that hold what they were written with, and nothing older.
//!
//! Which number a unit must have follows from its place and the head. A unit with any other, be it
//! from a write that was lost or from an older copy of the device, is *stale*: its blocks cannot be
//! read.

use std::sync::Arc;

use tacita_block::{self as block, BlockDevice};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::geometry::{BLOCK_LEN, Place, Seq};
use crate::leak::{Leak, planted};
use crate::level::{OpenLevel, SlotTable};
use crate::unit::{Block, Header, seal_number};

impl Engine {
    /// What is needed to read slots of a unit; `None` if its header is damaged or stale, or tells
    /// nothing of this level. `fresh` does not believe what is remembered.
    pub(crate) fn table(
        &self,
        open: &OpenLevel,
        unit: u32,
        fresh: bool,
    ) -> Result<Option<Arc<SlotTable>>> {
        let expected = self.expected(unit);
        if !fresh && let Some(table) = open.cache.get(unit).filter(|t| Some(t.seq) == expected) {
            return Ok(Some(table));
        }
        let geometry = self.geometry();
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        self.read_slots(unit, 0, &mut block[..])?;
        let header: Option<Header> = self.log.open(unit, &block);
        let table = header.and_then(|header| {
            let seq = header.head.seq;
            if Some(seq) != expected && !planted(Leak::StaleUnits) {
                return None;
            }
            let slots = header.slots(geometry, open.level, &open.master)?;
            Some(Arc::new(SlotTable::new(seq, header.salt, slots)))
        });
        if let Some(table) = &table {
            open.cache.put(unit, Arc::clone(table));
        }
        Ok(table)
    }

    /// The number that a unit must have.
    pub(crate) fn expected(&self, unit: u32) -> Option<Seq> {
        self.geometry().seq_at(unit, Seq(self.emitted()))
    }

    /// Reads blocks of a unit, on its way or on the device.
    pub(crate) fn read_slots(&self, unit: u32, block: u32, buf: &mut [u8]) -> Result<()> {
        if let Ok(writer) = self.writer()
            && writer.read(unit, block, buf)
        {
            return Ok(());
        }
        Ok(self.log.device.read(self.log.block_of(unit, block), buf)?)
    }

    /// Opens adjacent slots from `block` on, which hold the blocks from `first` on.
    pub(crate) fn open_slots(
        &self,
        open: &OpenLevel,
        table: &SlotTable,
        block: u32,
        first: u32,
        buf: &mut [u8],
    ) -> bool {
        let start = (block - self.geometry().slots(open.level).start) as usize;
        let mut slots = (start..).zip(first..).zip(buf.chunks_exact_mut(BLOCK_LEN));
        let opening = table.opening(&open.master);
        slots.all(|((slot, id), bytes)| {
            let tag = &table.tags[slot];
            opening.open(seal_number(slot), &id.to_le_bytes(), bytes, tag).is_ok()
        })
    }

    /// Reads a block where it lies, unless somebody writes there meanwhile.
    ///
    /// # Errors
    /// The device's; what is damaged or stale cannot be read.
    pub(crate) fn read_stored(
        &self,
        open: &OpenLevel,
        id: u32,
        place: Place,
        buf: &mut [u8],
    ) -> Result<()> {
        let (unit, block) = self.geometry().split(place);
        let Some(table) = self.table(open, unit, true)? else { return Err(unreadable(id)) };
        let slot = block - self.geometry().slots(open.level).start;
        if table.ids[slot as usize] != id {
            return Err(unreadable(id));
        }
        self.read_slots(unit, block, buf)?;
        if self.open_slots(open, &table, block, id, buf) { Ok(()) } else { Err(unreadable(id)) }
    }
}

pub(crate) fn unreadable(id: u32) -> Error {
    let source = block::Error::new(block::Kind::Io, format!("block {id} cannot be read: damaged"));
    source.into()
}
