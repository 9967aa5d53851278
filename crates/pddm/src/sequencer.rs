//! Which block goes into which slot of which unit.
//!
//! Number, order and size of all writes follow from public requests and public state alone: what is
//! decided for the public volume is decided before anything hidden is looked at, and a hidden block
//! only ever takes the place of noise.
//!
//! The head writes a unit; at the same time the tail, a gap ahead, is read, and what is live there
//! goes into the same unit first. It always fits. A unit that the tail has left is written again
//! when all that was taken from it is durable.
//!
//! Paper: algorithms 2 to 5, with head and tail apart (design note, sections 2.1 and 3.3).

use std::collections::HashMap;
use std::sync::Arc;

use tacita_secret::{Digest, Key};

use crate::engine::Engine;
use crate::entropy::Entropy;
use crate::error::Result;
use crate::geometry::{Level, PAGE_ENTRIES, Place, Seq};
use crate::leak::{Leak, planted};
use crate::level::{OpenLevel, Pages};
use crate::map::PositionMap;
use crate::tail::{Ahead, Tail};
use crate::unit::{Block, NO_ID};

/// How much is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Units that waiting public blocks fill.
    Full,
    /// All waiting public blocks; the last unit is padded.
    All,
    /// At least one unit, and all waiting public blocks.
    Beat,
}

/// The state of the head. One thread at a time decides.
pub(crate) struct Sequencer {
    /// The unit to be written next.
    pub(crate) next: Seq,
    /// All units before this one are on the medium.
    pub(crate) durable: Seq,
    /// Units have been written that are not.
    pub(crate) unflushed: bool,
    pub(crate) previous: Digest,
    /// By level: what lay in the slots of the unit before, and the pages of the position map.
    pub(crate) levels: Vec<Option<LevelHead>>,
    pub(crate) entropy: Entropy,
    /// Units at the tail that have been read already.
    pub(crate) ahead: Ahead,
    /// Cells of the unit before, for a planted leak.
    pub(crate) cells: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Sequencer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequencer").field("next", &self.next).finish_non_exhaustive()
    }
}

/// A level at the head.
#[derive(Debug)]
pub(crate) struct LevelHead {
    pub(crate) ids_before: Vec<u32>,
    pub(crate) pages: Pages,
}

/// Where the content of a slot comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The same block of the tail, number `block` of its unit.
    Carried { block: u32, tag: tacita_secret::Tag },
    /// What a user has written.
    Written(Arc<[u8]>),
    /// A page of the position map.
    Page(Box<Block>),
}

/// What goes into one slot.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) id: u32,
    pub(crate) source: Source,
}

/// What goes into a unit.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seq: Seq,
    pub(crate) durable: Seq,
    pub(crate) salt: [u8; 32],
    pub(crate) noise: Key,
    pub(crate) tail: Option<Tail>,
    /// By level: the slots that are filled; `None` where the level is not open.
    pub(crate) levels: Vec<Option<LevelPlan>>,
}

/// The slots of one level in one unit.
#[derive(Debug)]
pub(crate) struct LevelPlan {
    pub(crate) filled: Vec<Filled>,
    pub(crate) replay_from: Seq,
}

/// Blocks that the run being planned moves: their places are not in the maps yet.
type Moved = HashMap<(Level, u32), Place>;

impl Engine {
    /// Writes units until `goal` is reached.
    ///
    /// # Errors
    /// The device's: nothing is written from then on, for what had been taken to be written is not.
    pub(crate) fn emit(&self, head: &mut Sequencer, goal: Goal) -> Result<()> {
        self.emit_runs(head, goal).inspect_err(|_| self.poison())
    }

    fn emit_runs(&self, head: &mut Sequencer, goal: Goal) -> Result<()> {
        let public = self.level(Level::PUBLIC);
        let slots = self.log.geometry.slot_count(Level::PUBLIC);
        let mut beat = goal == Goal::Beat;
        loop {
            let waiting = public.stage().waiting();
            let enough = if goal == Goal::Full { waiting < slots } else { waiting == 0 };
            if enough && !beat {
                return Ok(());
            }
            let run_max = if beat { 1 } else { self.run_units };
            self.write_run(head, goal, run_max)?;
            beat = false;
        }
    }

