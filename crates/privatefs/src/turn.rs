//! Whose turn it is. Mounts of one store take turns: who has the turn may read and change everything, and
//! keeps what it has read in memory; who waits says so in the register, and gets the turn when the one
//! before has made all its changes durable. Who shows no sign of life for long is taken over from: its
//! commit is finished, and whatever it tries to commit from then on fails.
//!
//! Signs of life are counters that grow, and each mount looks at its own clock for how long one has not:
//! what the clocks of two machines say need not agree. Time in which the store did not answer, and nobody
//! could be heard, hardly counts.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tacita_clock::Clock;
use tacita_oram::log_view::Outcome;
use tacita_oram::record::{Operation, digest_of};

use crate::blocks::Blocks;
use crate::commit;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::ids::{Ids, MountId};
use crate::privatefs::{Core, Options, random};
use crate::register::{Register, SLOTS, Slot};
use crate::usage::Usage;

/// Whether it is this mount's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// It is.
    Held,
    /// It is ending.
    Leaving,
    /// It is another's, or nobody's.
    Other,
}

/// The register as it was seen last, and how long nothing has been heard of others.
#[derive(Debug)]
pub(crate) struct Turn {
    known: Mutex<Known>,
}

/// The journal of a mount that is gone, with so many blocks.
pub(crate) type Left = (MountId, u32);

#[derive(Debug)]
struct Known {
    block: Bytes,
    /// The counter of each other mount, and for how long it was seen to be that.
    beats: HashMap<MountId, (u64, Duration)>,
    /// When others were looked at last.
    looked: Option<Duration>,
    /// When the register was changed last, and when the turn began.
    beaten: Duration,
    begun: Duration,
}

