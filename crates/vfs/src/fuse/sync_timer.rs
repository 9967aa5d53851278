//! Puts everything on the medium from time to time.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{FileSystem, Posix};

/// A thread that syncs at intervals until dropped.
#[derive(Debug)]
pub(super) struct SyncTimer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SyncTimer {
    pub(super) fn start<F: FileSystem>(
        posix: Arc<Posix<F>>,
        interval: Duration,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread =
            std::thread::Builder::new().name("tacita-sync".to_owned()).spawn(move || {
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    // Not lost: the final sync meets the same failure and reports it.
                    if let Err(e) = posix.sync() {
                        log::error!("periodic sync failed: {e}");
                    }
                }
            })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SyncTimer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}
