//! A volume as a block device.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use tacita_block::{
    self as block, Allocation, BlockDevice, BlockNo, BlockRange, Extent, Geometry as Shape, is_zero,
};
use tacita_secret::Openings;

use crate::engine::Engine;
use crate::error::{Kind, Result};
use crate::faults::{Fault, looks_at, planted};
use crate::geometry::{BLOCK_LEN, Level, Place};
use crate::level::OpenLevel;
use crate::open_log::OpenLog;
use crate::sequencer::EmitUntil;
use crate::slots::{SlotReader, unreadable};
use crate::stage::{Content, Stage, Staged};

const BLOCK_LEN_BYTES: u32 = 4096;
/// Zeros of this length at once need no room: whoever makes a file system writes many.
const ZEROES_LEN_MIN: usize = 64 << 10;

/// Blocks that are read, looked at, or dropped while they wait, at once. Between them whoever needs the stage gets it,
/// most of all the head: nobody waits for it to copy, to read, to free, or to look at much.
const AT_ONCE: u32 = 256;

/// Blocks that a look at extents begins with: most are short.
const LOOK_MIN: u32 = 16;

/// Runs of public blocks that wait before their writers are held up.
const RUNS_AHEAD: usize = 4;

/// What a flush of a hidden volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenFlush {
    /// A barrier: it returns at once, and after a crash the volume holds all that was written before
    /// some flush, and possibly some of what was written before the next.
    Ordered,
    /// It returns when everything is on the medium, which waits for public writes.
    Durable,
}

/// An open volume, public or hidden.
#[derive(Debug, Clone)]
pub struct Volume {
    engine: Arc<Engine>,
    level: Level,
    hidden_flush: HiddenFlush,
}

impl Volume {
    pub(crate) const fn new(engine: Arc<Engine>, level: Level, hidden_flush: HiddenFlush) -> Self {
        Self { engine, level, hidden_flush }
    }

    /// Which volume it is.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// What waits to be written, in blocks.
    pub fn waiting_blocks(&self) -> usize {
        self.open().stage().waiting()
    }

    /// How much may wait before writers do, in blocks.
    pub fn queue_blocks(&self) -> usize {
        self.shared().queue_max()
    }

    /// How many more blocks may wait before writers do: fewer than the difference where flushes lie between
    /// what is written and then discarded.
    pub fn room_blocks(&self) -> usize {
        self.shared().room(self.level, &self.open().stage())
    }

    /// Blocks that cannot be read until they are written again.
    pub fn lost_blocks(&self) -> u32 {
        self.open().map.lost()
    }

    fn shared(&self) -> &OpenLog {
        &self.engine.shared
    }

    fn open(&self) -> &OpenLevel {
        self.shared().level(self.level)
    }

    /// Hidden volumes are closed before the session ends.
    fn served(&self) -> Result<()> {
        if self.level == Level::PUBLIC { Ok(()) } else { self.shared().hidden_is_open() }
    }

    fn first_id(&self, at: BlockNo, len_bytes: usize) -> block::Result<u32> {
        self.geometry().byte_range(at, len_bytes)?;
        Ok(u32::try_from(at.0).expect("within the volume"))
    }

