//! The index in memory: which key each node has, in order.
//!
//! It is kept in chunks, each a sorted list; a checkpoint writes the chunks that have changed. An
//! entry takes 20 bytes, so a node with its place takes less than 64.

use std::collections::BTreeMap;
use std::ops::Range;

use tacita_dnefs_format::checkpoint::NodeRef;
use tacita_dnefs_format::record::IndexKey;

use crate::keys::KeyId;

/// Most entries of a chunk: a chunk is a node, and moving half of one on each insertion must cost
/// less than encrypting what is inserted. Where erase blocks are short it has fewer.
pub(crate) const CHUNK_LEN_MAX: usize = 512;
/// A chunk that has neighbours is merged with one below about this share of that.
const CHUNK_SHARE_MIN: usize = 8;

/// What an entry takes in memory, in bytes.
pub(crate) const ENTRY_LEN: u64 = (size_of::<IndexKey>() + size_of::<KeyId>()) as u64;

/// Where the first chunk begins.
const BEGINNING: IndexKey = IndexKey { ino: 0, sub: 0 };

/// A sorted part of the index.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    at: Vec<IndexKey>,
    keys: Vec<KeyId>,
    /// Where the newest checkpoint has it, if it has not changed since.
    stored: Option<NodeRef>,
}

impl Chunk {
    /// Where the newest checkpoint has it, if it has not changed since.
    pub(crate) const fn stored(&self) -> Option<NodeRef> {
        self.stored
    }

    /// Its entries, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (IndexKey, KeyId)> {
        self.at.iter().copied().zip(self.keys.iter().copied())
    }
}

/// Which key each node has.
#[derive(Debug)]
pub(crate) struct Index {
    /// Most entries of a chunk.
    chunk_len_max: usize,
    /// By where they begin, which is the beginning for the first.
    chunks: BTreeMap<IndexKey, Chunk>,
    /// Where chunks lie that are no more, for the next checkpoint to free.
    dropped: Vec<NodeRef>,
    len: usize,
    /// How many chunks the newest checkpoint has as they are.
    stored: usize,
}

impl Index {
    /// An index without an entry, in chunks of so many at most.
    pub(crate) const fn new(chunk_len_max: usize) -> Self {
        Self { chunk_len_max, chunks: BTreeMap::new(), dropped: Vec::new(), len: 0, stored: 0 }
    }

