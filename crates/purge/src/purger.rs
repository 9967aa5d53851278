//! Purging what waits in the spool: at once, or by a thread in the background.
//!
//! Content is purged file by file. Names and attributes also stand in the journal and in folders
//! that are yet to be written, so they are dealt with at the end of an *epoch*, all together:
//! folders that lost names are flushed, the journal is erased, and removed folders are freed.

mod afterwards;
mod ahead;
mod content;
mod epoch;
mod losing;
mod returned;
mod unopened;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rustix::fs::{FileType, syncfs};
use tacita_clock::{Clock, Event};

use crate::descriptors::Folder;
use crate::erasure::Paused;
use crate::error::During;
use crate::faults::{Fault, planted};
use crate::lower_fs::LowerFs;
use crate::method::Method;
use crate::policy::OnFailure;
use crate::spool::record::Record;
use crate::spool::{LeftOver, Seq, Spool};
use crate::statistics::Statistics;
use crate::verdict::{Content, Part, Verdict};
use crate::{Error, Kind, Result, readers, witness};
use afterwards::Afterwards;
use ahead::Ahead;
use epoch::{Touched, UNKNOWN_EARLIER};
pub(crate) use losing::{Losing, begin as begin_recording};
pub(crate) use returned::take_back;

/// Files that are purged together, pass by pass.
const BATCH_COUNT_MAX: usize = 128;

/// Bytes of them, so that the first need not wait long for the last.
const BATCH_LEN_MAX_BYTES: u64 = 64 << 20;

/// How long a purge waits for the kernel to let go of a file that has just been closed.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long the thread waits for more to purge together with the first: names have to be durable
/// before content is overwritten, and that costs the same for one file as for a hundred. As long as
/// more come it waits on, for it would only hold up whoever deletes.
const GATHERING: Duration = Duration::from_millis(100);

/// How long it waits for more at most.
const GATHERING_MAX: Duration = Duration::from_secs(1);

/// How often what was in use is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Something in the spool that is to be purged.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) seq: Seq,
    pub(crate) inode: u64,
    /// `None` if an earlier mount has purged the content, and nobody knows how long it was.
    pub(crate) size: Option<u64>,
    pub(crate) method: Method,
    /// Folders that the loss of its name is to be durable in before it is overwritten.
    pub(crate) parents: Vec<Folder>,
    /// It was unlinked: nothing depends on when the loss of its name is durable, as it does where
    /// it was replaced.
    pub(crate) is_unlinked: bool,
    /// The folder that it was deleted from, and its name there, if that was in this mount.
    pub(crate) lost: Option<(Folder, OsString)>,
    pub(crate) passes_done: u8,
    /// Seconds since 1970 until which it is held (method f), else 0.
    pub(crate) hold_until: i64,
    /// It has failed before, and that has been told.
    pub(crate) is_known_to_fail: bool,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// In use, held, or failed: looked at again later.
    later: Vec<Job>,
}

/// How the purger works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) asynchronous: bool,
    pub(crate) epoch: Duration,
    pub(crate) on_failure: OnFailure,
}