    fn write_blocks(&self, first: u32, buf: &[u8]) -> Result<()> {
        self.served()?;
        self.engine.writable()?;
        if self.level == Level::PUBLIC || planted(Fault::HiddenBeats) {
            self.shared().note_public_change();
        }
        if buf.len() >= ZEROES_LEN_MIN && is_zero(buf) {
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
        let slots = self.shared().geometry().slot_count(Level::PUBLIC);
        let enough = slots * self.shared().run_units;
        let open = self.open();
        let ids = first..;
        for (first, blocks) in ids.step_by(enough).zip(buf.chunks(enough * BLOCK_LEN)) {
            let contents = Content::of_blocks(blocks, &self.shared().waiting);
            let waiting = {
                let mut stage = open.stage();
                (first..).zip(contents).for_each(|(id, content)| stage.put(id, content));
                stage.waiting()
            };
            if planted(Fault::HiddenPressure) && self.shared().hidden_is_full() {
                self.engine.flush_public()?;
            }
            if waiting >= enough * RUNS_AHEAD {
                // Far ahead of whoever writes.
                let mut head = self.engine.head()?;
                head.emit(EmitUntil::Full)?;
            }
            self.engine.write_due_runs()?;
        }
        Ok(())
    }

    /// Hidden blocks wait for public ones to come by. What fills the queue ends an epoch.
    fn write_hidden(&self, first: u32, buf: &[u8]) -> Result<()> {
        let open = self.open();
        for (id, content) in (first..).zip(buf.chunks_exact(BLOCK_LEN)) {
            // Each by itself: what is written again while it waits gives its memory back at once.
            for content in Content::of_blocks(content, &self.shared().waiting) {
                self.shared().await_room(open)?.put(id, content);
            }
        }
        Ok(())
    }

    fn read_blocks(&self, first: u32, buf: &mut [u8]) -> Result<()> {
        self.served()?;
        let open = self.open();
        let at_head = planted(Fault::ReadAtHead) && self.level != Level::PUBLIC;
        let _head = if at_head { Some(self.engine.head()?) } else { None };
        let mut openings = SlotReader::new(self.shared(), open).openings();
        let mut kept = None;
        let pieces = buf.chunks_mut(AT_ONCE as usize * BLOCK_LEN);
        for (first, piece) in (first..).step_by(AT_ONCE as usize).zip(pieces) {
            self.read_piece(&mut openings, first, piece, &mut kept)?;
        }
        Ok(())
    }

    /// Reads blocks that are looked at at once.
    fn read_piece<'v>(
        &'v self,
        openings: &mut Openings<'_>,
        first: u32,
        buf: &mut [u8],
        kept: &mut Option<MutexGuard<'v, Stage>>,
    ) -> Result<()> {
        let count = u32::try_from(buf.len() / BLOCK_LEN).expect("a piece");
        let mut held = self.held(first..first + count, kept).into_iter().peekable();
        let place = |(id, slot): (u32, &mut [u8])| {
            if let Some((_, content)) = held.next_if(|(staged, _)| *staged == id) {
                match content {
                    Some(content) => slot.copy_from_slice(&content),
                    None => slot.fill(0),
                }
                return Place::NOWHERE;
            }
            let place = self.open().map.get(id);
            if place == Place::NOWHERE {
                slot.fill(0);
            }
            place
        };
        let places: Vec<Place> =
            (first..).zip(buf.chunks_exact_mut(BLOCK_LEN)).map(place).collect();
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
                    let (unit, _) = self.shared().geometry().split(place);
                    next.is_stored()
                        && u64::from(next.0) == u64::from(place.0) + *i as u64
                        && self.shared().geometry().split(next).0 == unit
                })
                .count()
                + 1;
            let bytes = &mut buf[index * BLOCK_LEN..(index + run) * BLOCK_LEN];
            let id = first + u32::try_from(index).expect("a short read");
            self.read_run(openings, id, place, bytes)?;
            index += run;
        }
        Ok(())
    }

    /// What is staged of these blocks; the rest is where the map says, which is looked at after.
    fn held<'v>(
        &'v self,
        ids: Range<u32>,
        kept: &mut Option<MutexGuard<'v, Stage>>,
    ) -> Vec<(u32, Option<Content>)> {
        looks_at(ids.start);
        let stage = kept.take().unwrap_or_else(|| self.open().stage());
        let held = stage.held(ids);
        if planted(Fault::ReadHoldsLock) {
            *kept = Some(stage);
        }
        held
    }

    /// Reads adjacent slots of one unit.
    fn read_run(
        &self,
        openings: &mut Openings<'_>,
        first: u32,
        place: Place,
        buf: &mut [u8],
    ) -> Result<()> {
        if place.is_stored() {
            let (unit, block) = self.shared().geometry().split(place);
            let slots = SlotReader::new(self.shared(), self.open());
            if let Ok(Some(table)) = slots.table(unit, false)
                && slots.read(unit, block, buf).is_ok()
                && slots.open(openings, &table, block, first, buf)
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
            match open.stage().get(id) {
                Some(Staged::Content(content)) => {
                    buf.copy_from_slice(&content[..]);
                    return Ok(());
                }
                Some(Staged::Zeros) => {
                    buf.fill(0);
                    return Ok(());
                }
                None => {}
            }
            let place = open.map.get(id);
            if place == Place::NOWHERE {
                buf.fill(0);
                return Ok(());
            }
            if place == Place::LOST {
                return Err(unreadable(id));
            }
            open.cache.forget(self.shared().geometry().split(place).0);
            let read = SlotReader::new(self.shared(), open).read_stored(id, place, buf);
            if open.map.get(id) == place {
                return read;
            }
        }
    }

    /// Makes blocks read as zeros. Nothing of it reaches the device but the map, in its turn.
    fn drop_blocks(&self, mut range: Range<u32>) -> Result<()> {
        self.served()?;
        self.engine.writable()?;
        let open = self.open();
        if planted(Fault::DiscardAtHead) && self.level != Level::PUBLIC {
            drop(self.engine.head()?);
        }
        // First what is staged: it moves into the map, and not the other way. Whoever has the head
        // needs the stage, too, so it is not kept while all of the range is looked at.
        let stage = open.stage();
        let staged = stage.holds_any(&range);
        let held = planted(Fault::DiscardHoldsLock).then_some(stage);
        let is_nowhere = |id| {
            looks_at(id);
            open.map.get(id) == Place::NOWHERE
        };
        if !staged && range.clone().all(is_nowhere) {
            return Ok(());
        }
        drop(held);
        if self.level == Level::PUBLIC {
            self.shared().note_public_change();
            drop(open.stage().drop_first(&mut range, usize::MAX));
        }
        while !range.is_empty() {
            let mut stage = self.shared().await_room(open)?;
            let gone = stage.drop_first(&mut range, AT_ONCE as usize);
            let held = planted(Fault::DiscardHoldsLock).then_some(stage);
            looks_at(range.start);
            drop((held, gone));
        }
        if planted(Fault::ForwardedDiscard) && self.level != Level::PUBLIC {
            let log = &self.shared().log;
            log.device.discard(BlockRange { start: log.geometry.unit_start(0), count: 1 })?;
        }
        Ok(())
    }

    fn flush_volume(&self) -> Result<()> {
        self.served()?;
        self.engine.writable()?;
        if self.level == Level::PUBLIC {
            return self.engine.flush_public();
        }
        if planted(Fault::FlushWrites) {
            return self.engine.beat();
        }
        if planted(Fault::OpenEpochs) {
            return Ok(());
        }
        let epoch = self.open().stage().close_epoch();
        match self.hidden_flush {
            HiddenFlush::Ordered => Ok(()),
            HiddenFlush::Durable => self.shared().wait_durable(self.level, epoch),
        }
    }
}

