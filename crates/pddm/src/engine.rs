//! The lock over the head, and the thread that writes what it makes.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::error::{Error, Kind, Result};
use crate::geometry::{Level, Seq};
use crate::in_flight::Failed;
use crate::open_log::OpenLog;
use crate::sequencer::{EmitUntil, Sequencer};
use crate::writer::Writer;

/// An open log that can be read and, with a head, written.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) shared: Arc<OpenLog>,
    head: Option<Mutex<Sequencer>>,
    /// Writes until it is dropped.
    _writer: Option<Writer>,
    /// The unit that was to be written next when the device was opened.
    opened_at: Seq,
}

impl Engine {
    /// Joins the parts. Without a head nothing is written.
    ///
    /// # Errors
    /// [`Kind::NoThread`].
    pub(crate) fn new(shared: Arc<OpenLog>, head: Option<Sequencer>) -> Result<Self> {
        let writer = head.as_ref().map(|_| Writer::start(Arc::clone(&shared))).transpose()?;
        let opened_at = Seq(shared.emitted());
        Ok(Self { shared, head: head.map(Mutex::new), _writer: writer, opened_at })
    }

    fn lock(&self) -> Result<&Mutex<Sequencer>> {
        let read_only = || Error::new(Kind::ReadOnly, "the device is open for reading only");
        let head = self.head.as_ref().ok_or_else(read_only)?;
        self.shared.not_failed()?;
        Ok(head)
    }

    /// Refuses what changes the device.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`]; [`Kind::Device`] after a failed write.
    pub(crate) fn writable(&self) -> Result<()> {
        self.lock().map(|_| ())
    }

    /// The head, by whoever writes.
    ///
    /// # Errors
    /// As [`Engine::writable`].
    pub(crate) fn head(&self) -> Result<MutexGuard<'_, Sequencer>> {
        self.lock()?.lock().map_err(|_| Failed::default().error())
    }

    /// The head, unless somebody else has it.
    ///
    /// # Errors
    /// As [`Engine::writable`].
    fn head_if_free(&self) -> Result<Option<MutexGuard<'_, Sequencer>>> {
        match self.lock()?.try_lock() {
            Ok(head) => Ok(Some(head)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(Failed::default().error()),
        }
    }

    /// Writes the public blocks that wait for a run, unless somebody else is at it. Whoever has had
    /// the head comes here after, so that none is left behind.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn write_due_runs(&self) -> Result<()> {
        let shared = &self.shared;
        let enough = shared.log.geometry.slot_count(Level::PUBLIC) * shared.run_units;
        while shared.level(Level::PUBLIC).stage().waiting() >= enough {
            let Some(mut head) = self.head_if_free()? else { break };
            head.emit(EmitUntil::Full)?;
        }
        Ok(())
    }

    /// What the public volume has been given is on the medium when this returns.
    pub(crate) fn flush_public(&self) -> Result<()> {
        let mut head = self.head()?;
        head.emit(EmitUntil::All)?;
        head.make_durable()?;
        drop(head);
        self.write_due_runs()
    }

    /// Makes everything durable and lets a last unit tell.
    pub(crate) fn close(&self) -> Result<()> {
        let mut head = self.head()?;
        head.emit(EmitUntil::All)?;
        if head.next() == self.opened_at {
            return Ok(());
        }
        head.make_durable()?;
        head.emit(EmitUntil::Beat)?;
        head.make_durable()
    }

    /// Writes one unit at least, and what waits, and makes it durable.
    pub(crate) fn beat(&self) -> Result<()> {
        let mut head = self.head()?;
        head.emit(EmitUntil::Beat)?;
        head.make_durable()?;
        drop(head);
        self.write_due_runs()
    }
}
