//! Garbage collection: nodes that are needed move out of an erase block that holds few of them, byte
//! for byte, under the same keys.

use std::sync::PoisonError;

use tacita_dnefs_format::MainLeb;
use tacita_dnefs_format::checkpoint::Location;
use tacita_dnefs_format::node::{self, Class, Header};
use tacita_flash::{Leb, Volume};

use crate::error::Result;
use crate::faults::{Fault, planted};
use crate::keys::State;
use crate::log::{Head, RESERVED_LEBS};
use crate::store::{Core, Store};

/// Erase blocks that are made free in one go, above those that are reserved.
const WANTED_LEBS: u32 = 2;

impl Store {
    /// Makes erase blocks free, as far as that is possible.
    pub(crate) fn make_room(&self) -> Result<()> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let _blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        let mut core = self.core();
        let made = core.make_room(self);
        self.poison(made)
    }
}

impl Core {
    fn make_room(&mut self, store: &Store) -> Result<()> {
        let volume = &*store.volume;
        let mut checkpointed = false;
        while self.log.free_lebs() < RESERVED_LEBS + self.checkpoint_lebs_max() + WANTED_LEBS {
            match self.log.victim(self.checkpoint_sqnum) {
                Some(victim) if self.log.free_lebs() > 1 => self.collect(volume, victim)?,
                _ if checkpointed => break,
                _ => {
                    self.checkpoint(volume, &store.parameters)?;
                    checkpointed = true;
                }
            }
        }
        Ok(())
    }

    /// Moves what is needed out of an erase block, and frees it.
    ///
    /// It holds nothing that is newer than the checkpoint, so what is not in the index is not needed;
    /// what has replaced that is made durable first.
    fn collect(&mut self, volume: &dyn Volume, victim: MainLeb) -> Result<()> {
        let leb = Leb(self.log.layout().main_leb(victim));
        let mut image = vec![0; self.log.layout().leb_len_bytes as usize];
        match volume.read(leb, 0, &mut image) {
            Ok(()) => {}
            // What can be read of it stays where it is.
            Err(e) if e.kind() == tacita_flash::Kind::Io => {
                self.log.leave(victim);
                return Ok(());
            }
            Err(e) => return Err(e.into()),
        }
        for (offset, header) in nodes(&image) {
            if header.class != Class::Record {
                continue;
            }
            let at = Location { leb: victim, offset, len_bytes: header.len_bytes };
            let Ok(key) = self.keys.id(header.key) else { continue };
            if self.keys.state(key) != State::Used || self.keys.location(key) != at {
                continue;
            }
            let bytes = &image[offset as usize..][..header.stored_len_bytes() as usize];
            let (leb, offset) = self.log.append(volume, Head::Moved, bytes)?;
            let moved = Location { leb, offset, len_bytes: header.len_bytes };
            self.log.uncount(at);
            self.log.count(moved);
            self.keys.is_at(key, State::Used, moved);
            if planted(Fault::MovedRemarked) {
                self.keys.is_at(key, State::Deleted, moved);
            }
        }
        self.log.sync(volume)?;
        if self.log.is_empty(victim) {
            volume.unmap(leb)?;
            self.log.release(victim);
            self.collected += 1;
        } else {
            self.log.leave(victim);
        }
        Ok(())
    }
}

/// The nodes of an erase block, up to where it ends or cannot be read.
pub(crate) fn nodes(image: &[u8]) -> impl Iterator<Item = (u32, Header)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = image.get(at..).filter(|bytes| bytes.len() >= node::HEADER_LEN)?;
        let header = Header::parse(bytes).ok().flatten().filter(|header| header.is_whole(bytes))?;
        let offset = u32::try_from(at).ok()?;
        at += header.stored_len_bytes() as usize;
        Some((offset, header))
    })
}
