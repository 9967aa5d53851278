//! The shape of a directory, and of the table of all inodes: a hash trie whose leaves are pages.
//!
//! A prefix is a leaf if and only if the entries under it fit in one page and those under its parent
//! do not. So the shape is a function of the set of entries alone, without hysteresis.
//!
//! Source: design note, section 4 (count-determined hash trie). Paper: HIFS, section 4.5.3 keeps
//! sorted lists; deviation D-07 in docs/design/hifs.md.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::page::PAYLOAD_LEN;

/// Look at so many leaves for one with room.
const LEAVES_TRIED: usize = 1024;

/// A leaf: the first hash of its prefix and the length of the prefix in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LeafKey {
    /// First hash under the prefix.
    pub start: u64,
    /// Length of the prefix, 0 to 64.
    pub depth: u8,
}

impl LeafKey {
    /// All hashes under the prefix.
    pub(crate) const fn hashes(self) -> RangeInclusive<u64> {
        let span =
            if self.depth == 0 { u64::MAX } else { (1u64 << (64 - self.depth)).wrapping_sub(1) };
        // A prefix of 64 bits is one hash: 1 << 0, less 1.
        self.start..=self.start | span
    }

    const fn parent(self) -> Self {
        let depth = self.depth - 1;
        Self {
            start: if depth == 0 { 0 } else { self.start >> (64 - depth) << (64 - depth) },
            depth,
        }
    }

    const fn children(self) -> [Self; 2] {
        let depth = self.depth + 1;
        [Self { start: self.start, depth }, Self { start: self.start | 1 << (64 - depth), depth }]
    }
}

#[derive(Debug, Clone, Copy)]
struct Leaf {
    depth: u8,
    len_bytes: u32,
}

/// The leaves of one trie; they partition all hashes. Empty leaves are not stored on the medium.
#[derive(Debug)]
pub(crate) struct Trie {
    leaves: BTreeMap<u64, Leaf>,
    pages: u32,
}

impl Default for Trie {
    fn default() -> Self {
        Self { leaves: BTreeMap::from([(0, Leaf { depth: 0, len_bytes: 0 })]), pages: 0 }
    }
}

impl Trie {
    /// The trie of entries, given by hash and length in ascending order; `None` if too many bytes
    /// have one hash.
    pub(crate) fn build(entries: impl Iterator<Item = (u64, u32)>) -> Option<Self> {
        // Bytes before each entry.
        let (mut all, mut len) = (Vec::new(), 0u64);
        for (hash, len_bytes) in entries {
            all.push((hash, len));
            len += u64::from(len_bytes);
        }
        all.push((u64::MAX, len));
        let mut this = Self { leaves: BTreeMap::new(), pages: 0 };
        let mut leaves = Vec::new();
        // Prefixes with their entries, the rightmost first.
        let mut open = vec![(LeafKey { start: 0, depth: 0 }, 0..all.len() - 1)];
        while let Some((key, range)) = open.pop() {
            let len = all[range.end].1 - all[range.start].1;
            if len <= PAYLOAD_LEN.into() {
                let len_bytes = u32::try_from(len).expect("less than a page");
                this.pages += u32::from(len_bytes > 0);
                leaves.push((key.start, Leaf { depth: key.depth, len_bytes }));
                continue;
            }
            if key.depth == 64 {
                return None;
            }
            let [left, right] = key.children();
            let left_count = all[range.clone()].partition_point(|(hash, _)| *hash < right.start);
            let middle = range.start + left_count;
            open.push((right, middle..range.end));
            open.push((left, range.start..middle));
        }
        this.leaves = leaves.into_iter().collect();
        Some(this)
    }

    /// Number of pages: leaves that are not empty.
    pub(crate) const fn pages(&self) -> u32 {
        self.pages
    }

