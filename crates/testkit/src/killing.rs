//! Daemons that tests kill.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tacita_clock::{Clock, System};

/// Kills the daemon of which `tacita status --json` has said this, and waits until it is gone.
///
/// # Panics
/// If that is no status of a daemon.
#[track_caller]
pub fn kill_daemon(status: &[u8]) {
    let said = || String::from_utf8_lossy(status);
    let pid = serde_json::from_slice(status).ok().and_then(|status: Value| status["pid"].as_i64());
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.unwrap_or_else(|| panic!("no status of a daemon: {}", said()));
    kill_process(pid, Signal::KILL).expect("it is there, and ours");
    while test_kill_process(pid).is_ok() {
        System.wait(Duration::from_millis(5));
    }
}
