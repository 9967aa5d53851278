//! Signals that end serving, and one that must not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{Builder, JoinHandle};

use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

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

/// Signals by which people, programs, timers and limits of the system end others or call them, and that would end
/// this process at once. SIGXCPU (`ulimit -t`) and SIGALRM (a timer outlives `exec`) come to whoever was started so.
/// Not among them: what the system sends for faults of the program itself (SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV,
/// SIGSYS, SIGTRAP), of which the system's log is to tell, and SIGPIPE and SIGXFSZ, which are errors of the write.
const NAMED: [i32; 13] = [
    libc::SIGALRM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGIO,
    libc::SIGPROF,
    libc::SIGPWR,
    libc::SIGQUIT,
    libc::SIGSTKFLT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGVTALRM,
    libc::SIGXCPU,
];

/// Those of [`NAMED`] by which people, timers and limits end a program that talks to somebody, and by which a terminal
/// that is closed does.
const ENDING: [i32; 10] = [
    libc::SIGALRM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGPROF,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGVTALRM,
    libc::SIGXCPU,
];

/// Whether [`ENDING`] ends this process, though [`BeforeEnd`] has made it handle them: nobody watches for them.
static END_IT: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// Those that [`Interrupts`] watches for: the named ones, and all that have only a number, which mean nothing here.
fn watched() -> impl Iterator<Item = i32> {
    NAMED.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Signals that end serving: all that would end the process at once, but for those of a fault. To be made before
/// mounting, for a signal that comes before anybody watches ends the process and leaves a dead mount.
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
        Self::watch_for(watched())
    }

    /// The same without those that whoever started this process wants to be ignored, as `nohup` does:
    /// for a command that has an end by itself.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn watch_unless_ignored() -> Result<Self> {
        Self::watch_for(heeded(watched()))
    }

    fn watch_for(signals: impl Iterator<Item = i32>) -> Result<Self> {
        let signals =
            Signals::new(signals).map_err(|e| Error::from_io("cannot watch for signals", e))?;
        END_IT.store(false, Ordering::SeqCst);
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

/// Something that is done before a signal ends the process, until this is dropped.
#[derive(Debug)]
pub struct BeforeEnd {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    /// Whether signals end the process afterwards.
    ends: bool,
}

impl BeforeEnd {
    /// Has it done before those signals that are not ignored.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn new(last: impl FnOnce() + Send + 'static) -> Result<Self> {
        static HANDLED: LazyLock<()> = LazyLock::new(|| {
            for signal in heeded(ENDING.into_iter()) {
                // Where that fails a signal of the kind goes unheard, once something has been done before it.
                let _ = flag::register_conditional_default(signal, Arc::clone(&END_IT));
            }
        });
        let ends = END_IT.load(Ordering::SeqCst);
        LazyLock::force(&HANDLED);
        let mut interrupts = Interrupts::watch_for(heeded(ENDING.into_iter()))?;
        let handle = interrupts.handle();
        let thread = Builder::new().name("tacita-signals".to_owned()).spawn(move || {
            if let Some(signal) = interrupts.wait_for_number() {
                last();
                let _ = emulate_default_handler(signal);
            }
        });
        let thread = thread.map_err(|e| Error::from_io("cannot watch for signals", e));
        let mut before = Self { handle, thread: None, ends };
        before.thread = Some(thread?);
        Ok(before)
    }
}

impl Drop for BeforeEnd {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
        END_IT.store(self.ends, Ordering::SeqCst);
    }
}

/// Those of these signals that whoever started this process does not want to be ignored.
fn heeded(signals: impl Iterator<Item = i32>) -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    signals.filter(move |signal| ignored >> (signal - 1) & 1 == 0)
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
