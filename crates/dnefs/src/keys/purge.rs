//! Purging an erase block of keys: what is not used is replaced by fresh random bytes, in one atomic
//! change.

use tacita_dnefs_format::key_page::{self, Place};
use tacita_flash::{Leb, Volume};
use tacita_secret::{CheckValue, Key, LockedBytes, MessageKey, Noise, SALT_LEN, Traces, random};

use super::{KeyId, Keys, State};
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::unread::read_block;

/// What a purge has destroyed.
#[derive(Debug, Default)]
pub(crate) struct Purged {
    /// Erase blocks that were changed.
    pub(crate) lebs: u32,
    /// Check values of the keys that were deleted.
    pub(crate) destroyed: Vec<CheckValue>,
    /// Bytes of their nodes.
    pub(crate) obsolete_bytes: u64,
    /// Pages that could not be read, and were left as they were.
    pub(crate) damaged_pages: u32,
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
        self.purged.damaged_pages += purged.damaged_pages;
    }

    /// Replaces all keys of an erase block that no node has, deleted and unused ones. A damaged page with
    /// keys that are in use stays as it is; one that cannot be read would not, so the whole erase block does.
    ///
    /// Paper: DNEFS, section 4.4; the change is not the end of it, for the old block is erased by
    /// [`Volume::flush_erases`] only (design note, 0.1).
    pub(crate) fn purge(&mut self, volume: &dyn Volume, number: u32, epoch: u64) -> Result<()> {
        let layout = self.layout;
        let mut block = LockedBytes::zeroed(layout.leb_len_bytes as usize);
        let leb = Leb(layout.key_leb(number));
        let unread =
            read_block(volume, leb, &mut block)?.map_or_else(Vec::new, |unread| unread.pages);
        let keys = unread.iter().flat_map(|page| self.keys_of_page(number, *page));
        if keys.map(KeyId).any(|key| self.is_needed(key)) {
            let damaged_pages = u32::try_from(unread.len()).unwrap_or(u32::MAX);
            self.lebs[number as usize].needs_purge = true;
            self.add_purged(Purged { damaged_pages, ..Purged::default() });
            return Ok(());
        }
        let mut noise = noise()?;
        let mut purged = Purged { lebs: 1, ..Purged::default() };
        let mut replaced = Vec::with_capacity(layout.pages_per_leb() as usize);
        let pages = block.chunks_exact_mut(layout.page_len_bytes as usize);
        for (page, bytes) in (0..layout.pages_per_leb()).zip(pages) {
            let keys = self.keys_of_page(number, page);
            if self.open_page(number, page, bytes) {
                self.replace(keys.start, bytes, &mut noise, &mut purged.destroyed);
            } else if keys.clone().any(|key| self.is_needed(KeyId(key))) {
                volume.read(leb, page * layout.page_len_bytes, bytes)?;
                purged.damaged_pages += 1;
                continue;
            } else {
                noise.fill(&mut bytes[key_page::HEADER_LEN..]);
            }
            seal(self.pages.master(), Place { leb: number, page, epoch }, &mut noise, bytes);
            replaced.push(keys);
        }
        volume.change(leb, &block)?;
        if !planted(Fault::CacheKept) {
            self.pages.forget(number);
        }
        for key in replaced.into_iter().flatten().map(KeyId) {
            if self.state(key) == State::Deleted {
                self.set(key, State::Fresh);
            }
        }
        self.lebs[number as usize].needs_purge = purged.damaged_pages > 0;
        self.add_purged(purged);
        Ok(())
    }

    /// Opens a page in place; whether it is the one that it should be. No copy is made of it, for keys
    /// could be found in what is left of that.
    fn open_page(&self, leb: u32, page: u32, bytes: &mut [u8]) -> bool {
        let found = key_page::open(self.pages.master(), bytes);
        found.is_ok_and(|found| (found.leb, found.page) == (leb, page))
    }

    /// Whether a node has the key, or may have.
    fn is_needed(&self, key: KeyId) -> bool {
        !matches!(self.state(key), State::Fresh | State::Deleted)
    }

    /// Replaces the keys of a page that no node has.
    fn replace(
        &self,
        first: u32,
        page: &mut [u8],
        noise: &mut Noise,
        destroyed: &mut Vec<CheckValue>,
    ) {
        let cipher = self.pages.cipher();
        let mut traces = Traces::new();
        let keys = page[key_page::HEADER_LEN..].chunks_exact_mut(cipher.key_len());
        for (slot, key) in (0..self.layout.keys_per_page).zip(keys) {
            match self.state(KeyId(first + slot)) {
                State::Taken | State::Used | State::Passing | State::Pending => {}
                State::Fresh if planted(Fault::UnusedKept) => {}
                State::Fresh => noise.fill(key),
                State::Deleted => {
                    destroyed.push(MessageKey::take(cipher, key).check_value(&mut traces));
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