/// Purges what is in the spool.
pub(crate) struct Purger {
    pub(crate) lower: LowerFs,
    pub(crate) spool: Spool,
    pub(crate) statistics: Statistics,
    pub(crate) manner: Manner,
    ahead: Ahead,
    afterwards: Afterwards,
    clock: Arc<dyn Clock>,
    root: OwnedFd,
    queue: Mutex<Queue>,
    wake: Event,
    batch: Mutex<()>,
    /// Shared by those who purge at once, in threads of their own.
    at_work: RwLock<()>,
    /// Held by whoever purges a file that shares blocks with others.
    sharing: Mutex<()>,
    touched: Mutex<Touched>,
    /// Verdicts that wait for the epoch that is coming to its end, as long as it is.
    ending: Mutex<Option<Vec<Verdict>>>,
    /// What can be said of names that an earlier mount took away.
    earlier: Mutex<Part>,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is whole before anything can fail.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Purger {
    pub(crate) fn new(
        lower: LowerFs,
        spool: Spool,
        root: OwnedFd,
        manner: Manner,
        (statistics, clock): (Statistics, Arc<dyn Clock>),
    ) -> Self {
        Self {
            ahead: Ahead::new(&lower, &spool, manner.asynchronous),
            afterwards: Afterwards::default(),
            lower,
            spool,
            statistics,
            manner,
            clock,
            root,
            queue: Mutex::default(),
            wake: Event::default(),
            batch: Mutex::default(),
            at_work: RwLock::default(),
            sharing: Mutex::default(),
            touched: Mutex::default(),
            ending: Mutex::default(),
            earlier: Mutex::new(Part::Left(UNKNOWN_EARLIER.to_owned())),
            stop: AtomicBool::new(false),
        }
    }

    /// What an earlier mount has left is to be purged; `method` where no record says another.
    /// `folders` are those that have lost names, and whether they are all.
    pub(crate) fn recover(
        &self,
        left_over: Vec<LeftOver>,
        (folders, are_all): (Vec<Vec<u8>>, bool),
        method: &Method,
        interrupted: bool,
    ) {
        if planted(Fault::RecoveryUnhooked) {
            return;
        }
        if are_all {
            *lock(&self.earlier) = Part::Done;
        }
        if !left_over.is_empty() || !folders.is_empty() || interrupted {
            lock(&self.touched).begin(self.clock.monotonic());
        }
        lock(&self.touched).recovered = folders;
        if interrupted && let Err(e) = syncfs(&self.root) {
            log::warn!("the lower file system cannot be synced: {e}");
        }
        self.statistics.recovered.add(left_over.len() as u64);
        for entry in left_over {
            match entry.kind {
                FileType::Directory => lock(&self.touched).removed.push((entry.seq, true)),
                FileType::RegularFile => {
                    lock(&self.queue).jobs.push_back(Job::left_over(entry, method));
                }
                _ => self.purge_unopened(entry.seq, None, method),
            }
        }
        self.wake.notify();
    }

    /// A file waits in the spool and nobody has it open.
    ///
    /// # Errors
    /// If it is purged at once and that fails: [`Kind::Io`], [`Kind::NoSpace`].
    pub(crate) fn accept(&self, job: Job) -> Result<()> {
        if self.manner.asynchronous {
            let mut queue = lock(&self.queue);
            queue.jobs.push_back(job);
            let is_first = queue.jobs.len() == 1;
            drop(queue);
            if is_first {
                self.wake.notify();
            }
            return Ok(());
        }
        let _at_work = self.at_work.read().unwrap_or_else(PoisonError::into_inner);
        self.run(vec![job], PATIENCE)
    }

    /// Purges jobs together; those that cannot be purged yet are kept for later. Returns the first
    /// failure.
    fn run(&self, jobs: Vec<Job>, patience: Duration) -> Result<()> {
        let mut failure = None;
        let mut opened = Vec::with_capacity(jobs.len());
        for job in jobs {
            match self.open(&job, patience) {
                Ok(Some(file)) => opened.push((job, file)),
                Ok(None) => {}
                Err(e) if e.kind() == Kind::InUse => lock(&self.queue).later.push(job),
                Err(e) => self.fail(job, e, &mut failure),
            }
        }
        for (job, file) in &opened {
            let name = job.lost.as_ref().map(|(_, name)| name.as_os_str());
            witness::show(file, job.inode, name, None);
        }
        let done = self.overwrite(&opened);
        let concluded = self.conclude_together(opened.into_iter().zip(done).collect());
        failure.or(concluded).map_or(Ok(()), Err)
    }

    /// Reads files back that have been overwritten and lets go of them, side by side, for each waits for the
    /// medium. Returns the first failure.
    fn conclude_together(&self, files: Vec<((Job, File), Result<Paused>)>) -> Option<Error> {
        let count = files.len();
        let files = Mutex::new(files.into_iter());
        let work = || {
            let mut failure = None;
            loop {
                let next = lock(&files).next();
                match next {
                    None => break failure,
                    Some(((job, file), Ok(paused))) if paused.is_shared() => {
                        self.purge_shared(job, file, &mut failure);
                    }
                    Some(((job, file), Ok(paused))) if paused.is_tagged() => {
                        self.conclude_later(job, file, paused);
                    }
                    Some(((job, file), Ok(paused))) => {
                        self.conclude(job, file, paused, &mut failure);
                    }
                    Some(((job, _), Err(e))) => self.fail(job, e, &mut failure),
                }
            }
        };
        readers::together(count, work).into_iter().flatten().next()
    }

    /// A purge has failed: by policy the file waits for another try, or goes as it is.
    /// A file that waits is tried again and again, and told of once.
    fn fail(&self, mut job: Job, error: Error, first: &mut Option<Error>) {
        let is_known = std::mem::replace(&mut job.is_known_to_fail, true);
        if !is_known {
            log::warn!("inode {}: not purged: {error}", job.inode);
        }
        let mut verdict = Verdict::new(None, job.inode, job.size, job.method.to_string());
        let removed =
            self.manner.on_failure == OnFailure::Warn && self.spool.remove(job.seq, false).is_ok();
        if removed {
            verdict.content = Content::NotInPlace(error.to_string());
            verdict.removed = true;
        } else {
            verdict.content = Content::Kept(error.to_string());
            lock(&self.queue).later.push(job);
            first.get_or_insert(error);
            if is_known {
                return;
            }
        }
        self.statistics.count(&verdict);
        self.statistics.tell(&verdict);
    }

    /// Takes as many jobs as are purged together.
    fn take(&self) -> Vec<Job> {
        let mut queue = lock(&self.queue);
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while jobs.len() < BATCH_COUNT_MAX && bytes < BATCH_LEN_MAX_BYTES {
            let Some(job) = queue.jobs.pop_front() else {
                break;
            };
            bytes += job.size.unwrap_or(0);
            jobs.push(job);
        }
        jobs
    }

    /// Puts what was to be looked at later into the queue again, if its time has come.
    fn look_again(&self) {
        let now = self.seconds();
        let mut queue = lock(&self.queue);
        let later = std::mem::take(&mut queue.later);
        for job in later {
            if job.hold_until > now {
                queue.later.push(job);
            } else {
                queue.jobs.push_back(job);
            }
        }
    }

    /// Purges everything that can be, and ends the epoch.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut failure = None;
        // What has begun comes to its end first.
        drop(self.at_work.write().unwrap_or_else(PoisonError::into_inner));
        {
            // What the threads have in hand comes back first.
            let _batch = lock(&self.batch);
            self.settle();
            self.look_again();
        }
        loop {
            let _batch = lock(&self.batch);
            let jobs = self.take();
            if jobs.is_empty() {
                break;
            }
            if let Err(e) = self.run(jobs, PATIENCE) {
                failure.get_or_insert(e);
            }
        }
        let ended = {
            let _batch = lock(&self.batch);
            self.end_epoch()
        };
        // What is read back afterwards fails afterwards.
        let failure = failure.or_else(|| self.failed_before());
        ended.and(failure.map_or(Ok(()), Err))
    }

