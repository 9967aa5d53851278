//! Keys that encrypt one message each, so that no nonce is needed: AES in counter mode from zero, as
//! the paper has it, or AES-GCM with a zero nonce.

use std::fmt;

use aes::{Aes128Enc, Aes256Enc};
use ctr::cipher::{BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher};

use crate::gcm::{Gcm, Nonce};
use crate::key::KEY_LEN;
use crate::sealing::{Forged, Tag};
use crate::slab::{Place, wipe_after_stream, wipe_after_use};

/// Length of a check value in bytes.
pub const CHECK_VALUE_LEN: usize = 8;

/// Whether messages are encrypted. A program that does not is there to be measured beside one that does;
/// `--cfg tacita_unencrypted` alone makes it, which no feature of a crate can bring about.
pub const ENCRYPTS: bool = cfg!(not(tacita_unencrypted));

/// What tells whether a key is a message's without giving anything of it away: the first bytes of
/// the block cipher's value at the block of all ones. Neither mode ever gets to that block.
pub type CheckValue = [u8; CHECK_VALUE_LEN];

/// How a one-time key encrypts its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OneTimeCipher {
    /// AES-128 in counter mode from zero: no authentication. Paper: DNEFS.
    Aes128Ctr,
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
}

impl OneTimeCipher {
    /// Length of its keys in bytes.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Ctr | Self::Aes128Gcm => 16,
            Self::Aes256Gcm => KEY_LEN,
        }
    }

    /// Whether it authenticates; without that a tag is zero, and need not be stored.
    pub const fn authenticates(self) -> bool {
        !matches!(self, Self::Aes128Ctr)
    }
}

/// The bytes of a one-time key, where all keys are: however it is passed on, nothing of it stays behind.
struct Bytes {
    cipher: OneTimeCipher,
    bytes: Place<[u8; KEY_LEN]>,
}

impl Bytes {
    /// # Panics
    /// If there are not as many as the cipher needs.
    fn copy_of(cipher: OneTimeCipher, key: &[u8]) -> Self {
        let mut bytes = Place::new(|| [0; KEY_LEN]);
        bytes[..cipher.key_len()].copy_from_slice(key);
        Self { cipher, bytes }
    }

    fn short(&self) -> &[u8; 16] {
        self.bytes.first_chunk().expect("it is shorter")
    }

    fn key(&self) -> &[u8] {
        &self.bytes[..self.cipher.key_len()]
    }

    fn check_value(&self) -> CheckValue {
        if !ENCRYPTS {
            return *self.bytes.first_chunk().expect("it is shorter");
        }
        let value = check_value(self.cipher, self.key());
        wipe_after_use();
        value
    }

    /// Overwrites what its use has left on the stack.
    fn wipe_stack(&self) {
        if self.cipher.authenticates() { wipe_after_use() } else { wipe_after_stream() }
    }
}

/// The check value that `key` has, if it is one: for whoever looks for keys among other bytes.
///
/// # Panics
/// If its length is not that of the cipher's keys.
pub fn check_value_of(cipher: OneTimeCipher, key: &[u8]) -> CheckValue {
    check_value(cipher, key)
}

// What is done with round keys has a stack frame of its own, below that of whoever wipes the stack
// after: so it is never inlined.

#[inline(never)]
fn check_value(cipher: OneTimeCipher, key: &[u8]) -> CheckValue {
    let mut block = aes::Block::from([0xff; 16]);
    match cipher {
        OneTimeCipher::Aes128Ctr | OneTimeCipher::Aes128Gcm => {
            let key: &[u8; 16] = key.try_into().expect("as long as the cipher's keys");
            Aes128Enc::new(key.into()).encrypt_block(&mut block);
        }
        OneTimeCipher::Aes256Gcm => {
            let key: &[u8; KEY_LEN] = key.try_into().expect("as long as the cipher's keys");
            Aes256Enc::new(key.into()).encrypt_block(&mut block);
        }
    }
    *block.first_chunk().expect("a block is longer")
}

#[inline(never)]
fn apply_key_stream(key: &Bytes, buf: &mut [u8]) {
    ctr::Ctr128BE::<Aes128Enc>::new(key.short().into(), &[0; 16].into()).apply_keystream(buf);
}

/// Each key encrypts one message.
const NONCE: Nonce = [0; 12];

/// The cipher of a key; none for the one that does not authenticate.
fn gcm(key: &Bytes) -> Option<Gcm> {
    match key.cipher {
        OneTimeCipher::Aes128Ctr => None,
        OneTimeCipher::Aes128Gcm => Some(Gcm::new_128(key.short())),
        OneTimeCipher::Aes256Gcm => Some(Gcm::new_256(&key.bytes)),
    }
}

#[inline(never)]
fn seal(key: &Bytes, context: &[u8], buf: &mut [u8]) -> Tag {
    let Some(cipher) = gcm(key) else {
        apply_key_stream(key, buf);
        return Tag::default();
    };
    cipher.seal(NONCE, context, buf)
}

