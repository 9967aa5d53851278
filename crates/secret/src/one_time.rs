//! Keys that encrypt one message each, so that no nonce is needed: AES in counter mode from zero, as
//! the paper has it, or AES-GCM with a zero nonce.

use std::fmt;
use std::marker::PhantomData;

use aes::{Aes128Enc, Aes256Enc, Block};
use ctr::CtrCore;
use ctr::cipher::consts::U16;
use ctr::cipher::{BlockCipherEncrypt, InnerIvInit, KeyInit, StreamCipherCore};
use ctr::flavors::Ctr32BE;

use crate::gcm::{Gcm, Nonce};
use crate::key::KEY_LEN;
use crate::sealing::{Forged, Tag};
use crate::slab::{Place, wipe_after_all};

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
        if ENCRYPTS {
            check_value(self.cipher, self.key())
        } else {
            *self.bytes.first_chunk().expect("it is shorter")
        }
    }
}

/// What uses of keys leave on the stack: it is overwritten when this goes.
///
/// Whoever uses one key after the other has one of these for all of them, for overwriting takes a tenth
/// of the time of a message of 4 KiB. It belongs where the keys are used, a few calls above at most.
#[derive(Debug)]
#[must_use]
pub struct Traces(PhantomData<*const ()>);

impl Traces {
    /// None so far.
    #[allow(clippy::new_without_default, reason = "what it is for is what it does when it goes")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        wipe_after_all();
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
    match cipher {
        OneTimeCipher::Aes128Ctr | OneTimeCipher::Aes128Gcm => {
            let key: &[u8; 16] = key.try_into().expect("as long as the cipher's keys");
            check_value_under(&Aes128Enc::new(key.into()))
        }
        OneTimeCipher::Aes256Gcm => {
            let key: &[u8; KEY_LEN] = key.try_into().expect("as long as the cipher's keys");
            check_value_under(&Aes256Enc::new(key.into()))
        }
    }
}

fn check_value_under(cipher: &impl BlockCipherEncrypt<BlockSize = U16>) -> CheckValue {
    let mut block = Block::from([0xff; 16]);
    cipher.encrypt_block(&mut block);
    *block.first_chunk().expect("a block is longer")
}

/// AES in counter mode from zero. Its counter has 32 bits, which counts as far as 64 GiB like one of 128
/// and is faster.
fn apply_key_stream(cipher: &Aes128Enc, buf: &mut [u8]) {
    let stream = CtrCore::<_, Ctr32BE>::inner_iv_init(cipher, &Block::default());
    stream.apply_keystream_partial(buf.into());
}

/// Each key encrypts one message.
const NONCE: Nonce = [0; 12];

/// The cipher of a key that authenticates.
fn gcm(key: &Bytes) -> Gcm {
    match key.cipher {
        OneTimeCipher::Aes128Gcm => Gcm::new_128(key.short()),
        OneTimeCipher::Aes256Gcm => Gcm::new_256(&key.bytes),
        OneTimeCipher::Aes128Ctr => unreachable!("it does not authenticate"),
    }
}

#[inline(never)]
fn seal<'c>(key: &Bytes, context: impl FnOnce(CheckValue) -> &'c [u8], buf: &mut [u8]) -> Tag {
    if key.cipher.authenticates() {
        let context = context(key.check_value());
        return gcm(key).seal(NONCE, context, buf);
    }
    let cipher = Aes128Enc::new(key.short().into());
    context(check_value_under(&cipher));
    apply_key_stream(&cipher, buf);
    Tag::default()
}

#[inline(never)]
fn open(key: &Bytes, context: &[u8], buf: &mut [u8], tag: &Tag) -> Result<(), Forged> {
    if key.cipher.authenticates() {
        return gcm(key).open(NONCE, context, buf, tag);
    }
    apply_key_stream(&Aes128Enc::new(key.short().into()), buf);
    Ok(())
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

    /// Encrypts `buf` in place. What is authenticated with it is made by `context` from what tells the
    /// message that this key encrypts.
    pub fn seal<'c>(
        self,
        _: &mut Traces,
        context: impl FnOnce(CheckValue) -> &'c [u8],
        buf: &mut [u8],
    ) -> Tag {
        if !ENCRYPTS {
            context(self.0.check_value());
            return Tag::default();
        }
        seal(&self.0, context, buf)
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
    pub fn check_value(&self, _: &mut Traces) -> CheckValue {
        self.0.check_value()
    }

    /// Decrypts `buf` in place.
    ///
    /// # Errors
    /// [`Forged`], where the cipher authenticates; `buf` holds nothing of use then.
    pub fn open(
        &self,
        _: &mut Traces,
        context: &[u8],
        buf: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        if ENCRYPTS { open(&self.0, context, buf, tag) } else { Ok(()) }
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
            let tag = key.seal(&mut Traces::new(), |_| &[], &mut block);
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
            let mut message = *b"a message that is longer than a block";
            let (mut value, mut traces) = (CheckValue::default(), Traces::new());
            let context = |of_key| {
                value = of_key;
                &b"context"[..]
            };
            let tag = FreshKey::take(cipher, key).seal(&mut traces, context, &mut message);
            assert_ne!(&message, b"a message that is longer than a block");
            let stored = MessageKey::take(cipher, key);
            assert_eq!(stored.check_value(&mut traces), value);
            assert_eq!(check_value_of(cipher, key), value);
            let other = MessageKey::take(cipher, &[8; 32][..cipher.key_len()]);
            assert_ne!(other.check_value(&mut traces), value);
            if cipher.authenticates() {
                let open = |key: &MessageKey, context: &[u8], mut message: [u8; 37]| {
                    key.open(&mut Traces::new(), context, &mut message, &tag)
                };
                assert_eq!(open(&other, b"context", message), Err(Forged));
                assert_eq!(open(&stored, b"Context", message), Err(Forged));
                assert_eq!(open(&stored, b"context", [0; 37]), Err(Forged));
            }
            stored.open(&mut traces, b"context", &mut message, &tag).unwrap();
            assert_eq!(&message, b"a message that is longer than a block");
        }
    }

    /// NIST SP 800-38A, F.5: a block of the key stream is the cipher of its counter.
    #[test]
    fn the_key_stream_counts_from_zero_however_long_it_is() {
        let cipher = Aes128Enc::new(&[5; 16].into());
        let block = |counter: u128| {
            let mut block = Block::from(counter.to_be_bytes());
            cipher.encrypt_block(&mut block);
            <[u8; 16]>::from(block)
        };
        let stream: Vec<u8> = (0..300).flat_map(block).collect();
        for len in [0, 1, 16, 17, 1023, 1024, 1025, 4096, 4800] {
            let mut buf = vec![0; len];
            apply_key_stream(&cipher, &mut buf);
            assert_eq!(buf, stream[..len]);
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let cipher = OneTimeCipher::Aes128Ctr;
        assert_eq!(format!("{:?}", FreshKey::take(cipher, &[7; 16])), "[secret]");
        assert_eq!(format!("{:?}", MessageKey::take(cipher, &[7; 16])), "[secret]");
    }
}
