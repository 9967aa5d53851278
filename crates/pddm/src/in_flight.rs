//! Runs of units that are on their way to the device. They can be read here until they are there.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tacita_block::{AlignedBuf, BlockNo};

use crate::error::{Error, Kind, Result};
use crate::geometry::{BLOCK_LEN, Seq};

/// Runs on their way at the same time.
const IN_FLIGHT_MAX: usize = 4;

/// Adjacent units, sealed.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) first: Seq,
    pub(crate) start: BlockNo,
    pub(crate) units: Vec<AlignedBuf>,
    /// The device is flushed before anything behind this run is written.
    pub(crate) flush: bool,
}

#[derive(Debug, Default)]
struct Queue {
    /// First unit and content, in the order of writing.
    runs: VecDeque<(u32, Arc<Run>)>,
    /// How many of them may be written: one more is announced only.
    ready: usize,
    failed: Option<Failed>,
    /// Why, in its own words, for the first who asks.
    cause: Option<tacita_block::Error>,
    closing: bool,
}

impl Queue {
    fn outcome(&mut self) -> Result<()> {
        match self.cause.take() {
            Some(cause) => Err(cause.into()),
            None => self.failed.as_ref().map_or(Ok(()), |failed| Err(failed.error())),
        }
    }
}

/// What is on its way.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl InFlight {
    // Every change of the queue is one step.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// The run can be read from now on.
    pub(crate) fn announce(&self, first_unit: u32, run: Run) {
        self.lock().runs.push_back((first_unit, Arc::new(run)));
    }

    /// The announced run may be written. Waits while too much is on its way.
    ///
    /// # Errors
    /// An earlier write has failed.
    pub(crate) fn hand_over(&self) -> Result<()> {
        let mut queue = self.lock();
        queue.ready += 1;
        self.changed.notify_all();
        while queue.runs.len() >= IN_FLIGHT_MAX && queue.failed.is_none() {
            queue = self.wait(queue);
        }
        queue.outcome()
    }

    /// Returns when nothing is on its way.
    ///
    /// # Errors
    /// A write has failed.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut queue = self.lock();
        while !queue.runs.is_empty() && queue.failed.is_none() {
            queue = self.wait(queue);
        }
        queue.outcome()
    }

    /// Copies blocks of a unit that is on its way; false if it is not.
    pub(crate) fn read(&self, unit: u32, block: u32, buf: &mut [u8]) -> bool {
        let run = {
            let queue = self.lock();
            let holds = |first: u32, run: &Run| {
                let units = u32::try_from(run.units.len()).unwrap_or(u32::MAX);
                (first..first + units).contains(&unit)
            };
            let run = queue.runs.iter().rev().find(|(first, run)| holds(*first, run));
            run.map(|(first, run)| (*first, Arc::clone(run)))
        };
        let Some((first, run)) = run else { return false };
        let bytes = &run.units[(unit - first) as usize];
        buf.copy_from_slice(&bytes[block as usize * BLOCK_LEN..][..buf.len()]);
        true
    }

    /// The run to be written next, for whoever writes; `None` when there will be none.
    pub(crate) fn next_run(&self) -> Option<Arc<Run>> {
        let mut queue = self.lock();
        while queue.ready == 0 && !queue.closing {
            queue = self.wait(queue);
        }
        if queue.ready == 0 || queue.failed.is_some() {
            return None;
        }
        Some(Arc::clone(&queue.runs.front().expect("what is ready is there").1))
    }

    /// The run that was next has been written, or has not.
    pub(crate) fn note_written(&self, written: tacita_block::Result<()>) {
        let mut queue = self.lock();
        queue.ready -= 1;
        match written {
            Ok(()) => drop(queue.runs.pop_front()),
            Err(cause) => {
                // What is on its way stays readable; it never gets to the device.
                queue.failed = Some(Failed::by(Some(&cause)));
                queue.cause = Some(cause);
            }
        }
        self.changed.notify_all();
    }

    /// Whoever writes has panicked: nothing more gets to the device, and nobody is to wait for it.
    pub(crate) fn note_panic(&self) {
        self.lock().failed.get_or_insert_with(Failed::by_panic);
        self.changed.notify_all();
    }

    /// Nothing more will be handed over.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }
}

/// Why nothing is written any more, for all who ask later. It names no place.
#[derive(Debug, Default)]
pub(crate) struct Failed {
    cause: Option<(tacita_block::Kind, Option<String>)>,
}

impl Failed {
    /// After this failure of the device, if it was one.
    pub(crate) fn by(cause: Option<&tacita_block::Error>) -> Self {
        // The words of the system: the device's own would name the place.
        let words = |cause: &tacita_block::Error| cause.source().map(ToString::to_string);
        Self { cause: cause.map(|cause| (cause.kind(), words(cause))) }
    }

    /// After a fault of ours, which has been printed.
    pub(crate) fn by_panic() -> Self {
        let words = "the thread that writes has panicked".to_owned();
        Self { cause: Some((tacita_block::Kind::Io, Some(words))) }
    }

    /// The words of the system, or others.
    pub(crate) fn why(&self) -> &str {
        let words = self.cause.as_ref().and_then(|(_, words)| words.as_deref());
        words.unwrap_or("the device failed")
    }

    pub(crate) fn error(&self) -> Error {
        let why = self.why();
        let text = format!(
            "an earlier write failed ({why}); nothing can be written until the device is opened again"
        );
        match self.cause {
            Some((kind, _)) => tacita_block::Error::new(kind, text).into(),
            None => Error::new(Kind::Device, text),
        }
    }
}
