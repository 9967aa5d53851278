//! The pieces that lie in another group than their home.

use std::collections::BTreeSet;

use crate::placement::{Cell, Piece, Procedures, Rank, Shape};

/// Where a piece lies that has overflowed, in the order of looking for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::placement::engine) struct Place {
    home: u32,
    /// Number of groups after its home.
    away: u32,
    rank: Rank,
    slot: u32,
}

impl Place {
    /// The place of a piece that lies in `cell`, if it is not in its home.
    pub(in crate::placement::engine) fn of(
        procedures: &dyn Procedures,
        piece: &Piece,
        slot: u32,
        cell: Cell,
    ) -> Option<Self> {
        let shape = procedures.shape();
        let away = away(shape, piece.home, shape.group(cell));
        (away != 0).then(|| Self { home: piece.home, away, rank: procedures.rank(piece), slot })
    }

    const fn first(home: u32, away: u32) -> Self {
        Self { home, away, rank: Rank::MIN, slot: 0 }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::placement::engine) struct Overflow(BTreeSet<Place>);

impl Overflow {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A piece has come to lie there.
    pub(in crate::placement::engine) fn extend(&mut self, place: Option<Place>) {
        self.0.extend(place);
    }

    /// It has left.
    pub(in crate::placement::engine) fn remove(&mut self, place: Option<Place>) {
        place.map(|place| self.0.remove(&place));
    }

    /// The most preferred piece that has passed all of `group` and is less preferred than `after`.
    pub(super) fn first_beyond(
        &self,
        shape: Shape,
        group: u32,
        after: Option<Rank>,
    ) -> Option<u32> {
        let mut best: Option<Place> = None;
        let mut next = self.0.first();
        while let Some(&Place { home, .. }) = next {
            let found = self.first_of(home, away(shape, home, group) + 1, after);
            best = [best, found].into_iter().flatten().min_by_key(|place| place.rank);
            next = self.0.range(Place::first(home + 1, 0)..).next();
        }
        best.map(|place| place.slot)
    }

    /// The same for those of one home that lie at least `away` groups after it.
    fn first_of(&self, home: u32, away: u32, after: Option<Rank>) -> Option<Place> {
        let mut from = Place::first(home, away);
        if let Some(after) = after {
            (from.rank, from.slot) = (after, u32::MAX);
        }
        loop {
            let place = self.0.range(from..).next().filter(|place| place.home == home)?;
            if after.is_none_or(|after| place.rank > after) {
                return Some(*place);
            }
            from.away = place.away;
        }
    }
}

/// How many groups after `home` the group comes.
const fn away(shape: Shape, home: u32, group: u32) -> u32 {
    if home <= group { group - home } else { shape.groups - (home - group) }
}
