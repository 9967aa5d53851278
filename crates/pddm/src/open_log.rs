//! The open log: what its readers, the head and the writer share.
//!
//! All of it is fixed when the device is opened, or locked within, and it knows none of those who work
//! on it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tacita_block::AlignedBuf;
use tacita_clock::Clock;

use crate::buffers::Buffers;
use crate::error::{Error, Kind, Result};
use crate::geometry::{Geometry, Level, Seq};
use crate::in_flight::{Failed, InFlight};
use crate::level::OpenLevel;
use crate::log::Log;
use crate::stage::Stage;

/// Length of a run of units that is written at once.
const RUN_LEN_BYTES: usize = 1 << 20;

/// How often whoever waits looks whether there is something to wait for still.
const LOOK: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_mins(1);

/// The log, the open volumes on it, and how far it has been written.
pub(crate) struct OpenLog {
    pub(crate) log: Log,
    /// By level; the public one is always open.
    pub(crate) levels: Vec<Option<OpenLevel>>,
    pub(crate) run_units: usize,
    /// Buffers of units.
    pub(crate) buffers: Buffers,
    /// Buffers of what waits.
    pub(crate) waiting: Arc<Buffers>,
    pub(crate) in_flight: InFlight,
    failed: OnceLock<Failed>,
    /// Who hears of that.
    told: Option<fn(&str)>,
    progress: Mutex<Progress>,
    progressed: Condvar,
    /// Number of the unit to be written next.
    emitted: AtomicU64,
    /// The first unit that did not get to the device: nothing is written from there on.
    failed_at: AtomicU64,
    /// What may wait on a hidden volume before its writers are held up.
    queue_max: usize,
    pub(crate) clock: Arc<dyn Clock>,
    /// Hidden requests wait no more: the session ends.
    hidden_closed: AtomicBool,
    public_changes: AtomicU64,
    /// When, and the unit that came next: of the last minute, a second apart at least.
    marks: Mutex<VecDeque<(Duration, Seq)>>,
}

/// How far what was taken from the stages has come.
#[derive(Debug)]
struct Progress {
    /// Number of the unit after, and the last epoch of each level that was complete by then.
    complete: VecDeque<(Seq, Vec<u64>)>,
    /// By level: the last epoch that is durable.
    durable: Vec<u64>,
}

impl std::fmt::Debug for OpenLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenLog").field("log", &self.log).finish_non_exhaustive()
    }
}

impl OpenLog {
    /// Joins the parts.
    pub(crate) fn new(
        log: Log,
        next: Seq,
        levels: Vec<Option<OpenLevel>>,
        queue_max: usize,
        clock: Arc<dyn Clock>,
        told: Option<fn(&str)>,
    ) -> Self {
        let gap = log.geometry.gap() as usize;
        let progress = Progress { complete: VecDeque::new(), durable: vec![0; levels.len()] };
        Self {
            levels,
            run_units: (RUN_LEN_BYTES / log.geometry.unit_len()).clamp(1, gap / 4),
            buffers: Buffers::new(AlignedBuf::new),
            waiting: Arc::new(Buffers::new(AlignedBuf::on_line)),
            in_flight: InFlight::default(),
            failed: OnceLock::new(),
            told,
            progress: Mutex::new(progress),
            progressed: Condvar::new(),
            emitted: AtomicU64::new(next.0),
            failed_at: AtomicU64::new(u64::MAX),
            queue_max,
            clock,
            hidden_closed: AtomicBool::new(false),
            public_changes: AtomicU64::new(0),
            marks: Mutex::default(),
            log,
        }
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.log.geometry
    }

    /// An open level.
    pub(crate) fn level(&self, level: Level) -> &OpenLevel {
        self.levels[level.index()].as_ref().expect("a volume is made for an open level only")
    }

