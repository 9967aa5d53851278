//! Does what no request waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tacita_clock::{Clock, Event};

/// How long it waits at once; nothing depends on it.
const LOOK: Duration = Duration::from_hours(1);

/// A thread that catches up with what requests leave, until dropped.
#[derive(Debug)]
pub(super) struct Beside {
    /// What it waits for.
    left: Event,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    /// Calls `catch_up` from now on when `left` tells that something is left to do.
    pub(super) fn start(
        left: Event,
        clock: Arc<dyn Clock>,
        catch_up: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let (wait_for, is_stopped) = (left.clone(), Arc::clone(&stopped));
        let thread =
            std::thread::Builder::new().name("tacita-beside".to_owned()).spawn(move || {
                loop {
                    let seen = wait_for.seen();
                    if is_stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    catch_up();
                    clock.wait_event(&wait_for, seen, LOOK);
                }
            })?;
        Ok(Self { left, stopped, thread: Some(thread) })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.left.notify();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tacita_clock::System;

    use super::*;

    #[test]
    fn catches_up_whenever_something_is_left_until_it_is_dropped() {
        let left = Event::default();
        let (done, caught_up) = channel();
        let tell = move || done.send(()).unwrap();
        let beside = Beside::start(left.clone(), Arc::new(System), tell).unwrap();
        // What was left before it started.
        caught_up.recv().unwrap();
        for _ in 0..3 {
            left.notify();
            caught_up.recv().unwrap();
        }
        drop(beside);
        left.notify();
        assert!(caught_up.recv().is_err(), "its thread is gone");
    }
}