    /// Plans, seals and hands over up to `units_max` adjacent units.
    fn write_run(&self, head: &mut Sequencer, goal: Goal, units_max: usize) -> Result<()> {
        let geometry = &self.log.geometry;
        let public = self.level(Level::PUBLIC);
        let mut plans = Vec::with_capacity(units_max);
        let mut moved = Moved::new();
        loop {
            self.make_room(head, plans.len())?;
            let seq = Seq(head.next.0 + plans.len() as u64);
            if planted(Leak::SkippedUnits) && self.hidden_tail_is_live(head, seq)? {
                // The run ends where hidden data lies.
                plans.push(self.plan(head, seq, &mut moved)?);
                break;
            }
            plans.push(self.plan(head, seq, &mut moved)?);
            let waiting = public.stage().waiting();
            let slots = geometry.slot_count(Level::PUBLIC);
            let done = if goal == Goal::Full { waiting < slots } else { waiting == 0 };
            let wraps = geometry.unit_of(Seq(seq.0 + 1)) == 0;
            if done || wraps || plans.len() == units_max {
                break;
            }
        }
        let done = self.seal_and_hand_over(head, &plans);
        for tail in plans.into_iter().filter_map(|plan| plan.tail) {
            self.buffers.give(tail.bytes);
        }
        done
    }

    /// A unit is written again only when what was taken from it is durable: the tail left it when the
    /// unit a gap before was made. And only so much is ever not durable, since all that has to be
    /// read after a crash.
    fn make_room(&self, head: &mut Sequencer, planned: usize) -> Result<()> {
        let geometry = &self.log.geometry;
        let seq = head.next.0 + planned as u64;
        let room = if planted(Leak::EarlyReuse) { u64::MAX } else { geometry.unflushed_max() };
        if seq - head.durable.0 < room {
            return Ok(());
        }
        debug_assert!(planned == 0 || planned < geometry.gap() as usize, "a run within the gap");
        self.make_durable(head)
    }

    /// Everything handed over so far is on the medium when this returns.
    pub(crate) fn make_durable(&self, head: &mut Sequencer) -> Result<()> {
        if !head.unflushed {
            return Ok(());
        }
        self.writer()?.drain()?;
        let skipped = planted(Leak::SkippedFlush);
        let done = if skipped { Ok(()) } else { self.log.device.flush() };
        if done.is_err() {
            self.poison();
        }
        done?;
        head.durable = head.next;
        head.unflushed = false;
        self.note_durable(head.durable);
        Ok(())
    }

    fn plan(&self, head: &mut Sequencer, seq: Seq, moved: &mut Moved) -> Result<Plan> {
        let tail = self.tail(head, seq)?;
        let salt = if planted(Leak::RepeatedSalt) {
            tacita_secret::digest(&seq.0.to_le_bytes())
        } else {
            (head.entropy.public)()?
        };
        let noise = head.entropy.noise_key()?;
        let mut levels = Vec::with_capacity(self.levels.len());
        for (open, state) in self.levels.iter().zip(&mut head.levels) {
            levels.push(match (open, state) {
                (Some(open), Some(state)) => {
                    Some(self.plan_level(open, state, seq, tail.as_ref(), moved))
                }
                _ => None,
            });
        }
        Ok(Plan { seq, durable: head.durable, salt, noise, tail, levels })
    }

