//! A volume as a block device.

use std::sync::Arc;

use tacita_block::{
    self as block, Allocation, BlockDevice, BlockNo, BlockRange, Extent, Geometry as Shape,
};

use crate::engine::{Engine, HIDDEN_WAITING_MAX};
use crate::error::{Error, Kind, Result};
use crate::geometry::{BLOCK_LEN, Level, Place};
use crate::leak::{Leak, planted};
use crate::level::{OpenLevel, SlotTable};
use crate::map::PositionMap;
use crate::sequencer::Goal;
use crate::unit::{Block, Header, seal_number};

const BLOCK_LEN_BYTES: u32 = 4096;
/// Zeros of this length at once need no room: whoever makes a file system writes many.
const ZEROES_LEN_MIN: usize = 64 << 10;

/// Runs of public blocks that wait before their writers are held up.
const RUNS_AHEAD: usize = 4;

/// An open volume, public or hidden.
#[derive(Debug, Clone)]
pub struct Volume {
    engine: Arc<Engine>,
    level: Level,
    /// Whether `flush` waits until everything is on the medium.
    patient: bool,
}

impl Volume {
    pub(crate) const fn new(engine: Arc<Engine>, level: Level, patient: bool) -> Self {
        Self { engine, level, patient }
    }

    /// Which volume it is.
    pub const fn level(&self) -> Level {
        self.level
    }

    fn open(&self) -> &OpenLevel {
        self.engine.level(self.level)
    }

    fn first_id(&self, at: BlockNo, len_bytes: usize) -> block::Result<u32> {
        self.geometry().byte_range(at, len_bytes)?;
        Ok(u32::try_from(at.0).expect("within the volume"))
    }

    fn write_blocks(&self, first: u32, buf: &[u8]) -> Result<()> {
        self.engine.writable()?;
        if buf.len() >= ZEROES_LEN_MIN && buf.iter().all(|byte| *byte == 0) {
            let count = u32::try_from(buf.len() / BLOCK_LEN).expect("within the volume");
            return self.drop_blocks(first..first + count);
        }
        if self.level == Level::PUBLIC {
            self.write_public(first, buf)
        } else {
            self.write_hidden(first, buf)
        }
    }

    /// Blocks wait until they fill a run of units; then they are written.
    fn write_public(&self, first: u32, buf: &[u8]) -> Result<()> {
        let slots = self.engine.geometry().slot_count(Level::PUBLIC);
        let enough = slots * self.engine.run_units;
        let open = self.open();
        let ids = first..;
        for (first, blocks) in ids.step_by(enough).zip(buf.chunks(enough * BLOCK_LEN)) {
            let waiting = {
                let mut stage = open.stage();
                for (id, content) in (first..).zip(blocks.chunks_exact(BLOCK_LEN)) {
                    stage.put(id, Some(Arc::from(content)));
                }
                stage.waiting()
            };
            if planted(Leak::HiddenPressure) && self.engine.hidden_is_full() {
                self.engine.flush_public()?;
            }
            if waiting >= enough * RUNS_AHEAD {
                // Far ahead of whoever writes.
                let mut head = self.engine.head()?;
                self.engine.emit(&mut head, Goal::Full)?;
            }
            self.engine.write_due_runs()?;
        }
        Ok(())
    }

