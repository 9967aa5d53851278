//! Memory that is mapped for one purpose, left out of core dumps, and given back to the system as soon
//! as it has served.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};

/// Some memory that was to be kept from swap could not be.
static MAY_BE_SWAPPED: AtomicBool = AtomicBool::new(false);

/// Whether all memory for keys, as far as there is any yet, is kept from swap.
pub fn keys_are_locked() -> bool {
    !MAY_BE_SWAPPED.load(Ordering::Relaxed)
}

/// Bytes in pages of their own.
pub(crate) struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: JUSTIFICATION: nobody else has the mapping, as with a `Box`.
#[allow(unsafe_code, reason = "JUSTIFICATION: it owns its mapping")]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "JUSTIFICATION: it owns its mapping")]
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` zero bytes, one at least; `None` if the system has no room for them.
    #[allow(unsafe_code, reason = "JUSTIFICATION: mapping has no safe form")]
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        assert!(len > 0, "a mapping has a length");
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, wherever the system has room for it.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) };
        let mapping = Self { at: NonNull::new(start.ok()?)?.cast(), len };
        mapping.advise(Advice::LinuxDontDump);
        Some(mapping)
    }

    /// The same where the program cannot go on without.
    pub(crate) fn needed(len: usize) -> Self {
        Self::zeroed(len).unwrap_or_else(|| {
            let layout = std::alloc::Layout::array::<u8>(len).expect("it is no longer than memory");
            std::alloc::handle_alloc_error(layout)
        })
    }

    /// Keeps it from swap; where the limit of locked memory is reached it serves as well, and
    /// [`keys_are_locked`] tells.
    #[allow(unsafe_code, reason = "JUSTIFICATION: locking has no safe form")]
    pub(crate) fn lock(self) -> Self {
        // SAFETY: the range is that of the mapping, of which no byte changes.
        if unsafe { mlock(self.at.as_ptr().cast(), self.len) }.is_err() {
            MAY_BE_SWAPPED.store(true, Ordering::Relaxed);
        }
        self
    }

    /// Asks for large pages, for memory that is used in no order: fewer faults, and fewer misses when
    /// addresses are looked up. A system that has none gives small ones.
    pub(crate) fn in_huge_pages(self) -> Self {
        self.advise(Advice::LinuxHugepage);
        self
    }

    /// Never given back.
    pub(crate) fn leak(self) -> NonNull<u8> {
        let at = self.at;
        std::mem::forget(self);
        at
    }

    #[allow(unsafe_code, reason = "JUSTIFICATION: advice has no safe form")]
    fn advise(&self, advice: Advice) {
        // SAFETY: the range is that of the mapping, and this advice changes no byte of it.
        let _ = unsafe { madvise(self.at.as_ptr().cast(), self.len, advice) };
    }
}

impl Deref for Mapping {
    type Target = [u8];

    #[allow(unsafe_code, reason = "JUSTIFICATION: the mapping is memory of our own")]
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is as long, all of it is initialised, and nobody else has it.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for Mapping {
    #[allow(unsafe_code, reason = "JUSTIFICATION: the mapping is memory of our own")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and it is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code, reason = "JUSTIFICATION: the mapping is memory of our own")]
    fn drop(&mut self) {
        // SAFETY: the mapping is not used again.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}
