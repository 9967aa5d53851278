//! Core dumps, which would have what is in memory: content, keys, passwords.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit (in bytes) at which the kernel writes no core dump to a file, for it is too short for one, nor hands one
/// to a program: there 0 is no limit, and 1 is for this alone (`core(5)`, `fs/coredump.c`).
const NONE_AT_ALL: u64 = 1;

/// From now on neither this process nor what it starts leaves a core dump, whatever takes them
/// (`/proc/sys/kernel/core_pattern`).
pub fn leave_no_core_dumps() {
    let none = Rlimit { current: Some(NONE_AT_ALL), maximum: Some(NONE_AT_ALL) };
    // What may not raise a limit of 0 again leaves at least no memory in one (`coredump_filter` in core(5)).
    if getrlimit(Resource::Core) != none && setrlimit(Resource::Core, none).is_err() {
        let _ = fs::write("/proc/self/coredump_filter", "0");
    }
}
