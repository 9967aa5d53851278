//! Authenticated encryption under keys that are used for one record: AES-256-GCM whose nonce is the
//! number of a slot.

use std::fmt;

use crate::gcm::{Gcm, Nonce};
use crate::key::{KEY_LEN, Key};
use crate::one_time::Traces;
use crate::prf::derive;
use crate::slab::{Place, wipe_after_making, wipe_after_use};

/// Length of a tag in bytes.
pub const TAG_LEN: usize = 16;
/// Slots that a key can seal, 0 to 127.
const SLOTS: u8 = 128;

/// What proves that a sealed slot is what was sealed.
pub type Tag = [u8; TAG_LEN];

/// What was opened is not what was sealed under this key, slot and context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forged;

impl fmt::Display for Forged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not what was sealed")
    }
}

impl std::error::Error for Forged {}

pub(crate) fn cipher(key: &Key) -> Place<Gcm> {
    let cipher = Place::new(|| Gcm::new_256(key.expose()));
    wipe_after_making();
    cipher
}

/// The same with a key for one purpose, as [`Key::derive`] makes it, which has no place of its own.
fn cipher_under(key: &Key, domain: u8, parts: &[&[u8]]) -> Place<Gcm> {
    let cipher = Place::new(|| gcm_under(key, domain, parts));
    wipe_after_making();
    cipher
}

/// What it leaves on the stack is for others to wipe.
fn gcm_under(key: &Key, domain: u8, parts: &[&[u8]]) -> Gcm {
    let mut derived = [0; KEY_LEN];
    derive(key.expose(), domain, parts, &mut derived);
    Gcm::new_256(&derived)
}

const fn nonce(slot: u8) -> Nonce {
    let mut nonce = [0; 12];
    nonce[0] = slot;
    nonce
}

/// Seals each slot of one record once.
///
/// The key has to be fresh: derived from a random salt that no other record has.
pub struct Sealing {
    cipher: Place<Gcm>,
    used: u128,
}

impl Sealing {
    /// Seals under `key`, which has sealed nothing yet.
    pub fn new(key: &Key) -> Self {
        Self { cipher: cipher(key), used: 0 }
    }

    /// Seals under what [`Key::derive`] makes of `key`, which has sealed nothing yet.
    pub fn under(key: &Key, domain: u8, parts: &[&[u8]]) -> Self {
        Self { cipher: cipher_under(key, domain, parts), used: 0 }
    }

    /// Encrypts `buf` in place; `context` is authenticated with it.
    ///
    /// # Panics
    /// If the slot is sealed twice: that would give away both contents.
    pub fn seal(&mut self, slot: u8, context: &[u8], buf: &mut [u8]) -> Tag {
        assert!(slot < SLOTS && self.used & 1 << slot == 0, "each slot is sealed once");
        self.used |= 1 << slot;
        self.cipher.seal(nonce(slot), context, buf)
    }
}

/// Opens slots of one record.
pub struct Opening {
    cipher: Place<Gcm>,
}

impl Opening {
    /// Opens what was sealed under `key`.
    pub fn new(key: &Key) -> Self {
        Self { cipher: cipher(key) }
    }

    /// Opens what was sealed under what [`Key::derive`] makes of `key`.
    pub fn under(key: &Key, domain: u8, parts: &[&[u8]]) -> Self {
        Self { cipher: cipher_under(key, domain, parts) }
    }

    /// Decrypts `buf` in place.
    ///
    /// # Errors
    /// [`Forged`]; `buf` holds nothing of use then.
    pub fn open(&self, slot: u8, context: &[u8], buf: &mut [u8], tag: &Tag) -> Result<(), Forged> {
        self.cipher.open(nonce(slot), context, buf, tag)
    }
}

/// Opens slots of many records, which have a key each, one record after the other.
///
/// What their keys leave on the stack is overwritten once, when this goes: for each record that takes a
/// twelfth of the time of reading 4 KiB. So it belongs where the records are opened, a few calls above at
/// most.
pub struct Openings<'k> {
    key: &'k Key,
    domain: u8,
    /// Of the record opened last.
    last: Option<(Place<Gcm>, Traces)>,
}

/// One of [`Openings`].
pub struct OneOpening<'o>(&'o Gcm);

impl<'k> Openings<'k> {
    /// Opens what was sealed under what [`Key::derive`] makes of `key` for this domain.
    pub const fn under(key: &'k Key, domain: u8) -> Self {
        Self { key, domain, last: None }
    }

    /// What opens the record of these parts.
    pub fn of(&mut self, parts: &[&[u8]]) -> OneOpening<'_> {
        let make = || gcm_under(self.key, self.domain, parts);
        let (cipher, _) = match &mut self.last {
            Some(last) => {
                last.0.renew(make);
                last
            }
            last => last.insert((Place::new(make), Traces::new())),
        };
        OneOpening(cipher)
    }
}

