//! Edits of a source by the places of bytes. What is not edited is copied, never printed anew.

use std::ops::Range;

use crate::faults::{Fault, planted};

/// Edits of one source.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    all: Vec<(Range<usize>, String)>,
}

/// A source after its edits.
#[derive(Debug)]
pub(crate) struct Edited {
    pub(crate) bytes: Vec<u8>,
    /// What of it was put there by edits.
    pub(crate) new: Vec<Range<usize>>,
    /// Where bytes that were kept went: of the source, and of the result.
    pub(crate) kept: Vec<(Range<usize>, Range<usize>)>,
}

impl Edits {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at..at, text);
    }

    pub(crate) fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        self.all.push((range, text.into()));
    }

    /// The first byte that an edit touches.
    pub(crate) fn first(&self) -> Option<usize> {
        self.all.iter().map(|(range, _)| range.start).min()
    }

    /// The source with all edits, those at one place in the order in which they were given.
    pub(crate) fn apply(mut self, source: &[u8]) -> Edited {
        // Stable: insertions at one place stay in their order, before what replaces bytes there.
        self.all.sort_by_key(|(range, _)| (range.start, range.end));
        if planted(Fault::EditShifted)
            && let Some((range, _)) = self.all.last_mut()
        {
            *range = (range.start + 1)..(range.end + 1);
        }
        let mut edited = Edited { bytes: Vec::new(), new: Vec::new(), kept: Vec::new() };
        let mut at = 0;
        for (range, text) in &self.all {
            edited.keep(source, at..range.start.max(at));
            let start = edited.bytes.len();
            edited.bytes.extend_from_slice(text.as_bytes());
            edited.new.push(start..edited.bytes.len());
            at = at.max(range.end);
        }
        edited.keep(source, at..source.len());
        edited
    }
}

impl Edited {
    fn keep(&mut self, source: &[u8], range: Range<usize>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&source[range.clone()]);
        self.kept.push((range, start..self.bytes.len()));
    }

    /// Where a byte of the source is now; if an edit took it, where that edit is.
    pub(crate) fn place_of(&self, at: usize) -> usize {
        for (from, to) in &self.kept {
            if at < from.end {
                return to.start + at.saturating_sub(from.start);
            }
        }
        self.bytes.len()
    }

    /// Whether a byte was put there by an edit.
    pub(crate) fn is_new(&self, at: usize) -> bool {
        let next = self.new.partition_point(|range| range.end <= at);
        self.new.get(next).is_some_and(|range| range.contains(&at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_land_where_they_belong() {
        let mut edits = Edits::default();
        edits.replace(4..7, "B");
        edits.insert(4, "x");
        edits.insert(0, "<");
        edits.insert(11, ">");
        let edited = edits.apply(b"one two end");
        assert_eq!(edited.bytes, b"<one xB end>");
        assert_eq!(edited.place_of(8), 8);
        assert!(edited.is_new(0) && !edited.is_new(1) && edited.is_new(6) && !edited.is_new(7));
    }

    #[test]
    fn without_edits_nothing_changes() {
        assert_eq!(Edits::default().apply(b"abc").bytes, b"abc");
    }
}
