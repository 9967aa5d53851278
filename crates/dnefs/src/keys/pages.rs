//! Pages of keys, read when they are needed and kept in locked memory for a while.

use std::collections::HashMap;

use tacita_dnefs_format::{KeyPos, Layout, key_page};
use tacita_flash::{Leb, Volume};
use tacita_secret::{Key, LockedBytes, OneTimeCipher};

use crate::error::{Error, Kind, Result, damaged};

/// Memory for pages in bytes: below what an ordinary user may lock, and enough for the keys of 128 MiB
/// of small nodes.
const CACHE_LEN: usize = 1 << 20;

/// Pages of keys, opened.
#[derive(Debug)]
pub(crate) struct KeyPages {
    layout: Layout,
    cipher: OneTimeCipher,
    master: Key,
    frames: LockedBytes,
    /// What is in each frame, and whether it was asked for since the clock's hand passed.
    held: Vec<Option<(u32, u32, bool)>>,
    places: HashMap<(u32, u32), usize>,
    hand: usize,
}

impl KeyPages {
    pub(super) fn new(layout: Layout, cipher: OneTimeCipher, master: Key) -> Self {
        let page = layout.page_len_bytes as usize;
        let count = (CACHE_LEN / page).min((layout.key_lebs * layout.pages_per_leb()) as usize);
        Self {
            layout,
            cipher,
            master,
            frames: LockedBytes::zeroed(count * page),
            held: vec![None; count],
            places: HashMap::with_capacity(count),
            hand: 0,
        }
    }

    pub(super) const fn cipher(&self) -> OneTimeCipher {
        self.cipher
    }

    pub(super) const fn master(&self) -> &Key {
        &self.master
    }

    /// A key.
    pub(super) fn key(&mut self, volume: &dyn Volume, position: KeyPos) -> Result<&[u8]> {
        let page = position.slot / self.layout.keys_per_page;
        let within = (position.slot % self.layout.keys_per_page) as usize;
        let frame = self.frame(volume, position.leb, page)?;
        let len = self.cipher.key_len();
        Ok(&self.frames[frame..][key_page::HEADER_LEN + within * len..][..len])
    }

    /// Where the page begins among the frames.
    fn frame(&mut self, volume: &dyn Volume, leb: u32, page: u32) -> Result<usize> {
        let len = self.layout.page_len_bytes as usize;
        if let Some(&place) = self.places.get(&(leb, page)) {
            if let Some((_, _, asked)) = &mut self.held[place] {
                *asked = true;
            }
            return Ok(place * len);
        }
        let place = self.victim();
        let frame = &mut self.frames[place * len..][..len];
        volume.read(Leb(self.layout.key_leb(leb)), page * self.layout.page_len_bytes, frame)?;
        let found = key_page::open(&self.master, frame);
        if found.is_err() {
            frame.fill(0);
        }
        let what = || format!("page {page} of key block {leb}");
        let found = found.map_err(damaged(what()))?;
        if (found.leb, found.page) != (leb, page) {
            return Err(Error::new(Kind::Damaged, format!("{}: it is another's", what())));
        }
        self.held[place] = Some((leb, page, true));
        self.places.insert((leb, page), place);
        Ok(place * len)
    }

    /// A frame for another page: the first that was not asked for since the hand passed.
    fn victim(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.held.len();
            match &mut self.held[place] {
                None => return place,
                Some((_, _, asked)) if *asked => *asked = false,
                Some((leb, page, _)) => {
                    self.places.remove(&(*leb, *page));
                    self.held[place] = None;
                    return place;
                }
            }
        }
    }

    /// Forgets the pages of an erase block, which is changed.
    pub(super) fn forget(&mut self, leb: u32) {
        let len = self.layout.page_len_bytes as usize;
        for (place, held) in self.held.iter_mut().enumerate() {
            if let Some((of, page, _)) = held.filter(|(of, _, _)| *of == leb) {
                self.frames[place * len..][..len].fill(0);
                self.places.remove(&(of, page));
                *held = None;
            }
        }
    }
}
