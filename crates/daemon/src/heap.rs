//! Where memory comes from.

use rustix::process::{Resource, getrlimit};

use crate::Failure;

/// What is taken at least before anything is served: stacks of threads, and what they begin with. Not all
/// of it asks whether it is there.
const ROOM_LEN_BYTES: usize = 32 << 20;

/// Makes the heap ready for threads.
///
/// Where addresses are limited (`ulimit -v`, `LimitAS=` of a service) all threads take memory from one heap.
/// The C library of GNU begins heaps of 64 MiB of addresses for threads in turn otherwise, and what one
/// thread finds room for the next does not: no trial before serving tells what can be had. Threads wait
/// for each other for it, which is why it is not done elsewhere.
///
/// # Errors
/// There is less memory than anything takes.
pub(crate) fn make_ready() -> Result<(), Failure> {
    if is_limited() && !share() {
        log::warn!("threads do not share a heap: a mount may end for want of memory");
    }
    let room = Vec::<u8>::new().try_reserve_exact(ROOM_LEN_BYTES);
    room.map_err(|_| Failure::no_memory("cannot serve: out of memory"))
}

/// Whether addresses are limited.
pub(crate) fn is_limited() -> bool {
    getrlimit(Resource::As).current.is_some()
}

/// Has all threads share one heap; whether they do.
#[cfg(target_env = "gnu")]
fn share() -> bool {
    // JUSTIFICATION: no safe wrapper exists, and GLIBC_TUNABLES is read when a program starts only.
    // SAFETY: it sets a number under the allocator's own lock, at any time and in any thread.
    #[allow(unsafe_code)]
    let done = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    done == 1
}

/// Has all threads share one heap, as they always do in other C libraries.
#[cfg(not(target_env = "gnu"))]
fn share() -> bool {
    true
}
