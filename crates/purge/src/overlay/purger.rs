//! Purging what waits in the spool: at once, or by a thread in the background.
//!
//! Content is purged file by file. Names and attributes also stand in the journal and in folders
//! that are yet to be written, so they are dealt with at the end of an *epoch*, all together:
//! folders that lost names are flushed, the journal is erased, and removed folders are freed.
//!
//! Before anything of a file is overwritten the loss of its name is made durable: a power cut must
//! not bring a file back that is half overwritten.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fsync, statx, syncfs};
use rustix::io::Errno;
use tacita_vfs::{Clock, NodeId};

use crate::erasure::{Erasure, Fate};
use crate::error::During;
use crate::medium::{Medium, Names};
use crate::method::Method;
use crate::mutant::{Mutant, Step, planted, step};
use crate::overlay::table::Node;
use crate::policy::OnFailure;
use crate::spool::record::Record;
use crate::spool::{LeftOver, Seq, Spool};
use crate::statistics::Statistics;
use crate::verdict::{Content, Part, Verdict};
use crate::{Error, Kind, Result, attributes, names};

/// Files that are purged together, pass by pass.
const BATCH_COUNT_MAX: usize = 128;

/// Bytes of them, so that the first need not wait long for the last.
const BATCH_LEN_MAX_BYTES: u64 = 64 << 20;

/// How long a purge waits for the kernel to let go of a file that has just been closed.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long one look at it takes.
const PATIENCE_STEP: Duration = Duration::from_millis(1);

/// How often what was in use is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Something in the spool that is to be purged.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) seq: Seq,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) method: Method,
    /// Folders that the loss of its name is to be durable in before it is overwritten.
    pub(super) parents: Vec<Arc<Node>>,
    pub(super) passes_done: u8,
    /// Seconds since 1970 until which it is held (method f), else 0.
    pub(super) hold_until: i64,
    /// It has failed before, and that has been told.
    pub(super) is_known_to_fail: bool,
}

/// What the end of the epoch has to deal with.
#[derive(Debug, Default)]
struct Touched {
    any: bool,
    folders: HashMap<NodeId, Arc<Node>>,
    /// Folders, and files whose attributes were overwritten: their blocks are freed when what
    /// stands in the journal has been put in place, for a freed block is not.
    removed: Vec<(Seq, bool)>,
    since: Option<Instant>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// In use, held, or failed: looked at again later.
    later: Vec<Job>,
}

/// How the purger works.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) asynchronous: bool,
    pub(super) epoch: Duration,
    pub(super) on_failure: OnFailure,
}

