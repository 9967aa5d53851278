//! What waits to be put into units, in *epochs*.
//!
//! A flush closes an epoch; all of it leaves before anything of the next. Within an epoch order does
//! not matter, as in a disk's cache: first what was dropped (discarded or zeroed), then the pages of
//! the position map that tell of it, then what was written. A block that is written again in the
//! same epoch is replaced where it stands; one that is written again in a later epoch keeps its
//! older version until that is out. What has been taken stays to be read until its place is known.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, Range};
use std::sync::Arc;

use tacita_block::AlignedBuf;

use crate::buffers::Buffers;
use crate::geometry::BLOCK_LEN;

mod dropped;

use dropped::Dropped;

/// What a block is to hold. Blocks that were written together may share their memory.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    shared: Arc<Shared>,
    block: usize,
}

/// The memory of blocks that were written together.
#[derive(Debug)]
struct Shared {
    /// Of the blocks, and perhaps more.
    bytes: AlignedBuf,
    buffers: Arc<Buffers>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.buffers.give(std::mem::take(&mut self.bytes));
    }
}

impl Content {
    /// The blocks of `bytes`, which take their memory from `buffers` at once, and give it back when the
    /// last of them goes.
    pub(crate) fn of_blocks(bytes: &[u8], buffers: &Arc<Buffers>) -> impl Iterator<Item = Self> {
        let mut shared = Shared { bytes: buffers.take(bytes.len()), buffers: Arc::clone(buffers) };
        shared.bytes[..bytes.len()].copy_from_slice(bytes);
        let shared = Arc::new(shared);
        (0..bytes.len() / BLOCK_LEN).map(move |block| Self { shared: Arc::clone(&shared), block })
    }

    /// Whether it is the same that was put in, and not only equal to it.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.block == other.block
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.shared.bytes[self.block * BLOCK_LEN..][..BLOCK_LEN]
    }
}

#[derive(Debug)]
struct Version {
    epoch: u64,
    content: Content,
    waits: bool,
}

#[derive(Debug)]
struct Entry {
    newest: Version,
    /// The oldest first.
    older: Vec<Version>,
}

/// What leaves next.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A page of the position map: its content is what it is when it is put in.
    Page(u32),
    /// A block that was written.
    Block(u32, Content),
}

/// What a block holds that is not, or not only, where the position map says.
#[derive(Debug)]
pub(crate) enum Staged<'a> {
    /// This.
    Content(&'a Content),
    /// Zeros.
    Zeros,
}

/// Blocks that were dropped.
#[derive(Debug)]
struct Gone {
    epoch: u64,
    blocks: Range<u32>,
    /// Some of them are written before: the unit that holds them cannot drop them, too.
    is_apart: bool,
}

/// What waits of one volume.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// By block, so that a range of them is found without a look at all.
    entries: BTreeMap<u32, Entry>,
    /// Epoch and block, in the order of leaving.
    order: VecDeque<(u64, u32)>,
    /// Blocks that read as zeros from an epoch on.
    drops: VecDeque<Gone>,
    /// How many of them may have to wait for a unit of their own.
    apart: usize,
    /// Where each block of them is found without a look at all.
    dropped: Dropped,
    /// Pages that must leave before anything else does.
    pages: BTreeSet<u32>,
    /// The last epoch of which they tell what was dropped.
    told: u64,
    /// The epoch that is open, and whether anything has been put into it.
    open: u64,
    dirty: bool,
    waiting: usize,
}

impl Stage {
    /// An empty stage whose first epoch follows `epoch`.
    pub(crate) fn after(epoch: u64) -> Self {
        Self { open: epoch.saturating_add(1), ..Self::default() }
    }

