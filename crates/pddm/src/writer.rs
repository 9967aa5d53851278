//! Writes finished runs of units in their order, while the next are made.
//!
//! What is on its way can be read here until it is on the device.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tacita_block::{BlockDevice, BlockNo};

use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;

/// Runs on their way at the same time.
const IN_FLIGHT_MAX: usize = 4;

/// Adjacent units, sealed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) start: BlockNo,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Queue {
    /// First unit and content, in the order of writing.
    runs: VecDeque<(u32, Arc<Run>)>,
    /// How many of them the thread may write: one more is announced only.
    ready: usize,
    failed: bool,
    /// Why, for the first who asks.
    cause: Option<tacita_block::Error>,
    closing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Queue {
    fn outcome(&mut self) -> Result<()> {
        match self.cause.take() {
            Some(cause) => Err(cause.into()),
            None if self.failed => Err(write_failed()),
            None => Ok(()),
        }
    }
}

impl Shared {
    // Every change of the queue is one step.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Buffers of runs and tails, used again: the system takes its time to make new ones.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// Buffers kept.
const BUFFERS_MAX: usize = 32;

impl Buffers {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer with anything in it.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut kept = self.lock();
        // A long one is kept for whoever needs that.
        let fits = len..2 * len;
        let fitting = kept.iter().position(|buffer| fits.contains(&buffer.capacity()));
        let mut buffer = fitting.map_or_else(Vec::new, |index| kept.swap_remove(index));
        drop(kept);
        buffer.resize(len, 0);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let mut kept = self.lock();
        if kept.len() < BUFFERS_MAX {
            kept.push(buffer);
        }
    }
}

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    unit_blocks: u32,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. `failed` is called when a write has failed.
    pub(crate) fn start(
        device: Arc<dyn BlockDevice>,
        geometry: &Geometry,
        buffers: Arc<Buffers>,
        failed: impl Fn() + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || write_all(&own, &*device, &buffers, &failed));
        Self { shared, unit_blocks: geometry.unit_blocks(), thread: Some(thread) }
    }

    /// The run can be read from now on.
    pub(crate) fn announce(&self, first_unit: u32, run: Arc<Run>) {
        self.shared.lock().runs.push_back((first_unit, run));
    }

    /// The announced run may be written. Waits while too much is on its way.
    ///
    /// # Errors
    /// An earlier write has failed.
    pub(crate) fn hand_over(&self) -> Result<()> {
        let mut queue = self.shared.lock();
        queue.ready += 1;
        self.shared.changed.notify_all();
        while queue.runs.len() >= IN_FLIGHT_MAX && !queue.failed {
            queue = self.shared.wait(queue);
        }
        queue.outcome()
    }

    /// Returns when nothing is on its way.
    ///
    /// # Errors
    /// A write has failed.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut queue = self.shared.lock();
        while !queue.runs.is_empty() && !queue.failed {
            queue = self.shared.wait(queue);
        }
        queue.outcome()
    }

    /// Copies blocks of a unit that is on its way; false if it is not.
    pub(crate) fn read(&self, unit: u32, block: u32, buf: &mut [u8]) -> bool {
        let run = {
            let queue = self.shared.lock();
            let unit_len = self.unit_blocks as usize * crate::geometry::BLOCK_LEN;
            let holds = |first: u32, run: &Run| {
                let units = u32::try_from(run.bytes.len() / unit_len).unwrap_or(u32::MAX);
                (first..first + units).contains(&unit)
            };
            let run = queue.runs.iter().rev().find(|(first, run)| holds(*first, run));
            run.map(|(first, run)| (*first, Arc::clone(run)))
        };
        let Some((first, run)) = run else { return false };
        let start = ((unit - first) * self.unit_blocks + block) as usize;
        buf.copy_from_slice(&run.bytes[start * crate::geometry::BLOCK_LEN..][..buf.len()]);
        true
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say but that it panicked, which has been said.
            drop(thread.join());
        }
    }
}

pub(crate) fn write_failed() -> Error {
    let text = "an earlier write failed; nothing can be written until the device is opened again";
    Error::new(Kind::Device, text)
}

fn write_all(shared: &Shared, device: &dyn BlockDevice, buffers: &Buffers, failed: &dyn Fn()) {
    loop {
        let run = {
            let mut queue = shared.lock();
            while queue.ready == 0 && !queue.closing {
                queue = shared.wait(queue);
            }
            if queue.ready == 0 || queue.failed {
                return;
            }
            Arc::clone(&queue.runs.front().expect("what is ready is there").1)
        };
        let written = device.write(run.start, &run.bytes);
        let mut queue = shared.lock();
        queue.ready -= 1;
        let is_written = written.is_ok();
        match written {
            Ok(()) => drop(queue.runs.pop_front()),
            Err(cause) => {
                // What is on its way stays readable; it never gets to the device.
                queue.failed = true;
                queue.cause = Some(cause);
            }
        }
        shared.changed.notify_all();
        drop(queue);
        // Unless somebody still reads it.
        if let Some(run) = Arc::into_inner(run) {
            buffers.give(run.bytes);
        }
        if !is_written {
            failed();
            return;
        }
    }
}
