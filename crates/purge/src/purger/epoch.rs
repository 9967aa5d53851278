//! The end of an epoch: names, attributes and the journal, all together.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use tacita_vfs::NodeId;

use super::unopened::Unopened;
use super::{Losing, Purger, lock};
use crate::descriptors::Folder;
use crate::error::{During, is_of_medium};
use crate::ext4::folder::{Left, Wanted};
use crate::faults::{Fault, Step, planted, step};
use crate::handle::Handle;
use crate::lower_fs::Names;
use crate::method::Method;
use crate::spool::Seq;
use crate::verdict::{Content, Part, Verdict};
use crate::xattrs::{Overwritten, Owner, Shared};
use crate::{Error, Kind, Result, fillers, names, xattrs};

/// What the end of the epoch has to deal with.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) any: bool,
    folders: HashMap<NodeId, (Folder, Wanted)>,
    /// Those of earlier epochs that the medium has not given: looked at again with the next ones.
    unread: HashMap<NodeId, (Folder, Wanted)>,
    /// How many names of them are recorded in the spool, by their handles.
    losses: HashMap<Vec<u8>, u64>,
    /// Handles of folders that an earlier mount has recorded.
    pub(super) recovered: Vec<Vec<u8>>,
    /// Folders, and files whose attributes were overwritten: their blocks are freed when what
    /// stands in the journal has been put in place, for a freed block is not.
    pub(super) removed: Vec<(Seq, bool)>,
    /// Verdicts that are final when the folders have been looked at.
    verdicts: Vec<Waiting>,
    /// Links, pipes, sockets and devices whose attributes could not be purged yet.
    pub(super) unopened: Vec<Unopened>,
    pub(super) since: Option<Duration>,
}

/// A verdict that waits for the end of the epoch.
#[derive(Debug)]
struct Waiting {
    verdict: Verdict,
    /// The folder that has lost its name, and the name.
    lost: Option<(NodeId, OsString)>,
    /// Values that other files had as well.
    shared: Option<Box<Shared>>,
    /// The entry of the spool that is freed only at the end of the epoch.
    seq: Option<Seq>,
}

/// What has come of an epoch's names and journal.
struct Cleared {
    looked: Looked,
    /// Folders of an earlier mount, by their handles, that the medium does not give.
    unread: HashSet<Vec<u8>>,
    journal: Part,
    /// What could not be cleared or freed, and why the first of it could not.
    undone: Vec<(Seq, bool)>,
    failure: Option<Error>,
}

/// What is said of names that an earlier mount took away, which it did not record: when their
/// folders are not known, when something is left in one, and when one could not be looked at.
pub(super) const UNKNOWN_EARLIER: &str =
    "an earlier mount removed it, so its folder is not known and was not checked";
const LEFT_EARLIER: &str = "an earlier mount removed it, and something is left in a folder that \
                            had lost names then";
const UNSEEN_EARLIER: &str = "an earlier mount removed it, and a folder that had lost names then \
                              could not be checked";

/// What is said of attributes whose values have been overwritten, but whose names have not been cleared.
const NAMES_STAY: &str = "overwritten, but their names could not be cleared yet";

/// What was seen of folders; `None` where nobody can tell.
type Looked = HashMap<NodeId, Option<Left>>;

impl Touched {
    /// Whether there is nothing to deal with.
    pub(super) fn is_empty(&self) -> bool {
        !self.any
            && self.folders.is_empty()
            && self.unread.is_empty()
            && self.removed.is_empty()
            && self.recovered.is_empty()
            && self.unopened.is_empty()
    }

    /// Something is to be dealt with, so the epoch is to have an end.
    pub(super) fn begin(&mut self, now: Duration) {
        self.any = true;
        self.since.get_or_insert(now);
    }

    fn lose(&mut self, folder: &Folder, name: &OsStr) {
        let wanted = Wanted { names: [name.to_owned()].into(), ..Wanted::default() };
        take_in(&mut self.folders, folder.clone(), wanted);
    }

