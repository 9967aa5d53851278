//! Which physical blocks are free, in use, or wait to be erased, and how worn they are.

use std::collections::{BTreeSet, VecDeque};

use super::super::nand::Epoch;
use super::super::shape::Peb;
use super::header::Owner;

/// Which of the free blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worn {
    /// For what may soon be replaced.
    Least,
    /// For what has stayed where it was.
    Most,
}

/// A block that nothing refers to any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stale {
    pub(super) peb: Peb,
    /// A page of it could not be programmed: it is used again only if it stands a trial.
    pub(super) is_suspect: bool,
    /// When what has replaced it was there.
    pub(super) since: Epoch,
}

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    erase_counter: u64,
    owner: Option<Owner>,
}

/// All good blocks.
#[derive(Debug)]
pub(super) struct Pool {
    blocks: Vec<Block>,
    /// By erase counter.
    free: BTreeSet<(u64, Peb)>,
    /// By erase counter.
    used: BTreeSet<(u64, Peb)>,
    /// Oldest first, so that no old content outlives what replaced it.
    stale: VecDeque<Stale>,
    /// In use, and bits have flipped in them.
    flipped: BTreeSet<Peb>,
}

impl Pool {
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            blocks: vec![Block::default(); blocks as usize],
            free: BTreeSet::new(),
            used: BTreeSet::new(),
            stale: VecDeque::new(),
            flipped: BTreeSet::new(),
        }
    }

    pub(super) fn erase_counter(&self, peb: Peb) -> u64 {
        self.blocks[peb.0 as usize].erase_counter
    }

    pub(super) fn owner(&self, peb: Peb) -> Option<Owner> {
        self.blocks[peb.0 as usize].owner
    }

    /// A block is erased and can be taken.
    pub(super) fn add_free(&mut self, peb: Peb, erase_counter: u64) {
        self.blocks[peb.0 as usize] = Block { erase_counter, owner: None };
        self.free.insert((erase_counter, peb));
    }

    /// Takes a free block.
    pub(super) fn take(&mut self, worn: Worn) -> Option<Peb> {
        let taken = match worn {
            Worn::Least => self.free.pop_first(),
            Worn::Most => self.free.pop_last(),
        };
        taken.map(|(_, peb)| peb)
    }

    /// A block that was taken holds the content of its owner from now on.
    pub(super) fn add_used(&mut self, peb: Peb, owner: Owner) {
        let block = &mut self.blocks[peb.0 as usize];
        block.owner = Some(owner);
        self.used.insert((block.erase_counter, peb));
    }

    /// The same when it is found, with its erase counter.
    pub(super) fn found_used(&mut self, peb: Peb, erase_counter: u64, owner: Owner) {
        self.blocks[peb.0 as usize].erase_counter = erase_counter;
        self.add_used(peb, owner);
    }

    /// Nothing refers to a block any more.
    pub(super) fn add_stale(&mut self, stale: Stale) {
        let peb = stale.peb;
        let block = &mut self.blocks[peb.0 as usize];
        block.owner = None;
        self.used.remove(&(block.erase_counter, peb));
        self.flipped.remove(&peb);
        self.stale.push_back(stale);
    }

    /// The same when it is found, with its erase counter.
    pub(super) fn found_stale(&mut self, peb: Peb, erase_counter: u64) {
        self.blocks[peb.0 as usize].erase_counter = erase_counter;
        self.add_stale(Stale { peb, is_suspect: false, since: Epoch::default() });
    }

    /// Stale blocks, the one that has waited longest first.
    pub(super) fn stale(&self) -> impl Iterator<Item = Stale> {
        self.stale.iter().copied()
    }

    /// Whether there are stale blocks.
    pub(super) fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// The one that has waited longest waits no longer: it has been erased, or has gone bad.
    pub(super) fn drop_oldest_stale(&mut self) {
        self.stale.pop_front();
    }

    /// Whether there are free blocks.
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Bits have flipped in a block.
    pub(super) fn add_flipped(&mut self, peb: Peb) {
        if self.owner(peb).is_some() {
            self.flipped.insert(peb);
        }
    }

    /// A block whose content should move because bits have flipped in it.
    pub(super) fn take_flipped(&mut self) -> Option<Peb> {
        self.flipped.pop_first()
    }

    /// The least worn block in use, where the most worn free one is worn so much more.
    pub(super) fn rested(&self, threshold: u64) -> Option<Peb> {
        let (most, _) = self.free.last()?;
        let (least, peb) = self.used.first()?;
        (*most >= least.saturating_add(threshold)).then_some(*peb)
    }
}
