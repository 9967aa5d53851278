//! Which blocks of a content there may be: few ranges that cover all that are there, and perhaps some
//! that are not. Freeing a content means freeing these.

/// Ranges that an inode holds.
pub const RANGES: usize = 32;

/// Blocks from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub start: u64,
    /// The first after it.
    pub end: u64,
}

/// Ranges in order, apart from one another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// From a list; `None` unless it is in order.
    pub fn from_all(all: Vec<Range>) -> Option<Self> {
        let is_sound = all.iter().all(|range| range.start < range.end)
            && all.windows(2).all(|pair| pair[0].end < pair[1].start)
            && all.len() <= RANGES;
        is_sound.then_some(Self(all))
    }

    /// All of them.
    pub fn all(&self) -> &[Range] {
        &self.0
    }

    /// Blocks in them.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Blocks in them from `start` on.
    pub fn count_from(&self, start: u64) -> u64 {
        self.0.iter().map(|range| range.end.saturating_sub(range.start.max(start))).sum()
    }

    /// Whether a block is in one.
    pub fn has(&self, index: u64) -> bool {
        self.0.iter().any(|range| (range.start..range.end).contains(&index))
    }

    /// These blocks are covered from now on, and a gap that is closed for it, which is returned.
    pub fn add(&mut self, start: u64, end: u64) -> Option<Range> {
        if start >= end {
            return None;
        }
        self.0.push(Range { start, end });
        self.0.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range> = Vec::with_capacity(self.0.len());
        for range in self.0.drain(..) {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        self.0 = merged;
        self.limit()
    }

    /// These blocks are gone. Where that makes too many ranges a gap is closed, perhaps this one; it is returned.
    pub fn remove(&mut self, start: u64, end: u64) -> Option<Range> {
        let parts = |range: Range| {
            let before = Range { end: range.end.min(start), ..range };
            let behind = Range { start: range.start.max(end), ..range };
            [before, behind].into_iter().filter(|part| part.start < part.end)
        };
        if start >= end {
            return None;
        }
        self.0 = self.0.drain(..).flat_map(parts).collect();
        self.limit()
    }

    /// Closes the gap that covers least if there is a range too many, as there is one at most.
    fn limit(&mut self) -> Option<Range> {
        let ranges = &mut self.0;
        if ranges.len() <= RANGES {
            return None;
        }
        let gap = |at: &usize| ranges[at + 1].start - ranges[*at].end;
        let at = (0..ranges.len() - 1).min_by_key(gap).unwrap_or(0);
        let closed = Range { start: ranges[at].end, end: ranges[at + 1].start };
        ranges[at].end = ranges[at + 1].end;
        ranges.remove(at + 1);
        Some(closed)
    }

    /// As much of the gap as so many blocks, next to what is covered already: these are covered from now on.
    pub fn close_a_part(&mut self, gap: Range, blocks: u64) -> Range {
        let part = match gap.start.checked_sub(1) {
            Some(before) if self.has(before) => Range { end: gap.start + blocks, ..gap },
            _ => Range { start: gap.end - blocks, ..gap },
        };
        self.add(part.start, part.end);
        part
    }

    /// There are no blocks from `end` on.
    pub fn cut(&mut self, end: u64) {
        self.0.retain(|range| range.start < end);
        if let Some(last) = self.0.last_mut() {
            last.end = last.end.min(end);
        }
    }

    /// Those of `start..end` that are covered.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().flat_map(move |range| range.start.max(start)..range.end.min(end))
    }

    /// The first covered block from `index` on.
    pub fn next(&self, index: u64) -> Option<u64> {
        let range = self.0.iter().find(|range| range.end > index)?;
        Some(range.start.max(index))
    }

    /// The first block from `index` on that is not covered.
    pub fn next_gap(&self, index: u64) -> u64 {
        match self.0.iter().find(|range| (range.start..range.end).contains(&index)) {
            Some(range) => range.end,
            None => index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(u64, u64)]) -> Ranges {
        let all = all.iter().map(|&(start, end)| Range { start, end }).collect();
        Ranges::from_all(all).expect("in order")
    }

    #[test]
    fn what_is_removed_is_a_gap() {
        let mut ranges = of(&[(0, 10), (20, 30)]);
        ranges.remove(4, 4);
        assert_eq!(ranges, of(&[(0, 10), (20, 30)]));
        ranges.remove(4, 6);
        assert_eq!(ranges, of(&[(0, 4), (6, 10), (20, 30)]));
        ranges.remove(0, 1);
        ranges.remove(8, 25);
        assert_eq!(ranges, of(&[(1, 4), (6, 8), (25, 30)]));
        ranges.remove(0, u64::MAX);
        assert_eq!(ranges, of(&[]));
    }

    #[test]
    fn too_many_gaps_are_closed_where_they_cover_least() {
        let mut ranges = of(&[(0, 10_000)]);
        for n in 1..=RANGES as u64 {
            // The twentieth is the shortest.
            let closed = ranges.remove(n * 100, n * 100 + if n == 20 { 2 } else { 3 });
            let shortest = Range { start: 2000, end: 2002 };
            assert_eq!(closed, (n == RANGES as u64).then_some(shortest));
        }
        assert_eq!(ranges.all().len(), RANGES);
        assert!(ranges.has(2000) && ranges.has(2001) && !ranges.has(1900) && !ranges.has(2100));
        assert!(Ranges::from_all(ranges.all().to_vec()).is_some());
    }
}