impl OneOpening<'_> {
    /// Decrypts `buf` in place.
    ///
    /// # Errors
    /// [`Forged`]; `buf` holds nothing of use then.
    pub fn open(&self, slot: u8, context: &[u8], buf: &mut [u8], tag: &Tag) -> Result<(), Forged> {
        self.0.open(nonce(slot), context, buf, tag)
    }
}

/// Seals any number of records under one key, which nobody else seals with: their nonces are counted.
pub struct Counted {
    cipher: Place<Gcm>,
    last: std::sync::atomic::AtomicU64,
}

impl Counted {
    /// Seals under `key`, which has sealed at most `so_far` records.
    pub fn new(key: &Key, so_far: u64) -> Self {
        Self { cipher: cipher(key), last: so_far.into() }
    }

    /// Encrypts `buf` in place; returns the record's number and its tag.
    pub fn seal(&self, context: &[u8], buf: &mut [u8]) -> (u64, Tag) {
        let number = self.last.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        (number, self.cipher.seal(Self::nonce(number), context, buf))
    }

    /// Decrypts `buf` in place.
    ///
    /// # Errors
    /// [`Forged`]; `buf` holds nothing of use then.
    pub fn open(
        &self,
        number: u64,
        context: &[u8],
        buf: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        self.cipher.open(Self::nonce(number), context, buf, tag)
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        nonce
    }
}

impl Drop for Sealing {
    fn drop(&mut self) {
        wipe_after_use();
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        wipe_after_use();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        wipe_after_use();
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for Openings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for OneOpening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::take(&mut [3; 32])
    }

    /// Test case 14 of the GCM specification: zero key, zero nonce, a zero block.
    #[test]
    fn agrees_with_the_published_vector() {
        let mut block = [0; 16];
        let tag = Sealing::new(&Key::take(&mut [0; 32])).seal(0, &[], &mut block);
        assert_eq!(block[..4], [0xce, 0xa7, 0x40, 0x3d]);
        assert_eq!(tag[..4], [0xd0, 0xd1, 0xc8, 0xa7]);
    }

    #[test]
    fn opens_what_was_sealed_and_nothing_else() {
        let mut block = *b"sixteen bytes...";
        let tag = Sealing::new(&key()).seal(5, b"context", &mut block);
        let opening = Opening::new(&key());
        let open = |slot, context: &[u8], mut block: [u8; 16], tag: &Tag| {
            opening.open(slot, context, &mut block, tag).map(|()| block)
        };
        assert_eq!(open(5, b"context", block, &tag), Ok(*b"sixteen bytes..."));
        assert_eq!(open(6, b"context", block, &tag), Err(Forged));
        assert_eq!(open(5, b"Context", block, &tag), Err(Forged));
        assert_eq!(open(5, b"context", [0; 16], &tag), Err(Forged));
        assert_eq!(open(5, b"context", block, &[0; 16]), Err(Forged));
    }

    #[test]
    fn records_open_one_after_the_other_under_their_keys() {
        let parts: [&[u8]; 3] = [b"a", b"b", b"a"];
        let sealed = parts.map(|part| {
            let mut block = *b"sixteen bytes...";
            let tag = Sealing::under(&key(), 7, &[part]).seal(5, b"context", &mut block);
            (block, tag)
        });
        let (key, other) = (key(), Key::take(&mut [4; 32]));
        for (key, domain, opens) in [(&key, 7, true), (&key, 8, false), (&other, 7, false)] {
            let mut openings = Openings::under(key, domain);
            for (part, (mut block, tag)) in parts.iter().zip(sealed) {
                let opened = openings.of(&[part]).open(5, b"context", &mut block, &tag);
                assert_eq!(opened.is_ok(), opens);
                assert!(!opens || block == *b"sixteen bytes...");
            }
            let (mut block, tag) = sealed[0];
            assert_eq!(openings.of(&[b"b"]).open(5, b"context", &mut block, &tag), Err(Forged));
        }
    }

    #[test]
    fn counted_records_open_by_their_numbers() {
        let counted = Counted::new(&key(), 7);
        let mut blocks = [[1; 16], [1; 16]];
        let sealed = blocks.each_mut().map(|block| counted.seal(b"c", block));
        assert_eq!((sealed[0].0, sealed[1].0), (8, 9));
        assert_ne!(blocks[0], blocks[1]);
        let (number, tag) = sealed[1];
        assert_eq!(counted.open(8, b"c", &mut blocks[1].clone(), &tag), Err(Forged));
        counted.open(number, b"c", &mut blocks[1], &tag).unwrap();
        assert_eq!(blocks[1], [1; 16]);
    }

    #[test]
    #[should_panic(expected = "sealed once")]
    fn a_slot_is_not_sealed_twice() {
        let mut sealing = Sealing::new(&key());
        sealing.seal(1, &[], &mut [0; 16]);
        sealing.seal(1, &[], &mut [1; 16]);
    }
}
