//! AES-GCM, by ring: what is sealed is the same by any other implementation.
//!
//! A cipher holds its round keys within, in no memory of its own. So whoever puts one into a place of
//! keys, or has it on the stack and wipes that after, leaves nothing of it behind.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, UnboundKey};

use crate::key::KEY_LEN;
use crate::sealing::{Forged, Tag};

/// Length of a nonce in bytes.
const NONCE_LEN: usize = 12;

/// Never used twice with one key, for sealing.
pub(crate) type Nonce = [u8; NONCE_LEN];

/// A cipher under one key.
pub(crate) struct Gcm(LessSafeKey);

// What is done with round keys has a stack frame of its own, below that of whoever wipes the stack
// after: so it is never inlined.

impl Gcm {
    pub(crate) fn new_128(key: &[u8; 16]) -> Self {
        Self::new(&AES_128_GCM, key)
    }

    pub(crate) fn new_256(key: &[u8; KEY_LEN]) -> Self {
        Self::new(&AES_256_GCM, key)
    }

    #[inline(never)]
    fn new(algorithm: &'static Algorithm, key: &[u8]) -> Self {
        let key = UnboundKey::new(algorithm, key).expect("it is as long as the algorithm's keys");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts `buf` in place; `context` is authenticated with it.
    #[inline(never)]
    pub(crate) fn seal(&self, nonce: Nonce, context: &[u8], buf: &mut [u8]) -> Tag {
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(context), buf);
        let tag = tag.expect("messages are shorter than what GCM can take");
        tag.as_ref().try_into().expect("tags have one length")
    }

    /// Decrypts `buf` in place.
    ///
    /// # Errors
    /// [`Forged`]; `buf` holds nothing of use then.
    #[inline(never)]
    pub(crate) fn open(
        &self,
        nonce: Nonce,
        context: &[u8],
        buf: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce);
        self.0
            .open_in_place_separate_tag(nonce, Aad::from(context), (*tag).into(), buf, 0..)
            .map(drop)
            .map_err(|_| Forged)
    }
}
