//! Blocks that were dropped and wait to leave: for each the last epoch in which it was.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of blocks by their beginning, none of which meet another of their epoch.
#[derive(Debug, Default)]
pub(super) struct Dropped(BTreeMap<u32, Piece>);

#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u32,
    epoch: u64,
}

impl Dropped {
    /// The last epoch in which a block was dropped that has not left.
    pub(super) fn epoch_of(&self, id: u32) -> Option<u64> {
        let (_, piece) = self.0.range(..=id).next_back()?;
        (id < piece.end).then_some(piece.epoch)
    }

    /// Whether any block of a range is one.
    pub(super) fn has_any(&self, range: &Range<u32>) -> bool {
        let last = self.0.range(..range.end).next_back();
        last.is_some_and(|(_, piece)| piece.end > range.start)
    }

    /// Whether all of a range was dropped in `epoch` last.
    pub(super) fn covers(&self, range: &Range<u32>, epoch: u64) -> bool {
        let before = self.0.range(..=range.start).next_back();
        before.is_some_and(|(_, piece)| piece.end >= range.end && piece.epoch == epoch)
    }

    /// A range is dropped, in no earlier epoch than anything before.
    pub(super) fn put(&mut self, mut range: Range<u32>, epoch: u64) {
        for (start, piece) in self.meeting(&range) {
            self.0.remove(&start);
            if piece.epoch == epoch {
                range = range.start.min(start)..range.end.max(piece.end);
            } else {
                self.keep_around(&range, start, piece);
            }
        }
        self.0.insert(range.start, Piece { end: range.end, epoch });
    }

    /// What was dropped of a range in `epoch` leaves.
    pub(super) fn take(&mut self, range: &Range<u32>, epoch: u64) {
        for (start, piece) in self.meeting(range) {
            if piece.epoch == epoch {
                self.0.remove(&start);
                self.keep_around(range, start, piece);
            }
        }
    }

    /// Pieces that overlap a range, or touch it.
    fn meeting(&self, range: &Range<u32>) -> Vec<(u32, Piece)> {
        let before = self.0.range(..range.start).next_back();
        let before = before.filter(|(_, piece)| piece.end >= range.start);
        let within = self.0.range(range.start..=range.end);
        before.into_iter().chain(within).map(|(start, piece)| (*start, *piece)).collect()
    }

    /// Puts back what lies of a piece before and behind a range.
    fn keep_around(&mut self, range: &Range<u32>, start: u32, piece: Piece) {
        if start < range.start {
            self.0.insert(start, Piece { end: piece.end.min(range.start), ..piece });
        }
        if range.end < piece.end {
            self.0.insert(start.max(range.end), piece);
        }
    }
}
