//! The one pseudo-random function: keyed BLAKE3.

use std::fmt;

/// A BLAKE3 output of 32 bytes.
pub type Digest = [u8; 32];

/// Keyed BLAKE3 over a list of parts.
///
/// Two different uses must not share a `domain`. Parts are concatenated; where more than one has a
/// variable length the caller makes the whole prefix-free.
#[derive(Clone)]
pub struct Prf {
    key: [u8; 32],
}

impl Prf {
    /// The function under `key`.
    pub const fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// The value at `domain`, `parts`.
    pub fn value(&self, domain: u8, parts: &[&[u8]]) -> Digest {
        let mut value = [0; 32];
        derive(&self.key, domain, parts, &mut value);
        value
    }

    /// Fills `out` from place `offset` on of the endless stream at `domain`: bytes that nobody
    /// without the key tells from random ones, and that can be made again for comparison.
    pub fn stream(&self, domain: u8, offset: u64, out: &mut [u8]) {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&[domain]);
        let mut stream = hasher.finalize_xof();
        stream.set_position(offset);
        stream.fill(out);
    }
}

impl fmt::Debug for Prf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Puts the value at `domain`, `parts` under `key` into `value`. Its state stays below on the
/// stack, where it is wiped with all that is left there: quicker than to zero each part of it.
#[inline(never)]
pub(crate) fn derive(key: &[u8; 32], domain: u8, parts: &[&[u8]], value: &mut Digest) {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&[domain]);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize_xof().fill(value);
}

/// The value at the domain that `bytes` begin with and the one part behind it: in one piece, which is
/// hashed half as fast again.
#[inline(never)]
pub(crate) fn derive_in_one(key: &[u8; 32], bytes: &[u8], value: &mut Digest) {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(bytes);
    hasher.finalize_xof().fill(value);
}

/// Unkeyed BLAKE3 of `bytes`: a checksum, no authentication.
pub fn digest(bytes: &[u8]) -> Digest {
    digest_of([bytes])
}

/// [`digest`] of parts, one after the other, which need not lie together.
pub fn digest_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..20_000u32).map(|i| i.to_le_bytes()[0]).collect();
        for len in [1, 1000, 4096, 20_000] {
            assert_eq!(digest_of(bytes.chunks(len)), digest(&bytes));
        }
        let published = [0xaf, 0x13, 0x49, 0xb9, 0xf5, 0xf9, 0xa1, 0xa6];
        assert_eq!(digest(b"")[..8], published);
    }

    #[test]
    fn agrees_with_the_published_vector() {
        // The first input of BLAKE3's test vectors is empty; a domain byte 0 is its second.
        let prf = Prf::new(*b"whats the Elvish word for friend");
        let want = [0x6d, 0x78, 0x78, 0xdf, 0xff, 0x2f, 0x48, 0x56];
        assert_eq!(prf.value(0, &[])[..8], want);
    }

    #[test]
    fn one_piece_has_the_value_of_its_parts() {
        let bytes: Vec<u8> = (0..50_000u32).map(|i| i.to_le_bytes()[0]).collect();
        for len in [1, 2, 1024, 1025, 45_057, 50_000] {
            for domain in [0, 9] {
                let mut bytes = bytes[..len].to_vec();
                bytes[0] = domain;
                let mut value = [0; 32];
                derive_in_one(&[3; 32], &bytes, &mut value);
                assert_eq!(value, Prf::new([3; 32]).value(domain, &[&bytes[1..]]));
            }
        }
    }

    #[test]
    fn a_stream_begins_with_the_value_and_can_be_entered_anywhere() {
        let prf = Prf::new([3; 32]);
        let mut whole = [0; 200];
        prf.stream(9, 0, &mut whole);
        assert_eq!(whole[..32], prf.value(9, &[]));
        let mut part = [0; 77];
        prf.stream(9, 100, &mut part);
        assert_eq!(part[..], whole[100..177]);
    }

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(format!("{:?}", Prf::new([7; 32])), "[secret]");
    }
}
