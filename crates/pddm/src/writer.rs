//! The thread that writes finished runs of units in their order, while the next are made.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tacita_block::{BlockDevice, BlockRange};

use crate::error::{Result, no_thread};
use crate::faults::{Fault, planted};
use crate::geometry::Seq;
use crate::in_flight::Run;
use crate::open_log::OpenLog;

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<OpenLog>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`crate::Kind::NoThread`].
    pub(crate) fn start(shared: Arc<OpenLog>) -> Result<Self> {
        let own = Arc::clone(&shared);
        let thread = Builder::new().name("pddm-writer".to_owned()).spawn(move || write_all(&own));
        let thread = thread.map_err(|e| no_thread("writes units", &e))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.in_flight.close();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say but that it panicked, which has been said.
            drop(thread.join());
        }
    }
}

/// Those who wait for the thread that writes hear of it if it panics.
struct Heard<'a>(&'a OpenLog);

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_panic();
        }
    }
}

fn write_all(shared: &OpenLog) {
    let _heard = Heard(shared);
    let device = &shared.log.device;
    while let Some(run) = shared.in_flight.next_run() {
        let units: Vec<&[u8]> = run.units.iter().map(|unit| &unit[..]).collect();
        let blocks = units.len() as u64 * u64::from(shared.geometry().unit_blocks());
        let written = device.write_gathered(run.start, &units);
        if let Err(cause) = &written {
            shared.note_unwritten(run.first, cause);
        } else {
            // So that little is left to do when it is flushed.
            device.will_flush(BlockRange { start: run.start, count: blocks });
        }
        let done = match written {
            Ok(()) if run.flush => flush(shared, &run, blocks),
            written => written,
        };
        let failed = done.is_err();
        shared.in_flight.note_written(done);
        // Unless somebody still reads it.
        if let Some(run) = Arc::into_inner(run) {
            run.units.into_iter().for_each(|unit| shared.buffers.give(unit));
        }
        if failed {
            return;
        }
    }
}

/// Everything up to this run of so many blocks is on the medium.
fn flush(shared: &OpenLog, run: &Run, blocks: u64) -> tacita_block::Result<()> {
    if !planted(Fault::SkippedFlush) {
        shared.log.device.flush().inspect_err(|e| shared.poison(Some(e)))?;
    }
    let units = blocks / u64::from(shared.geometry().unit_blocks());
    shared.note_durable(Seq(run.first.0 + units));
    Ok(())
}
