//! What all open volumes of a device share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::error::{Error, Kind, Result};
use crate::geometry::{Geometry, Level, Seq};
use crate::level::OpenLevel;
use crate::log::Log;
use crate::sequencer::{Goal, Sequencer};
use crate::writer::{Buffers, Writer, write_failed};

/// Length of a run of units that is written at once.
const RUN_LEN_BYTES: usize = 1 << 20;
/// Blocks that wait on a hidden volume before its writers are held up: 64 MiB.
pub(crate) const HIDDEN_WAITING_MAX: usize = (64 << 20) / crate::geometry::BLOCK_LEN;

/// The log, the open volumes on it, and its head.
pub(crate) struct Engine {
    pub(crate) log: Log,
    /// By level; the public one is always open.
    pub(crate) levels: Vec<Option<OpenLevel>>,
    head: Option<Mutex<Sequencer>>,
    writer: Option<Writer>,
    pub(crate) run_units: usize,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) threads: usize,
    failed: Arc<AtomicBool>,
    progress: Mutex<Progress>,
    progressed: Condvar,
    /// Number of the unit to be written next.
    emitted: AtomicU64,
    /// The same when the device was opened.
    opened_at: Seq,
}

/// How far what was taken from the stages has come.
#[derive(Debug)]
struct Progress {
    /// Number of the unit after, and what had been taken from each level by then.
    taken: VecDeque<(Seq, Vec<u64>)>,
    /// By level: how much of what was taken is durable.
    durable: Vec<u64>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Engine {
    /// Joins the parts. Without a head nothing is written.
    pub(crate) fn new(log: Log, levels: Vec<Option<OpenLevel>>, head: Option<Sequencer>) -> Self {
        let failed = Arc::new(AtomicBool::new(false));
        let buffers = Arc::new(Buffers::default());
        let next = head.as_ref().map_or(0, |head| head.next.0);
        let flag = Arc::clone(&failed);
        let writer = head.is_some().then(|| {
            let tell = move || flag.store(true, Ordering::SeqCst);
            Writer::start(Arc::clone(&log.device), &log.geometry, Arc::clone(&buffers), tell)
        });
        let gap = log.geometry.gap() as usize;
        let run_units = (RUN_LEN_BYTES / log.geometry.unit_len()).clamp(1, gap / 4);
        let progress = Progress { taken: VecDeque::new(), durable: vec![0; levels.len()] };
        Self {
            log,
            levels,
            head: head.map(Mutex::new),
            writer,
            run_units,
            buffers,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            failed,
            progress: Mutex::new(progress),
            progressed: Condvar::new(),
            emitted: AtomicU64::new(next),
            opened_at: Seq(next),
        }
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.log.geometry
    }

    /// An open level.
    pub(crate) fn level(&self, level: Level) -> &OpenLevel {
        self.levels[level.index()].as_ref().expect("a volume is made for an open level only")
    }

    /// The head, by whoever writes.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`]; [`Kind::Device`] after a failed write.
    pub(crate) fn head(&self) -> Result<MutexGuard<'_, Sequencer>> {
        let Some(head) = &self.head else {
            return Err(Error::new(Kind::ReadOnly, "the device is open for reading only"));
        };
        if self.failed.load(Ordering::SeqCst) {
            return Err(write_failed());
        }
        head.lock().map_err(|_| write_failed())
    }

    /// The head, unless somebody else has it.
    ///
    /// # Errors
    /// As [`Engine::head`].
    pub(crate) fn head_if_free(&self) -> Result<Option<MutexGuard<'_, Sequencer>>> {
        self.writable()?;
        match self.head.as_ref().map(Mutex::try_lock) {
            Some(Ok(head)) => Ok(Some(head)),
            Some(Err(TryLockError::WouldBlock)) | None => Ok(None),
            Some(Err(TryLockError::Poisoned(_))) => Err(write_failed()),
        }
    }

    /// Writes the public blocks that wait for a run, unless somebody else is at it. Whoever has had
    /// the head comes here after, so that none is left behind.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn write_due_runs(&self) -> Result<()> {
        let enough = self.log.geometry.slot_count(Level::PUBLIC) * self.run_units;
        while self.level(Level::PUBLIC).stage().waiting() >= enough {
            let Some(mut head) = self.head_if_free()? else { break };
            self.emit(&mut head, Goal::Full)?;
        }
        Ok(())
    }

    /// Refuses what changes the device.
    ///
    /// # Errors
    /// As [`Engine::head`].
    pub(crate) fn writable(&self) -> Result<()> {
        if self.head.is_none() {
            return Err(Error::new(Kind::ReadOnly, "the device is open for reading only"));
        }
        if self.failed.load(Ordering::SeqCst) { Err(write_failed()) } else { Ok(()) }
    }

    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or_else(|| Error::new(Kind::ReadOnly, "open for reading only"))
    }

    /// What has been promised can be kept no more: nothing is written from now on.
    pub(crate) fn poison(&self) {
        self.failed.store(true, Ordering::SeqCst);
        self.progressed.notify_all();
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All units before `next` hold what has been taken from the stages until now.
    pub(crate) fn note_taken(&self, next: Seq) {
        let levels = self.levels.iter();
        let taken = levels.map(|l| l.as_ref().map_or(0, |l| l.stage().taken())).collect();
        self.progress().taken.push_back((next, taken));
        self.emitted.store(next.0, Ordering::Relaxed);
    }

    /// All units before `durable` are on the medium.
    pub(crate) fn note_durable(&self, durable: Seq) {
        let mut progress = self.progress();
        while progress.taken.front().is_some_and(|(next, _)| *next <= durable) {
            let (_, taken) = progress.taken.pop_front().expect("it is there");
            progress.durable = taken;
        }
        drop(progress);
        self.progressed.notify_all();
    }

    /// Waits until `ticket` blocks queued on a level are on the medium.
    ///
    /// # Errors
    /// [`Kind::Device`] if that will never be.
    pub(crate) fn wait_durable(&self, level: Level, ticket: u64) -> Result<()> {
        let mut progress = self.progress();
        while progress.durable[level.index()] < ticket {
            self.writable()?;
            // A failure of the writer is noticed by looking now and then.
            let wait = std::time::Duration::from_millis(500);
            let waited = self.progressed.wait_timeout(progress, wait);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Number of the unit to be written next.
    pub(crate) fn emitted(&self) -> u64 {
        self.emitted.load(Ordering::Relaxed)
    }

    /// What the public volume has been given is on the medium when this returns.
    pub(crate) fn flush_public(&self) -> Result<()> {
        let mut head = self.head()?;
        self.emit(&mut head, Goal::All)?;
        self.make_durable(&mut head)?;
        drop(head);
        self.write_due_runs()
    }

    /// Makes everything durable and lets a last unit tell.
    pub(crate) fn close(&self) -> Result<()> {
        let mut head = self.head()?;
        self.emit(&mut head, Goal::All)?;
        if head.next == self.opened_at {
            return Ok(());
        }
        self.make_durable(&mut head)?;
        self.emit(&mut head, Goal::Beat)?;
        self.make_durable(&mut head)
    }

    /// Writes one unit at least, and what waits, and makes it durable.
    pub(crate) fn beat(&self) -> Result<()> {
        let mut head = self.head()?;
        self.emit(&mut head, Goal::Beat)?;
        self.make_durable(&mut head)?;
        drop(head);
        self.write_due_runs()
    }
}
