//! From the log to the position map of a level: each page from its newest copy that can be read, and
//! what was written since.
//!
//! What cannot be known is lost, and nothing is guessed. The ids of a unit whose header cannot be
//! read are told by the header after it. Where that cannot be read either, nobody knows what was in
//! the unit: then a page that is older tells nothing of its blocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tacita_block::BlockDevice;

use crate::error::Result;
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Level, Place, Seq};
use crate::keys::{Salt, unit_opening};
use crate::level::{LevelHead, OpenLevel, Pages, Passed};
use crate::log::Log;
use crate::unit::{Block, NO_ID, Slots, seal_number};

/// What a unit says of a level.
enum Recorded {
    /// What lies in it.
    Slots(Salt, Slots),
    /// It cannot be read, but what lay in it is known.
    Lost(Vec<u32>),
    /// It cannot be read, and nobody knows.
    Unknown,
    /// It was written while the level was not open.
    Nothing,
}

type History = BTreeMap<Seq, Recorded>;

/// Pages and the unit from which on what was written counts for each: that of its copy, if there is
/// one.
struct Bases {
    copies: BTreeMap<u32, (Seq, Box<Block>)>,
    /// What is not in `copies` begins empty there.
    oldest: Seq,
}

impl Bases {
    fn of(&self, page: u32) -> Seq {
        self.copies.get(&page).map_or(self.oldest, |(seq, _)| *seq)
    }
}

/// Rebuilds the position map of a level. Its pages have been written in unit `from` or later, the
/// level was open last when unit `until - 1` was made, and `next` is to be written next.
///
/// # Errors
/// The device's.
pub(crate) fn replay(
    log: &Log,
    open: &OpenLevel,
    from: Seq,
    until: Seq,
    next: Seq,
) -> Result<LevelHead> {
    let replay = Replay { log, open };
    let history = replay.history(from, until)?;
    let pages: BTreeSet<u32> = (0..open.map.pages()).collect();
    let (bases, missing) = replay.bases(&history, &pages, from);
    // Before the first page is due, there is none.
    let missing = if from.0 == 0 { missing.damaged } else { missing.all };
    let whole = pages.difference(&missing).copied().collect();
    replay.apply(&history, &bases, &whole);
    if !missing.is_empty() {
        replay.make_again(&missing, until, next)?;
    }
    let written = (0..open.map.pages()).map(|page| bases.of(page)).collect();
    let ids_before = match history.last_key_value() {
        Some((seq, Recorded::Slots(_, slots))) if seq.0 + 1 == next.0 => slots.ids.clone(),
        _ => vec![NO_ID; log.geometry.slot_count(open.level)],
    };
    let passed = replay.passed(until, next);
    Ok(LevelHead { ids_before, pages: Pages::new(written), passed })
}

/// Replaying the log for one level.
struct Replay<'a> {
    log: &'a Log,
    open: &'a OpenLevel,
}