    /// Takes in what could not be dealt with.
    fn take_back(&mut self, old: Self) {
        self.any = true;
        self.recovered.extend(old.recovered);
        for (folder, count) in old.losses {
            *self.losses.entry(folder).or_default() += count;
        }
        self.since = old.since.or(self.since);
        self.removed.extend(old.removed);
        self.verdicts.extend(old.verdicts);
        self.unopened.extend(old.unopened);
        for (folder, wanted) in old.folders.into_values() {
            take_in(&mut self.folders, folder, wanted);
        }
        for (folder, wanted) in old.unread.into_values() {
            take_in(&mut self.unread, folder, wanted);
        }
    }
}

/// Notes names that a folder has lost.
fn take_in(folders: &mut HashMap<NodeId, (Folder, Wanted)>, folder: Folder, wanted: Wanted) {
    let (_, known) = folders.entry(folder.id).or_insert_with(|| (folder, Wanted::default()));
    known.names.extend(wanted.names);
}

impl Purger {
    /// A folder has lost a name, or something else is to be cleared out of the journal.
    pub(crate) fn touch(&self, lost: Option<(&Folder, &OsStr)>) {
        let mut touched = lock(&self.touched);
        touched.begin(self.clock.monotonic());
        if let Some((folder, name)) = lost {
            touched.lose(folder, name);
        }
    }

    /// A folder has lost a name, as it was about to.
    pub(crate) fn lost(&self, folder: &Folder, name: &OsStr, losing: Losing<'_>) {
        let mut touched = lock(&self.touched);
        touched.begin(self.clock.monotonic());
        touched.lose(folder, name);
        if let Some(handle) = losing.settle() {
            *touched.losses.entry(handle).or_default() += 1;
        }
    }

    /// A file is gone; what can be said of its name is known at the end of the epoch.
    pub(super) fn judge_later(
        &self,
        lost: Option<&(Folder, OsString)>,
        verdict: Verdict,
        (shared, seq): (Option<Box<Shared>>, Option<Seq>),
    ) {
        self.touch(lost.map(|(folder, name)| (folder, name.as_os_str())));
        let lost = lost.map(|(folder, name)| (folder.id, name.clone()));
        lock(&self.touched).verdicts.push(Waiting { verdict, lost, shared, seq });
    }

    /// Tells of values that something of is left, which have no other verdict.
    pub(crate) fn tell_of_values(&self, inode: u64, method: &Method, overwritten: &Overwritten) {
        if let part @ Part::Left(_) = Part::of_values(&self.lower, overwritten) {
            let mut verdict = Verdict::new(None, inode, 0, method.to_string());
            verdict.content = Content::NothingStored;
            verdict.attributes = part;
            verdict.removed = true;
            self.statistics.tell(&verdict);
        }
    }

    /// What can be said of values before the end of the epoch.
    pub(super) fn values_pending(&self, overwritten: &Overwritten) -> Part {
        match (Part::of_values(&self.lower, overwritten), overwritten) {
            (Part::Done, _) | (_, Overwritten::Shared(_)) => Part::Pending,
            (other, _) => other,
        }
    }

    /// Content is gone but for what the journal may hold, which is known at the end of the epoch.
    pub(crate) fn tell_later(&self, mut verdict: Verdict) {
        verdict.journal = self.journal_pending();
        self.touch(None);
        lock(&self.touched).verdicts.push(Waiting { verdict, lost: None, shared: None, seq: None });
    }

    /// What can be said of the journal before the end of the epoch.
    pub(super) fn journal_pending(&self) -> Part {
        match Part::of_journal(&self.lower, None) {
            Part::Done => Part::Pending,
            other => other,
        }
    }

    /// Verdicts that are not final yet.
    pub(crate) fn verdicts_pending(&self) -> Vec<Verdict> {
        let mut pending = lock(&self.ending).clone().unwrap_or_default();
        let touched = lock(&self.touched);
        pending.extend(touched.verdicts.iter().map(|waiting| waiting.verdict.clone()));
        pending
    }