impl Turn {
    /// Takes a slot. Where none is free, this waits for one of a mount that is gone: whoever was there to
    /// notice may be gone as well.
    pub(crate) fn join(
        blocks: &dyn Blocks,
        ids: &Ids,
        mount: &MountId,
        clock: &dyn Clock,
        options: &Options,
    ) -> Result<(Self, Vec<Left>)> {
        let Some(block) = read_register(blocks, ids)? else {
            let text = "there is no file system in the store; `tacita privatefs format` makes one";
            return Err(Error::new(Kind::NotFormatted, text));
        };
        let silent = if options.shared {
            await_silent(&Register::decode(&block)?, blocks, ids, (clock, options))?
        } else {
            Vec::new()
        };
        let mut known = Known {
            block,
            beats: HashMap::new(),
            looked: None,
            beaten: Duration::ZERO,
            begun: Duration::ZERO,
        };
        let mut left = Vec::new();
        update(&mut known, blocks, ids, |register| {
            left = bury(register, &silent);
            if !options.shared {
                // Nobody else is at the store. Slots of journals stay until those are freed: this mount may be
                // killed before.
                register.slots.retain(|slot| slot.mount == *mount || slot.journal > 0);
                let gone = register.slots.iter().filter(|slot| slot.mount != *mount);
                left.extend(gone.map(|slot| (slot.mount, slot.journal)));
                register.slots.truncate(SLOTS - 1);
                register.owner = None;
            }
            if register.slot(mount).is_some() {
                return Ok(());
            }
            if register.slots.len() >= SLOTS {
                let text = format!("{SLOTS} mounts are there, and no more can be: unmount one");
                return Err(Error::new(Kind::Busy, text));
            }
            register.slots.push(Slot { mount: *mount, beat: 1, ..Slot::default() });
            Ok(())
        })?;
        Ok((Self { known: Mutex::new(known) }, left))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_register(blocks: &dyn Blocks, ids: &Ids) -> Result<Option<Bytes>> {
    match &blocks.all(vec![(ids.register(), Operation::Read)])?[..] {
        [Outcome::Was(block)] => Ok(block.clone()),
        _ => Ok(None),
    }
}

/// Of mounts that have all slots: those that give no sign of life for as long as it takes to be taken over
/// from. None where a slot is free.
fn await_silent(
    full: &Register,
    blocks: &dyn Blocks,
    ids: &Ids,
    (clock, options): (&dyn Clock, &Options),
) -> Result<Vec<Beat>> {
    if full.slots.len() < SLOTS {
        return Ok(Vec::new());
    }
    log::warn!(
        "{SLOTS} mounts are there: waiting for {} s to see whether one of them is gone",
        options.take_over.as_secs()
    );
    let (mut looked, mut silence) = (clock.monotonic(), Duration::ZERO);
    let mut silent: Vec<Beat> = full.slots.iter().map(|slot| (slot.mount, slot.beat)).collect();
    while !silent.is_empty() && silence <= options.take_over {
        let block = read_register(blocks, ids)?;
        let now = clock.monotonic();
        silence += heard_between(looked, now, options);
        looked = now;
        let register = Register::decode(&block.ok_or_else(gone)?)?;
        if register.slots.len() < SLOTS {
            return Ok(Vec::new());
        }
        silent.retain(|beat| register.slots.iter().any(|slot| is_silent(slot, beat)));
        clock.wait(options.take_over / 8);
    }
    Ok(silent)
}

/// How much of the time between two looks at the register counts as silence: where it was long, the store
/// did not answer, or this mount stood still.
fn heard_between(last: Duration, now: Duration, options: &Options) -> Duration {
    now.saturating_sub(last).min(options.take_over / 4)
}

fn gone() -> Error {
    Error::damaged("the register is gone")
}

/// Changes the register, whatever others have made of it meanwhile.
fn update(
    known: &mut Known,
    blocks: &dyn Blocks,
    ids: &Ids,
    mut change: impl FnMut(&mut Register) -> Result<()>,
) -> Result<Register> {
    loop {
        let mut register = Register::decode(&known.block)?;
        change(&mut register)?;
        register.writes += 1;
        let new = Bytes::from(register.encode());
        let expected = Some(digest_of(&known.block));
        let swap = Operation::CompareAndWrite { expected, new: new.clone() };
        match &blocks.all(vec![(ids.register(), swap)])?[..] {
            [Outcome::Compared { written: true, .. }] => {
                known.block = new;
                return Ok(register);
            }
            // An answer that was lost.
            [Outcome::Compared { was: Some(was), .. }] if *was == new => {
                known.block = new;
                return Ok(register);
            }
            [Outcome::Compared { was: Some(was), .. }] => known.block = was.clone(),
            [Outcome::Full] => return Err(full()),
            _ => return Err(gone()),
        }
    }
}

/// A mount, and the counter that it had.
type Beat = (MountId, u64);

/// Whether a slot is that mount's, and it has given no sign of life since.
fn is_silent(slot: &Slot, (mount, beat): &Beat) -> bool {
    slot.mount == *mount && (slot.beat == *beat || planted(Fault::LifeUnseen))
}

/// Takes mounts out of the register that have given no sign of life since. What they leave.
fn bury(register: &mut Register, dead: &[Beat]) -> Vec<Left> {
    if planted(Fault::PlacesStay) {
        return Vec::new();
    }
    let is_dead = |slot: &&Slot| dead.iter().any(|beat| is_silent(slot, beat));
    let dead: Vec<Slot> = register.slots.iter().filter(is_dead).copied().collect();
    for slot in &dead {
        register.remove(&slot.mount);
    }
    dead.iter().map(|slot| (slot.mount, slot.journal)).collect()
}

pub(crate) fn full() -> Error {
    Error::new(Kind::NoSpace, "the store has as many blocks as it was made for")
}

impl Core {
    /// Changes the register as one whose turn it is.
    pub(crate) fn update_as_owner(
        &self,
        mut change: impl FnMut(&mut Register),
    ) -> Result<Register> {
        let epoch = self.lock().epoch;
        let mut known = self.turn.lock();
        let (begin, begin_boottime) = (self.clock.monotonic(), self.clock.boottime());
        let updated = update(&mut known, &*self.blocks, &self.ids, |register| {
            let is_own = register.owner == Some(self.mount()) && register.epoch == epoch;
            if !is_own && !planted(Fault::TurnUnchecked) {
                return Err(Error::fenced());
            }
            change(register);
            Ok(())
        });
        if updated.is_ok() {
            known.beaten = begin;
        }
        drop(known);
        let mut state = self.lock();
        match &updated {
            Ok(_) => state.hold_until = self.options.hold_until(begin_boottime),
            // Of a turn that it may have had before it came back nothing is to be said any more.
            Err(error) if error.kind() == Kind::Fenced && state.epoch == epoch => {
                state.failed = Some(error.clone());
                state.status = Status::Other;
                self.turned.notify_all();
            }
            Err(_) => {}
        }
        updated
    }

    /// The register as it was seen last.
    pub(crate) fn register(&self) -> Result<Register> {
        Register::decode(&self.turn.lock().block)
    }

    /// Gives a sign of life, and so makes sure that it still is this mount's turn.
    pub(crate) fn renew(&self) -> Result<()> {
        self.update_as_owner(|register| {
            if let Some(slot) = register.slot_mut(&self.mount()) {
                slot.beat += 1;
            }
        })
        .map(drop)
    }

    /// Makes sure that it still is this mount's turn, if that was not seen for long.
    pub(crate) fn hold(&self) -> Result<()> {
        let state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let until = state.hold_until;
        drop(state);
        if self.clock.boottime() <= until { Ok(()) } else { self.renew() }
    }

    /// It is this mount's turn from now on.
    pub(crate) fn begin_turn(&self) -> Result<()> {
        let mut known = self.turn.lock();
        let (begin, begin_boottime) = (self.clock.monotonic(), self.clock.boottime());
        let mut before = 0;
        let mut pending = None;
        let register = update(&mut known, &*self.blocks, &self.ids, |register| {
            if register.owner.is_some_and(|owner| owner != self.mount()) {
                return Err(Error::new(Kind::Busy, "it is another mount's turn"));
            }
            let slot = register.slot_mut(&self.mount()).ok_or_else(Error::fenced)?;
            slot.beat += 1;
            slot.waits_since = 0;
            before = register.epoch;
            pending = register.pending;
            register.owner = Some(self.mount());
            register.epoch += 1;
            Ok(())
        })?;
        known.beaten = begin;
        known.begun = begin;
        drop(known);
        let is_next = before == self.lock().epoch && before != 0;
        if let Some(pending) = pending
            && pending.mount != self.mount()
            && !planted(Fault::ReplaySkipped)
        {
            commit::replay(self, pending, register.commit)?;
            self.lock().epoch = register.epoch;
            self.update_as_owner(|register| register.pending = None)?;
        }
        let room = self.blocks.room()?;
        let mut state = self.lock();
        if !is_next && !planted(Fault::CacheKept) {
            state.cache.clear();
            state.look_for_graves = true;
            state.usage = Usage::new(room);
        }
        state.usage.told(room, 0);
        state.epoch = register.epoch;
        state.hold_until = self.options.hold_until(begin_boottime);
        state.status = Status::Held;
        self.turned.notify_all();
        Ok(())
    }

    /// One look at the register, and what follows from it.
    pub(crate) fn tick(&self) -> Result<()> {
        if !self.options.shared {
            return Ok(());
        }
        let (status, is_wanted) = {
            let state = self.lock();
            if state.failed.is_some() {
                drop(state);
                return self.come_back();
            }
            (state.status, state.waiting > 0)
        };
        let looked = match status {
            Status::Held => self.tick_holding(),
            Status::Leaving => Ok(()),
            Status::Other => self.tick_waiting(is_wanted),
        };
        // Whoever waits in vain is told.
        self.lock().unseen = looked.as_ref().err().cloned();
        looked
    }

    fn tick_holding(&self) -> Result<()> {
        let now = self.clock.monotonic();
        let is_early = {
            let known = self.turn.lock();
            let register = Register::decode(&known.block)?;
            let quiet = now.saturating_sub(known.beaten);
            let wanted = if register.slots.len() < 2 {
                self.options.take_over / 8
            } else {
                2 * self.options.poll
            };
            quiet < wanted
        };
        // Who commits all the time gives a sign of life with each commit, and hears with it who waits.
        if !is_early {
            self.renew()?;
        }
        let now = self.clock.monotonic();
        let (others_wait, begun) = {
            let mut known = self.turn.lock();
            let register = Register::decode(&known.block)?;
            let dead = self.look_at_others(&mut known, &register, now);
            if !dead.is_empty() {
                drop(known);
                let mut left = Vec::new();
                self.update_as_owner(|register| left = bury(register, &dead))?;
                self.have_left(left);
                return Ok(());
            }
            let waits = |slot: &Slot| slot.waits_since != 0 && slot.mount != self.mount();
            (register.slots.iter().any(waits), known.begun)
        };
        let is_idle = {
            let state = self.lock();
            !is_early && state.waiting == 0 && self.clock.elapsed(state.worked) >= self.options.poll
        };
        if others_wait && (is_idle || self.clock.elapsed(begun) >= self.options.slice) {
            return self.end_turn();
        }
        Ok(())
    }

    /// Makes everything durable and lets others have the turn.
    pub(crate) fn end_turn(&self) -> Result<()> {
        self.lock().status = Status::Leaving;
        let ended = self.finish().and_then(|()| {
            self.update_as_owner(|register| {
                register.pending = None;
                register.owner = None;
            })
        });
        let mut state = self.lock();
        if ended.is_ok() {
            state.status = Status::Other;
        } else if state.failed.is_none() {
            state.status = Status::Held;
        }
        self.turned.notify_all();
        ended.map(drop)
    }

    fn tick_waiting(&self, is_wanted: bool) -> Result<()> {
        let now = self.clock.monotonic();
        let mut known = self.turn.lock();
        let is_due = now.saturating_sub(known.beaten) >= self.options.take_over / 8;
        if !is_wanted && !is_due {
            return Ok(());
        }
        known.block = read_register(&*self.blocks, &self.ids)?.ok_or_else(gone)?;
        let register = Register::decode(&known.block)?;
        let Some(own) = register.slot(&self.mount()) else {
            drop(known);
            let error = Error::fenced();
            self.lock().failed = Some(error.clone());
            self.turned.notify_all();
            return Err(error);
        };
        let dead = self.look_at_others(&mut known, &register, self.clock.monotonic());
        if !dead.is_empty() {
            let mut left = Vec::new();
            update(&mut known, &*self.blocks, &self.ids, |register| {
                left = bury(register, &dead);
                Ok(())
            })?;
            self.have_left(left);
            return Ok(());
        }
        let is_new = is_wanted && own.waits_since == 0;
        if is_due || is_new {
            update(&mut known, &*self.blocks, &self.ids, |register| {
                let writes = register.writes + 1;
                let slot = register.slot_mut(&self.mount()).ok_or_else(Error::fenced)?;
                slot.beat += 1;
                if is_wanted && slot.waits_since == 0 {
                    slot.waits_since = writes;
                }
                Ok(())
            })?;
            known.beaten = now;
        }
        let register = Register::decode(&known.block)?;
        let own = register.slot(&self.mount()).map_or(0, |slot| slot.waits_since);
        let is_first = own != 0
            && register.slots.iter().all(|slot| slot.waits_since == 0 || slot.waits_since >= own);
        drop(known);
        let is_free = is_first && register.owner.is_none();
        // The owner is this mount where beginning a turn has failed.
        if !is_free && register.owner != Some(self.mount()) {
            return Ok(());
        }
        match self.begin_turn() {
            Err(error) if error.kind() == Kind::Busy => Ok(()),
            begun => begun,
        }
    }

    /// A mount that was taken over from takes another slot, as a new one, if nothing was lost: it stood still, or
    /// its machine slept. If something was lost its programs are told so until it is mounted again.
    fn come_back(&self) -> Result<()> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.forget_last(|| {
            let has_lost_nothing = {
                let state = self.lock();
                let is_fenced = state.failed.as_ref().is_some_and(|e| e.kind() == Kind::Fenced);
                is_fenced && state.cache.changed() == 0
            };
            if !has_lost_nothing {
                return Ok(false);
            }
            let mount = random()?;
            let joined = Turn::join(&*self.blocks, &self.ids, &mount, &*self.clock, &self.options);
            let (turn, left) = joined?;
            let room = self.blocks.room()?;
            *self.turn.lock() = turn.known.into_inner().unwrap_or_else(PoisonError::into_inner);
            self.rename(mount);
            let mut state = self.lock();
            state.cache.clear();
            state.usage = Usage::new(room);
            state.graves.clear();
            state.epoch = 0;
            state.status = Status::Other;
            // Unless it is unmounted meanwhile.
            state.failed.take_if(|_| !self.is_closed.load(Ordering::SeqCst));
            drop(state);
            self.have_left(left);
            log::warn!(
                "another mount had taken over from this one: it has come back, and nothing was lost"
            );
            Ok(true)
        })
    }

    /// Mounts are gone, and these journals are left.
    fn have_left(&self, left: Vec<Left>) {
        let mut state = self.lock();
        state.look_for_graves = true;
        state.journals.extend(left);
    }

    /// The mounts of which nothing has been heard for too long, now that the register has come.
    fn look_at_others(&self, known: &mut Known, register: &Register, now: Duration) -> Vec<Beat> {
        let looked = known.looked.replace(now).unwrap_or(now);
        let passed = heard_between(looked, now, &self.options);
        known.beats.retain(|mount, _| register.slot(mount).is_some());
        let others = register.slots.iter().filter(|slot| slot.mount != self.mount());
        let mut dead = Vec::new();
        for slot in others {
            let (beat, silence) = known.beats.entry(slot.mount).or_default();
            *silence = if *beat == slot.beat { *silence + passed } else { Duration::ZERO };
            *beat = slot.beat;
            if *silence > self.options.take_over {
                dead.push((slot.mount, slot.beat));
            }
        }
        dead
    }

    /// Gives the slot back.
    pub(crate) fn leave(&self) -> Result<()> {
        {
            let mut state = self.lock();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state.failed = Some(Error::new(Kind::Fenced, "it is unmounted"));
            state.status = Status::Other;
            self.turned.notify_all();
        }
        let mut known = self.turn.lock();
        let mut journal = 0;
        update(&mut known, &*self.blocks, &self.ids, |register| {
            if register.owner == Some(self.mount()) {
                register.pending = None;
            }
            journal = register.slot(&self.mount()).map_or(0, |slot| slot.journal);
            register.remove(&self.mount());
            Ok(())
        })?;
        drop(known);
        self.free_journal((self.mount(), journal))
    }
}
