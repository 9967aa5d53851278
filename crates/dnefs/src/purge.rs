//! The purge: from then on nothing that was deleted can be decrypted.
//!
//! In this order (design note, 1.4): a checkpoint, so that nothing needs what is destroyed; fresh keys in
//! place of deleted ones, one atomic change an erase block; the erase of what was replaced.

use std::sync::PoisonError;

use crate::error::Result;
use crate::keys::Purged;
use crate::store::Store;

impl Store {
    /// Replaces keys that no node has: those of erase blocks with deleted ones, or `all`. What was
    /// replaced is not erased yet. Returns the epoch that begins.
    pub(crate) fn purge_keys(&self, all: bool) -> Result<u64> {
        let _one = self.purging.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let begun = self.poison(self.begin_purge(all));
        drop(gate);
        self.poison(begun.and_then(|(lebs, epoch)| self.replace_keys(&lebs, epoch)))
    }

    /// The same, and nothing is written any more from before the checkpoint on.
    pub(crate) fn purge_last(&self) -> Result<u64> {
        let _one = self.purging.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let begun = self.begin_purge(false);
        let purge = begun.and_then(|(lebs, epoch)| self.replace_keys(&lebs, epoch));
        self.close();
        purge
    }

    /// The erase blocks of keys to purge, and the epoch. The gate is closed.
    fn begin_purge(&self, all: bool) -> Result<(Vec<u32>, u64)> {
        let mut core = self.core();
        core.forget_old_receipts();
        core.checkpoint(&*self.volume, &self.parameters)?;
        core.epoch += 1;
        let obsolete_bytes = std::mem::take(&mut core.obsolete_bytes);
        core.keys.add_purged(Purged { obsolete_bytes, ..Purged::default() });
        let every = 0..self.layout.key_lebs;
        Ok((if all { every.collect() } else { core.keys.to_purge() }, core.epoch))
    }

    fn replace_keys(&self, lebs: &[u32], epoch: u64) -> Result<u64> {
        for leb in lebs {
            self.core().keys.purge(&*self.volume, *leb, epoch)?;
        }
        Ok(epoch)
    }
}
