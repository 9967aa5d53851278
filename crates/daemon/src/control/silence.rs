//! What is said of a daemon that is there and says nothing.

use rustix::process::Pid;

use crate::process_state::{is_killed, is_stopped};
use crate::{Failure, exit};

/// Why it cannot answer, if it has been stopped by a signal.
pub(super) fn if_stopped(pid: Option<Pid>) -> Option<Failure> {
    pid.filter(|pid| is_stopped(*pid)).map(has_been_stopped)
}

/// Why it will not answer, if it has been killed and is not gone yet.
pub(super) fn if_killed(pid: Option<Pid>) -> Option<Failure> {
    pid.filter(|pid| is_killed(*pid)).map(has_been_killed)
}

pub(super) fn has_been_stopped(pid: Pid) -> Failure {
    let number = pid.as_raw_nonzero();
    let text = format!("process {number}, the daemon, has been stopped");
    Failure::new(exit::BUSY, text).with_remedy(format!("`kill -CONT {number}`"))
}

fn has_been_killed(pid: Pid) -> Failure {
    let number = pid.as_raw_nonzero();
    let text = format!("process {number}, the daemon, has been killed, and is not gone yet");
    Failure::new(exit::BUSY, text)
        .with_remedy("`tacita umount` takes away from it what it waits for in the kernel")
}

/// Why nothing was heard in the time that it had.
pub(super) fn does_not_answer(pid: Option<Pid>) -> Failure {
    if let Some(killed) = if_killed(pid) {
        return killed;
    }
    let number = pid.map_or_else(String::new, |pid| format!(" {}", pid.as_raw_nonzero()));
    Failure::new(exit::BUSY, format!("process{number}, a daemon, does not say what it serves"))
        .with_remedy(
            "do it again when it has done what keeps it; its messages are in the system's log \
             (`journalctl -t tacita`)",
        )
}
