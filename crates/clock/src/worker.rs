//! Work that comes again and again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::{Clock, Event};

/// As good as for ever.
const LONG: Duration = Duration::from_secs(1 << 32);

/// A thread that works whenever an event happens or a time has passed, until it is dropped.
#[derive(Debug)]
pub struct Worker {
    due: Event,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Calls `work` in a thread of that name whenever `due` happens, and when `every` has passed since the
    /// last time. What has happened before it starts counts.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        name: &str,
        clock: Arc<dyn Clock>,
        due: Event,
        every: Option<Duration>,
        mut work: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (happened, ends) = (due.clone(), Arc::clone(&is_over));
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            let mut seen = 0;
            loop {
                clock.wait_event(&happened, seen, every.unwrap_or(LONG));
                seen = happened.seen();
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                work();
            }
        })?;
        Ok(Self { due, is_over, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.due.notify();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::SystemTime;

    use super::*;
    use crate::{Simulated, System};

    const SECOND: Duration = Duration::from_secs(1);

    fn start(
        clock: Arc<dyn Clock>,
        due: &Event,
        every: Option<Duration>,
    ) -> (Worker, Receiver<()>) {
        let (tell, told) = channel();
        let work = move || tell.send(()).unwrap();
        (Worker::start("worker", clock, due.clone(), every, work).unwrap(), told)
    }

    #[test]
    fn works_whenever_it_is_due_until_it_is_dropped() {
        let due = Event::default();
        due.notify();
        let (worker, done) = start(Arc::new(System), &due, None);
        // What was left before it started.
        done.recv().unwrap();
        for _ in 0..3 {
            due.notify();
            done.recv().unwrap();
        }
        drop(worker);
        due.notify();
        assert!(done.recv().is_err(), "its thread is gone");
    }

    #[test]
    fn works_after_so_long_and_not_before() {
        let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
        let (_worker, done) = start(clock.clone(), &Event::default(), Some(30 * SECOND));
        for _ in 0..2 {
            clock.await_waiters(1);
            clock.advance(29 * SECOND);
            assert!(done.try_recv().is_err());
            clock.advance(SECOND);
            done.recv().unwrap();
        }
    }

    #[test]
    fn without_a_time_it_waits_for_the_event_alone() {
        let (clock, due) = (Arc::new(Simulated::at(SystemTime::UNIX_EPOCH)), Event::default());
        let (_worker, done) = start(clock.clone(), &due, None);
        clock.await_waiters(1);
        clock.advance(Duration::from_hours(24 * 365));
        assert_eq!(clock.waiting(), 1);
        assert!(done.try_recv().is_err());
        due.notify();
        done.recv().unwrap();
    }
}
