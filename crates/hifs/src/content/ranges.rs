//! A set of bucket numbers kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-adjacent ranges by their start.
#[derive(Debug, Default, Clone)]
pub(super) struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    /// No number.
    pub(super) const NONE: Self = Self(BTreeMap::new());

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    pub(super) fn insert(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_set(ranges in prop::collection::vec((0u32..60, 0u32..12), 0..20)) {
            let mut set = Ranges::default();
            let mut model = std::collections::BTreeSet::new();
            for (start, len) in ranges {
                set.insert(start..start + len);
                model.extend(start..start + len);
            }
            for n in 0..80 {
                prop_assert_eq!(set.contains(n), model.contains(&n));
            }
            let kept: Vec<(&u32, &u32)> = set.0.iter().collect();
            prop_assert!(kept.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
