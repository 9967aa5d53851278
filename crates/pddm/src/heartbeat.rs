//! The heartbeat: after some time without public writes a unit of padding is written, so that hidden
//! data gets to the device. It is a property of the device, and the same whether there is any.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::session::Session;

/// How often it is looked whether something has been written, in shares of the interval.
const LOOKS: u32 = 8;

/// A thread that beats until it is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Beats when nothing has been written for the time chosen at init; `None` if that is never.
    pub fn start(session: Arc<Session>) -> Option<Self> {
        let every = Duration::from_millis(session.geometry().parameters().heartbeat_ms.into());
        if every.is_zero() {
            return None;
        }
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let own = Arc::clone(&stop);
        let thread = std::thread::spawn(move || run(&session, every, &own));
        Some(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

fn run(session: &Session, every: Duration, stop: &(Mutex<bool>, Condvar)) {
    let mut seen = (session.written_units(), Instant::now());
    let mut stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    while !*stopped {
        let waited = stop.1.wait_timeout(stopped, every / LOOKS);
        stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
        let units = session.written_units();
        if units != seen.0 {
            seen = (units, Instant::now());
        } else if !*stopped && seen.1.elapsed() >= every {
            // A device that cannot be written is noticed by whoever writes to it.
            let _ = session.beat();
            seen = (session.written_units(), Instant::now());
        }
    }
}
