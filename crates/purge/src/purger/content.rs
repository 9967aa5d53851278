//! Overwriting files in the spool, many together, and letting go of them.
//!
//! Before anything of a file is overwritten the loss of its name is made durable: a power cut must
//! not bring a file back that is half overwritten.

use std::collections::HashMap;
use std::fs::File;
use std::time::Duration;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_setfl, fsync, statx, syncfs};
use tacita_clock::{Clock, System};
use tacita_vfs::NodeId;

use super::epoch::flush;
use super::{Job, Purger, lock};
use crate::descriptors::Folder;
use crate::erasure::{Erasure, Fate, Paused};
use crate::error::During;
use crate::faults::{Fault, Step, planted, step};
use crate::verdict::{Content, Part, Verdict};
use crate::xattrs::{Overwritten, Owner};
use crate::{Error, Kind, Result, xattrs};

/// How long one look at it takes.
const PATIENCE_STEP: Duration = Duration::from_millis(1);

impl Purger {
    /// Opens an entry for overwriting; `None` if it is no longer there or lives on elsewhere.
    pub(super) fn open(&self, job: &Job, patience: Duration) -> Result<Option<File>> {
        let file = match self.spool.open_entry(job.seq, OFlags::RDWR) {
            Ok(file) => File::from(file),
            Err(e) if e.kind() == Kind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        // Where births are not kept, method f goes by when a file was read last, which is not now. Who may
        // not ask for this holds it for a shorter time.
        let _ = fcntl_setfl(&file, OFlags::NOATIME);
        // Not what a client of NFS remembers of the time when a rename was on its way.
        let stat =
            statx(&file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::NLINK)
                .during("asking for an entry of the spool")?;
        if stat.stx_nlink > 1 {
            // A rename that was to replace it has not happened: it is alive under its name.
            self.spool.remove(job.seq, false)?;
            return Ok(None);
        }
        // The kernel lives in the time of the machine.
        let begin = System.monotonic();
        while !self.lower.is_ours_alone(&file) {
            if System.elapsed(begin) >= patience {
                return Err(Error::new(Kind::InUse, "a program still uses a deleted file"));
            }
            System.wait(PATIENCE_STEP);
        }
        Ok(Some(file))
    }

    /// Overwrites all, pass by pass.
    pub(super) fn overwrite(&self, opened: &[(Job, File)]) -> Vec<Result<Paused>> {
        let prepared = opened
            .iter()
            .map(|(job, file)| Erasure::prepare(&self.lower, file, &Fate::Dies, &job.method));
        let mut erasures: Vec<Result<Erasure<'_>>> = prepared.collect();
        if let Err(e) = self.secure(opened, &mut erasures) {
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
            let due: Vec<bool> = opened.iter().map(|(job, _)| is_due(job, pass)).collect();
            flush_together(&mut erasures, &due);
            for (((job, _), erasure), due) in opened.iter().zip(&erasures).zip(due) {
                if due {
                    self.note(job, erasure, pass + 1);
                }
            }
            if pass == 0 {
                step(Step::FirstPass);
            }
        }
        step(Step::Passed);
        erasures.into_iter().map(|erasure| erasure.map(Erasure::pause)).collect()
    }

    /// Purges a file that shares blocks with others, while no other such file is purged. Each lets go of
    /// them, so the last finds them its own.
    pub(super) fn purge_shared(&self, job: Job, file: File, first: &mut Option<Error>) {
        let _alone = lock(&self.sharing);
        // No power cut brings back one of the others, whose blocks are about to be overwritten.
        if let Err(e) = syncfs(&self.root).during("writing the file system back") {
            return self.fail(job, e, first);
        }
        let opened = [(job, file)];
        let done = self.overwrite(&opened).pop();
        let [(job, file)] = opened;
        match done {
            Some(Ok(paused)) => self.conclude(job, file, paused, first),
            Some(Err(e)) => self.fail(job, e, first),
            None => {}
        }
    }

    /// Sees to it that no power cut can bring back a file that is half overwritten: either it does
    /// not come back, or it is known by its tags.
    fn secure(&self, opened: &[(Job, File)], erasures: &mut [Result<Erasure<'_>>]) -> Result<()> {
        if let ([(job, file)], [Ok(erasure)]) = (opened, &mut *erasures)
            && erasure.can_be_tagged()
            && let Some((tags, barrier)) = self.ahead.tags_for(&self.spool, job, file)
        {
            // The epoch is to have an end, at which the intent is erased.
            self.touch(None);
            erasure.tag(tags, barrier);
            return Ok(());
        }
        self.make_durable(opened, erasures)
    }

    /// Makes the loss of names durable of those that are about to be overwritten.
    fn make_durable(&self, opened: &[(Job, File)], erasures: &[Result<Erasure<'_>>]) -> Result<()> {
        let mut folders: HashMap<NodeId, &Folder> = HashMap::new();
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
        // What was shared may be its own by the next time.
        let is_whole = |erasure: &Erasure<'_>| erasure.stored() > 0 && erasure.shared() == 0;
        if more && erasure.as_ref().is_ok_and(is_whole) {
            self.spool.record(&job.record(passes));
        }
    }

    /// Clears the attributes of a file whose content is gone, and removes it from the spool.
    pub(super) fn let_go(&self, job: &Job, file: &File, mut verdict: Verdict) -> Result<()> {
        let overwritten = if planted(Fault::AttributesUnhooked) {
            Overwritten::Nothing
        } else {
            xattrs::overwrite_all(&self.lower, Owner::open(file))?
        };
        let has_attributes = !matches!(overwritten, Overwritten::Nothing);
        if has_attributes {
            self.statistics.attributes.add(1);
            verdict.attributes = self.values_pending(&overwritten);
        }
        verdict.add_risks(&self.lower);
        step(Step::AttributesDone);
        let hold_until = self.hold_until(job, file);
        if hold_until > self.seconds() {
            let job = Job { hold_until, passes_done: 0, parents: Vec::new(), ..job.copy() };
            self.spool.record(&job.record(job.method.passes().len()));
            lock(&self.queue).later.push(job);
            return Ok(());
        }
        let freed_later = has_attributes.then_some(job.seq);
        if has_attributes || matches!(verdict.content, Content::Shared(_)) {
            // What it shares is let go of at once, however long it is held: who has it last is to know.
            file.set_len(0).during("freeing a purged file")?;
        }
        if has_attributes {
            lock(&self.touched).removed.push((job.seq, false));
        } else {
            self.spool.remove(job.seq, false)?;
        }
        step(Step::Freed);
        verdict.removed = true;
        verdict.name = Part::Pending;
        verdict.journal = self.journal_pending();
        self.statistics.files.add(1);
        self.statistics.bytes_deleted.add(job.size.unwrap_or(0));
        self.statistics.count(&verdict);
        self.judge_later(job.lost.as_ref(), verdict, (overwritten.into_shared(), freed_later));
        Ok(())
    }

    /// Until when a file is held by method f: as long again as it has lived.
    fn hold_until(&self, job: &Job, file: &File) -> i64 {
        if !job.method.holds() || job.hold_until != 0 {
            return job.hold_until;
        }
        let wanted = StatxFlags::BTIME | StatxFlags::ATIME;
        let now = self.seconds();
        let born = statx(file, "", AtFlags::EMPTY_PATH, wanted).map_or(now, |stat| {
            // Where births are not kept: reading has only made it later.
            let is_known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
            if is_known { stat.stx_btime.tv_sec } else { stat.stx_atime.tv_sec }
        });
        now.saturating_add(now.saturating_sub(born))
    }
}

/// Waits until a pass over all files that are due is on the medium. They share the flush of the
/// device wherever it is enough.
fn flush_together(erasures: &mut [Result<Erasure<'_>>], due: &[bool]) {
    let mut shared = Vec::new();
    let is_alone = erasures.len() == 1;
    for (index, erasure) in erasures.iter_mut().enumerate().filter(|(index, _)| due[*index]) {
        advance(erasure, |erasure| {
            if !is_alone && erasure.hand_over_pass()? {
                shared.push(index);
                return Ok(());
            }
            erasure.flush_pass()
        });
    }
    let Some(last) = shared
        .iter()
        .rev()
        .find(|index| erasures[**index].as_ref().is_ok_and(|erasure| erasure.stored() > 0))
    else {
        return;
    };
    // The first may end with the journal, on a device of its own; the second is of the device then.
    let flushed = erasures[*last].as_ref().map_or(Ok(()), |erasure| {
        erasure.flush_pass()?;
        erasure.flush_pass()
    });
    if let Err(e) = flushed {
        for index in shared {
            advance(&mut erasures[index], |_| Err(Error::new(e.kind(), e.to_string())));
        }
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
