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

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tacita_secret::{Digest, Key};

use crate::engine::Engine;
use crate::entropy::Entropy;
use crate::error::Result;
use crate::filling::{Filling, apply_drops, live};
use crate::geometry::{Level, Place, Seq};
use crate::keys::CellNumbers;
use crate::leak::{Leak, planted};
use crate::level::{OpenLevel, Pages};
use crate::tail::{Ahead, Tail};
use crate::unit::Block;

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
    /// The sweep under way ends before this unit; one that has ended is behind.
    pub(crate) sweep_until: Seq,
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

/// Where the content of a slot comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The same block of the tail, number `block` of its unit.
    Carried { block: u32, tag: tacita_secret::Tag },
    /// What a user has written.
    Written(Arc<[u8]>),
    /// What a block held that the tail has passed.
    Moved(Box<Block>),
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
    pub(crate) sweep_until: Seq,
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
    pub(crate) numbers: CellNumbers,
}

/// Blocks and pages that the run being planned moves, or drops after it has moved them: what the maps
/// do not say yet.
pub(crate) type Moved = HashMap<(Level, u32), Place>;

impl Engine {
    /// Writes units until `goal` is reached.
    ///
    /// # Errors
    /// The device's: nothing is written from then on, for what had been taken to be written is not.
    pub(crate) fn emit(&self, head: &mut Sequencer, goal: Goal) -> Result<()> {
        self.emit_runs(head, goal).inspect_err(|_| self.poison())
    }

    fn emit_runs(&self, head: &mut Sequencer, goal: Goal) -> Result<()> {
        if goal == Goal::Beat {
            self.write_run(head, goal, 1, 1)?;
        }
        while !self.is_reached(goal) {
            self.write_run(head, goal, 1, self.run_units)?;
        }
        Ok(())
    }

    /// Writes so many units, whatever waits.
    ///
    /// # Errors
    /// As [`Engine::emit`].
    pub(crate) fn emit_units(&self, head: &mut Sequencer, count: usize) -> Result<()> {
        let end = head.next.0 + count as u64;
        while head.next.0 < end {
            let left = usize::try_from(end - head.next.0).expect("no more than asked for");
            let least = left.min(self.run_units);
            self.write_run(head, Goal::All, least, least).inspect_err(|_| self.poison())?;
        }
        Ok(())
    }

    fn is_reached(&self, goal: Goal) -> bool {
        let waiting = self.level(Level::PUBLIC).stage().waiting();
        match goal {
            Goal::Full => waiting < self.log.geometry.slot_count(Level::PUBLIC),
            Goal::All | Goal::Beat => waiting == 0,
        }
    }

    /// Plans, seals and hands over up to `units_max` adjacent units, `units_min` at least unless the
    /// ring ends.
    fn write_run(
        &self,
        head: &mut Sequencer,
        goal: Goal,
        units_min: usize,
        units_max: usize,
    ) -> Result<()> {
        let geometry = &self.log.geometry;
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
            let done = plans.len() >= units_min && self.is_reached(goal);
            let wraps = geometry.unit_of(Seq(seq.0 + 1)) == 0;
            if done || wraps || plans.len() == units_max {
                break;
            }
        }
        let done = self.seal_and_hand_over(head, &plans, &moved);
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
        let (durable, sweep_until) = (head.durable, head.sweep_until);
        Ok(Plan { seq, durable, sweep_until, salt, noise, tail, levels })
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
        let mut slots = geometry.slot_count(open.level);
        if planted(Leak::SharedClass) && open.level == Level::hidden(1) && self.higher_waits() {
            slots -= 1;
        }
        apply_drops(open, moved);
        let filled = Vec::with_capacity(slots);
        let mut plan = Filling { engine: self, open, ahead, seq, slots, moved, filled };
        plan.carry_passed();
        plan.carry(tail);
        plan.put_due_pages();
        plan.put_waiting();
        let filled = plan.filled;
        open.room.notify_all();
        let numbers =
            CellNumbers { replay_from: ahead.pages.replay_from(), epoch: open.stage().complete() };
        LevelPlan { filled, numbers }
    }

    /// Whether any hidden volume has something waiting: only planted leaks may ask.
    pub(crate) fn hidden_waits(&self) -> bool {
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
            self.levels.iter().skip(1).flatten().any(|open| !live(self, open, &tail).is_empty());
        head.ahead.push_front(tail);
        Ok(live)
    }
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
