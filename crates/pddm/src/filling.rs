//! Filling the slots of a level in one unit: what is carried, then pages that are due, then what
//! waits.

use std::collections::BTreeSet;

use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Level, PAGE_ENTRIES, Place, Seq, UNIT_BLOCKS};
use crate::level::{LevelHead, OpenLevel, Passed};
use crate::map::PositionMap;
use crate::open_log::OpenLog;
use crate::plan::{Filled, Moved, Source};
use crate::slots::SlotReader;
use crate::stage::Taken;
use crate::tail::Tail;
use crate::unit::{Block, NO_ID};

/// Blocks of a hidden volume that one unit drops at most: this takes time under the head's lock,
/// and is to be little beside what a unit takes.
const DROPPED_MAX: u32 = 4 << 10;

/// So many blocks that were nowhere cost as much as one that is dropped.
const NOWHERE_SHARE: u32 = 8;

/// A range that is dropped costs as much as so many blocks, however few it has. So more of them leave with
/// a unit than it has slots, and what waits leaves no later than if all of it were blocks.
const RANGE_COST: u32 = 64;
const _: () = assert!(DROPPED_MAX / RANGE_COST >= *UNIT_BLOCKS.end());

/// What may be dropped in a unit, as the costs above are counted.
pub(crate) const fn droppable(level: Level) -> u32 {
    if level.index() == 0 { u32::MAX } else { DROPPED_MAX }
}

/// The slots of a level as they are filled.
pub(crate) struct Filling<'a> {
    pub(crate) shared: &'a OpenLog,
    pub(crate) open: &'a OpenLevel,
    pub(crate) ahead: &'a mut LevelHead,
    pub(crate) seq: Seq,
    pub(crate) slots: usize,
    pub(crate) moved: &'a mut Moved,
    pub(crate) filled: Vec<Filled>,
    /// How much may still be dropped: see [`droppable`].
    pub(crate) droppable: u32,
}

