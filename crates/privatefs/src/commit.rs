//! From what is in memory to what is durable. A commit takes all changes that there are: content is written
//! first, then the journal, then the register says that it counts, and then every block is made what
//! the journal says. So all of a commit counts or nothing, whoever comes to an end in between.
//!
//! Each block is written by compare-and-write, against what it was. Blocks of metadata carry the number of
//! their commit, so none ever becomes what it was before, and a mount that does not know yet that it was
//! taken over from finds other blocks than it expects.

use std::sync::PoisonError;

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

/// Queries that are under way at once, at most; in between it is made sure that it still is the turn.
const AT_ONCE: usize = 256;

/// Where operations are padded, a commit has a multiple of so many queries.
const PADDED_COMMIT: usize = 32;

/// A commit.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Its number, and that of the turn.
    stamp: Stamp,
    /// Blocks of content, and whether each is still to be written.
    content: Vec<Write>,
    /// Blocks of metadata as they will be.
    images: Vec<Write>,
    /// Blocks that will not be there.
    frees: Vec<Id>,
    /// All blocks that were taken from the cache for it.
    taken: Vec<Id>,
    /// Queries so far.
    asked: usize,
    is_written: bool,
    is_committed: bool,
}

#[derive(Debug, Clone)]
struct Write {
    id: Id,
    before: Option<Bytes>,
    new: Bytes,
}