impl BlockDevice for Volume {
    fn geometry(&self) -> Shape {
        let blocks = self.shared().geometry().volume_blocks(self.level).into();
        Shape { block_len_bytes: BLOCK_LEN_BYTES, blocks }
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> block::Result<()> {
        let first = self.first_id(at, buf.len())?;
        self.read_blocks(first, buf).map_err(|e| (&e).into())
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> block::Result<()> {
        let first = self.first_id(at, buf.len())?;
        self.write_blocks(first, buf).map_err(|e| (&e).into())
    }

    fn flush(&self) -> block::Result<()> {
        match self.flush_volume() {
            // What is only read has nothing to flush.
            Err(error) if error.kind() == Kind::ReadOnly => Ok(()),
            done => done.map_err(|e| (&e).into()),
        }
    }

    fn write_zeroes(&self, range: BlockRange) -> block::Result<()> {
        self.discard(range)
    }

    fn extent(&self, range: BlockRange) -> block::Result<Extent> {
        self.geometry().byte_range_of(range)?;
        let id = |block: u64| u32::try_from(block).expect("within the volume");
        let (start, end) = (id(range.start.0), id(range.start.0 + range.count));
        let (mut at, mut count_max, mut wanted, mut kept) = (start, LOOK_MIN, None, None);
        while at < end {
            let ids = at..end.min(at + count_max);
            let mut held = self.held(ids.clone(), &mut kept).into_iter().peekable();
            let mut hole = |id| match held.next_if(|(staged, _)| *staged == id) {
                Some((_, content)) => content.is_none(),
                None => self.open().map.get(id) == Place::NOWHERE,
            };
            let differs = |id: &u32| {
                let hole = hole(*id);
                *wanted.get_or_insert(hole) != hole
            };
            at = ids.clone().find(differs).unwrap_or(ids.end);
            if at < ids.end {
                break;
            }
            count_max = AT_ONCE.min(count_max * 2);
        }
        let allocation = if wanted == Some(true) { Allocation::Hole } else { Allocation::Data };
        Ok(Extent { count: (at - start).into(), allocation })
    }

    /// Discarded blocks read as zeros, and stay so once flushed.
    fn discard(&self, range: BlockRange) -> block::Result<()> {
        self.geometry().byte_range_of(range)?;
        let start = u32::try_from(range.start.0).expect("within the volume");
        let count = u32::try_from(range.count).expect("within the volume");
        self.drop_blocks(start..start + count).map_err(|e| (&e).into())
    }
}
