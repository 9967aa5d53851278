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

use std::sync::Arc;

use tacita_block::{AlignedBuf, BlockDevice};
use tacita_secret::Digest;

use crate::entropy::Entropy;
use crate::error::Result;
use crate::faults::{Fault, StaleCells, planted};
use crate::filling::{Filling, droppable, live};
use crate::geometry::{Level, Seq};
use crate::in_flight::Run;
use crate::keys::CellNumbers;
use crate::level::{LevelHead, OpenLevel};
use crate::open_log::OpenLog;
use crate::plan::{LevelPlan, Moved, Plan};
use crate::seal::{Before, Sealed, Sealer};
use crate::tail::{ReadAhead, Tail, read_tail, tails_left};
use crate::team::Team;

/// How much is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmitUntil {
    /// Units that waiting public blocks fill.
    Full,
    /// All waiting public blocks; the last unit is padded.
    All,
    /// At least one unit, and all waiting public blocks.
    Beat,
}

/// Which round a sweep goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// What is left of one that was interrupted, or a whole one.
    Rest,
    /// A whole one, from here.
    Whole,
}

/// Where the head is when a device is opened.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// The unit to be written next.
    pub(crate) next: Seq,
    /// All units before this one are on the medium.
    pub(crate) durable: Seq,
    /// The sweep under way ends before this unit; one that has ended is behind.
    pub(crate) sweep_until: Seq,
    /// Hash of the last header.
    pub(crate) previous: Digest,
}

/// What is done side by side while a run is made.
enum Part {
    /// The slots of a unit are sealed.
    Plan(Box<Plan>),
    /// The unit of this number, which the tail leaves, is read.
    Tail(Seq),
}

/// What came of it.
enum Done {
    Made(Made),
    Read(Option<Tail>),
}

/// A unit whose slots are sealed.
struct Made {
    plan: Box<Plan>,
    sealed: Sealed,
    bytes: AlignedBuf,
}

/// The head. One thread at a time decides.
pub(crate) struct Sequencer {
    shared: Arc<OpenLog>,
    next: Seq,
    /// All units before this one are on the medium when the next one is written.
    durable: Seq,
    /// Units have been written that are not on the medium.
    unflushed: bool,
    sweep_until: Seq,
    before: Before,
    levels: Vec<Option<LevelHead>>,
    entropy: Entropy,
    /// Units at the tail that have been read already.
    ahead: ReadAhead,
    team: Team,
}

