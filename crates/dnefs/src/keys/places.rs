//! Where the node of each key lies. There is a place for every key, in use or not, so each takes no more
//! bits than positions on the volume have.

use tacita_dnefs_format::checkpoint::Location;
use tacita_dnefs_format::{Layout, MainLeb, NODE_ALIGN};

use super::KeyId;

/// Where no node is.
pub(super) const NOWHERE: Location = Location { leb: MainLeb(u32::MAX), offset: 0, len_bytes: 0 };

/// Bytes of a number that holds any place.
const WORD_LEN: usize = size_of::<u128>();

/// A place for each key.
#[derive(Debug)]
pub(super) struct Places {
    shape: Shape,
    /// One word after the other, and zeros, so that as much can be read of each as of the longest.
    words: Vec<u8>,
}

/// Bits of what a place is packed of, from the lowest on: length in bytes, beginning in units of
/// [`NODE_ALIGN`], erase block.
#[derive(Debug, Clone, Copy)]
struct Shape {
    len: u32,
    offset: u32,
    /// One more value than there are erase blocks, at least: all ones is nowhere.
    leb: u32,
}

impl Shape {
    const fn new(layout: &Layout) -> Self {
        Self {
            len: bits(layout.leb_len_bytes),
            offset: bits(layout.leb_len_bytes / NODE_ALIGN),
            leb: bits(layout.main_lebs),
        }
    }

    const fn word_len(self) -> usize {
        (self.len + self.offset + self.leb).div_ceil(u8::BITS) as usize
    }

    fn pack(self, at: Location) -> u128 {
        debug_assert!(at.offset.is_multiple_of(NODE_ALIGN) && at.len_bytes >> self.len == 0);
        debug_assert!((at.offset / NODE_ALIGN) >> self.offset == 0);
        let leb = u128::from(at.leb.0) & ones(self.leb);
        let within = leb << self.offset | u128::from(at.offset / NODE_ALIGN);
        within << self.len | u128::from(at.len_bytes)
    }

    #[allow(clippy::cast_possible_truncation, reason = "each was 32 bits long")]
    const fn unpack(self, word: u128) -> Location {
        let offset = word >> self.len;
        let leb = (offset >> self.offset) & ones(self.leb);
        if leb == ones(self.leb) {
            return NOWHERE;
        }
        Location {
            leb: MainLeb(leb as u32),
            offset: (offset & ones(self.offset)) as u32 * NODE_ALIGN,
            len_bytes: (word & ones(self.len)) as u32,
        }
    }
}

/// Bits of numbers up to `most`.
const fn bits(most: u32) -> u32 {
    u32::BITS - most.leading_zeros()
}

const fn ones(bits: u32) -> u128 {
    (1 << bits) - 1
}

impl Places {
    /// All keys have no node.
    pub(super) fn new(layout: &Layout) -> Self {
        let shape = Shape::new(layout);
        let len = shape.word_len();
        let nowhere = &shape.pack(NOWHERE).to_le_bytes()[..len];
        let count = layout.keys() as usize;
        let whole = count * len + WORD_LEN - len;
        let mut words = Vec::with_capacity(whole);
        (0..count).for_each(|_| words.extend_from_slice(nowhere));
        words.resize(whole, 0);
        Self { shape, words }
    }

    /// What a place takes in memory, in bytes.
    pub(super) const fn len_of_each(layout: &Layout) -> usize {
        Shape::new(layout).word_len()
    }

    pub(super) fn get(&self, key: KeyId) -> Location {
        let start = key.0 as usize * self.shape.word_len();
        let word =
            self.words[start..].first_chunk::<WORD_LEN>().expect("zeros are behind the last");
        self.shape.unpack(u128::from_le_bytes(*word))
    }

    pub(super) fn set(&mut self, key: KeyId, at: Location) {
        let len = self.shape.word_len();
        let word = self.shape.pack(at).to_le_bytes();
        self.words[key.0 as usize * len..][..len].copy_from_slice(&word[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(leb_len_bytes: u32, main_lebs: u32) -> Layout {
        Layout {
            leb_len_bytes,
            page_len_bytes: 512,
            key_lebs: 2,
            main_lebs,
            keys_per_page: 13,
            keys_per_leb: 40,
        }
    }

    #[test]
    fn a_location_comes_back_and_its_neighbours_stay() {
        for leb_len in [2048, 126_976, 131_072, 1 << 24] {
            for lebs in [12, 16, 10_000, u32::MAX] {
                let layout = layout(leb_len, lebs);
                let mut places = Places::new(&layout);
                let keys = || (0..layout.keys()).map(KeyId);
                assert!(keys().all(|key| places.get(key) == NOWHERE));
                let last = leb_len - NODE_ALIGN;
                let at = |leb, offset, len_bytes| Location { leb: MainLeb(leb), offset, len_bytes };
                let all =
                    [at(0, 0, 0), at(lebs - 1, last, 8), at(lebs / 2, 8, 49), at(1, 0, leb_len)];
                let wanted = |key: KeyId| all[key.0 as usize % all.len()];
                keys().for_each(|key| places.set(key, wanted(key)));
                assert!(keys().all(|key| places.get(key) == wanted(key)));
                places.set(KeyId(1), NOWHERE);
                places.set(KeyId(layout.keys() - 1), NOWHERE);
                let left = keys().skip(2).take(layout.keys() as usize - 3);
                assert!(left.chain([KeyId(0)]).all(|key| places.get(key) == wanted(key)));
            }
        }
    }

    #[test]
    fn a_place_takes_six_bytes_of_a_usual_volume_and_ten_of_the_largest() {
        assert_eq!(Places::len_of_each(&layout(126_976, 16_000)), 6);
        assert_eq!(Places::len_of_each(&layout(1 << 24, u32::MAX)), 10);
    }
}