    /// Has the lower file system write everything that it holds in memory.
    ///
    /// # Errors
    /// What could not be written since the mount began, once.
    pub(crate) fn write_back(&self) -> Result<()> {
        if planted(Fault::LeftInMemory) {
            return Ok(());
        }
        syncfs(&self.root).during("writing the lower file system back")
    }

    /// That files wait whose purge has failed, if any do.
    fn failed_before(&self) -> Option<Error> {
        let queue = lock(&self.queue);
        let waiting = queue.later.iter().chain(&queue.jobs);
        let count = waiting.filter(|job| job.is_known_to_fail).count();
        let text = "files are not purged yet: their verdicts say why";
        (count > 0).then(|| Error::new(Kind::Io, format!("{count} {text}")))
    }

    /// The time of day in seconds since 1970.
    fn seconds(&self) -> i64 {
        i64::try_from(self.clock.unix_seconds()).unwrap_or(i64::MAX)
    }

    /// How many files wait, and how many of them for somebody to close them or for their time.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        (queue.jobs.len(), queue.later.len())
    }

    /// How many files are not purged because a program has them open below.
    pub(crate) fn in_use(&self) -> usize {
        let now = self.seconds();
        let is_in_use = |job: &&Job| job.hold_until <= now && !job.is_known_to_fail;
        lock(&self.queue).later.iter().filter(is_in_use).count()
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_idle(&self) -> bool {
        let quiet = self.afterwards.is_empty() && !self.ahead.is_waiting();
        let is_dealt_with = lock(&self.ending).is_none() && lock(&self.touched).is_empty();
        quiet && is_dealt_with && self.waiting() == (0, 0)
    }

    /// Works in the background until told to stop.
    pub(crate) fn work(&self) {
        let mut looked = self.clock.monotonic();
        while !self.stop.load(Ordering::Acquire) {
            self.await_jobs();
            if self.clock.elapsed(looked) >= RETRY_INTERVAL {
                looked = self.clock.monotonic();
                self.look_again();
            }
            // All that has been gathered, batch by batch.
            while self.work_once() && !self.stop.load(Ordering::Acquire) {}
        }
    }

    /// Purges a batch, and ends the epoch if it is time; whether more is waiting.
    fn work_once(&self) -> bool {
        let _batch = lock(&self.batch);
        let jobs = self.take();
        // Failures are on record in the verdicts, and come again when somebody syncs.
        let _ = self.run(jobs, Duration::ZERO);
        let since = lock(&self.touched).since;
        if since.is_some_and(|since| self.clock.elapsed(since) >= self.manner.epoch)
            && let Err(e) = self.end_epoch()
        {
            log::warn!("names and journal are not cleared yet: {e}");
        }
        !lock(&self.queue).jobs.is_empty()
    }

    /// Waits for something to purge, and then for more.
    fn await_jobs(&self) {
        let wait = |time, until: &dyn Fn(&Queue) -> bool| {
            let go_on = |queue: &mut Queue| !until(queue) && !self.stop.load(Ordering::Acquire);
            self.wake.wait_while(&*self.clock, &self.queue, time, go_on).0
        };
        let mut queue = wait(RETRY_INTERVAL, &|queue| !queue.jobs.is_empty());
        let begin = self.clock.monotonic();
        let mut count = 0;
        while queue.jobs.len() > count && self.clock.elapsed(begin) < GATHERING_MAX {
            count = queue.jobs.len();
            drop(queue);
            queue = wait(GATHERING, &|_| false);
        }
    }

    /// Ends [`Purger::work`] and [`Purger::conclude_all`].
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.notify();
        self.afterwards.stop();
    }
}

