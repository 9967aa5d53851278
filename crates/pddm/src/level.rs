//! An open volume's part of the engine: its key, its position map, and what waits to be written.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tacita_secret::{Key, OneOpening, Openings, Tag};

use crate::geometry::{Geometry, Level, Place, Seq};
use crate::keys::{HiddenKeys, Salt};
use crate::map::PositionMap;
use crate::stage::Stage;
use crate::unit::Slots;

/// Units of which a volume remembers key, ids and tags: some 12 MiB.
const CACHE_UNITS: u32 = 24 << 10;

/// An open volume.
#[derive(Debug)]
pub(crate) struct OpenLevel {
    pub(crate) level: Level,
    pub(crate) master: Key,
    /// What its cells carry; `None` for the public volume.
    pub(crate) hidden: Option<HiddenKeys>,
    pub(crate) map: PositionMap,
    stage: Mutex<Stage>,
    /// Something has been taken from the stage.
    pub(crate) room: Condvar,
    pub(crate) cache: SlotCache,
}

impl OpenLevel {
    /// The volume with nothing in it; `epoch` is the last one that has left.
    pub(crate) fn new(
        geometry: &Geometry,
        level: Level,
        master: Key,
        hidden: Option<HiddenKeys>,
        epoch: u64,
    ) -> Self {
        Self {
            level,
            master,
            hidden,
            map: PositionMap::new(geometry.volume_blocks(level)),
            stage: Mutex::new(Stage::after(epoch)),
            room: Condvar::new(),
            cache: SlotCache::new(geometry.units()),
        }
    }

    // A panic under the lock can leave at most a block twice in the order, which does no harm.
    pub(crate) fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block, or a page of the map, is lost, and the map has to tell. What a page says is still in
    /// memory.
    pub(crate) fn lose(&self, stage: &mut Stage, id: u32) {
        self.map.set(id, Place::LOST);
        let own = self.map.page_of_id(id);
        stage.put_page(own.unwrap_or_else(|| PositionMap::page_of_block(id)));
    }
}

/// A level at the head.
#[derive(Debug)]
pub(crate) struct LevelHead {
    /// What lay in the slots of the unit before.
    pub(crate) ids_before: Vec<u32>,
    pub(crate) pages: Pages,
    /// Live blocks that the tail has passed without carrying them, as a public-only session leaves
    /// them: the unit of each, in their order, which is that of being overwritten.
    pub(crate) passed: VecDeque<Passed>,
}

/// A block that lies in a unit that the tail has passed.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) seq: Seq,
    pub(crate) id: u32,
    pub(crate) place: Place,
}

/// When pages of the position map were written last, and which is due next.
#[derive(Debug)]
pub(crate) struct Pages {
    written: Vec<Seq>,
    order: BTreeSet<(Seq, u32)>,
    /// Pages due, in shares of a page a unit.
    due: u64,
}

impl Pages {
    /// The pages as they were written last.
    pub(crate) fn new(written: Vec<Seq>) -> Self {
        let order = written.iter().copied().zip(0..).collect();
        Self { written, order, due: 0 }
    }

    pub(crate) fn write(&mut self, page: u32, seq: Seq) {
        let written = &mut self.written[page as usize];
        self.order.remove(&(*written, page));
        *written = seq;
        self.order.insert((seq, page));
    }

    /// All pages have been written in this unit or later.
    pub(crate) fn replay_from(&self) -> Seq {
        self.order.first().map_or(Seq(0), |(seq, _)| *seq)
    }

    /// Another unit is made: how many pages are due in it, so that all come once within `units`.
    pub(crate) fn due_in_next_unit(&mut self, units: u32) -> usize {
        self.due += self.written.len() as u64;
        let pages = self.due / u64::from(units);
        self.due %= u64::from(units);
        usize::try_from(pages).expect("fewer pages than places")
    }

    /// The pages that have waited longest.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = u32> + '_ {
        self.order.iter().map(|(_, page)| *page)
    }
}

/// What is needed of a unit to read its slots. Its key is not kept, but derived when it is needed:
/// that takes less time than finding a unit's table again.
#[derive(Debug)]
pub(crate) struct SlotTable {
    /// The number of the unit.
    pub(crate) seq: Seq,
    salt: Salt,
    pub(crate) ids: Box<[u32]>,
    pub(crate) tags: Box<[Tag]>,
}

impl SlotTable {
    pub(crate) fn new(seq: Seq, salt: Salt, slots: Slots) -> Self {
        Self { seq, salt, ids: slots.ids.into(), tags: slots.tags.into() }
    }

    /// What opens the unit's slots, of those that open slots of units of its level.
    pub(crate) fn opening<'o>(&self, openings: &'o mut Openings<'_>) -> OneOpening<'o> {
        openings.of(&[&self.salt])
    }
}

/// Slot tables of recently used units: a table of fixed size, in which units displace one another.
/// Each volume has its own, so that none has a trace of the use of another.
#[derive(Debug)]
pub(crate) struct SlotCache {
    places: Box<[Mutex<CachePlace>]>,
}

type CachePlace = Option<(u32, Arc<SlotTable>)>;

impl SlotCache {
    fn new(units: u32) -> Self {
        Self { places: (0..units.min(CACHE_UNITS)).map(|_| Mutex::default()).collect() }
    }

    fn place(&self, unit: u32) -> MutexGuard<'_, CachePlace> {
        let place = unit as usize % self.places.len();
        self.places[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, unit: u32) -> Option<Arc<SlotTable>> {
        let place = self.place(unit);
        place.as_ref().filter(|(u, _)| *u == unit).map(|(_, table)| Arc::clone(table))
    }

    pub(crate) fn put(&self, unit: u32, table: Arc<SlotTable>) {
        *self.place(unit) = Some((unit, table));
    }

    pub(crate) fn forget(&self, unit: u32) {
        let mut place = self.place(unit);
        if place.as_ref().is_some_and(|(u, _)| *u == unit) {
            *place = None;
        }
    }
}
