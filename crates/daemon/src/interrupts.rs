//! Signals that end serving.

use std::sync::Arc;

use signal_hook::iterator::{Handle, Signals};

use crate::{Error, Result};

/// A write beyond the limit of how long files may be (`ulimit -f`) fails from now on, as on a full disk. A
/// daemon that the kernel ended for it would leave a dead mount.
///
/// # Errors
/// [`crate::Kind::Io`].
pub fn outlive_file_size_limit() -> Result<()> {
    signal_hook::flag::register(libc::SIGXFSZ, Arc::default())
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