    /// Lets go of a folder that would be dealt with at the end of the epoch: a planted fault's way.
    pub(crate) fn untouch(&self, folder: NodeId) {
        lock(&self.touched).folders.remove(&folder);
    }

    /// A removed folder waits in the spool for the end of the epoch.
    pub(crate) fn add_folder(&self, seq: Seq) {
        lock(&self.touched).removed.push((seq, true));
    }

    /// Ends the epoch: names, attributes and the journal.
    ///
    /// # Errors
    /// [`Kind::Io`]; all of it is still to be done then, or, if the rest is done, one folder or file.
    pub(crate) fn end_epoch(&self) -> Result<()> {
        self.settle();
        let unopened = self.purge_unopened_again();
        // Nobody is to take it for ended before it is.
        *lock(&self.ending) = Some(Vec::new());
        let touched = std::mem::take(&mut *lock(&self.touched));
        let ended = if touched.is_empty() && !self.ahead.is_waiting() {
            Ok(())
        } else {
            self.end(touched, unopened)
        };
        *lock(&self.ending) = None;
        ended
    }

    fn end(&self, mut touched: Touched, unopened: Option<Error>) -> Result<()> {
        let waiting = touched.verdicts.iter().map(|waiting| waiting.verdict.clone());
        *lock(&self.ending) = Some(waiting.collect());
        for (folder, wanted) in std::mem::take(&mut touched.unread).into_values() {
            take_in(&mut touched.folders, folder, wanted);
        }
        let cleared = match self.clear_names(&touched) {
            Ok(cleared) => cleared,
            Err(e) => {
                lock(&self.touched).take_back(touched);
                return Err(e);
            }
        };
        let mut undone = Touched { unopened: touched.unopened, ..Touched::default() };
        undone.removed = cleared.undone;
        undone.unread = touched.folders;
        undone.unread.retain(|id, _| is_unread(cleared.looked.get(id)));
        if undone.unread.is_empty() {
            for (folder, count) in &touched.losses {
                self.spool.settle_losses(folder, *count);
            }
        } else {
            // Which of them are theirs is not worth knowing.
            undone.losses = touched.losses;
        }
        for folder in touched.recovered {
            if cleared.unread.contains(&folder) {
                undone.recovered.push(folder);
            } else {
                self.spool.settle_losses(&folder, 1);
            }
        }
        *lock(&self.ending) = Some(Vec::new());
        for Waiting { mut verdict, lost, shared, seq } in touched.verdicts.drain(..) {
            if undone.removed.iter().any(|(undone, _)| Some(*undone) == seq) {
                verdict.attributes = Part::Left(NAMES_STAY.to_owned());
            }
            if verdict.name == Part::Pending {
                verdict.name = self.judge_name(&cleared.looked, lost.as_ref());
            }
            if verdict.attributes == Part::Pending {
                verdict.attributes = self.judge_values(shared);
            }
            if verdict.journal == Part::Pending {
                verdict.journal = cleared.journal.clone();
            }
            self.statistics.tell(&verdict);
        }
        self.statistics.epochs.add(1);
        if !undone.is_empty() {
            let mut now = lock(&self.touched);
            // What the medium does not give is no reason for another epoch.
            if !undone.removed.is_empty() || !undone.unopened.is_empty() {
                now.begin(self.clock.monotonic());
            }
            now.take_back(undone);
        }
        cleared.failure.or(unopened).map_or(Ok(()), Err)
    }

    /// What can be said of a name whose folder has been looked at.
    fn judge_name(&self, looked: &Looked, lost: Option<&(NodeId, OsString)>) -> Part {
        let Some((folder, name)) = lost else {
            return lock(&self.earlier).clone();
        };
        Part::of_name(&self.lower, name, looked.get(folder).and_then(Option::as_ref))
    }

