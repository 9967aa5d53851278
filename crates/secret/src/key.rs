//! Keys of 32 bytes: locked in memory, zeroed when dropped, never printed.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::{Prf, random};

/// Length of every key in bytes.
pub const KEY_LEN: usize = 32;

/// A secret of 32 bytes.
///
/// It lies in memory that is kept from swap where the system allows it, and is zeroed on drop.
pub struct Key(Box<[u8; KEY_LEN]>);

impl Key {
    /// A new key from the operating system.
    ///
    /// # Errors
    /// If the operating system has no random source.
    pub fn random() -> std::io::Result<Self> {
        Ok(Self::take(&mut random()?))
    }

    /// Takes the bytes over and zeroes where they were.
    pub fn take(bytes: &mut [u8; KEY_LEN]) -> Self {
        let mut place = Box::new([0; KEY_LEN]);
        lock(&place);
        place.copy_from_slice(bytes);
        bytes.zeroize();
        Self(place)
    }

    /// A key for one purpose, `domain`, and one place, `parts`. Such keys are many and short-lived:
    /// they are zeroed, but not locked.
    #[must_use]
    pub fn derive(&self, domain: u8, parts: &[&[u8]]) -> Self {
        let mut value = Zeroizing::new(Prf::new(*self.0).value(domain, parts));
        let mut place = Box::new([0; KEY_LEN]);
        std::mem::swap(&mut *place, &mut *value);
        Self(place)
    }

    /// A random key that is used up at once: zeroed, but not locked.
    #[must_use]
    pub fn passing(bytes: &mut [u8; KEY_LEN]) -> Self {
        let mut place = Box::new([0; KEY_LEN]);
        std::mem::swap(&mut *place, bytes);
        Self(place)
    }

    /// The bytes, to be stored sealed.
    pub const fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self::take(&mut Zeroizing::new(*self.0))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Keeps the pages of a key out of swap. They stay locked until the allocator gives them back: other
/// keys may lie there.
#[allow(unsafe_code, reason = "JUSTIFICATION: mlock has no safe form")]
fn lock(place: &[u8; KEY_LEN]) {
    // SAFETY: the range is that of a live array; locking changes none of its bytes.
    // Where the limit of locked memory is reached the key still works.
    let _ = unsafe { rustix::mm::mlock(place.as_ptr().cast_mut().cast(), KEY_LEN) };
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