impl Job {
    /// What is to be done of a file that an earlier mount has left; by `method` where no record says
    /// another.
    fn left_over(entry: LeftOver, method: &Method) -> Self {
        let (passes_done, hold_until) =
            entry.record.as_ref().map_or((0, 0), |record| (record.passes_done, record.hold_until));
        Self {
            seq: entry.seq,
            inode: entry.inode,
            size: entry.size,
            method: entry.record.map_or_else(|| method.clone(), |record| record.method),
            parents: Vec::new(),
            is_unlinked: false,
            lost: None,
            passes_done,
            hold_until,
            is_known_to_fail: false,
        }
    }

    fn record(&self, passes: usize) -> Record {
        Record {
            seq: self.seq.0,
            inode: self.inode,
            size: self.size.unwrap_or(0),
            hold_until: self.hold_until,
            passes_done: u8::try_from(passes).unwrap_or(u8::MAX),
            method: self.method.clone(),
        }
    }

    fn copy(&self) -> Self {
        Self {
            seq: self.seq,
            inode: self.inode,
            size: self.size,
            method: self.method.clone(),
            parents: Vec::new(),
            is_unlinked: false,
            lost: self.lost.clone(),
            passes_done: self.passes_done,
            hold_until: self.hold_until,
            is_known_to_fail: self.is_known_to_fail,
        }
    }
}

impl std::fmt::Debug for Purger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Purger").finish_non_exhaustive()
    }
}