impl Replay<'_> {
    /// What the units say of a level.
    fn history(&self, from: Seq, until: Seq) -> Result<History> {
        let mut history = History::new();
        let mut missing = None;
        for seq in (from.0..until.0).map(Seq) {
            self.log.will_read_headers(seq, until);
            let Some(header) = self.log.header_of(seq)? else {
                history.insert(seq, Recorded::Unknown);
                missing = Some(seq);
                continue;
            };
            let recorded =
                match header.slots(&self.log.geometry, self.open.level, &self.open.master) {
                    Some(slots) => {
                        if let Some(missing) = missing {
                            history.insert(missing, Recorded::Lost(slots.ids_before.clone()));
                        }
                        Recorded::Slots(header.salt, slots)
                    }
                    None => Recorded::Nothing,
                };
            missing = None;
            history.insert(seq, recorded);
        }
        Ok(history)
    }

    /// The newest copy of each page, if that can be read; else the newest that can.
    fn bases(&self, history: &History, pages: &BTreeSet<u32>, oldest: Seq) -> (Bases, Missing) {
        let mut copies = BTreeMap::new();
        let mut missing = Missing::default();
        for (seq, recorded) in history.iter().rev() {
            let (ids, slots) = match recorded {
                Recorded::Slots(salt, slots) => (&slots.ids, Some((salt, slots))),
                Recorded::Lost(ids) => (ids, None),
                Recorded::Unknown | Recorded::Nothing => continue,
            };
            for (index, id) in ids.iter().enumerate().rev() {
                let Some(page) = self.open.map.page_of_id(*id).filter(|page| pages.contains(page))
                else {
                    continue;
                };
                if copies.contains_key(&page) {
                    continue;
                }
                match slots.and_then(|(salt, s)| self.page_in(*seq, salt, s, index)) {
                    Some(block) => _ = copies.insert(page, (*seq, block)),
                    None => _ = missing.damaged.insert(page),
                }
            }
        }
        missing.all = pages.iter().filter(|page| !copies.contains_key(page)).copied().collect();
        missing.all.extend(&missing.damaged);
        (Bases { copies, oldest }, missing)
    }

    /// The page in a slot, if that is whole. One that cannot be read is missed.
    fn page_in(&self, seq: Seq, salt: &Salt, slots: &Slots, index: usize) -> Option<Box<Block>> {
        let block = self.log.geometry.slots(self.open.level).start + u32::try_from(index).ok()?;
        let mut content: Box<Block> = Box::new([0; BLOCK_LEN]);
        let unit = self.log.geometry.unit_of(seq);
        if self.log.device.read(self.log.block_of(unit, block), &mut content[..]).is_err() {
            // What was discarded, or lies where others have written since, nothing else may tell.
            self.log.miss(unit);
            return None;
        }
        let opening = unit_opening(&self.open.master, salt);
        let id = slots.ids[index].to_le_bytes();
        opening.open(seal_number(index), &id, &mut content[..], &slots.tags[index]).ok()?;
        Some(content)
    }

    /// Goes through the units, for these pages and their blocks.
    fn apply(&self, history: &History, bases: &Bases, pages: &BTreeSet<u32>) {
        let (geometry, open) = (&self.log.geometry, self.open);
        let is_place = |place: Place| {
            let (unit, block) = geometry.split(place);
            unit < geometry.units() && geometry.slots(open.level).contains(&block)
        };
        for (seq, recorded) in history {
            let (ids, lost) = match recorded {
                Recorded::Slots(_, slots) => (&slots.ids, false),
                Recorded::Lost(ids) => (ids, true),
                Recorded::Nothing => continue,
                Recorded::Unknown => {
                    let older = pages.iter().filter(|page| bases.of(**page) <= *seq);
                    older.for_each(|page| open.map.lose_page(*page));
                    continue;
                }
            };
            let unit = geometry.unit_of(*seq);
            let slots = || geometry.slots(open.level).zip(ids).filter(|(_, id)| open.map.has(**id));
            for (block, id) in slots() {
                let Some(page) = open.map.page_of_id(*id) else { continue };
                open.map.set(*id, if lost { Place::LOST } else { geometry.place(unit, block) });
                if let Some((base, content)) = bases.copies.get(&page)
                    && base == seq
                    && pages.contains(&page)
                {
                    open.map.load_page(page, content, is_place);
                }
            }
            for (block, id) in slots() {
                let page = crate::map::PositionMap::page_of_block(*id);
                if open.map.page_of_id(*id).is_some()
                    || !pages.contains(&page)
                    || bases.of(page) > *seq
                {
                    continue;
                }
                open.map.set(*id, if lost { Place::LOST } else { geometry.place(unit, block) });
            }
        }
    }

    /// Pages whose newest copy is lost: made again from an older one, or from nothing, and all
    /// headers that there are since. They leave with the units that come next.
    fn make_again(&self, pages: &BTreeSet<u32>, until: Seq, next: Seq) -> Result<()> {
        let open = self.open;
        if planted(Fault::ForgottenPages) && open.level == Level::PUBLIC {
            for page in pages {
                open.map.lose_page(*page);
            }
            return Ok(());
        }
        // All that is live on the public volume lies in units that the tail has not left.
        let oldest = if open.level == Level::PUBLIC {
            self.log.geometry.left_by(next).unwrap_or(Seq(0))
        } else {
            Seq(next.0.saturating_sub(u64::from(self.log.geometry.units())))
        };
        let history = self.history(oldest, until)?;
        let (bases, _) = self.bases(&history, pages, oldest);
        // Where units have been written without the level, what they have overwritten is not told.
        if until < next || history.values().any(|recorded| matches!(recorded, Recorded::Nothing)) {
            let bare = pages.iter().filter(|page| !bases.copies.contains_key(page));
            bare.for_each(|page| open.map.lose_page(*page));
        }
        self.apply(&history, &bases, pages);
        let mut stage = open.stage();
        for page in pages {
            for (id, place) in open.map.places_of(*page) {
                // The tail has left it, and would have carried it: it was discarded, or lost then.
                if place.is_stored() && self.is_passed(place, next) && open.level == Level::PUBLIC {
                    open.map.set(id, Place::LOST);
                }
            }
            stage.put_page(*page);
        }
        Ok(())
    }

    /// Whether the tail has left the unit in which a place lies.
    fn is_passed(&self, place: Place, next: Seq) -> bool {
        let seq = self.log.geometry.seq_at(self.log.geometry.split(place).0, next);
        seq.zip(self.log.geometry.left_by(next)).is_some_and(|(seq, left)| seq < left)
    }

    /// What public-only sessions have done to a hidden volume: what they have overwritten is lost;
    /// what they have passed waits to be carried, those first that are overwritten first.
    fn passed(&self, until: Seq, next: Seq) -> VecDeque<Passed> {
        let open = self.open;
        let mut passed = Vec::new();
        if open.level == Level::PUBLIC || planted(Fault::ForgottenGap) {
            return passed.into();
        }
        let mut stage = open.stage();
        for (id, place) in open.map.places().filter(|(_, place)| place.is_stored()) {
            match self.log.geometry.seq_at(self.log.geometry.split(place).0, next) {
                Some(seq) if seq < until && self.is_passed(place, next) => {
                    passed.push(Passed { seq, id, place });
                }
                Some(seq) if seq < until => {}
                _ => open.lose(&mut stage, id),
            }
        }
        passed.sort_by_key(|passed| (passed.seq, passed.place.0));
        passed.into()
    }
}

/// Pages that have to be made again.
#[derive(Default)]
struct Missing {
    /// The newest copy cannot be read.
    damaged: BTreeSet<u32>,
    /// Those, and those of which there is no copy.
    all: BTreeSet<u32>,
}
