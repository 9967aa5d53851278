//! Reading slots of units that hold what they were written with, and nothing older.
//!
//! Which number a unit must have follows from its place and the head. A unit with any other, be it
//! from a write that was lost or from an older copy of the device, is *stale*: its blocks cannot be
//! read.

use std::sync::Arc;

use tacita_block::{self as block, BlockDevice};
use tacita_secret::Openings;

use crate::error::{Error, Result};
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Place, Seq};
use crate::keys::unit_openings;
use crate::level::{OpenLevel, SlotTable};
use crate::open_log::OpenLog;
use crate::unit::{Block, Header, seal_number};

/// Reads slots of one level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotReader<'a> {
    shared: &'a OpenLog,
    open: &'a OpenLevel,
}

impl<'a> SlotReader<'a> {
    pub(crate) const fn new(shared: &'a OpenLog, open: &'a OpenLevel) -> Self {
        Self { shared, open }
    }

    /// What is needed to read slots of a unit; `None` if its header is damaged or stale, or tells
    /// nothing of this level. `fresh` does not believe what is remembered.
    pub(crate) fn table(self, unit: u32, fresh: bool) -> Result<Option<Arc<SlotTable>>> {
        let Self { shared, open } = self;
        let expected = self.expected(unit);
        if !fresh && let Some(table) = open.cache.get(unit).filter(|t| Some(t.seq) == expected) {
            return Ok(Some(table));
        }
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        self.read(unit, 0, &mut block[..])?;
        let header: Option<Header> = shared.log.open(unit, &block);
        let table = header.and_then(|header| {
            let seq = header.head.seq;
            if Some(seq) != expected && !planted(Fault::StaleUnits) {
                return None;
            }
            let slots = header.slots(shared.geometry(), open.level, &open.master)?;
            Some(Arc::new(SlotTable::new(seq, header.salt, slots)))
        });
        if let Some(table) = &table {
            open.cache.put(unit, Arc::clone(table));
        }
        Ok(table)
    }

    /// The number that a unit must have.
    fn expected(self, unit: u32) -> Option<Seq> {
        self.shared.geometry().seq_at(unit, Seq(self.shared.emitted()))
    }

    /// Reads blocks of a unit, on its way or on the device.
    pub(crate) fn read(self, unit: u32, block: u32, buf: &mut [u8]) -> Result<()> {
        let shared = self.shared;
        if shared.in_flight.read(unit, block, buf) {
            return Ok(());
        }
        Ok(shared.log.device.read(shared.log.block_of(unit, block), buf)?)
    }

    /// What opens slots of units of the level.
    pub(crate) const fn openings(self) -> Openings<'a> {
        unit_openings(&self.open.master)
    }

    /// Opens adjacent slots from `block` on, which hold the blocks from `first` on.
    pub(crate) fn open(
        self,
        openings: &mut Openings<'_>,
        table: &SlotTable,
        block: u32,
        first: u32,
        buf: &mut [u8],
    ) -> bool {
        let start = (block - self.first_slot()) as usize;
        let mut slots = (start..).zip(first..).zip(buf.chunks_exact_mut(BLOCK_LEN));
        let opening = table.opening(openings);
        slots.all(|((slot, id), bytes)| {
            let tag = &table.tags[slot];
            opening.open(seal_number(slot), &id.to_le_bytes(), bytes, tag).is_ok()
        })
    }

    /// Reads a block where it lies, unless somebody writes there meanwhile.
    ///
    /// # Errors
    /// The device's; what is damaged or stale cannot be read.
    pub(crate) fn read_stored(self, id: u32, place: Place, buf: &mut [u8]) -> Result<()> {
        let (unit, block) = self.shared.geometry().split(place);
        let Some(table) = self.table(unit, true)? else { return Err(unreadable(id)) };
        let slot = block - self.first_slot();
        if table.ids[slot as usize] != id {
            return Err(unreadable(id));
        }
        self.read(unit, block, buf)?;
        if self.open(&mut self.openings(), &table, block, id, buf) {
            Ok(())
        } else {
            Err(unreadable(id))
        }
    }

    /// The first slot of the level in a unit.
    fn first_slot(self) -> u32 {
        self.shared.geometry().slots(self.open.level).start
    }
}

pub(crate) fn unreadable(id: u32) -> Error {
    let source = block::Error::new(block::Kind::Io, format!("block {id} cannot be read: damaged"));
    source.into()
}
