//! The threads that a store or a server runs on.
//!
//! The library panics where it has none, or waits for ever; and whoever asks for what blocks panics with
//! it, if no thread for that is there. So what they take is tried before, where a refusal is an error, and one
//! thread for what blocks is there to the end.

use std::fs;
use std::io;
use std::ops::Deref;
use std::sync::Mutex;
use std::thread::{self, Builder};
use std::time::Duration;

use tokio::runtime::{self, Runtime};

use crate::error::{Error, Result};

/// How long a thread for what blocks stays when it has nothing to do: as long as the process.
const STAYING: Duration = Duration::MAX;

/// How often it is looked whether threads have gone.
const LOOKS_MAX: u32 = 10_000;

/// How long whoever ends threads waits for what they are about.
const ENDING: Duration = Duration::from_secs(1);

/// A runtime that ends without waiting for ever for what stands still, such as for a lock that another process keeps.
#[derive(Debug)]
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    /// As [`runtime`].
    ///
    /// # Errors
    /// As [`runtime`].
    pub(crate) fn new(name: &str, count: usize) -> Result<Self> {
        Ok(Self(Some(runtime(name, count)?)))
    }
}

impl Deref for Threads {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(ENDING);
        }
    }
}

/// A runtime with so many threads of this name, and one for what blocks, to which others come when they are
/// needed and can be had.
///
/// # Errors
/// [`crate::Kind::Storage`], with the system's refusal.
pub(crate) fn runtime(name: &str, count: usize) -> Result<Runtime> {
    let refused = |e: io::Error| Error::of_storage("there are no threads to run on", e);
    can_be_had(count + 1).map_err(refused)?;
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(count).thread_name(name).thread_keep_alive(STAYING).enable_all();
    let runtime = builder.build().map_err(refused)?;
    let first = runtime.spawn_blocking(|| ());
    runtime.block_on(first).map_err(|e| refused(e.into()))?;
    Ok(runtime)
}

/// Looks whether there can be so many threads, all of them at once.
fn can_be_had(count: usize) -> io::Result<()> {
    let before = threads();
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _closed = gate.lock();
        (0..count)
            .try_for_each(|_| Builder::new().spawn_scoped(scope, || drop(gate.lock())).map(drop))
    })?;
    // Until it is out of the table of processes a thread counts.
    for _ in 0..LOOKS_MAX {
        if threads() <= before {
            break;
        }
        thread::yield_now();
    }
    Ok(())
}

/// How many threads this process has; none if that cannot be seen.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}