#[inline(never)]
fn open(key: &Bytes, context: &[u8], buf: &mut [u8], tag: &Tag) -> Result<(), Forged> {
    let Some(cipher) = gcm(key) else {
        apply_key_stream(key, buf);
        return Ok(());
    };
    cipher.open(NONCE, context, buf, tag)
}

/// A key that has encrypted nothing yet. It encrypts one message and is gone.
pub struct FreshKey(Bytes);

impl FreshKey {
    /// Takes over `key`, random bytes that were handed out to nobody else and never will be.
    ///
    /// # Panics
    /// If its length is not that of the cipher's keys.
    pub fn take(cipher: OneTimeCipher, key: &[u8]) -> Self {
        Self(Bytes::copy_of(cipher, key))
    }

    /// What tells the message that this key encrypts.
    pub fn check_value(&self) -> CheckValue {
        self.0.check_value()
    }

    /// Encrypts `buf` in place; `context` is authenticated with it.
    pub fn seal(self, context: &[u8], buf: &mut [u8]) -> Tag {
        if !ENCRYPTS {
            return Tag::default();
        }
        let tag = seal(&self.0, context, buf);
        self.0.wipe_stack();
        tag
    }
}

/// A key whose message may be stored somewhere.
pub struct MessageKey(Bytes);

impl MessageKey {
    /// Takes over `key`.
    ///
    /// # Panics
    /// If its length is not that of the cipher's keys.
    pub fn take(cipher: OneTimeCipher, key: &[u8]) -> Self {
        Self(Bytes::copy_of(cipher, key))
    }

    /// What tells the message that this key has encrypted.
    pub fn check_value(&self) -> CheckValue {
        self.0.check_value()
    }

    /// Decrypts `buf` in place.
    ///
    /// # Errors
    /// [`Forged`], where the cipher authenticates; `buf` holds nothing of use then.
    pub fn open(&self, context: &[u8], buf: &mut [u8], tag: &Tag) -> Result<(), Forged> {
        if !ENCRYPTS {
            return Ok(());
        }
        let opened = open(&self.0, context, buf, tag);
        self.0.wipe_stack();
        opened
    }
}

impl fmt::Debug for FreshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for MessageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIPHERS: [OneTimeCipher; 3] =
        [OneTimeCipher::Aes128Ctr, OneTimeCipher::Aes128Gcm, OneTimeCipher::Aes256Gcm];

    /// Test cases 2 and 14 of the GCM specification, and the block cipher at zero: a zero key and a
    /// zero block.
    #[test]
    fn agree_with_the_published_vectors() {
        let seal = |cipher: OneTimeCipher| {
            let mut block = [0; 16];
            let key = FreshKey::take(cipher, &[0; 32][..cipher.key_len()]);
            let tag = key.seal(&[], &mut block);
            (*block.first_chunk().unwrap(), *tag.first_chunk().unwrap())
        };
        assert_eq!(seal(CIPHERS[0]), ([0x66, 0xe9, 0x4b, 0xd4], [0; 4]));
        assert_eq!(seal(CIPHERS[1]), ([0x03, 0x88, 0xda, 0xce], [0xab, 0x6e, 0x47, 0xd4]));
        assert_eq!(seal(CIPHERS[2]), ([0xce, 0xa7, 0x40, 0x3d], [0xd0, 0xd1, 0xc8, 0xa7]));
    }

    #[test]
    fn a_message_opens_under_its_key_and_context_alone() {
        for cipher in CIPHERS {
            let bytes = [9; 32];
            let key = &bytes[..cipher.key_len()];
            let fresh = FreshKey::take(cipher, key);
            let value = fresh.check_value();
            let mut message = *b"a message that is longer than a block";
            let tag = fresh.seal(b"context", &mut message);
            assert_ne!(&message, b"a message that is longer than a block");
            let stored = MessageKey::take(cipher, key);
            assert_eq!(stored.check_value(), value);
            let other = MessageKey::take(cipher, &[8; 32][..cipher.key_len()]);
            assert_ne!(other.check_value(), value);
            if cipher.authenticates() {
                let open = |key: &MessageKey, context: &[u8], mut message: [u8; 37]| {
                    key.open(context, &mut message, &tag)
                };
                assert_eq!(open(&other, b"context", message), Err(Forged));
                assert_eq!(open(&stored, b"Context", message), Err(Forged));
                assert_eq!(open(&stored, b"context", [0; 37]), Err(Forged));
            }
            stored.open(b"context", &mut message, &tag).unwrap();
            assert_eq!(&message, b"a message that is longer than a block");
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let cipher = OneTimeCipher::Aes128Ctr;
        assert_eq!(format!("{:?}", FreshKey::take(cipher, &[7; 16])), "[secret]");
        assert_eq!(format!("{:?}", MessageKey::take(cipher, &[7; 16])), "[secret]");
    }
}
