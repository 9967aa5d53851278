//! What the system's cache holds of a file.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::Advice;

/// The number of `cachestat(2)`, on all machines; Linux 6.5.
const CACHESTAT: libc::c_long = 451;

/// A page is not smaller.
const PAGE_LEN_BYTES: u64 = 4096;

/// As the kernel takes it: bytes.
#[repr(C)]
struct CachestatRange {
    start: u64,
    len: u64,
}

/// As the kernel tells it: pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    in_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Pages of a part of a file that are in the cache, those that are being read among them; `None` where the system
/// does not tell.
pub(super) fn cached_pages(file: &File, part: &Range<u64>) -> Option<u64> {
    let range = CachestatRange { start: part.start, len: part.end - part.start };
    let mut told = Cachestat::default();
    // JUSTIFICATION: no safe wrapper of the call exists.
    // SAFETY: the descriptor is open, and both structures are as the kernel reads and writes them.
    #[allow(unsafe_code)]
    let done = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut told, 0_u32)
    };
    (done == 0).then_some(told.cached)
}

/// Has the system give up what it has of the first `len` bytes of a file, as far as it does. What is being read just
/// then, for it was asked for ahead, it keeps: that is waited for, where the system tells what it has.
pub(super) fn forget(file: &File, len: u64) {
    let mut last = None;
    loop {
        // A hint: what refuses it keeps what it has.
        let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        let first = first_cached(file, len);
        // What stays when it is there is used by somebody else, or is nowhere else.
        if first <= last {
            return;
        }
        if let Some(page) = first {
            let _ = file.read_at(&mut [0], page);
        }
        last = first;
    }
}

/// Where the first page of a file begins that is in the cache.
fn first_cached(file: &File, len: u64) -> Option<u64> {
    let holds = |part: &Range<u64>| Some(!part.is_empty() && cached_pages(file, part)? > 0);
    let mut part = 0..len;
    if !holds(&part)? {
        return None;
    }
    while part.end - part.start > PAGE_LEN_BYTES {
        let half = ((part.end - part.start) / 2).next_multiple_of(PAGE_LEN_BYTES);
        let (first, second) = (part.start..part.start + half, part.start + half..part.end);
        part = if holds(&first)? { first } else { second };
    }
    Some(part.start)
}
