//! What a process does, as the kernel says.

use std::fs;

use rustix::process::Pid;

/// Where the number of threads stands, counted from the state.
const THREADS_AT: usize = 17;

/// The state of a process, as the kernel writes it.
pub(crate) fn state_of(pid: Pid) -> Option<char> {
    facts_of(pid)?.chars().next()
}

/// Whether a process has been killed, and lives on in threads alone that wait in the kernel, as they may for
/// an answer that only the process itself could give.
pub(crate) fn is_killed(pid: Pid) -> bool {
    let threads = |facts: &str| facts.split(' ').nth(THREADS_AT)?.parse().ok();
    facts_of(pid).is_some_and(|facts| {
        facts.starts_with('Z') && threads(&facts).is_some_and(|threads: u32| threads > 1)
    })
}

/// What the kernel writes from the state on.
fn facts_of(pid: Pid) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before the state is in parentheses, and may hold any.
    Some(status.rsplit_once(") ")?.1.to_owned())
}
