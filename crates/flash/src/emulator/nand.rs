//! The chip: pages that are programmed once, in order, and blocks that are erased as a whole.

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::damage::{Damage, DamageSet};
use super::medium::Medium;
use super::options::Behaviour;
use super::power::{CutMode, Power};

use super::shape::{Peb, Shape};
use super::state::{Mark, State};
use crate::dump::read_pages;
use crate::faults::{Fault, planted};
use crate::random::Random;
use crate::{Error, Kind, Result};

/// What a page looks like where nothing has been programmed.
const ERASED: [u8; 4096] = [0xff; 4096];

/// Whether what was read is as it was programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    /// Bits had flipped and were corrected: the content should move.
    Corrected,
}

/// When something was done, between syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Epoch(u64);

/// A chip. Whoever programs or erases a block sees to it that nobody else does.
#[derive(Debug)]
pub(super) struct Nand {
    shape: Shape,
    medium: Medium,
    /// [`State::programmed`] of each block.
    programmed: Vec<AtomicU32>,
    marks: Mutex<Vec<Mark>>,
    pub(super) power: Power,
    syncs_begun: AtomicU64,
    /// The greatest number of one that is done.
    syncs_done: AtomicU64,
    damage: DamageSet,
    behaviour: Behaviour,
}

impl Nand {
    pub(super) fn new(
        shape: Shape,
        medium: Medium,
        states: &[State],
        behaviour: Behaviour,
    ) -> Self {
        Self {
            shape,
            medium,
            programmed: states.iter().map(|state| state.programmed.into()).collect(),
            marks: Mutex::new(states.iter().map(|state| state.mark).collect()),
            power: Power::on(),
            syncs_begun: AtomicU64::new(0),
            syncs_done: AtomicU64::new(0),
            damage: DamageSet::default(),
            behaviour,
        }
    }

    /// The same chip when the power has come back; the old one has none any more.
    pub(super) fn powered_on(&self) -> Self {
        self.power.cut();
        self.with_medium(self.medium.clone())
    }

    /// A copy of the chip in memory.
    pub(super) fn snapshot(&self) -> Result<Self> {
        Ok(self.with_medium(self.medium.snapshot(self.shape, &self.states())?))
    }

    fn with_medium(&self, medium: Medium) -> Self {
        let chip = Self::new(self.shape, medium, &self.states(), self.behaviour);
        Self { damage: self.damage.lasting(), ..chip }
    }

    pub(super) const fn shape(&self) -> Shape {
        self.shape
    }

