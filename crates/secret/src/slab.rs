//! The one place of all keys: memory of fixed size that is kept from swap and from core dumps, where
//! the system allows it.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous};
use zeroize::Zeroize;

use crate::key::KEY_LEN;

/// Keys that have a place there: those of a few open volumes, and of all units under way.
const PLACES: usize = 2048;

type Bytes = [u8; KEY_LEN];

struct Slab {
    start: NonNull<Bytes>,
    /// Places that are not taken; the last one is taken next.
    free: Mutex<Vec<u16>>,
}

// SAFETY: JUSTIFICATION: the pointer is to memory of the process that is never given back. A place
// in it is reached by the one `Place` that has its number.
#[allow(unsafe_code, reason = "JUSTIFICATION: places are handed out one by one")]
unsafe impl Send for Slab {}
// SAFETY: as above; what is shared is the list, which has a lock.
#[allow(unsafe_code, reason = "JUSTIFICATION: places are handed out one by one")]
unsafe impl Sync for Slab {}

/// The slab; `None` where the system has no memory for it.
fn slab() -> Option<&'static Slab> {
    static SLAB: OnceLock<Option<Slab>> = OnceLock::new();
    SLAB.get_or_init(Slab::new).as_ref()
}

impl Slab {
    #[allow(unsafe_code, reason = "JUSTIFICATION: mapping and locking have no safe form")]
    fn new() -> Option<Self> {
        let len = PLACES * KEY_LEN;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, wherever the system has room for it.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) }.ok()?;
        // SAFETY: the range is that of the mapping; neither changes a byte. Where the limit of
        // locked memory is reached keys still work.
        unsafe {
            let _ = mlock(start, len);
            let _ = madvise(start, len, Advice::LinuxDontDump);
        }
        let free = (0..u16::try_from(PLACES).expect("few places")).rev().collect();
        Some(Self { start: NonNull::new(start.cast())?, free: Mutex::new(free) })
    }

    // The list is changed in one step.
    fn free(&self) -> MutexGuard<'_, Vec<u16>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place for one key, zero at first and zeroed when it is given back.
pub(crate) enum Place {
    Slab(u16),
    /// The slab is full: zeroed as well, but neither locked nor kept from dumps.
    Heap(Box<Bytes>),
}

impl Place {
    pub(crate) fn new() -> Self {
        let taken = slab().and_then(|slab| slab.free().pop());
        taken.map_or_else(|| Self::Heap(Box::new([0; KEY_LEN])), Self::Slab)
    }

    #[allow(unsafe_code, reason = "JUSTIFICATION: the slab is memory of our own")]
    pub(crate) fn bytes(&self) -> &Bytes {
        match self {
            Self::Slab(number) => {
                let slab = slab().expect("the place is in it");
                // SAFETY: the number is below `PLACES`, and no other `Place` has it.
                unsafe { slab.start.add(usize::from(*number)).as_ref() }
            }
            Self::Heap(bytes) => bytes,
        }
    }

    #[allow(unsafe_code, reason = "JUSTIFICATION: the slab is memory of our own")]
    pub(crate) fn bytes_mut(&mut self) -> &mut Bytes {
        match self {
            Self::Slab(number) => {
                let slab = slab().expect("the place is in it");
                // SAFETY: the number is below `PLACES`, no other `Place` has it, and this one is
                // borrowed for as long.
                unsafe { slab.start.add(usize::from(*number)).as_mut() }
            }
            Self::Heap(bytes) => bytes,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bytes_mut().zeroize();
        if let (Self::Slab(number), Some(slab)) = (&*self, slab()) {
            slab.free().push(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_zeroed_and_taken_again() {
        let mut places: Vec<Place> = (0..PLACES + 5).map(|_| Place::new()).collect();
        for (number, place) in places.iter_mut().enumerate() {
            assert_eq!(place.bytes(), &[0; KEY_LEN]);
            *place.bytes_mut() = [u8::try_from(number % 251).expect("a byte"); KEY_LEN];
        }
        for (number, place) in places.iter().enumerate() {
            assert_eq!(usize::from(place.bytes()[7]), number % 251);
        }
        assert!(places.iter().any(|place| matches!(place, Place::Heap(_))));
        drop(places);
        assert_eq!(Place::new().bytes(), &[0; KEY_LEN]);
    }

    /// What the system says of the mapping: locked, and not dumped.
    #[test]
    fn the_slab_is_locked_and_not_dumped() {
        let place = Place::new();
        let address = place.bytes().as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("it can be read");
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((start, end)) = range.and_then(|(a, b)| number(a).zip(number(b))) {
                inside = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                assert!(flags.contains(" dd"), "{flags}");
                assert!(flags.contains(" lo"), "{flags}");
                return;
            }
        }
        panic!("the slab is not mapped");
    }
}
