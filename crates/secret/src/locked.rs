//! Memory for many keys: kept from swap and core dumps, zeroed on drop.

use std::fmt;
use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

use crate::mapping::Mapping;

/// Bytes in pages of their own, which are kept from swap where the limit of locked memory allows it,
/// and from core dumps.
pub struct LockedBytes(Mapping);

impl LockedBytes {
    /// `len` zero bytes, one at least.
    pub fn zeroed(len: usize) -> Self {
        Self(Mapping::needed(len).lock())
    }
}

impl Deref for LockedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for LockedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for LockedBytes {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for LockedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zero_at_first_and_keeps_what_is_put_there() {
        let mut bytes = LockedBytes::zeroed(100_000);
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes[99_999] = 7;
        assert_eq!((bytes.len(), bytes[99_999]), (100_000, 7));
        assert_eq!(format!("{bytes:?}"), "[secret]");
    }
}
