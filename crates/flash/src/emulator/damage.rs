//! What is wrong with the chip.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shape::Peb;

/// Something that goes wrong, for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Bits of a page have flipped, until the block is erased.
    FlippedBits {
        /// The physical block.
        block: u32,
        /// Its page.
        page: u32,
        /// How many of its bits.
        bits: u32,
    },
    /// A page can no longer be programmed.
    ProgramFails {
        /// The physical block.
        block: u32,
        /// Its page.
        page: u32,
    },
    /// A block can no longer be erased.
    EraseFails {
        /// The physical block.
        block: u32,
    },
    /// The operation of this number fails, once.
    FailsAt(u64),
}

#[derive(Debug, Clone, Default)]
struct Known {
    flipped: BTreeMap<(Peb, u32), u32>,
    programs: BTreeSet<(Peb, u32)>,
    erases: BTreeSet<Peb>,
    numbers: BTreeSet<u64>,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct DamageSet {
    /// Whether there is any, so that a whole chip needs no lock.
    any: AtomicBool,
    known: Mutex<Known>,
}

impl DamageSet {
    pub(super) fn add(&self, damage: Damage) {
        let mut known = self.lock();
        match damage {
            Damage::FlippedBits { block, page, bits } => {
                known.flipped.insert((Peb(block), page), bits);
            }
            Damage::ProgramFails { block, page } => {
                known.programs.insert((Peb(block), page));
            }
            Damage::EraseFails { block } => {
                known.erases.insert(Peb(block));
            }
            Damage::FailsAt(number) => {
                known.numbers.insert(number);
            }
        }
        self.any.store(true, Ordering::Release);
    }

    /// What stays when the power has been away.
    pub(super) fn lasting(&self) -> Self {
        let known = Known { numbers: BTreeSet::new(), ..self.lock().clone() };
        Self { any: AtomicBool::new(self.is_any()), known: Mutex::new(known) }
    }

    /// The most bits that have flipped in one of these pages.
    pub(super) fn flipped_bits(&self, peb: Peb, pages: Range<u32>) -> u32 {
        if !self.is_any() {
            return 0;
        }
        let known = self.lock();
        let range = known.flipped.range((peb, pages.start)..(peb, pages.end));
        range.map(|(_, bits)| *bits).max().unwrap_or(0)
    }

    /// How many pages from `page` on are programmed before one fails; the operations have the
    /// numbers from `first` on.
    pub(super) fn failing_program(
        &self,
        peb: Peb,
        page: u32,
        first: u64,
        count: u64,
    ) -> Option<u64> {
        if !self.is_any() {
            return None;
        }
        let mut known = self.lock();
        let found = (0u32..).zip(0..count).find(|(ahead, at)| {
            known.programs.contains(&(peb, page + ahead)) || known.numbers.contains(&(first + at))
        });
        let (_, at) = found?;
        known.numbers.remove(&(first + at));
        Some(at)
    }

    /// Whether the erase of this number fails.
    pub(super) fn is_erase_failing(&self, peb: Peb, number: u64) -> bool {
        if !self.is_any() {
            return false;
        }
        let mut known = self.lock();
        known.numbers.remove(&number) || known.erases.contains(&peb)
    }

    /// A block has been erased.
    pub(super) fn erased(&self, peb: Peb) {
        if self.is_any() {
            self.lock().flipped.retain(|(block, _), _| *block != peb);
        }
    }

    fn is_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
