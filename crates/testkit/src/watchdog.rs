//! A bound on tests that could hang in the kernel, where nothing else can interrupt them.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Ends the whole test program if it is not dropped in time. With the program its mounts end, so
/// nothing is left hanging.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Watches until dropped.
    pub fn start(test: &str, limit: Duration) -> Self {
        let (alive, watched) = channel::<()>();
        let test = test.to_owned();
        std::thread::spawn(move || {
            if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Past the capture of a test's output, which ends with the program.
                let said = format!("{test}: not done within {limit:?}; giving up on all tests\n");
                let _ = std::io::stderr().write_all(said.as_bytes());
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}
