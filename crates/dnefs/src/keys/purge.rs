//! Purging an erase block of keys: what is not used is replaced by fresh random bytes, in one atomic
//! change.

use tacita_dnefs_format::key_page::{self, Place};
use tacita_flash::{Leb, Volume};
use tacita_secret::{CheckValue, Key, LockedBytes, MessageKey, Noise, SALT_LEN, random};

use super::{KeyId, Keys, State};
use crate::error::{Error, Kind, Result, damaged};
use crate::faults::{Fault, planted};

/// What a purge has destroyed.
#[derive(Debug, Default)]
pub(crate) struct Purged {
    /// Erase blocks that were changed.
    pub(crate) lebs: u32,
    /// Check values of the keys that were deleted.
    pub(crate) destroyed: Vec<CheckValue>,
    /// Bytes of their nodes.
    pub(crate) obsolete_bytes: u64,
}

impl Keys {
    /// What was purged since this was last asked: it is to be told in a receipt.
    pub(crate) fn take_purged(&mut self) -> Purged {
        std::mem::take(&mut self.purged)
    }

    /// Something was purged, and no receipt tells of it yet.
    pub(crate) fn add_purged(&mut self, purged: Purged) {
        self.purged.lebs += purged.lebs;
        self.purged.destroyed.extend(purged.destroyed);
        self.purged.obsolete_bytes += purged.obsolete_bytes;
    }

    /// Replaces all keys of an erase block that no node has, deleted and unused ones.
    ///
    /// Paper: DNEFS, section 4.4; the change is not the end of it, for the old block is erased by
    /// [`Volume::flush_erases`] only (design note, 0.1).
    pub(crate) fn purge(&mut self, volume: &dyn Volume, number: u32, epoch: u64) -> Result<()> {
        let layout = self.layout;
        let page_len = layout.page_len_bytes as usize;
        let mut block = LockedBytes::zeroed(layout.leb_len_bytes as usize);
        let leb = Leb(layout.key_leb(number));
        volume.read(leb, 0, &mut block)?;
        let mut noise = noise()?;
        let mut destroyed = Vec::new();
        for (page, bytes) in (0..layout.pages_per_leb()).zip(block.chunks_exact_mut(page_len)) {
            let what = || format!("page {page} of key block {number}");
            let found = key_page::open(self.pages.master(), bytes).map_err(damaged(what()))?;
            if (found.leb, found.page) != (number, page) {
                return Err(Error::new(Kind::Damaged, format!("{}: it is another's", what())));
            }
            let first = number * layout.keys_per_leb + page * layout.keys_per_page;
            self.replace(first, &mut bytes[key_page::HEADER_LEN..], &mut noise, &mut destroyed);
            seal(self.pages.master(), Place { leb: number, page, epoch }, &mut noise, bytes);
        }
        volume.change(leb, &block)?;
        if !planted(Fault::CacheKept) {
            self.pages.forget(number);
        }
        self.add_purged(Purged { lebs: 1, destroyed, obsolete_bytes: 0 });
        let start = number * layout.keys_per_leb;
        for key in (start..start + layout.keys_per_leb).map(KeyId) {
            if self.state(key) == State::Deleted {
                self.set(key, State::Fresh);
            }
        }
        self.lebs[number as usize].needs_purge = false;
        Ok(())
    }

    /// Replaces the keys of a page that no node has.
    fn replace(
        &self,
        first: u32,
        keys: &mut [u8],
        noise: &mut Noise,
        destroyed: &mut Vec<CheckValue>,
    ) {
        let cipher = self.pages.cipher();
        for (slot, key) in
            (0..self.layout.keys_per_page).zip(keys.chunks_exact_mut(cipher.key_len()))
        {
            match self.state(KeyId(first + slot)) {
                State::Taken | State::Used | State::Passing | State::Pending => {}
                State::Fresh if planted(Fault::UnusedKept) => {}
                State::Fresh => noise.fill(key),
                State::Deleted => {
                    destroyed.push(MessageKey::take(cipher, key).check_value());
                    if !planted(Fault::DeletedKept) {
                        noise.fill(key);
                    }
                }
            }
        }
    }
}

/// A stream of random bytes for one erase block.
fn noise() -> Result<Noise> {
    Ok(Noise::new(&Key::random().map_err(no_randomness)?))
}

#[allow(clippy::needless_pass_by_value, reason = "it is what errors are mapped with")]
pub(crate) fn no_randomness(e: std::io::Error) -> Error {
    Error::new(Kind::Device, format!("no random bytes from the operating system: {e}"))
}

fn seal(master: &Key, place: Place, noise: &mut Noise, page: &mut [u8]) {
    let mut salt = [0; SALT_LEN];
    noise.fill(&mut salt);
    key_page::seal(master, place, &salt, page);
}

/// An erase block of fresh keys, for a new volume.
pub(crate) fn fresh_block(
    layout: &tacita_dnefs_format::Layout,
    master: &Key,
    number: u32,
) -> Result<LockedBytes> {
    let mut block = LockedBytes::zeroed(layout.leb_len_bytes as usize);
    let mut noise = noise()?;
    let pages = block.chunks_exact_mut(layout.page_len_bytes as usize);
    for (page, bytes) in (0..layout.pages_per_leb()).zip(pages) {
        noise.fill(&mut bytes[key_page::HEADER_LEN..]);
        seal(master, Place { leb: number, page, epoch: 0 }, &mut noise, bytes);
    }
    Ok(block)
}

/// A new name for a volume.
pub(crate) fn new_uuid() -> Result<[u8; 16]> {
    random().map_err(no_randomness)
}