    /// All leaves that are not empty.
    pub(crate) fn stored(&self) -> impl Iterator<Item = LeafKey> + '_ {
        let key = |(&start, leaf): (&u64, &Leaf)| LeafKey { start, depth: leaf.depth };
        self.leaves.iter().filter(|(_, leaf)| leaf.len_bytes > 0).map(key)
    }

    /// Whether `key` is a leaf that is not empty.
    pub(crate) fn is_stored(&self, key: LeafKey) -> bool {
        self.leaves
            .get(&key.start)
            .is_some_and(|leaf| leaf.depth == key.depth && leaf.len_bytes > 0)
    }

    /// Whether no leaf can hold `len_bytes` more under `hash`, given what equal hashes take already.
    pub(crate) const fn overflows(equal_len_bytes: u32, len_bytes: u32) -> bool {
        equal_len_bytes + len_bytes > PAYLOAD_LEN
    }

    /// The leaf of a hash.
    pub(crate) fn leaf(&self, hash: u64) -> LeafKey {
        let (&start, leaf) =
            self.leaves.range(..=hash).next_back().expect("the leaves cover all hashes");
        LeafKey { start, depth: leaf.depth }
    }

    /// A hash whose page has room for `len_bytes` more: `hash`, or one that agrees with it in all
    /// bits that the next page with room leaves free; `hash` if none of many has.
    pub(crate) fn with_room(&self, hash: u64, len_bytes: u32) -> u64 {
        let own = self.leaf(hash).start;
        let fits = |leaf: &&Leaf| leaf.len_bytes > 0 && leaf.len_bytes + len_bytes <= PAYLOAD_LEN;
        let around = self.leaves.range(own..).chain(self.leaves.range(..own));
        let found = around.take(LEAVES_TRIED).find(|(_, leaf)| fits(leaf));
        found.map_or(hash, |(start, leaf)| {
            let hashes = LeafKey { start: *start, depth: leaf.depth }.hashes();
            hashes.start() | hash & (hashes.end() - hashes.start())
        })
    }

    /// Accounts for an entry of `len_bytes` under `hash` that has been added. `sum` gives the bytes
    /// of all entries, the new one included, in a range of hashes. Every leaf that appears,
    /// vanishes or changes goes to `touched`.
    pub(crate) fn add(
        &mut self,
        hash: u64,
        len_bytes: u32,
        sum: impl Fn(RangeInclusive<u64>) -> u32,
        touched: &mut impl FnMut(LeafKey),
    ) {
        let mut key = self.leaf(hash);
        touched(key);
        let mut len = self.len_of(key) + len_bytes;
        while len > PAYLOAD_LEN {
            assert!(key.depth < 64, "the caller has checked for too many equal hashes");
            self.set(key, None);
            let [left, right] = key.children();
            let left_len = sum(left.hashes());
            self.set(left, Some(left_len));
            self.set(right, Some(len - left_len));
            touched(left);
            touched(right);
            (key, len) = if left.hashes().contains(&hash) {
                (left, left_len)
            } else {
                (right, len - left_len)
            };
        }
        self.set(key, Some(len));
    }

    /// Accounts for an entry that has been removed.
    pub(crate) fn remove(&mut self, hash: u64, len_bytes: u32, touched: &mut impl FnMut(LeafKey)) {
        let mut key = self.leaf(hash);
        touched(key);
        let mut len = self.len_of(key) - len_bytes;
        self.set(key, Some(len));
        while key.depth > 0 {
            let parent = key.parent();
            let sibling = parent.children().into_iter().find(|child| *child != key);
            let Some(sibling) = sibling.filter(|s| self.is_leaf(*s)) else {
                break;
            };
            let both = len + self.len_of(sibling);
            if both > PAYLOAD_LEN {
                break;
            }
            self.set(key, None);
            self.set(sibling, None);
            self.set(parent, Some(both));
            touched(sibling);
            touched(parent);
            (key, len) = (parent, both);
        }
    }

    fn is_leaf(&self, key: LeafKey) -> bool {
        self.leaves.get(&key.start).is_some_and(|leaf| leaf.depth == key.depth)
    }

    fn len_of(&self, key: LeafKey) -> u32 {
        self.leaves.get(&key.start).map_or(0, |leaf| leaf.len_bytes)
    }

    fn set(&mut self, key: LeafKey, len_bytes: Option<u32>) {
        let before = match len_bytes {
            Some(len_bytes) => self.leaves.insert(key.start, Leaf { depth: key.depth, len_bytes }),
            None => self.leaves.remove(&key.start),
        };
        self.pages -= u32::from(before.is_some_and(|leaf| leaf.len_bytes > 0));
        self.pages += u32::from(len_bytes.is_some_and(|len| len > 0));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The definition, straight from the module's head.
    fn shape(entries: &BTreeMap<(u64, u32), u32>, key: LeafKey, out: &mut BTreeSet<LeafKey>) {
        let r = key.hashes();
        let sum: u32 = entries.range((*r.start(), 0)..=(*r.end(), u32::MAX)).map(|(_, l)| l).sum();
        if sum == 0 {
        } else if sum <= PAYLOAD_LEN {
            out.insert(key);
        } else {
            key.children().into_iter().for_each(|child| shape(entries, child, out));
        }
    }

    proptest! {
        #[test]
        fn shape_is_a_function_of_the_set(
            ops in prop::collection::vec((any::<u64>(), 0u32..40, 20u32..900, any::<bool>()), 1..300),
            bits in prop_oneof![Just(6u32), Just(64)],
        ) {
            let mut entries: BTreeMap<(u64, u32), u32> = BTreeMap::new();
            let mut trie = Trie::default();
            for (n, (hash, pick, len, add)) in ops.into_iter().enumerate() {
                let hash = if bits == 64 { hash } else { hash & !(u64::MAX >> bits) };
                let before: BTreeSet<LeafKey> = trie.stored().collect();
                let mut touched = BTreeSet::new();
                let mut changed = None;
                if add {
                    let equal: u32 =
                        entries.range((hash, 0)..=(hash, u32::MAX)).map(|(_, l)| l).sum();
                    if !Trie::overflows(equal, len) {
                        entries.insert((hash, u32::try_from(n).unwrap()), len);
                        trie.add(hash, len, |r| {
                            entries.range((*r.start(), 0)..=(*r.end(), u32::MAX))
                                .map(|(_, l)| l).sum()
                        }, &mut |key| { touched.insert(key); });
                        changed = Some(hash);
                    }
                } else if !entries.is_empty() {
                    let key = *entries.keys().nth(pick as usize % entries.len()).unwrap();
                    let len = entries.remove(&key).unwrap();
                    trie.remove(key.0, len, &mut |key| { touched.insert(key); });
                    changed = Some(key.0);
                }
                let mut want = BTreeSet::new();
                shape(&entries, LeafKey { start: 0, depth: 0 }, &mut want);
                let got: BTreeSet<LeafKey> = trie.stored().collect();
                prop_assert_eq!(&got, &want);
                prop_assert_eq!(trie.pages() as usize, want.len());
                let built = Trie::build(entries.iter().map(|((hash, _), len)| (*hash, *len)));
                let built = built.unwrap();
                prop_assert_eq!(built.stored().collect::<BTreeSet<_>>(), want.clone());
                prop_assert_eq!(built.pages(), trie.pages());
                prop_assert_eq!(built.leaf(hash), trie.leaf(hash));
                let differing: Vec<&LeafKey> = before.symmetric_difference(&got).collect();
                prop_assert!(differing.iter().all(|key| touched.contains(key)));
                if let Some(hash) = changed {
                    let leaf = trie.leaf(hash);
                    prop_assert!(touched.contains(&leaf));
                }
            }
        }
    }
}