    /// # Errors
    /// [`Kind::ReadOnly`] if it was opened for reading.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.medium.check_writable()
    }

    /// How far a block has been programmed, in bytes.
    pub(super) fn programmed(&self, peb: Peb) -> u32 {
        self.programmed[peb.0 as usize].load(Ordering::Acquire)
    }

    pub(super) fn is_bad(&self, peb: Peb) -> bool {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)[peb.0 as usize] != Mark::Good
    }

    pub(super) fn bad_blocks(&self) -> u32 {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let bad = marks.iter().filter(|mark| **mark != Mark::Good).count();
        u32::try_from(bad).expect("blocks have numbers of 32 bits")
    }

    pub(super) fn add_damage(&self, damage: Damage) {
        self.damage.add(damage);
    }

    /// Reads; what has not been programmed is `0xff`.
    ///
    /// # Errors
    /// [`Kind::Io`] if more bits have flipped than are corrected; [`Kind::PowerCut`].
    pub(super) fn read(&self, peb: Peb, offset: u32, buf: &mut [u8]) -> Result<Health> {
        self.power.check()?;
        let there = self.programmed(peb).saturating_sub(offset) as usize;
        let (content, behind) = buf.split_at_mut(there.min(buf.len()));
        behind.fill(0xff);
        if content.is_empty() {
            return Ok(Health::Good);
        }
        self.medium.read(peb, offset, content)?;
        let page = self.shape.page_len_bytes;
        let end = offset + len_of(content);
        let flipped = self.damage.flipped_bits(peb, offset / page..end.div_ceil(page));
        if flipped > self.behaviour.ecc_strength_bits {
            let text = format!("block {} has {flipped} flipped bits in a page", peb.0);
            return Err(Error::new(Kind::Io, text));
        }
        Ok(if flipped > 0 { Health::Corrected } else { Health::Good })
    }

    /// Programs whole pages, or a sub-page of the first. What is skipped stays as it is until the
    /// block is erased.
    ///
    /// # Errors
    /// [`Kind::Programmed`]; [`Kind::Io`] if a page fails: it may hold anything; [`Kind::PowerCut`].
    pub(super) fn program(&self, peb: Peb, offset: u32, data: &[u8]) -> Result<()> {
        let programmed = self.programmed(peb);
        if offset < programmed && !planted(Fault::ProgramTwiceAllowed) {
            let text = format!("block {} is programmed up to {programmed}, not {offset}", peb.0);
            return Err(Error::new(Kind::Programmed, text));
        }
        let page = self.shape.page_len_bytes;
        let unit = data.len().min(page as usize);
        let count = (data.len() / unit.max(1)) as u64;
        if count == 0 {
            return self.power.check();
        }
        let granted = self.power.take(count)?;
        let failing = self.damage.failing_program(peb, offset / page, granted.first, granted.done);
        let done = failing.unwrap_or(granted.done);
        let (whole, rest) = data.split_at(usize::try_from(done).unwrap_or(0) * unit);
        let broken = match (failing, granted.cut) {
            (Some(_), _) => Some(self.torn(CutMode::Garbled, granted.first + done, &rest[..unit])),
            (None, Some(mode)) => Some(self.torn(mode, granted.first + done, &rest[..unit])),
            (None, None) => None,
        };
        let broken = broken.unwrap_or_default();
        if !(whole.is_empty() && broken.is_empty()) {
            self.write(peb, offset, whole, &broken)?;
        }
        match (failing, granted.cut) {
            (Some(_), _) => {
                Err(Error::new(Kind::Io, format!("a page of block {} cannot be programmed", peb.0)))
            }
            (None, Some(_)) => Err(Power::gone()),
            (None, None) => Ok(()),
        }
    }

    /// Erases a block.
    ///
    /// # Errors
    /// [`Kind::Io`]: its content is as before; [`Kind::PowerCut`].
    pub(super) fn erase(&self, peb: Peb) -> Result<()> {
        let granted = self.power.take(1)?;
        if let Some(mode) = granted.cut {
            self.half_erase(peb, mode, granted.first)?;
            return Err(Power::gone());
        }
        if self.damage.is_erase_failing(peb, granted.first) {
            return Err(Error::new(Kind::Io, format!("block {} cannot be erased", peb.0)));
        }
        self.medium.erase(peb)?;
        self.damage.erased(peb);
        self.set_programmed(peb, 0)
    }

    /// Makes it durable that blocks are erased, before they are: whoever finds the image after a crash
    /// of the machine takes nothing from blocks that have been erased in part.
    pub(super) fn announce_erases(&self, pebs: &[Peb]) -> Result<()> {
        self.power.check()?;
        if planted(Fault::EraseUnannounced) {
            return Ok(());
        }
        for peb in pebs {
            self.medium.set_state(*peb, State::NEW)?;
        }
        self.sync()
    }

    /// Takes that back for blocks that are not erased after all.
    pub(super) fn withdraw_erases(&self, pebs: &[Peb]) -> Result<()> {
        let states = self.states();
        pebs.iter().try_for_each(|peb| self.medium.set_state(*peb, states[peb.0 as usize]))
    }

    /// Takes a block out of use for good.
    pub(super) fn mark_bad(&self, peb: Peb) -> Result<()> {
        self.power.check()?;
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks[peb.0 as usize] = Mark::GrownBad;
        self.medium.set_state(peb, State { programmed: self.programmed(peb), mark: Mark::GrownBad })
    }

    /// Makes durable what has been done.
    pub(super) fn sync(&self) -> Result<()> {
        self.power.check()?;
        let number = self.syncs_begun.fetch_add(1, Ordering::AcqRel) + 1;
        self.medium.sync()?;
        self.syncs_done.fetch_max(number, Ordering::AcqRel);
        Ok(())
    }

    /// The time, in syncs that have begun.
    pub(super) fn now(&self) -> Epoch {
        Epoch(self.syncs_begun.load(Ordering::Acquire))
    }

    /// Whether all that was done before is durable.
    pub(super) fn is_durable(&self, before: Epoch) -> bool {
        self.syncs_done.load(Ordering::Acquire) > before.0
    }

    /// Writes all blocks as they are, with or without power; where nothing could be read, and zeros were
    /// written.
    pub(super) fn dump(&self, out: &mut dyn Write) -> Result<Vec<Range<u64>>> {
        let (len, page_len) = (self.shape.block_len_bytes(), self.shape.page_len_bytes as usize);
        let mut unread = Vec::new();
        let mut buf = vec![0; len as usize];
        for peb in self.shape.pebs() {
            let (content, behind) = buf.split_at_mut(self.programmed(peb) as usize);
            let read = |at: u64, buf: &mut [u8]| {
                self.medium.read(peb, u32::try_from(at).expect("within a block"), buf)
            };
            let start = u64::from(peb.0) * u64::from(len);
            let missing = read_pages(content, page_len, read);
            unread.extend(missing.into_iter().map(|range| start + range.start..start + range.end));
            behind.fill(0xff);
            out.write_all(&buf).map_err(|e| Error::from_io("cannot write the dump", e))?;
        }
        Ok(unread)
    }

    pub(super) fn states(&self) -> Vec<State> {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let state =
            |(peb, mark): (Peb, &Mark)| State { programmed: self.programmed(peb), mark: *mark };
        self.shape.pebs().zip(marks.iter()).map(state).collect()
    }

    /// Writes `whole` and `broken` at `offset`, and what is skipped before them. The state comes first:
    /// whoever is killed in between has a torn page, and not a page that nobody knows of.
    fn write(&self, peb: Peb, offset: u32, whole: &[u8], broken: &[u8]) -> Result<()> {
        let before = self.programmed(peb);
        let end = offset + len_of(whole) + len_of(broken);
        self.set_programmed(peb, end.max(before))?;
        let mut at = before;
        while at < offset {
            let part = &ERASED[..ERASED.len().min((offset - at) as usize)];
            self.medium.write(peb, at, part)?;
            at += len_of(part);
        }
        self.medium.write(peb, offset, whole)?;
        self.medium.write(peb, offset + len_of(whole), broken)
    }

    /// What a page holds whose programming was cut or failed.
    fn torn(&self, mode: CutMode, number: u64, data: &[u8]) -> Vec<u8> {
        let mut random = Random::new(self.behaviour.seed, number);
        let mut page = data.to_vec();
        match mode {
            CutMode::Clean => page.clear(),
            CutMode::Torn => page[part_of(&mut random, data)..].fill(0xff),
            CutMode::Garbled => random.fill(&mut page),
        }
        page
    }

    /// Leaves a block as an erase does that was cut.
    fn half_erase(&self, peb: Peb, mode: CutMode, number: u64) -> Result<()> {
        let mut random = Random::new(self.behaviour.seed, number);
        let mut content = vec![0; self.programmed(peb) as usize];
        self.medium.read(peb, 0, &mut content)?;
        match mode {
            CutMode::Clean => return Ok(()),
            // The first byte is gone in any case: an erase that has begun spares no header.
            CutMode::Torn => {
                let erased = content.len().min(1 + part_of(&mut random, &content));
                content[..erased].fill(0xff);
            }
            CutMode::Garbled => {
                let mut bits = vec![0; content.len()];
                random.fill(&mut bits);
                content.iter_mut().zip(bits).for_each(|(byte, bits)| *byte |= bits);
            }
        }
        self.medium.write(peb, 0, &content)
    }

    fn set_programmed(&self, peb: Peb, programmed: u32) -> Result<()> {
        self.programmed[peb.0 as usize].store(programmed, Ordering::Release);
        self.medium.set_state(peb, State { programmed, mark: Mark::Good })
    }
}

/// A length below that of the data.
fn part_of(random: &mut Random, data: &[u8]) -> usize {
    usize::try_from(random.below(data.len().max(1) as u64)).expect("data is in memory")
}

fn len_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("no more than an erase block")
}