    /// Hidden blocks wait for public ones to come by.
    fn write_hidden(&self, first: u32, buf: &[u8]) -> Result<()> {
        let open = self.open();
        for (id, content) in (first..).zip(buf.chunks_exact(BLOCK_LEN)) {
            let mut stage = open.stage();
            while stage.waiting() >= HIDDEN_WAITING_MAX {
                self.engine.writable()?;
                let wait = std::time::Duration::from_millis(500);
                let waited = open.room.wait_timeout(stage, wait);
                stage = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
            stage.put(id, Some(Arc::from(content)));
        }
        Ok(())
    }

    fn read_blocks(&self, first: u32, buf: &mut [u8]) -> Result<()> {
        let open = self.open();
        let places: Vec<Place> = {
            let stage = open.stage();
            let slots = (first..).zip(buf.chunks_exact_mut(BLOCK_LEN));
            let place = |(id, slot): (u32, &mut [u8])| {
                if let Some(content) = stage.get(id) {
                    slot.copy_from_slice(&content[..]);
                    return Place::NOWHERE;
                }
                let place = open.map.get(id);
                if place == Place::NOWHERE {
                    slot.fill(0);
                }
                place
            };
            slots.map(place).collect()
        };
        let mut index = 0;
        while index < places.len() {
            let place = places[index];
            if place == Place::NOWHERE {
                index += 1;
                continue;
            }
            // Blocks that lie behind one another in a unit are read at once.
            let run = (1..places.len() - index)
                .take_while(|i| {
                    let next = places[index + i];
                    let (unit, _) = self.engine.geometry().split(place);
                    next.is_stored()
                        && u64::from(next.0) == u64::from(place.0) + *i as u64
                        && self.engine.geometry().split(next).0 == unit
                })
                .count()
                + 1;
            let bytes = &mut buf[index * BLOCK_LEN..(index + run) * BLOCK_LEN];
            self.read_run(first + u32::try_from(index).expect("a short read"), place, bytes)?;
            index += run;
        }
        Ok(())
    }

    /// Reads adjacent slots of one unit.
    fn read_run(&self, first: u32, place: Place, buf: &mut [u8]) -> Result<()> {
        if place.is_stored() {
            let (unit, block) = self.engine.geometry().split(place);
            let table = self.table(unit, false);
            if let Ok(Some(table)) = &table
                && self.read_slots(unit, block, buf).is_ok()
                && self.open_slots(table, block, first, buf)
            {
                return Ok(());
            }
        }
        // One by one and with care: something has moved meanwhile, or is damaged.
        for (id, slot) in (first..).zip(buf.chunks_exact_mut(BLOCK_LEN)) {
            self.read_block(id, slot)?;
        }
        Ok(())
    }

    /// Reads one block. If its unit is written again while it is read, it has moved: then it is
    /// read where it is now.
    fn read_block(&self, id: u32, buf: &mut [u8]) -> Result<()> {
        let open = self.open();
        loop {
            if let Some(content) = open.stage().get(id) {
                buf.copy_from_slice(&content[..]);
                return Ok(());
            }
            let place = open.map.get(id);
            if place == Place::NOWHERE {
                buf.fill(0);
                return Ok(());
            }
            if place == Place::LOST {
                return Err(unreadable(id));
            }
            let (unit, block) = self.engine.geometry().split(place);
            open.cache.forget(unit);
            let table = self.table(unit, true)?;
            self.read_slots(unit, block, buf)?;
            if let Some(table) = &table {
                let slot = block - self.engine.geometry().slots(self.level).start;
                if table.ids[slot as usize] != id && open.map.get(id) == place {
                    // It was discarded, and a power cut undid that before the slot was used again.
                    buf.fill(0);
                    return Ok(());
                }
                if self.open_slots(table, block, id, buf) {
                    return Ok(());
                }
            }
            if open.map.get(id) == place {
                return Err(unreadable(id));
            }
        }
    }

    /// What is needed to read slots of a unit; `None` if its header is damaged, or tells nothing of
    /// this level.
    fn table(&self, unit: u32, fresh: bool) -> Result<Option<Arc<SlotTable>>> {
        let open = self.open();
        if !fresh && let Some(table) = open.cache.get(unit) {
            return Ok(Some(table));
        }
        let geometry = self.engine.geometry();
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        self.read_slots(unit, 0, &mut block[..])?;
        let header: Option<Header> = self.engine.log.open(unit, &block);
        let table = header.and_then(|header| {
            let slots = header.slots(geometry, self.level, &open.master)?;
            Some(Arc::new(SlotTable::new(&open.master, &header.salt, slots)))
        });
        if let Some(table) = &table {
            open.cache.put(unit, Arc::clone(table));
        }
        Ok(table)
    }

    /// Reads blocks of a unit, on its way or on the device.
    fn read_slots(&self, unit: u32, block: u32, buf: &mut [u8]) -> Result<()> {
        if let Ok(writer) = self.engine.writer()
            && writer.read(unit, block, buf)
        {
            return Ok(());
        }
        Ok(self.engine.log.device.read(self.engine.log.block_of(unit, block), buf)?)
    }

    fn open_slots(&self, table: &SlotTable, block: u32, first: u32, buf: &mut [u8]) -> bool {
        let start = (block - self.engine.geometry().slots(self.level).start) as usize;
        let mut slots = (start..).zip(first..).zip(buf.chunks_exact_mut(BLOCK_LEN));
        let opening = table.opening();
        slots.all(|((slot, id), bytes)| {
            let tag = &table.tags[slot];
            opening.open(seal_number(slot), &id.to_le_bytes(), bytes, tag).is_ok()
        })
    }

    /// Makes blocks read as zeros. Nothing of it reaches the device but the map, with the next
    /// flush.
    fn drop_blocks(&self, range: std::ops::Range<u32>) -> Result<()> {
        let head = self.engine.head()?;
        let open = self.open();
        let mut stage = open.stage();
        let mut pages = std::collections::BTreeSet::new();
        for id in range.clone() {
            stage.discard(id);
            if open.map.get(id) != Place::NOWHERE {
                open.map.set(id, Place::NOWHERE);
                pages.insert(PositionMap::page_of_block(id));
            }
        }
        for page in pages {
            stage.put(open.map.page_id(page), None);
        }
        drop(stage);
        if planted(Leak::ForwardedDiscard) && self.level != Level::PUBLIC {
            let log = &self.engine.log;
            log.device.discard(BlockRange { start: log.geometry.unit_start(0), count: 1 })?;
        }
        drop(head);
        Ok(())
    }

    fn flush_volume(&self) -> Result<()> {
        self.engine.writable()?;
        if self.level == Level::PUBLIC {
            return self.engine.flush_public();
        }
        if planted(Leak::FlushWrites) {
            return self.engine.beat();
        }
        let ticket = self.open().stage().queued();
        if self.patient { self.engine.wait_durable(self.level, ticket) } else { Ok(()) }
    }
}

impl Engine {
    /// Whether a hidden volume holds up its writers: only planted leaks may ask.
    fn hidden_is_full(&self) -> bool {
        self.levels.iter().skip(1).flatten().any(|open| open.stage().waiting() > 8)
    }
}

fn unreadable(id: u32) -> Error {
    let source = block::Error::new(block::Kind::Io, format!("block {id} cannot be read: damaged"));
    source.into()
}

/// The device's own kind where it is the cause.
fn to_block(error: &Error) -> block::Error {
    let kind = match (error.device(), error.kind()) {
        (Some(source), _) => source.kind(),
        (None, Kind::ReadOnly) => block::Kind::ReadOnly,
        (None, _) => block::Kind::Io,
    };
    block::Error::new(kind, error.to_string())
}

impl BlockDevice for Volume {
    fn geometry(&self) -> Shape {
        let blocks = self.engine.geometry().volume_blocks(self.level).into();
        Shape { block_len_bytes: BLOCK_LEN_BYTES, blocks }
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> block::Result<()> {
        let first = self.first_id(at, buf.len())?;
        self.read_blocks(first, buf).map_err(|e| to_block(&e))
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> block::Result<()> {
        let first = self.first_id(at, buf.len())?;
        self.write_blocks(first, buf).map_err(|e| to_block(&e))
    }

    fn flush(&self) -> block::Result<()> {
        match self.flush_volume() {
            // What is only read has nothing to flush.
            Err(error) if error.kind() == Kind::ReadOnly => Ok(()),
            done => done.map_err(|e| to_block(&e)),
        }
    }

    fn write_zeroes(&self, range: BlockRange) -> block::Result<()> {
        self.discard(range)
    }

    fn extent(&self, range: BlockRange) -> block::Result<Extent> {
        self.geometry().byte_range_of(range)?;
        let open = self.open();
        let stage = open.stage();
        let hole = |id: u64| {
            let id = u32::try_from(id).expect("within the volume");
            open.map.get(id) == Place::NOWHERE && stage.get(id).is_none()
        };
        let (start, end) = (range.start.0, range.start.0 + range.count);
        let first = start < end && hole(start);
        let count = (start..end).take_while(|id| hole(*id) == first).count() as u64;
        let allocation = if first { Allocation::Hole } else { Allocation::Data };
        Ok(Extent { count, allocation })
    }

    /// Discarded blocks read as zeros, and stay so once flushed.
    fn discard(&self, range: BlockRange) -> block::Result<()> {
        self.geometry().byte_range_of(range)?;
        let start = u32::try_from(range.start.0).expect("within the volume");
        let count = u32::try_from(range.count).expect("within the volume");
        self.drop_blocks(start..start + count).map_err(|e| to_block(&e))
    }
}