    /// What can be said of values that have been overwritten, where other files had them as well.
    fn judge_values(&self, shared: Option<Box<Shared>>) -> Part {
        let Some(shared) = shared.filter(|_| !planted(Fault::SharedUnseen)) else {
            return Part::Done;
        };
        match shared.look(&self.lower) {
            Ok(overwritten) => Part::of_values(&self.lower, &overwritten),
            Err(e) => Part::Left(format!("other files had the same values: {e}")),
        }
    }

    /// Clears folders and the journal; what was seen of them.
    fn clear_names(&self, touched: &Touched) -> Result<Cleared> {
        let mut looked = Looked::new();
        for (id, (folder, _)) in &touched.folders {
            match flush(folder) {
                Err(e) if e.is_of_medium() => {
                    log::warn!("a folder is not written back: {e}");
                    looked.insert(*id, Some(Left::unseen()));
                }
                other => other?,
            }
        }
        self.forget_intents(looked.is_empty())?;
        if !touched.folders.is_empty()
            || !touched.removed.is_empty()
            || !touched.recovered.is_empty()
        {
            self.lower.flush_journal(&self.root)?;
        }
        self.spool.take_out_fillers();
        self.look_at_folders(touched, &mut looked)?;
        let mut unread = HashSet::new();
        for handle in &touched.recovered {
            if !self.look_at_recovered(handle)? {
                unread.insert(handle.clone());
            }
        }
        let (mut undone, mut failure) = (Vec::new(), None);
        let mut is_done = |entry: &(Seq, bool), done: Result<()>| match done {
            Ok(()) => true,
            // Everything else is not to wait for it.
            Err(e) => {
                log::warn!("spool: {}: not purged yet: {e}", entry.0.name());
                undone.push(*entry);
                failure.get_or_insert(e);
                false
            }
        };
        let cleared: Vec<&(Seq, bool)> = touched
            .removed
            .iter()
            .filter(|entry| is_done(entry, self.clear_removed(**entry)))
            .collect();
        names::flush_folder(self.spool.dir())?;
        step(Step::Flushed);
        let erased = self.lower.erase_journal(&self.root)?;
        for entry in cleared {
            is_done(entry, self.free_removed(*entry));
        }
        step(Step::Erased);
        let journal = Part::of_journal(&self.lower, erased);
        Ok(Cleared { looked, unread, journal, undone, failure })
    }

