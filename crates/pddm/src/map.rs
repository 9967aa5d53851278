//! The position map of a volume: for each block the place where it lies.
//!
//! All of it is in memory, 4 bytes a block. It is written page by page into the log like any block
//! of the volume: the ids of pages follow those of the blocks.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::geometry::{PAGE_ENTRIES, Place};
use crate::unit::Block;

/// Places of the blocks of a volume, and of the pages of this map.
#[derive(Debug)]
pub(crate) struct PositionMap {
    blocks: u32,
    places: Box<[AtomicU32]>,
}

impl PositionMap {
    /// The map of an empty volume.
    pub(crate) fn new(blocks: u32) -> Self {
        let ids = blocks + blocks.div_ceil(PAGE_ENTRIES);
        Self { blocks, places: (0..ids).map(|_| AtomicU32::new(Place::NOWHERE.0)).collect() }
    }

    /// Blocks of the volume.
    pub(crate) const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Pages of the map.
    pub(crate) const fn pages(&self) -> u32 {
        self.blocks.div_ceil(PAGE_ENTRIES)
    }

    /// The id of a page.
    pub(crate) const fn page_id(&self, page: u32) -> u32 {
        self.blocks + page
    }

    /// The page that has this id, if it is that of a page.
    pub(crate) fn page_of_id(&self, id: u32) -> Option<u32> {
        id.checked_sub(self.blocks).filter(|page| *page < self.pages())
    }

    /// The page that holds the entry of a block.
    pub(crate) const fn page_of_block(block: u32) -> u32 {
        block / PAGE_ENTRIES
    }

    /// Whether `id` is that of a block or a page.
    pub(crate) fn has(&self, id: u32) -> bool {
        (id as usize) < self.places.len()
    }

    pub(crate) fn get(&self, id: u32) -> Place {
        Place(self.places[id as usize].load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, id: u32, place: Place) {
        self.places[id as usize].store(place.0, Ordering::Release);
    }

    /// A page as it is written.
    pub(crate) fn encode_page(&self, page: u32) -> Box<Block> {
        let mut block = Box::new([0xff; crate::geometry::BLOCK_LEN]);
        for (place, entry) in block.chunks_exact_mut(4).zip(self.entries(page)) {
            place.copy_from_slice(&entry.load(Ordering::Acquire).to_le_bytes());
        }
        block
    }

    /// Takes over a page that was read. Places that are none of the volume's are lost.
    pub(crate) fn load_page(&self, page: u32, block: &Block, is_place: impl Fn(Place) -> bool) {
        for (entry, bytes) in self.entries(page).iter().zip(block.chunks_exact(4)) {
            let place = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
            let sound = place >= Place::LOST.0 || is_place(Place(place));
            entry.store(if sound { place } else { Place::LOST.0 }, Ordering::Release);
        }
    }

    /// A page is lost, and with it where its blocks are.
    pub(crate) fn lose_page(&self, page: u32) {
        self.entries(page).iter().for_each(|e| e.store(Place::LOST.0, Ordering::Release));
    }

    /// Blocks that were in a place that turned out to be unreadable as a whole.
    pub(crate) fn lose_range(&self, places: std::ops::Range<u32>) -> Vec<u32> {
        let mut lost = Vec::new();
        for (id, entry) in (0..).zip(&self.places) {
            if places.contains(&entry.load(Ordering::Acquire)) {
                entry.store(Place::LOST.0, Ordering::Release);
                lost.push(id);
            }
        }
        lost
    }

    /// Every id with its place.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u32, Place)> + '_ {
        (0..).zip(&self.places).map(|(id, place)| (id, Place(place.load(Ordering::Acquire))))
    }

    /// The same for the blocks of a page.
    pub(crate) fn places_of(&self, page: u32) -> impl Iterator<Item = (u32, Place)> + '_ {
        let entries = self.entries(page).iter();
        (page * PAGE_ENTRIES..).zip(entries.map(|place| Place(place.load(Ordering::Acquire))))
    }

    /// Blocks that are lost.
    pub(crate) fn lost(&self) -> u32 {
        let blocks = &self.places[..self.blocks as usize];
        let lost = blocks.iter().filter(|place| place.load(Ordering::Relaxed) == Place::LOST.0);
        u32::try_from(lost.count()).expect("fewer than places")
    }

    fn entries(&self, page: u32) -> &[AtomicU32] {
        let start = page * PAGE_ENTRIES;
        &self.places[start as usize..self.blocks.min(start + PAGE_ENTRIES) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_carry_the_map() {
        let map = PositionMap::new(2500);
        assert_eq!((map.pages(), map.page_id(2), map.page_of_id(2502)), (3, 2502, Some(2)));
        assert_eq!((map.page_of_id(2499), map.page_of_id(2503)), (None, None));
        map.set(1024, Place(7));
        map.set(2499, Place(8));
        let other = PositionMap::new(2500);
        for page in 0..3 {
            other.load_page(page, &map.encode_page(page), |place| place.0 < 8);
        }
        assert_eq!(other.get(0), Place::NOWHERE);
        assert_eq!(other.get(1024), Place(7));
        // Beyond the end of the log.
        assert_eq!(other.get(2499), Place::LOST);
        assert_eq!(map.lose_range(7..8), [1024]);
        assert_eq!(map.get(1024), Place::LOST);
    }
}
