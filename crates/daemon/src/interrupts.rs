//! Signals that end serving, and one that must not.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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

/// Signals that end serving: SIGHUP, SIGINT, SIGTERM. To be made before mounting, for a signal that
/// comes before anybody watches ends the process and leaves a dead mount.
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
        let signals = Signals::new([libc::SIGHUP, libc::SIGINT, libc::SIGTERM])
            .map_err(|e| Error::from_io("cannot watch for signals", e))?;
        Ok(Self { signals })
    }

    /// Whether one of them has come: for whoever works on until then.
    pub fn pending(&mut self) -> bool {
        self.signals.pending().next().is_some()
    }

    /// Waits for the next of them; `false` once the handle is closed.
    pub fn wait(&mut self) -> bool {
        self.signals.forever().next().is_some()
    }

    /// What ends [`Interrupts::wait`] from another thread, by `close`.
    pub fn handle(&self) -> Handle {
        self.signals.handle()
    }
}
