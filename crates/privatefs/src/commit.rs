//! From what is in memory to what is durable. A commit takes all changes that there are: content and the
//! journal are written, then the register says that it counts, and then every block is made what the journal
//! says. So all of a commit counts or nothing, whoever comes to an end in between. The last step is done
//! together with the first one of the next commit, whose journal lies elsewhere: whoever asks for durability
//! waits for two rounds of queries.
//!
//! Each block is written by compare-and-write, against what it was. Blocks of metadata carry the number of
//! their commit, so none ever becomes what it was before, and a mount that does not know yet that it was
//! taken over from finds other blocks than it expects.

use std::sync::{MutexGuard, PoisonError};

use bytes::Bytes;
use tacita_oram::log_view::Outcome;
use tacita_oram::record::{Operation, digest_of};

use crate::cache::{Before, Changed, Class};
use crate::error::{Error, Result};
use crate::faults::{Fault, planted};
use crate::fields::Stamp;
use crate::ids::Id;
use crate::journal::{self, ENTRIES, Entry, Header};
use crate::privatefs::Core;
use crate::register::Pending;
use crate::turn::{Status, full};

/// Rounds of queries, each as many as can be under way at once, that are asked for without a break; in
/// between it is made sure that it still is the turn.
const ROUNDS: usize = 32;

/// Where operations are padded, a commit has a multiple of so many queries.
const PADDED_COMMIT: usize = 32;

/// A commit.
#[derive(Debug)]
struct Plan {
    /// Its number, and that of the turn.
    stamp: Stamp,
    /// Blocks of content.
    content: Vec<Write>,
    /// Blocks of metadata as they will be.
    images: Vec<Write>,
    /// Blocks that will not be there.
    frees: Vec<Id>,
    /// Blocks that were taken from the cache for it.
    taken: Vec<Id>,
    /// Blocks that it adds, or a few more.
    added: u64,
}

/// Commits that are under way.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// It counts, and what there is in the store may not show it yet.
    last: Option<Plan>,
    /// It may not count yet: the store failed when it was begun.
    next: Option<Plan>,
}

/// What a block is written against.
#[derive(Debug, Clone)]
enum Against {
    /// Whatever there is: it is a block of this mount's own journal.
    Anything,
    /// Content that it is now, as far as is known.
    Content(Option<Bytes>),
    /// Metadata that it is now, as far as is known.
    Image(Option<Bytes>),
}

#[derive(Debug, Clone)]
struct Write {
    id: Id,
    against: Against,
    new: Bytes,
}

impl Write {
    fn operation(&self) -> Operation {
        let new = self.new.clone();
        match &self.against {
            Against::Anything => Operation::Write(new),
            Against::Content(before) | Against::Image(before) => {
                Operation::CompareAndWrite { expected: before.as_deref().map(digest_of), new }
            }
        }
    }

    /// The same, against what was found, unless that is what was to be.
    fn again(&self, was: Option<Bytes>) -> Option<Self> {
        let is_image = matches!(self.against, Against::Image(_));
        let is_there = was.as_ref().is_some_and(|was| {
            *was == self.new || is_image && Stamp::of(was) >= Stamp::of(&self.new)
        });
        let against = if is_image { Against::Image(was) } else { Against::Content(was) };
        (!is_there).then(|| Self { against, ..self.clone() })
    }
}

