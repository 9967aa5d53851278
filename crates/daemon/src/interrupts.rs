//! Signals that end serving, and one that must not.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{Builder, JoinHandle};

use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};

use crate::{Error, Result};

/// Makes the limit on the length of files (`ulimit -f`) an error of the write that exceeds it: the
/// signal that comes with it would end the process, and with a daemon what is not yet on the medium.
/// Programs that this one starts are not concerned.
///
/// # Errors
/// [`crate::Kind::Io`].
pub fn outlive_file_size_limit() -> Result<()> {
    flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .map_err(|e| Error::from_io("cannot watch for signals", e))?;
    Ok(())
}

/// Those that [`Interrupts`] watches for: all by which people and programs end or call others, and that would end
/// this one at once.
const WATCHED: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Signals that end serving: SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2. To be made before mounting, for
/// a signal that comes before anybody watches ends the process and leaves a dead mount.
#[derive(Debug)]
pub struct Interrupts {
    signals: Signals,
}

impl Interrupts {
    /// Watches for them from now on.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn watch() -> Result<Self> {
        Self::watch_for(&WATCHED)
    }

    /// The same without those that whoever started this process wants to be ignored, as `nohup` does:
    /// for a command that has an end by itself.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn watch_unless_ignored() -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        let heeded: Vec<i32> =
            WATCHED.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect();
        Self::watch_for(&heeded)
    }

    fn watch_for(signals: &[i32]) -> Result<Self> {
        let signals =
            Signals::new(signals).map_err(|e| Error::from_io("cannot watch for signals", e))?;
        Ok(Self { signals })
    }

    /// Whether one of them has come: for whoever works on until then.
    pub fn pending(&mut self) -> bool {
        self.signals.pending().next().is_some()
    }

    /// Waits for the next of them; `false` once the handle is closed.
    pub fn wait(&mut self) -> bool {
        self.wait_for_number().is_some()
    }

    /// Waits for the next of them, and tells which it is; `None` once the handle is closed.
    pub fn wait_for_number(&mut self) -> Option<i32> {
        self.signals.forever().next()
    }

    /// Calls `heed` at each of them, from a thread of its own, until what this returns is dropped.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] if there is no thread to be had.
    pub fn heed(mut self, mut heed: impl FnMut() + Send + 'static) -> Result<Heeding> {
        let handle = self.handle();
        let thread = Builder::new().name("tacita-signals".to_owned()).spawn(move || {
            while self.wait() {
                heed();
            }
        });
        let thread = thread.map_err(|e| Error::from_io("cannot watch for signals", e))?;
        Ok(Heeding { handle, thread: Some(thread) })
    }

    /// What ends [`Interrupts::wait`] from another thread, by `close`.
    pub fn handle(&self) -> Handle {
        self.signals.handle()
    }
}

/// As long as it lives something is done at each signal.
#[derive(Debug)]
pub struct Heeding {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Heeding {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

/// The signals that a process ignores, a bit each, as its status says.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        let status = "Name:\ttacita\nSigBlk:\t00000000ffffffff\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), 1 | 1 << (libc::SIGPIPE - 1), "SIGHUP is the first");
        assert_eq!(ignored(""), 0);
    }
}