    /// How many nodes there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    fn chunk_of(&self, at: IndexKey) -> Option<IndexKey> {
        self.chunks.range(..=at).next_back().map(|(first, _)| *first)
    }

    /// The key of a node.
    pub(crate) fn get(&self, at: IndexKey) -> Option<KeyId> {
        let chunk = &self.chunks[&self.chunk_of(at)?];
        chunk.at.binary_search(&at).ok().map(|place| chunk.keys[place])
    }

    /// How many chunks the next checkpoint has to write.
    pub(crate) fn changed(&self) -> usize {
        self.chunks.len() - self.stored
    }

    fn change(&mut self, first: IndexKey) -> &mut Chunk {
        let chunk = self.chunks.get_mut(&first).expect("it was just found");
        if let Some(stored) = chunk.stored.take() {
            self.dropped.push(stored);
            self.stored -= 1;
        }
        chunk
    }

    /// Gives a node a key, and returns the one it had.
    pub(crate) fn insert(&mut self, at: IndexKey, key: KeyId) -> Option<KeyId> {
        let Some(first) = self.chunk_of(at) else {
            let chunk = Chunk { at: vec![at], keys: vec![key], stored: None };
            self.chunks.insert(BEGINNING, chunk);
            self.len += 1;
            return None;
        };
        let len_max = self.chunk_len_max;
        let chunk = self.change(first);
        match chunk.at.binary_search(&at) {
            Ok(place) => Some(std::mem::replace(&mut chunk.keys[place], key)),
            Err(place) => {
                chunk.at.insert(place, at);
                chunk.keys.insert(place, key);
                if chunk.at.len() > len_max {
                    // What grows at its end leaves full chunks behind.
                    let cut = if place + 1 == chunk.at.len() { place } else { len_max / 2 };
                    let half = Chunk {
                        at: chunk.at.split_off(cut),
                        keys: chunk.keys.split_off(cut),
                        stored: None,
                    };
                    // The entry that was too many had doubled their room.
                    chunk.at.shrink_to_fit();
                    chunk.keys.shrink_to_fit();
                    self.chunks.insert(half.at[0], half);
                }
                self.len += 1;
                None
            }
        }
    }

    /// Takes a node out, and returns the key it had.
    pub(crate) fn remove(&mut self, at: IndexKey) -> Option<KeyId> {
        let first = self.chunk_of(at)?;
        let place = self.chunks[&first].at.binary_search(&at).ok()?;
        let chunk = self.change(first);
        chunk.at.remove(place);
        let key = chunk.keys.remove(place);
        self.len -= 1;
        self.tidy(first);
        Some(key)
    }

    /// Takes all nodes of a range out; their keys.
    pub(crate) fn remove_range(&mut self, range: Range<IndexKey>) -> Vec<KeyId> {
        let mut removed = Vec::new();
        while let Some((at, _)) = self.after(range.start).filter(|(at, _)| *at < range.end) {
            let first = self.chunk_of(at).expect("an entry is in a chunk");
            let chunk = self.change(first);
            let places = chunk.at.partition_point(|entry| *entry < range.start)
                ..chunk.at.partition_point(|entry| *entry < range.end);
            chunk.at.drain(places.clone());
            removed.extend(chunk.keys.drain(places));
            self.tidy(first);
        }
        self.len -= removed.len();
        removed
    }

    /// Drops a chunk that is empty, and joins a small one with the one before it.
    fn tidy(&mut self, first: IndexKey) {
        let len = self.chunks[&first].at.len();
        if len >= self.chunk_len_max / CHUNK_SHARE_MIN {
            return;
        }
        let before =
            self.chunks.range(..first).next_back().map(|(first, chunk)| (*first, chunk.at.len()));
        match before {
            Some((before, room)) if len > 0 && room + len <= self.chunk_len_max / 2 => {
                let small = self.chunks.remove(&first).expect("it was just found");
                let chunk = self.change(before);
                chunk.at.extend(small.at);
                chunk.keys.extend(small.keys);
            }
            _ if len == 0 => {
                self.chunks.remove(&first);
                if let Some((next, _)) =
                    self.chunks.first_key_value().filter(|_| first == BEGINNING)
                {
                    let chunk = self.chunks.remove(&next.clone()).expect("it was just found");
                    self.chunks.insert(BEGINNING, chunk);
                }
            }
            _ => {}
        }
    }

    /// The first node at or after `at`.
    pub(crate) fn after(&self, at: IndexKey) -> Option<(IndexKey, KeyId)> {
        let first = self.chunk_of(at)?;
        self.chunks.range(first..).find_map(|(_, chunk)| {
            let place = chunk.at.partition_point(|entry| *entry < at);
            chunk.at.get(place).map(|entry| (*entry, chunk.keys[place]))
        })
    }

    /// How many chunks there are.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// How many nodes a range has.
    pub(crate) fn count(&self, range: Range<IndexKey>) -> usize {
        let Some(first) = self.chunk_of(range.start) else { return 0 };
        let chunks = self.chunks.range(first..).map(|(_, chunk)| chunk);
        let within = chunks.take_while(|chunk| chunk.at.first().is_none_or(|at| *at < range.end));
        let places = |chunk: &Chunk, at| chunk.at.partition_point(|entry| *entry < at);
        within.map(|chunk| places(chunk, range.end) - places(chunk, range.start)).sum()
    }

    /// All nodes of a range, in order.
    pub(crate) fn range(
        &self,
        range: Range<IndexKey>,
    ) -> impl Iterator<Item = (IndexKey, KeyId)> + '_ {
        let first = self.chunk_of(range.start);
        first
            .into_iter()
            .flat_map(|first| self.chunks.range(first..))
            .flat_map(|(_, chunk)| chunk.entries())
            .skip_while(move |(at, _)| *at < range.start)
            .take_while(move |(at, _)| *at < range.end)
    }

    /// All nodes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (IndexKey, KeyId)> + '_ {
        self.chunks.values().flat_map(Chunk::entries)
    }

    /// All chunks, in order.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.values()
    }

    /// All chunks that have changed lie there now, in order.
    pub(crate) fn store(&mut self, nodes: Vec<NodeRef>) {
        let changed = self.chunks.values_mut().filter(|chunk| chunk.stored.is_none());
        for (chunk, node) in changed.zip(nodes) {
            chunk.stored = Some(node);
            self.stored += 1;
        }
    }

    /// Where chunks lie that have changed or are no more, since this was last asked.
    pub(crate) fn take_dropped(&mut self) -> Vec<NodeRef> {
        std::mem::take(&mut self.dropped)
    }

    /// Marks chunks as changed whose place is among those.
    pub(crate) fn rewrite(&mut self, which: impl Fn(&NodeRef) -> bool) {
        for chunk in self.chunks.values_mut() {
            if chunk.stored.as_ref().is_some_and(&which) {
                self.dropped.extend(chunk.stored.take());
                self.stored -= 1;
            }
        }
    }

    /// Adds a chunk of a checkpoint, which comes after all that are there. Returns whether it does.
    pub(crate) fn push_chunk(&mut self, entries: &[(IndexKey, KeyId)], stored: NodeRef) -> bool {
        let Some((first, _)) = entries.first().copied() else { return true };
        let last = self.chunks.last_key_value().and_then(|(_, chunk)| chunk.at.last());
        if last.is_some_and(|last| *last >= first) {
            return false;
        }
        self.len += entries.len();
        // One that is longer than chunks have become is written anew, in parts.
        let is_kept = entries.len() <= self.chunk_len_max;
        for part in entries.chunks(self.chunk_len_max) {
            let (at, keys): (Vec<_>, Vec<_>) = part.iter().copied().unzip();
            let first = if self.chunks.is_empty() { BEGINNING } else { at[0] };
            self.chunks.insert(first, Chunk { at, keys, stored: Some(stored).filter(|_| is_kept) });
        }
        if is_kept {
            self.stored += 1;
        } else {
            self.dropped.push(stored);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tacita_dnefs_format::checkpoint::Location;
    use tacita_dnefs_format::{KeyPos, MainLeb};

    use super::*;

    /// Seeded, so that a failure can be repeated.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *state >> 33
    }

    #[test]
    fn does_what_a_sorted_map_does() {
        for seed in 0..20 {
            let mut state = seed;
            let mut index = Index::new(CHUNK_LEN_MAX);
            let mut model = BTreeMap::new();
            for step in 0..6000 {
                let at = IndexKey::data(next(&mut state) % 3, next(&mut state) % 3000);
                let key = KeyId(step);
                match next(&mut state) % 16 {
                    0..11 => assert_eq!(index.insert(at, key), model.insert(at, key)),
                    11..15 => assert_eq!(index.remove(at), model.remove(&at)),
                    _ => {
                        let end = IndexKey { sub: at.sub + next(&mut state) % 400, ..at };
                        let inside: Vec<_> = model.range(at..end).map(|(at, _)| *at).collect();
                        let want: Vec<_> =
                            inside.iter().filter_map(|at| model.remove(at)).collect();
                        assert_eq!(index.remove_range(at..end), want);
                    }
                }
                let probe = IndexKey::data(next(&mut state) % 3, next(&mut state) % 3000);
                assert_eq!(index.get(probe), model.get(&probe).copied());
                let after = model.range(probe..).next().map(|(at, key)| (*at, *key));
                assert_eq!(index.after(probe), after);
                assert_eq!(index.len(), model.len());
            }
            assert!(index.entries().eq(model.iter().map(|(at, key)| (*at, *key))));
            assert!(index.chunks().all(|chunk| chunk.at.len() <= CHUNK_LEN_MAX));
            let range = IndexKey::data(1, 100)..IndexKey::data(2, 1000);
            let want = model.range(range.clone()).map(|(at, key)| (*at, *key));
            assert_eq!(index.count(range.clone()), want.clone().count());
            assert!(index.range(range).eq(want));
        }
    }

    #[test]
    fn a_chunk_that_is_too_long_is_written_anew_in_parts() {
        let mut index = Index::new(100);
        let entries = |range: Range<u64>| -> Vec<_> {
            range.map(|block| (IndexKey::data(1, block), KeyId(0))).collect()
        };
        let location = Location { leb: MainLeb(0), offset: 0, len_bytes: 0 };
        let node = |slot: u32| NodeRef { key: KeyPos { leb: 0, slot }, location };
        assert!(index.push_chunk(&entries(0..100), node(1)));
        assert!(index.push_chunk(&entries(100..350), node(2)));
        assert!(!index.push_chunk(&entries(349..360), node(3)));
        assert!(index.entries().eq(entries(0..350)));
        assert_eq!((index.len(), index.chunk_count(), index.changed()), (350, 4, 3));
        assert!(index.chunks().all(|chunk| chunk.at.len() <= 100));
        assert_eq!(index.take_dropped(), [node(2)]);
    }

    #[test]
    fn what_grows_at_its_end_leaves_full_chunks() {
        let mut index = Index::new(CHUNK_LEN_MAX);
        for block in 0..10 * CHUNK_LEN_MAX as u64 {
            index.insert(IndexKey::data(1, block), KeyId(0));
        }
        assert_eq!(index.chunks().count(), 10);
        let full = index.chunks().take(9);
        assert!(full.map(|chunk| chunk.at.capacity()).all(|room| room == CHUNK_LEN_MAX));
    }
}
