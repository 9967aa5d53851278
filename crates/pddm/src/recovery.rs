//! From the log to the state of its head: a function of public state, which writes nothing.
//!
//! Hidden data is looked at only when the end of the log is settled; nothing found there shortens
//! the log, moves its head or causes a write. Design note, section 2.2.

use std::collections::HashMap;

use tacita_block::BlockDevice;
use tacita_secret::{Digest, Key, Opening};

use crate::error::{Error, Kind, Result};
use crate::geometry::{BLOCK_LEN, Level, Place, Seq};
use crate::keys::{Cell, unit_key};
use crate::leak::{Leak, planted};
use crate::level::OpenLevel;
use crate::log::Log;
use crate::sequencer::LevelHead;
use crate::unit::{Block, Header, NO_ID, Slots, seal_number};

/// Headers looked at for the last readable one.
const BACK: u64 = 64;

/// Where the log ends.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// Number of the unit to be written next.
    pub(crate) next: Seq,
    /// All units before this one are known to be on the medium.
    pub(crate) durable: Seq,
    /// Hash of the last header.
    pub(crate) previous: Digest,
    /// The last readable header.
    pub(crate) last: Header,
}

impl Log {
    /// Finds the end: all units that are known to be durable, and the longest run of whole units
    /// behind them.
    ///
    /// # Errors
    /// [`Kind::Device`], also if there is no readable unit.
    pub(crate) fn end(&self, hidden: Option<(Level, &Key)>) -> Result<End> {
        let Some(newest) = self.newest()? else {
            let text = "the log cannot be read: no unit is whole";
            return Err(Error::new(Kind::Device, text));
        };
        let durable = newest.head.durable;
        let mut next = durable;
        let mut previous = self.header_hash(durable)?;
        while let Some(header) = self.whole_unit(next)? {
            if previous.is_some_and(|hash| hash != header.head.previous) {
                break;
            }
            if planted(Leak::HiddenRecovery)
                && let Some((level, master)) = hidden
                && header.hidden(&self.geometry, level, master).is_none()
            {
                break;
            }
            previous = Some(header.hash());
            next = Seq(next.0 + 1);
        }
        let last = self.last_header(next)?;
        Ok(End { next, durable, previous: previous.unwrap_or_default(), last })
    }

    /// The hash of the header before unit `seq`.
    fn header_hash(&self, seq: Seq) -> Result<Option<Digest>> {
        let Some(before) = seq.0.checked_sub(1) else { return Ok(None) };
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        let unit = self.geometry.unit_of(Seq(before));
        self.device.read(self.geometry.unit_start(unit), &mut block[..])?;
        Ok(Some(tacita_secret::digest(&block[..])))
    }

    /// The header of a unit that is whole.
    fn whole_unit(&self, seq: Seq) -> Result<Option<Header>> {
        let unit = self.unit(self.geometry.unit_of(seq))?;
        let block = unit[..BLOCK_LEN].try_into().expect("one block");
        let header = self.open(self.geometry.unit_of(seq), block);
        let header = header.filter(|header| header.head.seq == seq);
        let blind = planted(Leak::BlindRecovery);
        let proves = |header: &Header| header.proves(&self.geometry, &self.public, &unit);
        Ok(header.filter(|header| blind || proves(header)))
    }

    fn last_header(&self, next: Seq) -> Result<Header> {
        for back in 1..=BACK.min(next.0) {
            if let Some(header) = self.header_of(Seq(next.0 - back))? {
                return Ok(header);
            }
        }
        Err(Error::new(Kind::Device, "the log cannot be read: its last units are damaged"))
    }

    /// The newest cell of a class that its master key opens, and the unit it stands in.
    pub(crate) fn newest_cell(
        &self,
        end: &End,
        level: Level,
        master: &Key,
    ) -> Result<Option<(Seq, Cell)>> {
        let oldest = end.next.0.saturating_sub(u64::from(self.geometry.units()));
        for seq in (oldest..end.next.0).rev() {
            let Some(header) = self.header_of(Seq(seq))? else { continue };
            let cell = header.cell(&self.geometry, level);
            if let Ok(cell) = Cell::open_by_master(cell, &header.salt, master) {
                return Ok(Some((Seq(seq), cell)));
            }
        }
        Ok(None)
    }

