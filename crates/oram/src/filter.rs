//! Bloom filters in sealed pages: whether a generation has an item for a block.
//!
//! All bits of a block lie within one page, which is sealed as a whole; so what the server sees of a
//! probe is the number of a page, and it cannot alter an answer. (The note masks single bits, which a
//! server could flip unseen: a wrong no would make a client look the block up again below.)

use crate::error::Result;
use crate::geometry::PAGE_LEN;
use crate::item::forged;
use crate::keys::{self, GenerationKeys, Id};
use tacita_secret::{Prf, TAG_LEN};

/// Bits of a page.
const BITS: usize = (PAGE_LEN - TAG_LEN) * 8;
/// Bits that an item sets: with half of all bits set a page says yes falsely once in 2^64.
const HASHES: usize = 64;

/// What the filter knows of a block.
pub(crate) type Entry = [u8; 16];

/// A page under construction.
pub(crate) struct Page([u8; PAGE_LEN]);

impl Page {
    /// A page of a filter that has nothing.
    pub(crate) const fn empty() -> Self {
        Self([0; PAGE_LEN])
    }

    /// Sets the bits of `entry`.
    pub(crate) fn insert(&mut self, entry: &Entry) {
        for bit in bits_of(entry) {
            self.0[bit / 8] |= 1 << (bit % 8);
        }
    }

    /// The page, sealed as number `page` of the filter.
    pub(crate) fn seal(mut self, keys: &GenerationKeys, page: u32) -> [u8; PAGE_LEN] {
        let (bits, tag) = self.0.split_at_mut(PAGE_LEN - TAG_LEN);
        tag.copy_from_slice(&keys.places().seal(
            &keys::place(keys::Kind::Page, page, 0),
            &[],
            bits,
        ));
        self.0
    }
}

/// The page on which it stands whether `id` is in the generation.
pub(crate) fn page_of(keys: &GenerationKeys, id: &Id) -> u32 {
    keys.page_of(&keys.filter_entry(id))
}

/// Whether `sealed`, number `page` of the filter, has block `id`; `None` asks for nothing, but the page
/// is verified all the same.
///
/// # Errors
/// [`crate::Kind::Hostile`] if it is not what was sealed there.
pub(crate) fn probe(
    keys: &GenerationKeys,
    page: u32,
    sealed: &[u8],
    id: Option<&Id>,
) -> Result<bool> {
    let mut bits = sealed.to_vec();
    let tag = bits.split_off(PAGE_LEN - TAG_LEN).try_into().expect("the rest is a tag");
    keys.places()
        .open(&keys::place(keys::Kind::Page, page, 0), &[], &mut bits, &tag)
        .map_err(|_| forged("a page of a filter"))?;
    Ok(id.is_some_and(|id| {
        bits_of(&keys.filter_entry(id)).all(|bit| bits[bit / 8] & 1 << (bit % 8) != 0)
    }))
}

fn bits_of(entry: &Entry) -> impl Iterator<Item = usize> {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(entry);
    let mut random = [0; 2 * HASHES];
    Prf::new(seed).stream(0, 0, &mut random);
    let hashes = if crate::faults::planted(crate::faults::Fault::FilterLoose) { 1 } else { HASHES };
    (0..hashes).map(move |i| {
        let random = usize::from(u16::from_le_bytes([random[2 * i], random[2 * i + 1]]));
        (random * BITS) >> 16
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Generation, Geometry};
    use crate::keys::Keys;
    use tacita_secret::Key;

    /// What is there is found; of what is not, nothing, among as many as would show one in 10,000.
    #[test]
    fn says_yes_to_what_is_there_alone() {
        let geometry = Geometry::new(512, 256, 4, 2000).unwrap();
        let generation = Generation { level: 2, number: 8 };
        let shape = geometry.shape(generation);
        let keys = Keys::new(&Key::take(&mut [1; 32]), &[2; 16]);
        let keys = keys.generation(generation, shape, &[3; 32]);
        let id = |n: u64| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_le_bytes());
            id
        };
        let mut pages: Vec<Page> = (0..shape.pages).map(|_| Page::empty()).collect();
        for n in 0..shape.reals {
            let entry = keys.filter_entry(&id(n));
            pages[keys.page_of(&entry) as usize].insert(&entry);
        }
        let pages: Vec<_> = (0..).zip(pages).map(|(n, page)| page.seal(&keys, n)).collect();
        for n in 0..100_000 {
            let page = page_of(&keys, &id(n));
            let said = probe(&keys, page, &pages[page as usize], Some(&id(n))).unwrap();
            assert_eq!(said, n < shape.reals, "{n}");
        }
        probe(&keys, 1, &pages[2], None).unwrap_err();
    }
}
