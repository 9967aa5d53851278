//! The one place of all keys and of all ciphers, whose round keys are keys: memory that is kept from
//! swap and from core dumps, where the system allows it.
//!
//! Its size is fixed, and more than the keys of all open volumes and of all units under way need. If
//! it is ever full, as much again is added, in the same way.

use std::hint::black_box;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::faults::{Fault, planted};
use crate::mapping::Mapping;

/// Places that are mapped at once.
const PLACES: usize = 1024;
/// Length of a place in bytes: that of the largest cipher, with round keys for processors that know
/// nothing of AES.
const PLACE_LEN: usize = 1280;
/// How far down the stack traces are found of whoever made a cipher, or a key for it, in bytes, and
/// somewhat more.
const MADE_LEN: usize = 8 << 10;
/// The same of whoever used a cipher, or made one for a single use.
const USED_LEN: usize = 8 << 10;
/// The same of whoever made a key stream, many blocks of which are computed side by side.
const STREAMED_LEN: usize = 12 << 10;
/// The same of whoever has used keys one after the other, some calls further down.
const ALL_LEN: usize = 16 << 10;

type Bytes = [u8; PLACE_LEN];

/// Places that are not taken, all zero; the last one is taken next.
struct Free(Vec<NonNull<Bytes>>);

// SAFETY: JUSTIFICATION: the pointers are to memory of the process that is never given back, and
// each is to a place that nobody else has.
#[allow(unsafe_code, reason = "JUSTIFICATION: places are handed out one by one")]
unsafe impl Send for Free {}

// The list is changed in one step.
fn free() -> MutexGuard<'static, Free> {
    static FREE: Mutex<Free> = Mutex::new(Free(Vec::new()));
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Free {
    fn take(&mut self) -> NonNull<Bytes> {
        if self.0.is_empty() {
            self.map();
        }
        self.0.pop().expect("there are some now")
    }

    #[allow(unsafe_code, reason = "JUSTIFICATION: the mapping is handed out in places")]
    fn map(&mut self) {
        let start = Mapping::needed(PLACES * PLACE_LEN).lock().leak();
        // SAFETY: all of them lie within the mapping.
        self.0.extend((0..PLACES).rev().map(|n| unsafe { start.cast::<Bytes>().add(n) }));
    }
}

/// A place with a key or a cipher in it; zeroed when it is given back.
pub(crate) struct Place<T> {
    at: NonNull<T>,
    _owned: PhantomData<T>,
}

// SAFETY: JUSTIFICATION: nobody else has the place, as with a `Box`.
#[allow(unsafe_code, reason = "JUSTIFICATION: it owns what is in the place")]
unsafe impl<T: Send> Send for Place<T> {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "JUSTIFICATION: it owns what is in the place")]
unsafe impl<T: Sync> Sync for Place<T> {}

impl<T> Place<T> {
    /// Puts into a place what `make` makes. What that leaves on the stack is for others to wipe.
    #[allow(unsafe_code, reason = "JUSTIFICATION: the slab is memory of our own")]
    pub(crate) fn new(make: impl FnOnce() -> T) -> Self {
        const { assert!(size_of::<T>() <= PLACE_LEN && PLACE_LEN.is_multiple_of(align_of::<T>())) };
        let at = free().take().cast::<T>();
        put(at, make);
        Self { at, _owned: PhantomData }
    }

    /// Puts something else into it, in the same way.
    pub(crate) fn renew(&mut self, make: impl FnOnce() -> T) {
        const { assert!(!std::mem::needs_drop::<T>(), "what was there is only written over") };
        put(self.at, make);
    }
}

/// On a stack frame of its own, below that of whoever wipes the stack.
#[allow(unsafe_code, reason = "JUSTIFICATION: the slab is memory of our own")]
#[inline(never)]
fn put<T>(at: NonNull<T>, make: impl FnOnce() -> T) {
    // SAFETY: the place is long enough, nobody else has it, and it begins at a multiple of its
    // length within pages.
    unsafe { at.write(make()) }
}

impl<T> Deref for Place<T> {
    type Target = T;

    #[allow(unsafe_code, reason = "JUSTIFICATION: the slab is memory of our own")]
    fn deref(&self) -> &T {
        // SAFETY: it was put there, and nobody else has the place.
        unsafe { self.at.as_ref() }
    }
}

impl<T> DerefMut for Place<T> {
    #[allow(unsafe_code, reason = "JUSTIFICATION: the slab is memory of our own")]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and it is borrowed for as long.
        unsafe { self.at.as_mut() }
    }
}

impl<T> Drop for Place<T> {
    #[allow(unsafe_code, reason = "JUSTIFICATION: the slab is memory of our own")]
    fn drop(&mut self) {
        let place = self.at.cast::<Bytes>();
        if !planted(Fault::UsedPlaces) {
            // SAFETY: it was put there and is not used again; then the place is bytes.
            unsafe {
                self.at.drop_in_place();
                self.at.as_ptr().write_bytes(0, 1);
            }
            black_box(place);
        }
        free().0.push(place);
    }
}

/// Overwrites what deriving keys and making a cipher have left on the stack of this thread.
pub(crate) fn wipe_after_making() {
    if !planted(Fault::HashState) {
        wipe::<MADE_LEN>();
    }
}

/// Overwrites what using a cipher has left there: whoever has one does so in the end.
pub(crate) fn wipe_after_use() {
    if !planted(Fault::UsedStack) {
        wipe::<USED_LEN>();
    }
}

/// Overwrites what making a key stream has left there: whoever has made one does so in the end.
pub(crate) fn wipe_after_stream() {
    if !planted(Fault::UsedStack) {
        wipe::<STREAMED_LEN>();
    }
}

/// Overwrites what using keys one after the other has left there.
pub(crate) fn wipe_after_all() {
    if !planted(Fault::UsedStack) {
        wipe::<ALL_LEN>();
    }
}

/// Overwrites what functions that have returned have left on the stack, so far down.
#[inline(never)]
fn wipe<const LEN: usize>() {
    black_box(&mut [0u8; LEN]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the system says of the mapping: locked, and not dumped.
    fn is_locked_and_not_dumped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("it can be read");
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((start, end)) = range.and_then(|(a, b)| number(a).zip(number(b))) {
                inside = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                return flags.contains(" dd") && flags.contains(" lo");
            }
        }
        panic!("it is not mapped");
    }

    /// However many there are.
    #[test]
    fn a_place_is_locked_and_zeroed_and_taken_again() {
        let places: Vec<_> = (0..2 * PLACES + 5).map(|n| Place::new(|| [n; 8])).collect();
        for (number, place) in places.iter().enumerate() {
            assert_eq!(**place, [number; 8]);
        }
        for place in [&places[0], &places[2 * PLACES + 4]] {
            assert!(is_locked_and_not_dumped(std::ptr::from_ref(&**place) as usize));
        }
        drop(places);
        let mut free = free();
        #[allow(unsafe_code, reason = "JUSTIFICATION: what a place holds that nobody has")]
        // SAFETY: nobody takes it while the list is locked.
        let is_zero = |place: &mut NonNull<Bytes>| unsafe { *place.as_ref() == [0; PLACE_LEN] };
        assert!(free.0.len() >= 2 * PLACES);
        assert!(free.0.iter_mut().all(is_zero));
    }
}
