//! How many blocks the store has, what of them is taken, and what of the rest can be had.

use crate::blocks::Room;
use crate::privatefs::{Need, Options};

/// Blocks that an operation may add besides what it writes itself.
const SLACK: u64 = 24;

/// How many blocks there are in the store, and will be when all commits are in their places.
#[derive(Debug)]
pub(crate) struct Usage {
    /// As the store has told.
    pub(crate) room: Room,
    /// Blocks that operations have added, which no commit has taken yet.
    pub(crate) added: u64,
    /// Those of commits that are not in their places.
    planned: u64,
    /// Those of commits that are, which the store has not told of yet.
    pub(crate) placed: u64,
}

impl Usage {
    pub(crate) const fn new(room: Room) -> Self {
        Self { room, added: 0, planned: 0, placed: 0 }
    }

    /// A commit takes what was added; returns how much that is.
    pub(crate) fn plan(&mut self) -> u64 {
        let added = std::mem::take(&mut self.added);
        self.planned += added;
        added
    }

    /// So much of it is in its place.
    pub(crate) fn place(&mut self, added: u64) {
        self.planned = self.planned.saturating_sub(added);
        self.placed += added;
    }

    /// The store says how much room there is, asked when so many blocks had been placed.
    pub(crate) fn told(&mut self, room: Room, placed: u64) {
        self.placed = self.placed.saturating_sub(placed);
        self.room = room;
    }

    /// Blocks that there are, or a few more.
    pub(crate) fn used(&self) -> u64 {
        self.room.present + self.placed + self.planned + self.added
    }

    /// Whether so many blocks can be added and a commit still has room.
    pub(crate) fn has_room(&self, added: u64, need: Need, options: &Options) -> bool {
        let kept = match need {
            Need::Nothing => return true,
            Need::Room => kept_for_commits(options),
            Need::Less => kept_for_commits(options) / 2,
        };
        self.used().saturating_add(added).saturating_add(kept) <= self.room.capacity
    }

    /// Blocks that there are not, and those of them that programs can have.
    pub(crate) fn free(&self, options: &Options) -> (u64, u64) {
        let free = self.room.capacity.saturating_sub(self.used());
        (free, free.saturating_sub(kept_for_commits(options)))
    }
}

/// Blocks that nothing is added to: a commit is written twice, to its journal and to its place.
const fn kept_for_commits(options: &Options) -> u64 {
    2 * (options.changed_max as u64 + SLACK)
}