/// Purges what is in the spool.
pub(super) struct Purger {
    pub(super) medium: Medium,
    pub(super) spool: Spool,
    pub(super) statistics: Statistics,
    pub(super) manner: Manner,
    clock: Box<dyn Clock>,
    root: OwnedFd,
    queue: Mutex<Queue>,
    wake: Condvar,
    batch: Mutex<()>,
    touched: Mutex<Touched>,
    stop: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is whole before anything can fail.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Purger {
    pub(super) fn new(
        medium: Medium,
        spool: Spool,
        root: OwnedFd,
        manner: Manner,
        (statistics, clock): (Statistics, Box<dyn Clock>),
    ) -> Self {
        Self {
            medium,
            spool,
            statistics,
            manner,
            clock,
            root,
            queue: Mutex::default(),
            wake: Condvar::new(),
            batch: Mutex::default(),
            touched: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// What an earlier mount has left is to be purged; `method` where no record says another.
    pub(super) fn recover(&self, left_over: Vec<LeftOver>, method: &Method, interrupted: bool) {
        if planted(Mutant::RecoveryUnhooked) {
            return;
        }
        if !left_over.is_empty() || interrupted {
            let mut touched = lock(&self.touched);
            touched.any = true;
            touched.since.get_or_insert_with(Instant::now);
        }
        if interrupted && let Err(e) = syncfs(&self.root) {
            log::warn!("the lower file system cannot be synced: {e}");
        }
        self.statistics.recovered.add(left_over.len() as u64);
        for entry in left_over {
            match entry.kind {
                FileType::Directory => lock(&self.touched).removed.push((entry.seq, true)),
                FileType::RegularFile => {
                    let record = entry.record.unwrap_or_else(|| Record {
                        seq: entry.seq.0,
                        inode: 0,
                        size: 0,
                        hold_until: 0,
                        passes_done: 0,
                        method: method.clone(),
                    });
                    lock(&self.queue).jobs.push_back(Job {
                        seq: entry.seq,
                        inode: record.inode,
                        size: record.size,
                        method: record.method,
                        parents: Vec::new(),
                        passes_done: record.passes_done,
                        hold_until: record.hold_until,
                        is_known_to_fail: false,
                    });
                }
                _ => {
                    if let Err(e) = self.spool.remove(entry.seq, false) {
                        log::warn!("{e}");
                    }
                }
            }
        }
        self.wake.notify_all();
    }

    /// A folder has lost a name, or something else is to be cleared out of the journal.
    pub(super) fn touch(&self, folder: Option<&Arc<Node>>) {
        let mut touched = lock(&self.touched);
        touched.any = true;
        touched.since.get_or_insert_with(Instant::now);
        if let Some(folder) = folder {
            touched.folders.entry(folder.id).or_insert_with(|| Arc::clone(folder));
        }
    }

    /// Lets go of a folder that would be dealt with at the end of the epoch: a planted fault's way.
    pub(super) fn untouch(&self, folder: NodeId) {
        lock(&self.touched).folders.remove(&folder);
    }

    /// A removed folder waits in the spool for the end of the epoch.
    pub(super) fn add_folder(&self, seq: Seq) {
        lock(&self.touched).removed.push((seq, true));
    }

    /// A file waits in the spool and nobody has it open.
    ///
    /// # Errors
    /// If it is purged at once and that fails: [`Kind::Io`], [`Kind::NoSpace`].
    pub(super) fn accept(&self, job: Job) -> Result<()> {
        if self.manner.asynchronous {
            lock(&self.queue).jobs.push_back(job);
            self.wake.notify_one();
            return Ok(());
        }
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
        let done = self.overwrite(&opened);
        for ((job, file), done) in opened.into_iter().zip(done) {
            if let Err(e) = done.and_then(|verdict| self.let_go(&job, &file, verdict)) {
                self.fail(job, e, &mut failure);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Opens an entry for overwriting; `None` if it is no longer there or lives on elsewhere.
    fn open(&self, job: &Job, patience: Duration) -> Result<Option<File>> {
        let file = match self.spool.open_entry(job.seq, OFlags::RDWR) {
            Ok(file) => File::from(file),
            Err(e) if e.kind() == Kind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        // Not what a client of NFS remembers of the time when a rename was on its way.
        let stat =
            statx(&file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::NLINK)
                .during("asking for an entry of the spool")?;
        if stat.stx_nlink > 1 {
            // A rename that was to replace it has not happened: it is alive under its name.
            self.spool.remove(job.seq, false)?;
            return Ok(None);
        }
        let begin = Instant::now();
        while !self.medium.is_ours_alone(&file) {
            if begin.elapsed() >= patience {
                return Err(Error::new(Kind::InUse, "a program still uses a deleted file"));
            }
            std::thread::sleep(PATIENCE_STEP);
        }
        Ok(Some(file))
    }

    /// Overwrites all, pass by pass.
    fn overwrite(&self, opened: &[(Job, File)]) -> Vec<Result<Verdict>> {
        let prepared = opened
            .iter()
            .map(|(job, file)| Erasure::prepare(&self.medium, file, &Fate::Dies, &job.method));
        let mut erasures: Vec<Result<Erasure<'_>>> = prepared.collect();
        let durable = self.make_durable(opened, &erasures);
        if let Err(e) = durable {
            return opened.iter().map(|_| Err(Error::new(e.kind(), e.to_string()))).collect();
        }
        let rounds = opened.iter().map(|(job, _)| job.method.passes().len()).max().unwrap_or(0);
        let is_due = |job: &Job, pass: usize| {
            // The last pass is done again: its pattern has to be known to be compared.
            pass >= usize::from(job.passes_done).min(job.method.passes().len() - 1)
        };
        for pass in 0..rounds {
            for ((job, _), erasure) in opened.iter().zip(&mut erasures) {
                if is_due(job, pass) {
                    advance(erasure, |erasure| erasure.write_pass(pass));
                }
            }
            for ((job, _), erasure) in opened.iter().zip(&mut erasures) {
                if is_due(job, pass) {
                    advance(erasure, |erasure| erasure.flush_pass());
                    self.note(job, erasure, pass + 1);
                }
            }
            if pass == 0 {
                step(Step::FirstPass);
            }
        }
        step(Step::Passed);
        opened
            .iter()
            .zip(erasures)
            .map(|((job, _), erasure)| {
                let erasure = erasure?;
                let method = job.method.to_string();
                let mut verdict = Verdict::new(None, job.inode, job.size, method);
                verdict.content = erasure.judge()?;
                verdict.overwritten = erasure.overwritten;
                verdict.in_memory = erasure.in_memory;
                verdict.add_risks(&self.medium);
                Ok(verdict)
            })
            .collect()
    }

    /// Makes the loss of names durable of those that are about to be overwritten.
    fn make_durable(&self, opened: &[(Job, File)], erasures: &[Result<Erasure<'_>>]) -> Result<()> {
        let mut folders: HashMap<NodeId, &Arc<Node>> = HashMap::new();
        let mut any = false;
        for ((job, _), erasure) in opened.iter().zip(erasures) {
            if erasure.as_ref().is_ok_and(|erasure| erasure.stored() > 0) {
                any = true;
                folders.extend(job.parents.iter().map(|folder| (folder.id, folder)));
            }
        }
        if any {
            fsync(self.spool.dir()).during("writing the spool back")?;
            for folder in folders.values() {
                flush(folder)?;
            }
            step(Step::Durable);
        }
        Ok(())
    }

    /// Writes down how far a purge has come, if it has any way to go.
    fn note(&self, job: &Job, erasure: &Result<Erasure<'_>>, passes: usize) {
        let more = passes < job.method.passes().len();
        if more && erasure.as_ref().is_ok_and(|erasure| erasure.stored() > 0) {
            self.spool.record(&job.record(passes));
        }
    }

    /// Clears the attributes of a file whose content is gone, and removes it from the spool.
    fn let_go(&self, job: &Job, file: &File, mut verdict: Verdict) -> Result<()> {
        let has_attributes =
            !planted(Mutant::AttributesUnhooked) && attributes::overwrite_all(file)?;
        if has_attributes {
            self.statistics.attributes.add(1);
            verdict.attributes = match attributes::judge(&self.medium) {
                Part::Done => Part::Pending,
                other => other,
            };
        }
        step(Step::AttributesDone);
        let hold_until = self.hold_until(job, file);
        if hold_until > self.clock.now().secs {
            let job = Job { hold_until, passes_done: 0, parents: Vec::new(), ..job.copy() };
            self.spool.record(&job.record(job.method.passes().len()));
            lock(&self.queue).later.push(job);
            return Ok(());
        }
        if has_attributes {
            file.set_len(0).during("freeing a purged file")?;
            lock(&self.touched).removed.push((job.seq, false));
        } else {
            self.spool.remove(job.seq, false)?;
        }
        step(Step::Freed);
        self.touch(None);
        verdict.removed = true;
        verdict.name = Part::Pending;
        verdict.journal = match self.medium.judge_journal() {
            Part::Done => Part::Pending,
            other => other,
        };
        self.statistics.files.add(1);
        self.statistics.bytes_deleted.add(job.size);
        self.statistics.tell(&verdict);
        Ok(())
    }

    /// Until when a file is held by method f: as long again as it has lived.
    fn hold_until(&self, job: &Job, file: &File) -> i64 {
        if !job.method.holds() || job.hold_until != 0 {
            return job.hold_until;
        }
        let wanted = StatxFlags::BTIME | StatxFlags::ATIME;
        let now = self.clock.now().secs;
        let born = statx(file, "", AtFlags::EMPTY_PATH, wanted).map_or(now, |stat| {
            // Where births are not kept: reading has only made it later.
            let is_known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
            if is_known { stat.stx_btime.tv_sec } else { stat.stx_atime.tv_sec }
        });
        now.saturating_add(now.saturating_sub(born))
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
        self.statistics.tell(&verdict);
    }

    /// Ends the epoch: names, attributes and the journal.
    ///
    /// # Errors
    /// [`Kind::Io`]; all of it is still to be done then.
    pub(super) fn end_epoch(&self) -> Result<()> {
        let mut touched = std::mem::take(&mut *lock(&self.touched));
        if !touched.any && touched.folders.is_empty() && touched.removed.is_empty() {
            return Ok(());
        }
        let done = self.clear_names(&touched);
        if done.is_err() {
            let mut now = lock(&self.touched);
            now.any = true;
            now.since = touched.since.or(now.since);
            now.removed.append(&mut touched.removed);
            now.folders.extend(touched.folders);
        } else {
            self.statistics.epochs.add(1);
        }
        done
    }

    fn clear_names(&self, touched: &Touched) -> Result<()> {
        for folder in touched.folders.values() {
            flush(folder)?;
        }
        let has_files = touched.removed.iter().any(|(_, folder)| !folder);
        if has_files {
            self.medium.flush_journal(&self.root)?;
        }
        for (seq, folder) in &touched.removed {
            if *folder {
                self.clear_folder(*seq)?;
            } else if let Ok(file) = self.spool.open_entry(*seq, OFlags::RDWR) {
                attributes::clear_names(&File::from(file))?;
            }
        }
        names::flush_folder(self.spool.dir())?;
        step(Step::Flushed);
        self.medium.erase_journal(&self.root)?;
        for (seq, folder) in &touched.removed {
            self.spool.remove(*seq, *folder)?;
            self.statistics.folders.add(u64::from(*folder));
        }
        step(Step::Erased);
        Ok(())
    }

    /// Clears what a removed folder has held.
    fn clear_folder(&self, seq: Seq) -> Result<()> {
        let folder = match self.spool.open_entry(seq, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(e) if e.kind() == Kind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        if self.medium.names == Names::Covered {
            names::fill(&folder);
        }
        let folder = File::from(folder);
        attributes::erase_all(&self.medium, &folder)?;
        names::flush_folder(&folder)
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
            bytes += job.size;
            jobs.push(job);
        }
        jobs
    }

    /// Puts what was to be looked at later into the queue again, if its time has come.
    fn look_again(&self) {
        let now = self.clock.now().secs;
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
    pub(super) fn drain(&self) -> Result<()> {
        let mut failure = None;
        {
            // What the thread has in hand comes back first.
            let _batch = lock(&self.batch);
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
        ended.and(failure.map_or(Ok(()), Err))
    }

    /// How many files wait, and how many of them for somebody to close them or for their time.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        (queue.jobs.len(), queue.later.len())
    }

    /// Whether nothing is left to do.
    pub(super) fn is_idle(&self) -> bool {
        let touched = lock(&self.touched);
        let quiet = !touched.any && touched.folders.is_empty() && touched.removed.is_empty();
        drop(touched);
        quiet && self.waiting() == (0, 0)
    }

    /// Works in the background until told to stop.
    pub(super) fn work(&self) {
        let mut looked = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            {
                let queue = lock(&self.queue);
                if queue.jobs.is_empty() {
                    let waited = self.wake.wait_timeout(queue, RETRY_INTERVAL);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            }
            if looked.elapsed() >= RETRY_INTERVAL {
                looked = Instant::now();
                self.look_again();
            }
            let _batch = lock(&self.batch);
            let jobs = self.take();
            // Failures are on record in the verdicts, and come again when somebody syncs.
            let _ = self.run(jobs, Duration::ZERO);
            let since = lock(&self.touched).since;
            if since.is_some_and(|since| since.elapsed() >= self.manner.epoch)
                && let Err(e) = self.end_epoch()
            {
                log::warn!("names and journal are not cleared yet: {e}");
            }
        }
    }

    /// Ends [`Purger::work`].
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.notify_all();
    }
}

impl Job {
    fn record(&self, passes: usize) -> Record {
        Record {
            seq: self.seq.0,
            inode: self.inode,
            size: self.size,
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
            passes_done: self.passes_done,
            hold_until: self.hold_until,
            is_known_to_fail: self.is_known_to_fail,
        }
    }
}

/// Writes a folder back; one that is gone has nothing to write.
fn flush(folder: &Node) -> Result<()> {
    match names::flush_folder(folder.fd()) {
        Err(e) if e.errno() == Some(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Goes on with what has not failed yet.
fn advance<'a>(
    erasure: &mut Result<Erasure<'a>>,
    next: impl FnOnce(&mut Erasure<'a>) -> Result<()>,
) {
    if let Ok(going) = erasure
        && let Err(e) = next(going)
    {
        *erasure = Err(e);
    }
}

impl std::fmt::Debug for Purger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Purger").finish_non_exhaustive()
    }
}
