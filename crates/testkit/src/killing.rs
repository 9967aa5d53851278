//! Daemons that tests kill.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

/// Kills the daemon of which `tacita status --json` has said this, and waits until it is gone, whether
/// or not anybody asks how it has ended.
///
/// # Panics
/// If that is no status of a daemon.
#[track_caller]
pub fn kill_daemon(status: &[u8]) {
    let said = || String::from_utf8_lossy(status);
    let pid = serde_json::from_slice(status).ok().and_then(|status: Value| status["pid"].as_i64());
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.unwrap_or_else(|| panic!("no status of a daemon: {}", said()));
    let daemon = pidfd_open(pid, PidfdFlags::empty()).expect("it is there");
    pidfd_send_signal(&daemon, Signal::KILL).expect("it is ours");
    poll(&mut [PollFd::new(&daemon, PollFlags::IN)], None).expect("a process can be waited for");
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::Watchdog;

    const PATIENCE: Duration = Duration::from_mins(2);

    #[test]
    fn who_is_not_asked_how_it_ended_is_gone() {
        let _watchdog = Watchdog::start("who_is_not_asked_how_it_ended_is_gone", PATIENCE);
        let mut daemon = Command::new("sleep").arg("600").spawn().unwrap();
        kill_daemon(format!("{{\"pid\": {}}}", daemon.id()).as_bytes());
        // Nobody has asked before, so that the kernel has kept it.
        assert_eq!(daemon.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