    /// Rebuilds the position map of a level from its pages, and from what was written since, up to
    /// unit `next`.
    pub(crate) fn replay(&self, open: &OpenLevel, from: Seq, next: Seq) -> Result<LevelHead> {
        let units = self.replayed(open, from, next)?;
        let mut last_page: HashMap<u32, Seq> = HashMap::new();
        for unit in &units {
            for page in unit.slots.ids.iter().filter_map(|id| open.map.page_of_id(*id)) {
                last_page.insert(page, unit.seq);
            }
        }
        // A page that is not there was written in a unit that is lost.
        if from.0 > 0 {
            let pages = 0..open.map.pages();
            pages.filter(|page| !last_page.contains_key(page)).for_each(|p| open.map.lose_page(p));
        }
        for unit in &units {
            self.apply(open, unit, &last_page);
        }
        let mut written = Vec::with_capacity(open.map.pages() as usize);
        for page in 0..open.map.pages() {
            written.push(last_page.get(&page).copied().unwrap_or(from));
        }
        let ids_before = match units.last() {
            Some(unit) if unit.seq.0 + 1 == next.0 => unit.slots.ids.clone(),
            _ => vec![NO_ID; self.geometry.slot_count(open.level)],
        };
        Ok(LevelHead::new(ids_before, written))
    }

    /// What the units from `from` on say of a level. Of a damaged one it is known what it held.
    fn replayed(&self, open: &OpenLevel, from: Seq, next: Seq) -> Result<Vec<Replayed>> {
        let mut units: Vec<Replayed> = Vec::new();
        let mut missing = false;
        for seq in (from.0..next.0).map(Seq) {
            self.will_read_headers(seq, next);
            let header = self.header_of(seq)?;
            let Some(header) = header else {
                missing = true;
                continue;
            };
            let slots = header.slots(&self.geometry, open.level, &open.master);
            if let Some(slots) = slots {
                if missing {
                    let lost = slots.ids_before.clone();
                    units.push(Replayed::lost(Seq(seq.0 - 1), lost));
                }
                units.push(Replayed { seq, salt: header.salt, slots, lost: false });
            }
            missing = false;
        }
        Ok(units)
    }

    fn apply(&self, open: &OpenLevel, unit: &Replayed, last_page: &HashMap<u32, Seq>) {
        let places_max = self.geometry.place(self.geometry.units(), 0).0;
        let start = self.geometry.slots(open.level).start;
        let number = self.geometry.unit_of(unit.seq);
        let ids = || (start..).zip(&unit.slots.ids).filter(|(_, id)| open.map.has(**id));
        let opening = Opening::new(&unit_key(&open.master, &unit.salt));
        for (block, id) in ids() {
            let Some(page) = open.map.page_of_id(*id) else { continue };
            if last_page.get(&page) != Some(&unit.seq) {
                continue;
            }
            open.map.set(*id, self.geometry.place(number, block));
            let mut content: Box<Block> = Box::new([0; BLOCK_LEN]);
            let index = (block - start) as usize;
            let tag = unit.slots.tags.get(index);
            let read = self.device.read(self.block_of(number, block), &mut content[..]).is_ok();
            let whole = !unit.lost
                && read
                && tag.is_some_and(|tag| {
                    let seal = seal_number(index);
                    opening.open(seal, &id.to_le_bytes(), &mut content[..], tag).is_ok()
                });
            if whole {
                open.map.load_page(page, &content, places_max);
            } else {
                open.map.lose_page(page);
            }
        }
        for (block, id) in ids().filter(|(_, id)| open.map.page_of_id(**id).is_none()) {
            let place = self.geometry.place(number, block);
            open.map.set(*id, if unit.lost { Place::LOST } else { place });
        }
    }
}

/// What a unit says of a level.
#[derive(Debug)]
struct Replayed {
    seq: Seq,
    salt: [u8; 32],
    slots: Slots,
    /// The unit itself cannot be read.
    lost: bool,
}

impl Replayed {
    fn lost(seq: Seq, ids: Vec<u32>) -> Self {
        let slots = Slots { ids, ids_before: Vec::new(), tags: Vec::new() };
        Self { seq, salt: [0; 32], slots, lost: true }
    }
}
