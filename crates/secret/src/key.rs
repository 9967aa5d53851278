//! Keys of 32 bytes: kept from swap and dumps, zeroed when dropped, never printed.

use std::fmt;

use zeroize::Zeroize;

use crate::prf::{Digest, derive, derive_in_one};
use crate::slab::{Place, wipe_after_making};

/// Length of every key in bytes.
pub const KEY_LEN: usize = 32;

/// A secret of 32 bytes.
///
/// It lies with all others in one place that is kept from swap and core dumps where the system allows
/// it, and is zeroed on drop.
pub struct Key(Place<[u8; KEY_LEN]>);

impl Key {
    /// A new key from the operating system.
    ///
    /// # Errors
    /// If the operating system has no random source.
    pub fn random() -> std::io::Result<Self> {
        let mut place = Place::new(|| [0; KEY_LEN]);
        getrandom::fill(&mut *place).map_err(std::io::Error::other)?;
        Ok(Self(place))
    }

    /// Takes the bytes over and zeroes where they were.
    pub fn take(bytes: &mut [u8; KEY_LEN]) -> Self {
        let key = Self::copy_of(bytes);
        bytes.zeroize();
        key
    }

    /// The copy goes from place to place.
    fn copy_of(bytes: &[u8; KEY_LEN]) -> Self {
        let mut place = Place::new(|| [0; KEY_LEN]);
        place.copy_from_slice(bytes);
        Self(place)
    }

    /// A key for one purpose, `domain`, and one place, `parts`. What deriving it leaves on the stack is
    /// wiped when a cipher is made with it.
    #[must_use]
    pub fn derive(&self, domain: u8, parts: &[&[u8]]) -> Self {
        let mut place = Place::new(|| [0; KEY_LEN]);
        derive(self.expose(), domain, parts, &mut place);
        Self(place)
    }

    /// What may be known of the function under this key at `domain`, `parts`.
    pub fn value(&self, domain: u8, parts: &[&[u8]]) -> Digest {
        let mut value = [0; KEY_LEN];
        derive(self.expose(), domain, parts, &mut value);
        wipe_after_making();
        value
    }

    /// The same as [`Key::value`] at the domain that `bytes` begin with and the one part behind it, of
    /// long parts faster.
    pub fn value_in_one(&self, bytes: &[u8]) -> Digest {
        let mut value = [0; KEY_LEN];
        derive_in_one(self.expose(), bytes, &mut value);
        wipe_after_making();
        value
    }

    /// The bytes, to be stored sealed.
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self::copy_of(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_key() {
        assert_eq!(format!("{:?}", Key::take(&mut [7; 32])), "[secret]");
    }

    #[test]
    fn what_is_taken_is_zeroed() {
        let mut bytes = [7; 32];
        let key = Key::take(&mut bytes);
        assert_eq!((bytes, key.expose()), ([0; 32], &[7; 32]));
    }

    #[test]
    fn purposes_and_places_have_their_own_keys() {
        let key = Key::take(&mut [7; 32]);
        let derived = [key.derive(1, &[b"a"]), key.derive(2, &[b"a"]), key.derive(1, &[b"b"])];
        for (i, a) in derived.iter().enumerate() {
            for b in &derived[i + 1..] {
                assert_ne!(a.expose(), b.expose());
            }
        }
        assert_eq!(key.derive(1, &[b"a"]).expose(), derived[0].expose());
    }
}