    /// What is promised now can still be kept.
    ///
    /// # Errors
    /// [`Kind::Device`] after a failed write.
    pub(crate) fn not_failed(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), |failed| Err(failed.error()))
    }

    /// What has been promised can be kept no more: nothing is written from now on. That is told once,
    /// whether anything hidden is open or not: units are written alike.
    pub(crate) fn poison(&self, cause: Option<&tacita_block::Error>) {
        self.fail(Failed::by(cause));
    }

    /// The same after a panic of the thread that writes.
    pub(crate) fn note_panic(&self) {
        self.fail(Failed::by_panic());
        self.in_flight.note_panic();
    }

    fn fail(&self, why: Failed) {
        if self.failed.set(why).is_ok()
            && let Some((failed, told)) = self.failed.get().zip(self.told)
        {
            told(failed.why());
        }
        self.progressed.notify_all();
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The units before `next` can be read from now on.
    pub(crate) fn note_emitted(&self, next: Seq) {
        let before = self.emitted.swap(next.0, Ordering::AcqRel);
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        while marks.front().is_some_and(|(then, _)| now.saturating_sub(*then) > MINUTE) {
            marks.pop_front();
        }
        if marks.back().is_none_or(|(then, _)| now.saturating_sub(*then) > Duration::from_secs(1)) {
            marks.push_back((now, Seq(before)));
        }
    }

    /// Units written in the last minute.
    pub(crate) fn units_last_minute(&self) -> u64 {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let first = marks.iter().find(|(then, _)| self.clock.elapsed(*then) <= MINUTE);
        first.map_or(0, |(_, seq)| self.written().saturating_sub(seq.0))
    }

    /// All units before `next` hold what has been taken from the stages until now.
    pub(crate) fn note_complete(&self, next: Seq) {
        let levels = self.levels.iter();
        let complete = levels.map(|l| l.as_ref().map_or(0, |l| l.stage().complete())).collect();
        self.progress().complete.push_back((next, complete));
    }

    /// All units before `durable` are on the medium.
    pub(crate) fn note_durable(&self, durable: Seq) {
        let mut progress = self.progress();
        while progress.complete.front().is_some_and(|(next, _)| *next <= durable) {
            let (_, complete) = progress.complete.pop_front().expect("it is there");
            progress.durable = complete;
        }
        drop(progress);
        self.progressed.notify_all();
    }

    /// Waits until an epoch of a hidden level is on the medium.
    ///
    /// # Errors
    /// [`Kind::Device`] if that will never be, [`Kind::Closing`] if the session ends before.
    pub(crate) fn wait_durable(&self, level: Level, epoch: u64) -> Result<()> {
        let mut progress = self.progress();
        while progress.durable[level.index()] < epoch {
            self.not_failed()?;
            self.hidden_is_open()?;
            // A failure of the writer is noticed by looking now and then.
            let waited = self.progressed.wait_timeout(progress, LOOK);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// The stage of a hidden level when there is room in it. What fills it ends an epoch.
    ///
    /// # Errors
    /// As [`Engine::wait_durable`].
    pub(crate) fn await_room<'a>(&self, open: &'a OpenLevel) -> Result<MutexGuard<'a, Stage>> {
        let mut stage = open.stage();
        while self.room(open.level, &stage) == 0 {
            stage.close_epoch();
            self.not_failed()?;
            self.hidden_is_open()?;
            let waited = open.room.wait_timeout(stage, LOOK);
            stage = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(stage)
    }

    /// How many more blocks may wait on a hidden level before its writers have to.
    pub(crate) fn room(&self, level: Level, stage: &Stage) -> usize {
        self.queue_max.saturating_sub(stage.slots_wanted(self.geometry().slot_count(level)))
    }

    /// Hidden requests are still served.
    pub(crate) fn hidden_is_open(&self) -> Result<()> {
        if self.hidden_closed.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Closing, "the device is being closed"));
        }
        Ok(())
    }

    /// Hidden requests fail from now on, those that wait too.
    pub(crate) fn close_hidden(&self) {
        self.hidden_closed.store(true, Ordering::SeqCst);
        self.progressed.notify_all();
        self.levels.iter().flatten().for_each(|open| open.room.notify_all());
    }

    /// The public volume changes.
    pub(crate) fn note_public_change(&self) {
        self.public_changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn public_changes(&self) -> u64 {
        self.public_changes.load(Ordering::Relaxed)
    }

    /// What may wait on a hidden volume.
    pub(crate) const fn queue_max(&self) -> usize {
        self.queue_max
    }

    /// Number of the unit to be written next.
    pub(crate) fn emitted(&self) -> u64 {
        self.emitted.load(Ordering::Acquire)
    }

    /// A run of units did not get to the device.
    pub(crate) fn note_unwritten(&self, first: Seq, cause: &tacita_block::Error) {
        self.failed_at.store(first.0, Ordering::Release);
        self.poison(Some(cause));
    }

    /// Number of the unit to be written next, or of the one whose write failed. How many more were
    /// on their way behind it is a matter of time, so it is not told.
    pub(crate) fn written(&self) -> u64 {
        self.emitted().min(self.failed_at.load(Ordering::Acquire))
    }

    /// Whether a hidden volume holds up its writers: only planted faults may ask.
    pub(crate) fn hidden_is_full(&self) -> bool {
        self.levels.iter().skip(1).flatten().any(|open| open.stage().waiting() > 8)
    }

    /// Whether any hidden volume has something waiting: only planted faults may ask.
    pub(crate) fn hidden_waits(&self) -> bool {
        self.levels.iter().skip(1).flatten().any(|open| open.stage().waiting() > 0)
    }

    /// Whether a volume of the second class has something waiting: only planted faults may ask.
    pub(crate) fn higher_waits(&self) -> bool {
        self.levels.get(2).is_some_and(|o| o.as_ref().is_some_and(|o| o.stage().waiting() > 0))
    }
}
