//! The thread that writes finished runs of units in their order, while the next are made.

use std::sync::Arc;
use std::thread::JoinHandle;

use tacita_block::BlockDevice;

use crate::open_log::OpenLog;

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<OpenLog>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(shared: Arc<OpenLog>) -> Self {
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || write_all(&own));
        Self { shared, thread: Some(thread) }
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

fn write_all(shared: &OpenLog) {
    while let Some(run) = shared.in_flight.next_run() {
        let written = shared.log.device.write(run.start, &run.bytes);
        let failed = written.is_err();
        if failed {
            shared.note_unwritten(run.first);
        }
        shared.in_flight.note_written(written);
        // Unless somebody still reads it.
        if let Some(run) = Arc::into_inner(run) {
            shared.buffers.give(run.bytes);
        }
        if failed {
            return;
        }
    }
}