    /// Clears what a removed folder has held, or the names of a file's attributes.
    fn clear_removed(&self, (seq, folder): (Seq, bool)) -> Result<()> {
        if folder {
            return self.clear_folder(seq);
        }
        match self.spool.open_entry(seq, OFlags::RDWR) {
            Ok(file) => xattrs::clear_names(&self.lower, Owner::open(&file)),
            Err(e) if e.kind() == Kind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn free_removed(&self, (seq, folder): (Seq, bool)) -> Result<()> {
        match self.spool.remove(seq, folder) {
            // Who had it open below has put something into it since, which nobody has deleted. Were it
            // waited for, no epoch would end any more.
            Err(e) if matches!(e.errno(), Some(Errno::NOTEMPTY | Errno::EXIST)) => {
                let name = seq.name();
                log::warn!("spool: {name}: a removed folder stays: it is not empty any more");
                Ok(())
            }
            done => done.map(|()| self.statistics.folders.add(u64::from(folder))),
        }
    }

    /// Looks at folders that live on, and clears what names have left there; not at those of which it is
    /// known what can be said.
    fn look_at_folders(&self, touched: &Touched, looked: &mut Looked) -> Result<()> {
        for (id, (node, wanted)) in &touched.folders {
            if looked.contains_key(id) {
                continue;
            }
            let left = match node.fd().and_then(names::reopen_folder) {
                Ok(folder) => self.clear_of(&File::from(folder), wanted)?,
                // It has been removed as well, and is dealt with as a whole.
                Err(Errno::NOENT | Errno::STALE) => Some(Left::default()),
                Err(e) if is_of_medium(e) => Some(Left::unseen()),
                Err(_) => None,
            };
            self.count_left(left.as_ref());
            looked.insert(*id, left);
        }
        Ok(())
    }

    /// Looks at a folder that an earlier mount has taken names from, nobody knows which, and clears
    /// all room in it that no entry uses. Whether the medium gives it: otherwise it is looked at again.
    fn look_at_recovered(&self, handle: &[u8]) -> Result<bool> {
        let opened = Handle::decode(handle).ok_or(Errno::INVAL);
        let opened = opened
            .and_then(|handle| handle.open(self.spool.dir(), OFlags::RDONLY | OFlags::DIRECTORY));
        let any = Wanted { any: true, ..Wanted::default() };
        let left = match opened {
            Ok(folder) => self.clear_of(&File::from(folder), &any)?,
            // It is gone, and was dealt with as a whole.
            Err(Errno::STALE | Errno::NOENT) => return Ok(true),
            Err(e) => {
                log::debug!("a folder that had lost names cannot be opened by its handle: {e}");
                is_of_medium(e).then(Left::unseen)
            }
        };
        self.count_left(left.as_ref());
        let is_unread = is_unread(Some(&left));
        self.statistics.folders_recovered.add(u64::from(!is_unread));
        let why = match left {
            Some(left) if left.is_nothing() => return Ok(true),
            Some(left) if !left.is_unseen() => LEFT_EARLIER,
            _ => UNSEEN_EARLIER,
        };
        *lock(&self.earlier) = Part::Left(why.to_owned());
        Ok(!is_unread)
    }

    fn count_left(&self, left: Option<&Left>) {
        let is_left = left.is_some_and(|left| !left.is_nothing() && !left.is_unseen());
        self.statistics.names_left.add(u64::from(is_left));
    }

    /// Clears a folder of names; what is left of them, `None` where nobody can tell.
    fn clear_of(&self, folder: &File, wanted: &Wanted) -> Result<Option<Left>> {
        if planted(Fault::FoldersUnseen) {
            return Ok(Some(Left::default()));
        }
        let mut source = || self.spool.fillers_for(folder.as_fd());
        let settle = || self.lower.flush_journal(&self.root);
        let left = fillers::clear(&self.lower, folder, wanted, &mut source, &settle);
        left.or_else(|e| {
            if e.kind() == Kind::NoSpace {
                return Err(e);
            }
            // Everything else is not to wait for it.
            log::warn!("a folder is not cleared of names: {e}");
            Ok(Some(Left::unseen()))
        })
    }

    /// Clears what a removed folder has held.
    fn clear_folder(&self, seq: Seq) -> Result<()> {
        let folder = match self.spool.open_entry(seq, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(e) if e.kind() == Kind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        if self.lower.names == Names::Covered {
            names::fill(&folder);
        }
        let folder = File::from(folder);
        let any = Wanted { any: true, ..Wanted::default() };
        self.count_left(self.clear_of(&folder, &any)?.as_ref());
        let overwritten = xattrs::erase_all(&self.lower, Owner::open(&folder))?;
        let inode = fstat(&folder).during("asking for a folder's number")?.st_ino;
        self.tell_of_values(inode, &Method::clear(), &overwritten);
        names::flush_folder(&folder)
    }
}

/// Whether the medium has not given a folder that was to be looked at: it may the next time.
fn is_unread(looked: Option<&Option<Left>>) -> bool {
    looked.and_then(Option::as_ref).is_some_and(Left::is_unseen)
}

/// Writes a folder back; one that is gone has nothing to write.
pub(super) fn flush(folder: &Folder) -> Result<()> {
    let folder = match folder.fd() {
        Err(Errno::STALE) => return Ok(()),
        other => other.during("opening a folder")?,
    };
    match names::flush_folder(folder) {
        Err(e) if e.errno() == Some(Errno::NOENT) => Ok(()),
        other => other,
    }
}