impl Filling<'_> {
    fn is_full(&self) -> bool {
        self.filled.len() >= self.slots
    }

    fn is_moved(&self, id: u32) -> bool {
        self.moved.contains_key(&(self.open.level, id))
    }

    fn put(&mut self, id: u32, source: Source) {
        let geometry = self.shared.geometry();
        let place = geometry.slot_place(self.open.level, self.seq, self.filled.len());
        self.moved.insert((self.open.level, id), place);
        self.filled.push(Filled { id, source });
    }

    /// What was dropped is in no place from this unit on, and its pages tell. Whether there was any of it.
    ///
    /// What the unit holds itself is not dropped with it: whoever reads it later takes its ids to be newer than
    /// its pages.
    pub(crate) fn apply_drops(&mut self) -> bool {
        let (open, mut any) = (self.open, false);
        let mut stage = open.stage();
        while let Some(next) = stage.next_drop() {
            let held = self.filled.iter().map(|filled| filled.id).filter(|id| next.contains(id));
            let end = held.min().unwrap_or(next.end);
            let count = (end - next.start).min(self.droppable).min(PAGE_ENTRIES);
            let Some(range) = stage.take_drops(count) else { break };
            any = true;
            let (blocks, mut pages) = (count, BTreeSet::new());
            // Few at most: what this run of units has put somewhere, and the map does not tell yet.
            for ((_, id), place) in self
                .moved
                .iter_mut()
                .filter(|((level, id), _)| *level == open.level && range.contains(id))
            {
                *place = Place::NOWHERE;
                stage.forget_taken(*id);
                pages.insert(PositionMap::page_of_block(*id));
            }
            for id in range {
                if open.map.get(id) != Place::NOWHERE {
                    open.map.set(id, Place::NOWHERE);
                    pages.insert(PositionMap::page_of_block(id));
                }
            }
            let cost = if pages.is_empty() { blocks.div_ceil(NOWHERE_SHARE) } else { blocks };
            self.droppable = self.droppable.saturating_sub(cost.max(RANGE_COST));
            for page in pages {
                stage.put_page(page);
            }
        }
        any
    }

    /// What the tail has passed comes first: its units are overwritten next.
    pub(crate) fn carry_passed(&mut self) {
        let units = u64::from(self.shared.geometry().units());
        while !self.is_full()
            && let Some(Passed { seq, id, place }) = self.ahead.passed.pop_front()
        {
            if self.is_moved(id) || self.open.map.get(id) != place {
                continue;
            }
            if let Some(page) = self.open.map.page_of_id(id) {
                self.put_page(page);
                continue;
            }
            let mut content: Box<Block> = Box::new([0; BLOCK_LEN]);
            let on_device = seq.0 + units >= self.shared.emitted();
            let mut read =
                || SlotReader::new(self.shared, self.open).read_stored(id, place, &mut content[..]);
            if on_device && read().is_ok() {
                self.put(id, Source::Moved(content));
            } else {
                self.open.lose(&mut self.open.stage(), id);
            }
        }
    }

    /// What is live at the tail, as far as there is room: there always is, unless what was passed
    /// before has taken it.
    pub(crate) fn carry(&mut self, tail: Option<&Tail>) {
        let Some(tail) = tail else { return };
        for (block, id, tag) in live(self.shared, self.open, tail) {
            if self.is_moved(id) {
                continue;
            }
            if self.is_full() {
                let place = self.shared.geometry().place(tail.unit, block);
                self.ahead.passed.push_back(Passed { seq: tail.seq, id, place });
                continue;
            }
            match self.open.map.page_of_id(id) {
                Some(page) => self.put_page(page),
                None => self.put(id, Source::Carried { block, tag }),
            }
        }
    }

    /// Pages that are to be written again so that little has to be replayed.
    pub(crate) fn put_due_pages(&mut self) {
        let geometry = self.shared.geometry();
        let pages = &mut self.ahead.pages;
        let mut due = pages.due_in_next_unit(geometry.checkpoint_units());
        // Many short sessions must not put a page off for ever: it would have to be replayed from
        // units that are gone.
        if (self.seq.0 - pages.replay_from().0) * 2 > u64::from(geometry.units()) {
            due = due.max(1);
        }
        if planted(Fault::SharedPages)
            && self.open.level == Level::PUBLIC
            && self.shared.hidden_waits()
        {
            due = 0;
        }
        let oldest: Vec<u32> = pages.oldest().take(due).collect();
        for page in oldest {
            if !self.is_full() && !self.is_moved(self.open.map.page_id(page)) {
                self.put_page(page);
            }
        }
    }

    /// What waits, in its order: epoch by epoch, each of which may begin with what it has dropped.
    pub(crate) fn put_waiting(&mut self) {
        self.put_waiting_of_epoch();
        while !self.is_full() && self.apply_drops() {
            self.put_waiting_of_epoch();
        }
    }

    fn put_waiting_of_epoch(&mut self) {
        while !self.is_full() {
            let taken = self.open.stage().take();
            match taken {
                Some(Taken::Page(page)) => self.put_page(page),
                Some(Taken::Block(id, content)) => self.put(id, Source::Written(content)),
                None => break,
            }
        }
    }

    /// A page of the map, as it is before this unit.
    fn put_page(&mut self, page: u32) {
        let (open, seq) = (self.open, self.seq);
        open.stage().page_leaves(page);
        self.ahead.pages.write(page, seq);
        let mut content = open.map.encode_page(page);
        for ((level, id), place) in self.moved.iter() {
            if *level == open.level
                && *id < open.map.blocks()
                && PositionMap::page_of_block(*id) == page
            {
                let at = (*id % PAGE_ENTRIES) as usize * 4;
                content[at..at + 4].copy_from_slice(&place.0.to_le_bytes());
            }
        }
        self.put(open.map.page_id(page), Source::Page(content));
    }
}

/// The blocks of a level that are live in the tail: block of the unit, id, tag.
pub(crate) fn live(
    shared: &OpenLog,
    open: &OpenLevel,
    tail: &Tail,
) -> Vec<(u32, u32, tacita_secret::Tag)> {
    let geometry = shared.geometry();
    let Some(header) = &tail.header else {
        lose_unit(shared, open, tail.unit);
        return Vec::new();
    };
    let Some(slots) = header.slots(geometry, open.level, &open.master) else {
        return Vec::new();
    };
    let blocks = geometry.slots(open.level).zip(slots.ids).zip(slots.tags);
    blocks
        .filter(|((block, id), _)| {
            *id != NO_ID
                && open.map.has(*id)
                && open.map.get(*id) == geometry.place(tail.unit, *block)
        })
        .map(|((block, id), tag)| (block, id, tag))
        .collect()
}

/// The header at the tail cannot be read: what lay in the unit is lost, and says so from now on.
fn lose_unit(shared: &OpenLog, open: &OpenLevel, unit: u32) {
    let geometry = shared.geometry();
    let blocks = geometry.slots(open.level);
    let (start, end) = (geometry.place(unit, blocks.start), geometry.place(unit, blocks.end));
    let lost = open.map.lose_range(start.0..end.0);
    let mut stage = open.stage();
    for id in lost {
        open.lose(&mut stage, id);
    }
}