impl Core {
    fn commits(&self) -> MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes everything durable that was changed until now.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut commits = self.commits();
        self.commit_next(&mut commits)?;
        commits.next = self.plan_of_changes()?;
        if commits.next.is_some() {
            self.commit_next(&mut commits)?;
            self.ask_for_room()?;
        }
        Ok(())
    }

    /// As [`Core::flush`]; the store shows all of it then, and no journal is needed.
    pub(crate) fn finish(&self) -> Result<()> {
        self.flush()?;
        let mut commits = self.commits();
        if commits.last.is_some() {
            let asked = self.bring_into_place(&mut commits)?;
            self.pad_commit(asked)?;
        }
        Ok(())
    }

    /// Makes the commit that was begun durable, and brings the one before into place.
    fn commit_next(&self, commits: &mut Commits) -> Result<()> {
        let frees = commits.last.as_ref().is_some_and(|last| !last.frees.is_empty());
        let mut asked = 0;
        if frees && commits.next.is_some() {
            // What was freed may be written again: not at the same time.
            asked += self.bring_into_place(commits)?;
        }
        let Some(next) = &commits.next else { return Ok(()) };
        let is_late = planted(Fault::ContentLate);
        let is_journaled = !planted(Fault::JournalSkipped);
        let count = next.images.len() + next.frees.len();
        let mut writes = Vec::new();
        if count > 0 && is_journaled {
            writes = self.journal_of(next, &mut asked)?;
        }
        if !is_late {
            writes.extend_from_slice(&next.content);
        }
        writes.extend(commits.last.iter().flat_map(|last| last.images.iter().cloned()));
        asked += self.write_all(writes)?;
        if let Some(last) = commits.last.take() {
            self.is_in_place(&last);
        }
        if count > 0 && is_journaled {
            self.counts(next.stamp, count)?;
            asked += 1;
        }
        if is_late {
            asked += self.write_all(next.content.clone())?;
        }
        self.pad_commit(asked)?;
        let content = next.content.iter().map(|write| &write.id);
        let mut state = self.lock();
        state.cache.flushed(content);
        state.committing = 0;
        drop(state);
        commits.last = commits.next.take();
        Ok(())
    }

    /// Forgets the last commit of a mount that was taken over from, which whoever did so has finished; runs
    /// `come_back` while nothing can be committed, which says whether it did. Nothing if a commit is not durable.
    pub(crate) fn forget_last(&self, come_back: impl FnOnce() -> Result<bool>) -> Result<()> {
        let mut commits = self.commits();
        if commits.next.is_some() {
            return Ok(());
        }
        if come_back()? {
            commits.last = None;
        }
        Ok(())
    }

    /// Lets the store show the last commit. How many queries that took.
    fn bring_into_place(&self, commits: &mut Commits) -> Result<usize> {
        let Some(last) = &commits.last else { return Ok(0) };
        let mut asked = self.write_all(last.images.clone())?;
        asked += self.free_all(&last.frees)?;
        if !last.frees.is_empty() && !planted(Fault::JournalSkipped) {
            // What is freed may be written again without a commit, and must not be freed then.
            self.update_as_owner(|register| register.pending = None)?;
            asked += 1;
        }
        self.is_in_place(last);
        commits.last = None;
        Ok(asked)
    }

    fn is_in_place(&self, commit: &Plan) {
        let mut state = self.lock();
        state.cache.flushed(commit.taken.iter());
        state.usage.place(commit.added);
    }

    /// One multiple of queries at least, also where there was nothing to ask.
    fn pad_commit(&self, asked: usize) -> Result<()> {
        if !self.options.pad {
            return Ok(());
        }
        self.dummies(asked.max(1).next_multiple_of(PADDED_COMMIT) - asked)
    }

    fn plan_of_changes(&self) -> Result<Option<Plan>> {
        // Before the state: whoever has the register may want that.
        let commit = self.register()?.commit + 1;
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.status == Status::Other {
            return Ok(None);
        }
        let added = state.usage.plan();
        if state.cache.changed() == 0 {
            // It came and went.
            state.usage.place(added);
            return Ok(None);
        }
        let stamp = Stamp { epoch: state.epoch, commit };
        let changes = state.cache.take_changes();
        let mut plan = Plan {
            stamp,
            content: Vec::new(),
            images: Vec::new(),
            frees: Vec::new(),
            taken: Vec::new(),
            added,
        };
        for Changed { id, class, before, now } in changes {
            let (is_known, before) = match before {
                Before::Unknown => (false, None),
                Before::Known(before) => (true, before),
            };
            if class == Class::Meta || now.is_none() {
                plan.taken.push(id);
            }
            match (class, now) {
                (Class::Content, Some(new)) => {
                    plan.content.push(Write { id, against: Against::Content(before), new });
                }
                (Class::Meta, Some(now)) => {
                    if before.as_ref().is_some_and(|old| Stamp::is_all_that_differs(old, &now)) {
                        continue;
                    }
                    let mut new = now.to_vec();
                    stamp.stamp(&mut new);
                    let new = Bytes::from(new);
                    state.cache.stamped(&id, &new);
                    plan.images.push(Write { id, against: Against::Image(before), new });
                }
                // It came and went, and the store has not heard of it.
                (_, None) if is_known && before.is_none() => {}
                (_, None) => plan.frees.push(id),
            }
        }
        state.committing = plan.content.len() + plan.images.len() + plan.frees.len();
        Ok(Some(plan))
    }

    /// The blocks of a commit's journal, for which there is a place then.
    fn journal_of(&self, plan: &Plan, asked: &mut usize) -> Result<Vec<Write>> {
        let images = plan.images.iter().map(|image| Entry { id: image.id, has_image: true });
        let frees = plan.frees.iter().map(|id| Entry { id: *id, has_image: false });
        let entries: Vec<Entry> = images.chain(frees).collect();
        let headers = (0..).zip(entries.chunks(ENTRIES)).map(|(number, entries)| {
            let header = Header {
                mount: self.mount(),
                stamp: plan.stamp,
                number,
                entries: entries.to_vec(),
            };
            Bytes::from(header.encode())
        });
        let blocks = headers.chain(plan.images.iter().map(|image| image.new.clone()));
        let first = journal::first(plan.stamp.commit);
        let writes = (first..).zip(blocks).map(|(at, new)| {
            let id = self.ids.journal(&self.mount(), at);
            Write { id, against: Against::Anything, new }
        });
        let writes: Vec<Write> = writes.collect();
        let len = u32::try_from(writes.len()).unwrap_or(u32::MAX);
        let has = self.register()?.slot(&self.mount()).map_or(0, |slot| slot.journal);
        if has < len {
            let len = len.next_power_of_two().max(16);
            self.update_as_owner(|register| {
                if let Some(slot) = register.slot_mut(&self.mount()) {
                    slot.journal = len;
                }
            })?;
            *asked += 1;
        }
        Ok(writes)
    }

    /// From here on it counts.
    fn counts(&self, stamp: Stamp, count: usize) -> Result<()> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let pending = Some(Pending { mount: self.mount(), count });
        self.update_as_owner(|register| {
            if let Some(slot) = register.slot_mut(&self.mount()) {
                slot.beat += 1;
            }
            register.commit = stamp.commit;
            register.pending = pending;
        })
        .map(drop)
    }

    /// Queries that are asked for without a break: at its end fewer are under way than could be.
    fn without_break(&self) -> usize {
        self.blocks.at_once().saturating_mul(ROUNDS)
    }

    /// Writes blocks against what they were. How many queries that took.
    fn write_all(&self, mut writes: Vec<Write>) -> Result<usize> {
        let mut asked = 0;
        while !writes.is_empty() {
            let mut again = Vec::new();
            for some in writes.chunks(self.without_break()) {
                self.hold()?;
                let operations = some.iter().map(|write| (write.id, write.operation()));
                let outcomes = self.blocks.all(operations.collect())?;
                asked += outcomes.len();
                for (write, outcome) in some.iter().zip(outcomes) {
                    match outcome {
                        Outcome::Compared { written: true, .. } | Outcome::Was(_) => {}
                        Outcome::Compared { was, .. } => again.extend(write.again(was)),
                        Outcome::Full => return Err(full()),
                        Outcome::Void => {
                            return Err(Error::damaged("the store did not do a query"));
                        }
                    }
                }
            }
            if !again.is_empty() {
                // Nobody knew what it was, or somebody else has written it.
                self.renew()?;
                asked += 1;
            }
            writes = again;
        }
        Ok(asked)
    }

    /// Lets there be no such blocks. How many queries that took.
    pub(crate) fn free_all(&self, ids: &[Id]) -> Result<usize> {
        for some in ids.chunks(self.without_break()) {
            self.hold()?;
            self.blocks.all(some.iter().map(|id| (*id, Operation::Free)).collect())?;
        }
        Ok(ids.len())
    }

    /// Frees the journal of a mount that is gone.
    pub(crate) fn free_journal(&self, (mount, len): crate::turn::Left) -> Result<()> {
        let places = journal::FIRST.into_iter().flat_map(|first| first..first + len);
        let frees = places.map(|at| (self.ids.journal(&mount, at), Operation::Free));
        self.blocks.all(frees.collect()).map(drop)
    }
}

