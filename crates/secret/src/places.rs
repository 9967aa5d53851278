//! Authenticated encryption of what lies at many places under one key: AES-256-GCM whose nonce is the
//! place.

use std::fmt;

use crate::gcm::Gcm;
use crate::key::Key;
use crate::sealing::{Forged, Tag, cipher};
use crate::slab::{Place, wipe_after_use};

/// Bytes that name a place.
pub const PLACE_LEN: usize = 12;

/// Seals and opens what lies at places.
///
/// A place has one content for ever: whoever seals other bytes at it gives away both. So the key has to
/// follow from all that decides what lies where; then sealing once more gives the same bytes.
pub struct Places {
    cipher: Place<Gcm>,
}

impl Places {
    /// Under `key`.
    pub fn new(key: &Key) -> Self {
        Self { cipher: cipher(key) }
    }

    /// Encrypts `buf` in place; `context` is authenticated with it.
    pub fn seal(&self, place: &[u8; PLACE_LEN], context: &[u8], buf: &mut [u8]) -> Tag {
        self.cipher.seal(*place, context, buf)
    }

    /// Decrypts `buf` in place.
    ///
    /// # Errors
    /// [`Forged`]; `buf` holds nothing of use then.
    pub fn open(
        &self,
        place: &[u8; PLACE_LEN],
        context: &[u8],
        buf: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        self.cipher.open(*place, context, buf, tag)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        wipe_after_use();
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_lies_there_and_nothing_else() {
        let places = Places::new(&Key::take(&mut [3; 32]));
        let mut sealed = *b"sixteen bytes...";
        let tag = places.seal(&[1; 12], b"context", &mut sealed);
        let open = |place, context: &[u8], mut buf: [u8; 16]| {
            places.open(&place, context, &mut buf, &tag).map(|()| buf)
        };
        assert_eq!(open([1; 12], b"context", sealed), Ok(*b"sixteen bytes..."));
        assert_eq!(open([2; 12], b"context", sealed), Err(Forged));
        assert_eq!(open([1; 12], b"contexT", sealed), Err(Forged));
        assert_eq!(open([1; 12], b"context", [0; 16]), Err(Forged));
    }
}