impl Core {
    /// Makes everything durable that was changed until now.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut place = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        // What was begun when the store failed comes first.
        if let Some(plan) = &mut *place {
            self.run(plan)?;
            self.flushed(place.take());
        }
        *place = self.plan_of_changes()?;
        if let Some(plan) = &mut *place {
            self.run(plan)?;
            self.flushed(place.take());
            self.ask_for_room()?;
        }
        Ok(())
    }

    fn plan_of_changes(&self) -> Result<Option<Plan>> {
        // Before the state: whoever has the register may want that.
        let commit = self.register()?.commit + 1;
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.status == Status::Other || state.cache.changed() == 0 {
            return Ok(None);
        }
        let stamp = Stamp { epoch: state.epoch, commit };
        let changes = state.cache.take_changes();
        let mut plan = Plan {
            stamp,
            content: Vec::new(),
            images: Vec::new(),
            frees: Vec::new(),
            taken: changes.iter().map(|change| change.id).collect(),
            asked: 0,
            is_written: false,
            is_committed: false,
        };
        for Changed { id, class, before, now } in changes {
            let (is_known, before) = match before {
                Before::Unknown => (false, None),
                Before::Known(before) => (true, before),
            };
            match (class, now) {
                (Class::Content, Some(new)) => plan.content.push(Write { id, before, new }),
                (Class::Meta, Some(now)) => {
                    if before.as_ref().is_some_and(|old| Stamp::is_all_that_differs(old, &now)) {
                        continue;
                    }
                    let mut new = now.to_vec();
                    stamp.stamp(&mut new);
                    let new = Bytes::from(new);
                    state.cache.stamped(&id, &new);
                    plan.images.push(Write { id, before, new });
                }
                // It came and went, and the store has not heard of it.
                (_, None) if is_known && before.is_none() => {}
                (_, None) => plan.frees.push(id),
            }
        }
        Ok(Some(plan))
    }

    fn flushed(&self, plan: Option<Plan>) {
        if let Some(plan) = plan {
            self.lock().cache.flushed(plan.taken.into_iter());
        }
    }

    /// Brings a commit to its end, from wherever it is.
    fn run(&self, plan: &mut Plan) -> Result<()> {
        let is_late = planted(Fault::ContentLate);
        if !plan.is_written && !is_late {
            plan.asked += self.write_all(plan.content.clone(), false)?;
        }
        plan.is_written = true;
        let count = plan.images.len() + plan.frees.len();
        if count > 0 {
            let is_journaled = !planted(Fault::JournalSkipped);
            if !plan.is_committed && is_journaled {
                self.write_journal(plan)?;
                self.commit(plan, count)?;
            }
            plan.is_committed = true;
            plan.asked += self.write_all(plan.images.clone(), true)?;
            plan.asked += self.free_all(&plan.frees)?;
            if !plan.frees.is_empty() && is_journaled {
                // What is freed may be written again without a commit, and must not be freed then.
                self.update_as_owner(|register| register.pending = None)?;
                plan.asked += 1;
            }
        }
        if is_late {
            self.write_all(plan.content.clone(), false)?;
        }
        if self.options.pad {
            self.dummies(plan.asked.next_multiple_of(PADDED_COMMIT) - plan.asked)?;
        }
        Ok(())
    }

    fn write_journal(&self, plan: &mut Plan) -> Result<()> {
        let images = plan.images.iter().map(|image| Entry { id: image.id, has_image: true });
        let frees = plan.frees.iter().map(|id| Entry { id: *id, has_image: false });
        let entries: Vec<Entry> = images.chain(frees).collect();
        let headers = (0..).zip(entries.chunks(ENTRIES)).map(|(number, entries)| {
            let header =
                Header { mount: self.mount, stamp: plan.stamp, number, entries: entries.to_vec() };
            Bytes::from(header.encode())
        });
        let blocks: Vec<Bytes> =
            headers.chain(plan.images.iter().map(|image| image.new.clone())).collect();
        let len = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        let has = self.register()?.slot(&self.mount).map_or(0, |slot| slot.journal);
        if has < len {
            let len = len.next_power_of_two().max(16);
            self.update_as_owner(|register| {
                if let Some(slot) = register.slot_mut(&self.mount) {
                    slot.journal = len;
                }
            })?;
            plan.asked += 1;
        }
        plan.asked += blocks.len();
        let writes = (0..)
            .zip(blocks)
            .map(|(at, block)| (self.ids.journal(&self.mount, at), Operation::Write(block)));
        let writes: Vec<_> = writes.collect();
        for some in writes.chunks(AT_ONCE) {
            self.hold()?;
            done(&self.blocks.all(some.to_vec())?)?;
        }
        Ok(())
    }

    /// From here on it counts.
    fn commit(&self, plan: &mut Plan, count: usize) -> Result<()> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let pending = Some(Pending { mount: self.mount, count });
        self.update_as_owner(|register| {
            if let Some(slot) = register.slot_mut(&self.mount) {
                slot.beat += 1;
            }
            register.commit = plan.stamp.commit;
            register.pending = pending;
        })?;
        plan.asked += 1;
        Ok(())
    }

    /// Writes blocks against what they were. How many queries that took.
    fn write_all(&self, mut writes: Vec<Write>, is_metadata: bool) -> Result<usize> {
        let mut asked = 0;
        while !writes.is_empty() {
            let mut again = Vec::new();
            for some in writes.chunks(AT_ONCE) {
                self.hold()?;
                let swaps = some.iter().map(|write| {
                    let expected = write.before.as_deref().map(digest_of);
                    (write.id, Operation::CompareAndWrite { expected, new: write.new.clone() })
                });
                let outcomes = self.blocks.all(swaps.collect())?;
                asked += outcomes.len();
                for (write, outcome) in some.iter().zip(outcomes) {
                    let was = match outcome {
                        Outcome::Compared { written: true, .. } => continue,
                        Outcome::Compared { was, .. } => was,
                        Outcome::Full => return Err(full()),
                        _ => return Err(Error::damaged("the store did not do a query")),
                    };
                    let is_there = was.as_ref().is_some_and(|was| {
                        *was == write.new || is_metadata && Stamp::of(was) >= Stamp::of(&write.new)
                    });
                    if !is_there {
                        again.push(Write { before: was, ..write.clone() });
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
        self.lock().usage.has_freed |= !ids.is_empty();
        for some in ids.chunks(AT_ONCE) {
            self.hold()?;
            self.blocks.all(some.iter().map(|id| (*id, Operation::Free)).collect())?;
        }
        Ok(ids.len())
    }

    /// Frees the journal of a mount that is gone.
    pub(crate) fn free_journal(&self, (mount, len): crate::turn::Left) -> Result<()> {
        let frees = (0..len).map(|at| (self.ids.journal(&mount, at), Operation::Free));
        self.blocks.all(frees.collect()).map(drop)
    }
}

fn done(outcomes: &[Outcome]) -> Result<()> {
    if outcomes.contains(&Outcome::Full) { Err(full()) } else { Ok(()) }
}

/// Finishes the commit of a mount that is gone. Where its journal is another commit's already, it was
/// finished.
pub(crate) fn replay(core: &Core, pending: Pending, commit: u64) -> Result<()> {
    let count = pending.count as usize;
    let headers = u32::try_from(journal::headers(count)).unwrap_or(u32::MAX);
    let at = |range: std::ops::Range<u32>| -> Vec<Id> {
        range.map(|at| core.ids.journal(&pending.mount, at)).collect()
    };
    let mut entries = Vec::with_capacity(count);
    let mut stamp = None;
    for (number, block) in (0..).zip(core.read(&at(0..headers))?) {
        let header = block.map(|block| Header::decode(&block)).transpose()?;
        let Some(header) = header.filter(|header| {
            header.mount == pending.mount
                && header.number == number
                && header.stamp.commit == commit
        }) else {
            return Ok(());
        };
        stamp = Some(header.stamp);
        entries.extend(header.entries);
    }
    if entries.len() != count {
        return Err(Error::damaged("the journal is not as long as the register says"));
    }
    let images: Vec<Id> =
        entries.iter().filter(|entry| entry.has_image).map(|entry| entry.id).collect();
    let len = u32::try_from(images.len()).unwrap_or(u32::MAX);
    let found = core.read(&at(headers..headers.saturating_add(len)))?;
    let writes: Vec<(Id, Bytes)> = images
        .into_iter()
        .zip(found)
        .filter_map(|(id, block)| Some((id, block?)))
        .filter(|(_, block)| Some(Stamp::of(block)) == stamp)
        .collect();
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
