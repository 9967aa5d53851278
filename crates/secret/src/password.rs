//! From passwords to keys: Argon2id with fixed parameters, for parameters in a header would tell
//! who chose them.

use std::fmt;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::Zeroizing;

use crate::Key;
use crate::key::KEY_LEN;
use crate::mapping::Mapping;

/// Memory in KiB, passes and lanes: 256 MiB, about half a second.
const COST: (u32, u32, u32) = (256 << 10, 3, 1);
/// Bytes of salt.
pub const SALT_LEN: usize = 32;

/// There is not the memory that a password takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB of memory are needed for a password, and are not there", COST.0 >> 10)
    }
}

impl std::error::Error for NoMemory {}

impl From<NoMemory> for std::io::Error {
    fn from(error: NoMemory) -> Self {
        Self::new(std::io::ErrorKind::OutOfMemory, error)
    }
}

/// A password, zeroed when dropped and never printed.
pub struct Password(Zeroizing<Vec<u8>>);

impl Password {
    /// Takes the bytes of a password over.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key that belongs to the password under this salt. Takes 256 MiB and about half a second,
    /// whatever the password.
    ///
    /// # Errors
    /// [`NoMemory`], as under a limit (`ulimit -v`).
    pub fn stretch(&self, salt: &[u8; SALT_LEN]) -> Result<Key, NoMemory> {
        let (memory, passes, lanes) = COST;
        let params =
            Params::new(memory, passes, lanes, Some(KEY_LEN)).expect("within Argon2's bounds");
        let mut memory = Memory::of(params.block_count()).ok_or(NoMemory)?;
        let mut key = Zeroizing::new([0; KEY_LEN]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into_with_memory(&self.0, salt, &mut *key, &mut memory)
            .expect("a salt of 32 bytes and a key of 32 bytes are within Argon2's bounds");
        // The place of the keys may have to be made yet, which fits into what this took.
        drop(memory);
        Ok(Key::take(&mut key))
    }
}

/// What Argon2 works in.
struct Memory(Mapping);

impl Memory {
    /// Room for so many blocks; `None` if the system has none.
    fn of(blocks: usize) -> Option<Self> {
        Mapping::zeroed(blocks * Block::SIZE).map(|mapping| Self(mapping.in_huge_pages()))
    }
}

impl AsMut<[Block]> for Memory {
    #[allow(unsafe_code, reason = "JUSTIFICATION: bytes are seen as blocks")]
    fn as_mut(&mut self) -> &mut [Block] {
        // SAFETY: a block is an array of numbers: any bytes are one. A mapping begins where a page does.
        unsafe { self.0.align_to_mut().1 }
    }
}

impl PartialEq for Password {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl Eq for Password {}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_and_salt_make_the_key() {
        let key =
            |password: &str, salt| Password::new(password.into()).stretch(&[salt; 32]).unwrap();
        let one = key("one", 1);
        assert_eq!(one.expose(), key("one", 1).expose());
        assert_ne!(one.expose(), key("one", 2).expose());
        assert_ne!(one.expose(), key("two", 1).expose());
        assert_eq!(format!("{:?}", Password::new(b"one".to_vec())), "[secret]");
    }
}
