//! Random bytes at the speed of a cipher, which nobody can tell from sealed data.

use std::fmt;

use aes::Aes256Enc;
use ctr::cipher::{KeyIvInit, StreamCipher};

use crate::Key;
use crate::slab::{Place, wipe_after_making, wipe_after_stream};

/// A stream of AES-256 in counter mode under a key of its own.
pub struct Noise(Place<ctr::Ctr128BE<Aes256Enc>>);

impl Noise {
    /// The stream of `key`, which must be random and used for nothing else.
    pub fn new(key: &Key) -> Self {
        let stream = Place::new(|| ctr::Ctr128BE::new(key.expose().into(), &[0; 16].into()));
        wipe_after_making();
        Self(stream)
    }

    /// Fills `buf` with the next bytes of the stream.
    #[inline(never)]
    pub fn fill(&mut self, buf: &mut [u8]) {
        self.0.write_keystream(buf);
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        wipe_after_stream();
    }
}

impl fmt::Debug for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AES-256 of a zero block under a zero key.
    #[test]
    fn agrees_with_the_published_vector() {
        let mut block = [9; 16];
        Noise::new(&Key::take(&mut [0; 32])).fill(&mut block);
        assert_eq!(block[..4], [0xdc, 0x95, 0xc0, 0x78]);
    }

    #[test]
    fn goes_on_where_it_was() {
        let key = Key::take(&mut [1; 32]);
        let (mut whole, mut parts) = ([0; 64], [0; 64]);
        Noise::new(&key).fill(&mut whole);
        let mut noise = Noise::new(&key);
        parts.fill(7);
        parts.chunks_mut(10).for_each(|part| noise.fill(part));
        assert_eq!(whole, parts);
    }
}