    /// How much waits: blocks, pages, and ranges of blocks that are dropped.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting + self.drops.len() + self.pages.len()
    }

    /// How many slots it takes at most until all of it has left, in units of so many.
    pub(crate) fn slots_wanted(&self, of_unit: usize) -> usize {
        self.waiting() + self.apart * of_unit
    }

    /// What a block holds; `None` if the position map tells.
    pub(crate) fn get(&self, id: u32) -> Option<Staged<'_>> {
        let newest = self.entries.get(&id).map(|entry| &entry.newest);
        match (newest, self.dropped.epoch_of(id)) {
            // What waits in an epoch was written after what was dropped in it.
            (Some(v), Some(epoch)) if v.waits && v.epoch >= epoch => {
                Some(Staged::Content(&v.content))
            }
            (_, Some(_)) => Some(Staged::Zeros),
            (Some(v), None) => Some(Staged::Content(&v.content)),
            (None, None) => None,
        }
    }

    /// Of these blocks those of which the position map does not tell, in order: what each holds, where that
    /// is not zeros.
    pub(crate) fn held(&self, ids: Range<u32>) -> Vec<(u32, Option<Content>)> {
        if !self.holds_any(&ids) && !self.dropped.has_any(&ids) {
            return Vec::new();
        }
        let held = |id| {
            let content = match self.get(id)? {
                Staged::Content(content) => Some(content.clone()),
                Staged::Zeros => None,
            };
            Some((id, content))
        };
        ids.filter_map(held).collect()
    }

    /// Queues a block.
    pub(crate) fn put(&mut self, id: u32, content: Content) {
        self.dirty = true;
        let version = Version { epoch: self.open, content, waits: true };
        match self.entries.entry(id) {
            Place::Occupied(mut place) => {
                let entry = place.get_mut();
                if entry.newest.waits && entry.newest.epoch == self.open {
                    entry.newest = version;
                    return;
                }
                let older = std::mem::replace(&mut entry.newest, version);
                entry.older.push(older);
            }
            Place::Vacant(place) => _ = place.insert(Entry { newest: version, older: Vec::new() }),
        }
        self.order.push_back((self.open, id));
        self.waiting += 1;
    }

    /// Blocks read as zeros from now on: those in front, behind so many that are staged at most, which leave the
    /// range. Returns what has waited of them. To free that takes longer than all else: the stage is not to be kept
    /// for it.
    pub(crate) fn drop_first(&mut self, left: &mut Range<u32>, staged_max: usize) -> Vec<Content> {
        self.dirty = true;
        let behind = self.entries.range(left.clone()).nth(staged_max);
        let end = behind.map_or(left.end, |(id, _)| *id);
        let range = left.start..end;
        left.start = end;
        let of_open = |entry: &Entry| entry.newest.waits && entry.newest.epoch == self.open;
        let held = self.entries.range(range.clone()).filter(|(_, entry)| of_open(entry));
        let ids: Vec<u32> = held.map(|(id, _)| *id).collect();
        if ids.is_empty() && self.dropped.covers(&range, self.open) {
            // Nothing has come since: whoever drops the same again and again takes no more room.
            return Vec::new();
        }
        self.waiting -= ids.len();
        let gone = ids.into_iter().map(|id| self.take_newest(id)).collect();
        self.dropped.put(range.clone(), self.open);
        let is_apart = self.holds_any(&range);
        match self.drops.back_mut() {
            Some(last) if last.epoch == self.open && last.blocks.end == range.start => {
                last.blocks.end = range.end;
                self.apart += usize::from(is_apart && !last.is_apart);
                last.is_apart |= is_apart;
            }
            _ => {
                self.apart += usize::from(is_apart);
                self.drops.push_back(Gone { epoch: self.open, blocks: range, is_apart });
            }
        }
        gone
    }

    /// The newest version of a block that is staged: the one before is, from now on.
    fn take_newest(&mut self, id: u32) -> Content {
        let Place::Occupied(mut place) = self.entries.entry(id) else { panic!("it is staged") };
        match place.get_mut().older.pop() {
            Some(older) => std::mem::replace(&mut place.get_mut().newest, older).content,
            None => place.remove().newest.content,
        }
    }

    /// A page has to tell of something that has changed.
    pub(crate) fn put_page(&mut self, page: u32) {
        self.pages.insert(page);
    }

    /// A page is written as it is now.
    pub(crate) fn page_leaves(&mut self, page: u32) {
        self.pages.remove(&page);
    }

    /// Closes the epoch, if there is anything in it. Returns the last one closed: what a flush
    /// waits for.
    pub(crate) fn close_epoch(&mut self) -> u64 {
        self.open += u64::from(std::mem::take(&mut self.dirty));
        self.open - 1
    }

    /// Blocks that the epoch which leaves has dropped. What was dropped in an epoch before leaves with all pages
    /// that tell of it first.
    pub(crate) fn next_drop(&mut self) -> Option<Range<u32>> {
        self.skip_replaced();
        let Gone { epoch, blocks, .. } = self.drops.front()?;
        let waits_for_blocks = self.order.front().is_some_and(|(first, _)| first < epoch);
        let waits_for_pages = !self.pages.is_empty() && self.told < *epoch;
        (!waits_for_blocks && !waits_for_pages).then(|| blocks.clone())
    }

    /// Takes blocks of those, `count_max` at most; `None` if there are none. What has been taken of them is of
    /// no use any more.
    pub(crate) fn take_drops(&mut self, count_max: u32) -> Option<Range<u32>> {
        let next = self.next_drop()?;
        let taken = next.start..next.end.min(next.start.saturating_add(count_max));
        if taken.is_empty() {
            return None;
        }
        let Gone { epoch, blocks, is_apart } = self.drops.front_mut().expect("it is next");
        blocks.start = taken.end;
        self.told = *epoch;
        self.dropped.take(&taken, *epoch);
        if taken.end == next.end {
            self.apart -= usize::from(*is_apart);
            self.drops.pop_front();
        }
        Some(taken)
    }

    /// A dropped block that had been taken before its place was known.
    pub(crate) fn forget_taken(&mut self, id: u32) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.older.retain(|version| version.waits);
        if !entry.newest.waits {
            self.entries.remove(&id);
        }
    }

    /// Takes what leaves next, once all that its epoch has dropped has been taken.
    pub(crate) fn take(&mut self) -> Option<Taken> {
        if let Some(page) = self.pages.pop_first() {
            return Some(Taken::Page(page));
        }
        self.skip_replaced();
        let (epoch, id) = *self.order.front()?;
        if self.drops.front().is_some_and(|first| first.epoch <= epoch) {
            return None;
        }
        self.order.pop_front();
        let entry = self.entries.get_mut(&id).expect("what waits is there");
        let version = entry.waiting_in(epoch).expect("what waits is there");
        version.waits = false;
        self.waiting -= 1;
        Some(Taken::Block(id, version.content.clone()))
    }

    /// What was queued and then dropped within an epoch leaves its turn behind.
    fn skip_replaced(&mut self) {
        while let Some((epoch, id)) = self.order.front() {
            let entry = self.entries.get_mut(id);
            if entry.is_some_and(|entry| entry.waiting_in(*epoch).is_some()) {
                return;
            }
            self.order.pop_front();
        }
    }

    /// The place of what was taken is known: it need not be kept.
    pub(crate) fn settle(&mut self, id: u32, content: &Content) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let is_it = |version: &Version| !version.waits && version.content.is(content);
        entry.older.retain(|version| !is_it(version));
        if is_it(&entry.newest) {
            self.entries.remove(&id);
        }
    }

    /// Whether any of these blocks is staged.
    pub(crate) fn holds_any(&self, range: &Range<u32>) -> bool {
        self.entries.range(range.clone()).next().is_some()
    }

    /// The last epoch of which nothing waits any more.
    pub(crate) fn complete(&mut self) -> u64 {
        self.skip_replaced();
        let drops = self.drops.front().map(|first| first.epoch);
        let blocks = self.order.front().map(|(epoch, _)| *epoch);
        let first = drops.into_iter().chain(blocks).min();
        match first {
            // Pages tell of what the first epoch has dropped, or one before.
            Some(first) => first.saturating_sub(1 + u64::from(!self.pages.is_empty())),
            None if self.pages.is_empty() => self.close_epoch(),
            None => self.open.saturating_sub(2),
        }
    }
}

impl Entry {
    fn waiting_in(&mut self, epoch: u64) -> Option<&mut Version> {
        let mut versions = self.older.iter_mut().chain(std::iter::once(&mut self.newest));
        versions.find(|version| version.waits && version.epoch == epoch)
    }
}

#[cfg(test)]
mod tests;