    /// Fills the slots of a level: what is carried, then pages that are due, then what waits.
    fn plan_level(
        &self,
        open: &OpenLevel,
        ahead: &mut LevelHead,
        seq: Seq,
        tail: Option<&Tail>,
        moved: &mut Moved,
    ) -> LevelPlan {
        let geometry = &self.log.geometry;
        let (level, mut slots) = (open.level, geometry.slot_count(open.level));
        if planted(Leak::SharedClass) && level == Level::hidden(1) && self.higher_waits() {
            slots -= 1;
        }
        let mut filled = Vec::with_capacity(slots);
        for (block, id, tag) in tail.map_or_else(Vec::new, |tail| self.live(open, tail)) {
            if moved.contains_key(&(level, id)) {
                continue;
            }
            moved.insert((level, id), place_of(geometry, level, seq, filled.len()));
            match open.map.page_of_id(id) {
                Some(page) => fill_page(open, ahead, seq, page, moved, &mut filled),
                None => filled.push(Filled { id, source: Source::Carried { block, tag } }),
            }
        }
        let mut due = ahead.pages.due_in_next_unit(geometry.checkpoint_units());
        // Many short sessions must not put a page off for ever: it would have to be replayed from
        // units that are gone.
        if (seq.0 - ahead.pages.replay_from().0) * 2 > u64::from(geometry.units()) {
            due = due.max(1);
        }
        if planted(Leak::SharedPages) && level == Level::PUBLIC && self.hidden_waits() {
            due = 0;
        }
        let oldest: Vec<u32> = ahead.pages.oldest().take(due).collect();
        for page in oldest {
            let id = (level, open.map.page_id(page));
            if filled.len() < slots && !moved.contains_key(&id) {
                moved.insert(id, place_of(geometry, level, seq, filled.len()));
                fill_page(open, ahead, seq, page, moved, &mut filled);
            }
        }
        let mut stage = open.stage();
        while filled.len() < slots {
            let Some((id, content)) = stage.take() else { break };
            let source = match (open.map.page_of_id(id), content) {
                (Some(page), _) => {
                    moved.insert((level, id), place_of(geometry, level, seq, filled.len()));
                    fill_page(open, ahead, seq, page, moved, &mut filled);
                    continue;
                }
                (None, Some(content)) => Source::Written(content),
                (None, None) => continue,
            };
            moved.insert((level, id), place_of(geometry, level, seq, filled.len()));
            filled.push(Filled { id, source });
        }
        drop(stage);
        open.room.notify_all();
        LevelPlan { filled, replay_from: ahead.pages.replay_from() }
    }

    /// The blocks of a level that are live in the tail: block of the unit, id, tag.
    fn live(&self, open: &OpenLevel, tail: &Tail) -> Vec<(u32, u32, tacita_secret::Tag)> {
        let geometry = &self.log.geometry;
        let Some(header) = &tail.header else {
            self.lose_unit(open, tail.unit);
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
    fn lose_unit(&self, open: &OpenLevel, unit: u32) {
        let geometry = &self.log.geometry;
        let blocks = geometry.slots(open.level);
        let (start, end) = (geometry.place(unit, blocks.start), geometry.place(unit, blocks.end));
        let lost = open.map.lose_range(start.0..end.0);
        let mut stage = open.stage();
        for id in lost {
            if let Some(page) = open.map.page_of_id(id) {
                // What the page said is still in memory.
                stage.put(open.map.page_id(page), None);
            }
        }
    }

    /// Whether any hidden volume has something waiting: only planted leaks may ask.
    fn hidden_waits(&self) -> bool {
        self.levels.iter().skip(1).flatten().any(|open| open.stage().waiting() > 0)
    }

    /// Whether a volume of the second class has something waiting: only planted leaks may ask.
    fn higher_waits(&self) -> bool {
        self.levels.get(2).is_some_and(|o| o.as_ref().is_some_and(|o| o.stage().waiting() > 0))
    }

    /// Whether hidden data is live at the tail: only planted leaks may ask.
    fn hidden_tail_is_live(&self, head: &mut Sequencer, seq: Seq) -> Result<bool> {
        let Some(tail) = self.tail(head, seq)? else { return Ok(false) };
        let live =
            self.levels.iter().skip(1).flatten().any(|open| !self.live(open, &tail).is_empty());
        head.ahead.push_front(tail);
        Ok(live)
    }
}

fn fill_page(
    open: &OpenLevel,
    state: &mut LevelHead,
    seq: Seq,
    page: u32,
    moved: &Moved,
    filled: &mut Vec<Filled>,
) {
    state.pages.write(page, seq);
    let mut content = open.map.encode_page(page);
    for ((level, id), place) in moved {
        if *level == open.level
            && *id < open.map.blocks()
            && PositionMap::page_of_block(*id) == page
        {
            let at = (*id % PAGE_ENTRIES) as usize * 4;
            content[at..at + 4].copy_from_slice(&place.0.to_le_bytes());
        }
    }
    let source = Source::Page(content);
    filled.push(Filled { id: open.map.page_id(page), source });
}

/// The place of slot `index` of a level in a unit.
pub(crate) fn place_of(
    geometry: &crate::geometry::Geometry,
    level: Level,
    seq: Seq,
    index: usize,
) -> Place {
    let block = geometry.slots(level).start + u32::try_from(index).expect("fewer than 64 slots");
    geometry.place(geometry.unit_of(seq), block)
}