/// Finishes the commit of a mount that is gone. Nothing is written over its journal while the register says
/// that it is needed.
pub(crate) fn replay(core: &Core, pending: Pending, commit: u64) -> Result<()> {
    let damaged = || Error::damaged("the journal is not the one that the register says");
    let count = pending.count as usize;
    let headers = u32::try_from(journal::headers(count)).unwrap_or(u32::MAX);
    let first = journal::first(commit);
    let at = |range: std::ops::Range<u32>| -> Vec<Id> {
        range.map(|at| core.ids.journal(&pending.mount, first.saturating_add(at))).collect()
    };
    let mut entries = Vec::with_capacity(count);
    let mut stamp = None;
    for (number, block) in (0..).zip(core.read(&at(0..headers))?) {
        let header = Header::decode(&block.ok_or_else(damaged)?)?;
        let is_own = header.mount == pending.mount && header.number == number;
        if !is_own || header.stamp.commit != commit {
            return Err(damaged());
        }
        stamp = Some(header.stamp);
        entries.extend(header.entries);
    }
    if entries.len() != count {
        return Err(damaged());
    }
    let images: Vec<Id> =
        entries.iter().filter(|entry| entry.has_image).map(|entry| entry.id).collect();
    let len = u32::try_from(images.len()).unwrap_or(u32::MAX);
    let found = core.read(&at(headers..headers.saturating_add(len)))?;
    let is_whole = |block: &Option<Bytes>| block.as_deref().map(Stamp::of) == stamp;
    if !found.iter().all(is_whole) {
        return Err(damaged());
    }
    let found = found.into_iter().flatten();
    let writes: Vec<(Id, Bytes)> = images.into_iter().zip(found).collect();
    let olds = core.read(&writes.iter().map(|(id, _)| *id).collect::<Vec<_>>())?;
    for ((id, new), mut old) in writes.into_iter().zip(olds) {
        while old.as_ref().is_none_or(|old| Stamp::of(old) < Stamp::of(&new)) {
            let expected = old.as_deref().map(digest_of);
            let swap = Operation::CompareAndWrite { expected, new: new.clone() };
            match core.blocks.all(vec![(id, swap)])?.pop() {
                Some(Outcome::Compared { written: false, was }) => old = was,
                Some(Outcome::Full) => return Err(full()),
                _ => break,
            }
        }
    }
    let frees = entries.iter().filter(|entry| !entry.has_image);
    core.blocks.all(frees.map(|entry| (entry.id, Operation::Free)).collect()).map(drop)
}
