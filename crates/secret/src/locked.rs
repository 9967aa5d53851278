//! Memory for many keys: kept from swap and core dumps, zeroed on drop.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};

/// Bytes in pages of their own, which are kept from swap where the limit of locked memory allows it,
/// and from core dumps.
pub struct LockedBytes {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: JUSTIFICATION: nobody else has the mapping, as with a `Box`.
#[allow(unsafe_code, reason = "JUSTIFICATION: it owns its mapping")]
unsafe impl Send for LockedBytes {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "JUSTIFICATION: it owns its mapping")]
unsafe impl Sync for LockedBytes {}

impl LockedBytes {
    /// `len` zero bytes, one at least.
    #[allow(unsafe_code, reason = "JUSTIFICATION: mapping and locking have no safe form")]
    pub fn zeroed(len: usize) -> Self {
        assert!(len > 0, "a mapping has a length");
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, wherever the system has room for it.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) };
        let Some(at) = start.ok().and_then(NonNull::new) else {
            let layout = std::alloc::Layout::array::<u8>(len).expect("it is no longer than memory");
            std::alloc::handle_alloc_error(layout);
        };
        // SAFETY: the range is that of the mapping; neither changes a byte. Where the limit of
        // locked memory is reached keys still work.
        unsafe {
            let _ = mlock(at.as_ptr(), len);
            let _ = madvise(at.as_ptr(), len, Advice::LinuxDontDump);
        }
        Self { at: at.cast(), len }
    }
}

impl Deref for LockedBytes {
    type Target = [u8];

    #[allow(unsafe_code, reason = "JUSTIFICATION: the mapping is memory of our own")]
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is as long, all of it is initialised, and nobody else has it.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for LockedBytes {
    #[allow(unsafe_code, reason = "JUSTIFICATION: the mapping is memory of our own")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and it is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for LockedBytes {
    #[allow(unsafe_code, reason = "JUSTIFICATION: the mapping is memory of our own")]
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut **self);
        // SAFETY: the mapping is not used again.
        unsafe {
            let _ = munmap(self.at.as_ptr().cast(), self.len);
        }
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