impl std::fmt::Debug for Sequencer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequencer").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Sequencer {
    /// The head at its start.
    ///
    /// # Errors
    /// The system has no threads for it.
    pub(crate) fn new(
        shared: Arc<OpenLog>,
        start: &Start,
        levels: Vec<Option<LevelHead>>,
        entropy: Entropy,
    ) -> Result<Self> {
        let Start { next, durable, sweep_until, previous } = *start;
        Ok(Self {
            shared,
            next,
            durable,
            unflushed: durable != next,
            sweep_until,
            before: Before { hash: previous, stale_cells: StaleCells::default() },
            levels,
            entropy,
            ahead: ReadAhead::default(),
            team: Team::start()?,
        })
    }

    /// The unit to be written next.
    pub(crate) const fn next(&self) -> Seq {
        self.next
    }

    /// Writes units until `until` is reached.
    ///
    /// # Errors
    /// The device's: nothing is written from then on, for what had been taken to be written is not.
    pub(crate) fn emit(&mut self, until: EmitUntil) -> Result<()> {
        self.emit_runs(until).inspect_err(|e| self.shared.poison(e.device()))
    }

    fn emit_runs(&mut self, until: EmitUntil) -> Result<()> {
        if until == EmitUntil::Beat {
            self.write_run(until, 1, 1)?;
        }
        while !self.is_reached(until) {
            self.write_run(until, 1, self.shared.run_units)?;
        }
        Ok(())
    }

    /// Writes so many units, whatever waits.
    ///
    /// # Errors
    /// As [`Sequencer::emit`].
    pub(crate) fn emit_units(&mut self, count: usize) -> Result<()> {
        let end = self.next.0 + count as u64;
        while self.next.0 < end {
            let left = usize::try_from(end - self.next.0).expect("no more than asked for");
            let least = left.min(self.shared.run_units);
            self.write_run(EmitUntil::All, least, least)
                .inspect_err(|e| self.shared.poison(e.device()))?;
        }
        Ok(())
    }

    fn is_reached(&self, until: EmitUntil) -> bool {
        let waiting = self.shared.level(Level::PUBLIC).stage().waiting();
        match until {
            EmitUntil::Full => waiting < self.shared.log.geometry.slot_count(Level::PUBLIC),
            EmitUntil::All | EmitUntil::Beat => waiting == 0,
        }
    }

    /// Plans, seals and hands over up to `units_max` adjacent units, `units_min` at least unless the
    /// ring ends.
    fn write_run(&mut self, until: EmitUntil, units_min: usize, units_max: usize) -> Result<()> {
        self.make_room(units_max)?;
        let mut plans = Vec::with_capacity(units_max);
        let mut moved = Moved::new();
        loop {
            let seq = Seq(self.next.0 + plans.len() as u64);
            if planted(Fault::SkippedUnits) && self.hidden_tail_is_live(seq)? {
                // The run ends where hidden data lies.
                plans.push(self.plan(seq, &mut moved)?);
                break;
            }
            plans.push(self.plan(seq, &mut moved)?);
            let done = plans.len() >= units_min && self.is_reached(until);
            let wraps = self.shared.geometry().unit_of(Seq(seq.0 + 1)) == 0;
            if done || wraps || plans.len() == units_max {
                break;
            }
        }
        self.seal_and_hand_over(plans, &moved)
    }

    /// Seals the units, their slots side by side and their headers one after the other, and hands them
    /// over to be written.
    fn seal_and_hand_over(&mut self, plans: Vec<Plan>, moved: &Moved) -> Result<()> {
        let (shared, sealer) = (&*self.shared, Sealer::new(&self.shared));
        let geometry = &shared.log.geometry;
        let next = Seq(self.next.0 + plans.len() as u64);
        let (mut units, tails) = self.seal_and_read(plans, next);
        self.ahead.extend(tails);
        for Made { plan, sealed, bytes } in &mut units {
            sealer.seal_head(&mut self.before, &mut self.levels, plan, sealed, bytes);
        }
        let unit = geometry.unit_of(self.next);
        let flush = self.flush_is_due(next);
        let made = units.into_iter().map(|Made { plan, sealed, bytes }| (bytes, (plan, sealed)));
        let (bytes, units): (Vec<AlignedBuf>, Vec<_>) = made.unzip();
        let run = Run { first: self.next, start: geometry.unit_start(unit), units: bytes, flush };
        shared.in_flight.announce(unit, run);
        self.next = next;
        if flush {
            // Whatever comes next is written behind that flush, or not at all.
            self.durable = next;
        }
        self.unflushed = true;
        // First their numbers, then their places.
        shared.note_emitted(next);
        for (plan, sealed) in units {
            sealer.publish(&plan, sealed, moved);
            if let Some(tail) = plan.tail {
                shared.buffers.give(tail.bytes);
            }
        }
        shared.note_complete(next);
        shared.in_flight.hand_over()
    }

    /// Seals the slots of the units before `next`, and reads the tails that come then.
    fn seal_and_read(&self, plans: Vec<Plan>, next: Seq) -> (Vec<Made>, Vec<Tail>) {
        let to_read = tails_left(&self.shared, self.ahead.to_read(&self.shared, next));
        let plans = plans.into_iter().map(|plan| Part::Plan(Box::new(plan)));
        let parts = plans.chain(to_read.map(Part::Tail)).collect();
        let shared = Arc::clone(&self.shared);
        let done = self.team.work(parts, move |part| match part {
            Part::Plan(plan) => {
                let mut bytes = shared.buffers.take(shared.log.geometry.unit_len());
                let sealed = Sealer::new(&shared).seal_slots(&plan, &mut bytes);
                Done::Made(Made { plan, sealed, bytes })
            }
            // What cannot be read is left to be read when it is needed.
            Part::Tail(left) => Done::Read(read_tail(&shared, left).ok()),
        });
        let (mut units, mut tails) = (Vec::new(), Vec::new());
        for done in done {
            match done {
                Done::Made(unit) => units.push(unit),
                Done::Read(tail) => tails.push(tail),
            }
        }
        (units, tails.into_iter().map_while(|tail| tail).collect())
    }

    /// A unit is written again only when what was taken from it is durable: the tail left it when the
    /// unit a gap before was made. And only so much is ever not durable, since all that has to be
    /// read after a crash. Here that is seen to for what an earlier session has left; else
    /// [`Sequencer::flush_is_due`] does it in time.
    fn make_room(&mut self, units: usize) -> Result<()> {
        let room = self.shared.log.geometry.unflushed_max();
        let left = self.next.0 + units as u64 - self.durable.0;
        if planted(Fault::EarlyReuse) || left <= room { Ok(()) } else { self.make_durable() }
    }

    /// Whether the device is flushed behind the run that ends before `next`: when half of what may be not
    /// durable has been written. Whoever writes does it, and the head goes on meanwhile.
    fn flush_is_due(&self, next: Seq) -> bool {
        let due = self.shared.log.geometry.unflushed_max() / 2;
        !planted(Fault::EarlyReuse) && next.0 - self.durable.0 >= due
    }

    /// Everything handed over so far is on the medium when this returns.
    pub(crate) fn make_durable(&mut self) -> Result<()> {
        if !self.unflushed {
            return Ok(());
        }
        self.shared.in_flight.drain()?;
        let skipped = planted(Fault::SkippedFlush);
        let done = if skipped { Ok(()) } else { self.shared.log.device.flush() };
        if let Err(cause) = &done {
            self.shared.poison(Some(cause));
        }
        done?;
        self.durable = self.next;
        self.unflushed = false;
        self.shared.note_durable(self.durable);
        Ok(())
    }

    /// Begins a sweep, unless one is under way and its rest is enough.
    pub(crate) fn begin_sweep(&mut self, round: Round) {
        if round == Round::Whole || self.sweep_until <= self.next {
            self.sweep_until = Seq(self.next.0 + u64::from(self.shared.geometry().units()));
        }
    }

    /// Units that the sweep under way has still to write.
    pub(crate) const fn sweep_left(&self) -> u64 {
        self.sweep_until.0.saturating_sub(self.next.0)
    }

    fn plan(&mut self, seq: Seq, moved: &mut Moved) -> Result<Plan> {
        let tail = self.ahead.tail(&self.shared, seq)?;
        let salt = if planted(Fault::RepeatedSalt) {
            tacita_secret::digest(&seq.0.to_le_bytes())
        } else {
            (self.entropy.public)()?
        };
        let noise = self.entropy.noise_key()?;
        let mut levels = Vec::with_capacity(self.levels.len());
        for (open, state) in self.shared.levels.iter().zip(&mut self.levels) {
            levels.push(match (open, state) {
                (Some(open), Some(state)) => {
                    Some(plan_level(&self.shared, open, state, seq, tail.as_ref(), moved))
                }
                _ => None,
            });
        }
        let (durable, sweep_until) = (self.durable, self.sweep_until);
        Ok(Plan { seq, durable, sweep_until, salt, noise, tail, levels })
    }

    /// Whether hidden data is live at the tail: only planted faults may ask.
    fn hidden_tail_is_live(&mut self, seq: Seq) -> Result<bool> {
        let shared = &*self.shared;
        let Some(tail) = self.ahead.tail(shared, seq)? else { return Ok(false) };
        let mut hidden = shared.levels.iter().skip(1).flatten();
        let live = hidden.any(|open| !live(shared, open, &tail).is_empty());
        self.ahead.put_back(tail);
        Ok(live)
    }
}

/// Fills the slots of a level: what is carried, then pages that are due, then what waits.
fn plan_level(
    shared: &OpenLog,
    open: &OpenLevel,
    ahead: &mut LevelHead,
    seq: Seq,
    tail: Option<&Tail>,
    moved: &mut Moved,
) -> LevelPlan {
    let geometry = &shared.log.geometry;
    let mut slots = geometry.slot_count(open.level);
    if planted(Fault::SharedClass) && open.level == Level::hidden(1) && shared.higher_waits() {
        slots -= 1;
    }
    let (filled, droppable) = (Vec::with_capacity(slots), droppable(open.level));
    let mut plan = Filling { shared, open, ahead, seq, slots, moved, filled, droppable };
    plan.apply_drops();
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
