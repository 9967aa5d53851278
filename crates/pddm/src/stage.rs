//! Blocks that wait to be put into a unit, in the order of writing.
//!
//! A block that is written again while it waits is replaced where it stands. One that has been
//! taken stays to be read until its place is known.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

#[derive(Debug)]
struct Entry {
    /// `None` for a page of the position map: its content is what it is when it is put in.
    content: Option<Arc<[u8]>>,
    waits: bool,
}

/// What waits of one volume.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    entries: HashMap<u32, Entry>,
    order: VecDeque<u32>,
    waiting: usize,
    queued: u64,
    taken: u64,
}

impl Stage {
    /// Blocks that wait.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many have ever been queued: a ticket for [`Stage::taken`] to reach.
    pub(crate) const fn queued(&self) -> u64 {
        self.queued
    }

    /// How many of them have been taken, or dropped.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// The content of a block that waits, or whose place is not known yet.
    pub(crate) fn get(&self, id: u32) -> Option<&Arc<[u8]>> {
        self.entries.get(&id)?.content.as_ref()
    }

    /// Queues a block.
    pub(crate) fn put(&mut self, id: u32, content: Option<Arc<[u8]>>) {
        let entry = self.entries.entry(id).or_insert(Entry { content: None, waits: false });
        entry.content = content;
        if !entry.waits {
            entry.waits = true;
            self.order.push_back(id);
            self.waiting += 1;
            self.queued += 1;
        }
    }

    /// Takes the block that has waited longest.
    pub(crate) fn take(&mut self) -> Option<(u32, Option<Arc<[u8]>>)> {
        while let Some(id) = self.order.pop_front() {
            self.taken += 1;
            if let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.waits) {
                entry.waits = false;
                self.waiting -= 1;
                return Some((id, entry.content.clone()));
            }
        }
        None
    }

    /// The place of a block that was taken is known: it need not be kept, unless it has been
    /// written again.
    pub(crate) fn settle(&mut self, id: u32) {
        if self.entries.get(&id).is_some_and(|entry| !entry.waits) {
            self.entries.remove(&id);
        }
    }

    /// Drops a block.
    pub(crate) fn discard(&mut self, id: u32) {
        if self.entries.remove(&id).is_some_and(|entry| entry.waits) {
            self.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BLOCK_LEN;

    fn block(n: u8) -> Arc<[u8]> {
        Arc::new([n; BLOCK_LEN])
    }

    #[test]
    fn what_waits_is_taken_in_order_and_stays_readable() {
        let mut stage = Stage::default();
        stage.put(5, Some(block(1)));
        stage.put(6, Some(block(2)));
        stage.put(5, Some(block(3)));
        assert_eq!((stage.waiting(), stage.queued()), (2, 2));
        let (id, content) = stage.take().unwrap();
        assert_eq!((id, content.unwrap()[0]), (5, 3));
        assert_eq!(stage.get(5).unwrap()[0], 3);
        stage.put(5, Some(block(4)));
        stage.settle(5);
        assert_eq!(stage.get(5).unwrap()[0], 4);
        stage.discard(6);
        assert_eq!(stage.take().unwrap().0, 5);
        stage.settle(5);
        assert!(stage.get(5).is_none());
        assert!(stage.take().is_none());
        assert_eq!((stage.waiting(), stage.queued(), stage.taken()), (0, 3, 3));
    }
}
