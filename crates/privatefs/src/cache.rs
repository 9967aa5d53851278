//! Blocks in memory: those that were read, and those that were changed and wait for a commit.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use crate::fields::Stamp;
use crate::ids::Id;

/// A block is not in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotHere;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// An inode or a bucket: it changes with a commit, and carries its stamp.
    Meta,
    /// Content of a file.
    Content,
}

/// What the store has instead of a block that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nobody has looked.
    Unknown,
    /// This.
    Known(Option<Bytes>),
}

/// A change that waits for a commit.
#[derive(Debug, Clone)]
pub(crate) struct Changed {
    pub(crate) id: Id,
    pub(crate) class: Class,
    pub(crate) before: Before,
    pub(crate) now: Option<Bytes>,
}

#[derive(Debug)]
struct Entry {
    class: Class,
    now: Option<Bytes>,
    /// What the store has, if that is something else.
    before: Option<Before>,
    /// Commits that are under way and have it.
    flushing: u32,
    used: u64,
}

impl Entry {
    const fn is_pinned(&self) -> bool {
        self.before.is_some() || self.flushing > 0
    }
}

/// Somebody is fetching a block.
#[derive(Debug, Default)]
struct Fetch {
    count: u32,
    /// The block has been changed meanwhile.
    is_spoiled: bool,
}

/// Blocks in memory, so many at most besides those that wait for a commit or are needed just now.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: HashMap<Id, Entry>,
    /// Those that can go, the one that was not used for longest first.
    order: BTreeMap<u64, Id>,
    fetching: HashMap<Id, Fetch>,
    /// What operations that are under way have fetched, and how many of them: it stays until they end,
    /// or one that needs more than there is room for would never come to its end.
    held: HashMap<Id, u32>,
    used: u64,
    changed: usize,
    len_max: usize,
}

impl Cache {
    pub(crate) fn new(len_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            fetching: HashMap::new(),
            held: HashMap::new(),
            used: 0,
            changed: 0,
            len_max,
        }
    }

    /// A block, if it is here; `Ok(None)` if it is known that there is none.
    pub(crate) fn get(&mut self, id: &Id) -> Result<Option<Bytes>, NotHere> {
        self.used += 1;
        let entry = self.entries.get_mut(id).ok_or(NotHere)?;
        // What cannot go is not in the order.
        if self.order.remove(&entry.used).is_some() {
            self.order.insert(self.used, *id);
        }
        entry.used = self.used;
        Ok(entry.now.clone())
    }

    /// Changes that wait for a commit.
    pub(crate) const fn changed(&self) -> usize {
        self.changed
    }

    /// Whether a block that is put here takes room in the store, as far as is known here: one that waits
    /// for a commit has taken it already.
    pub(crate) fn is_new(&self, id: &Id) -> bool {
        !matches!(
            self.entries.get(id),
            Some(Entry { now: Some(_), .. } | Entry { before: Some(Before::Known(Some(_))), .. })
        )
    }

    /// A block is changed.
    pub(crate) fn put(&mut self, id: Id, now: Option<Bytes>, class: Class) {
        if let Some(fetch) = self.fetching.get_mut(&id) {
            fetch.is_spoiled = true;
        }
        self.used += 1;
        let Some(entry) = self.entries.get_mut(&id) else {
            let before = Some(Before::Unknown);
            let entry = Entry { class, now, before, flushing: 0, used: self.used };
            self.entries.insert(id, entry);
            self.changed += 1;
            return;
        };
        if class == Class::Meta
            && let (Some(old), Some(new)) = (&entry.now, &now)
            && Stamp::is_all_that_differs(old, new)
        {
            return;
        }
        if entry.before.is_none() {
            self.order.remove(&entry.used);
            entry.before = Some(Before::Known(entry.now.take()));
            self.changed += 1;
        }
        entry.class = class;
        entry.now = now;
    }

    /// Whether somebody is fetching a block.
    pub(crate) fn is_fetched(&self, id: &Id) -> bool {
        self.fetching.contains_key(id)
    }

    /// Somebody fetches these blocks.
    pub(crate) fn begin_fetch(&mut self, ids: &[Id]) {
        for id in ids {
            self.fetching.entry(*id).or_default().count += 1;
        }
    }

    /// What was fetched, if it was. What was changed meanwhile is left out.
    pub(crate) fn end_fetch(&mut self, ids: &[Id], mut found: Option<Vec<Option<Bytes>>>) {
        for (number, id) in ids.iter().enumerate() {
            let Some(fetch) = self.fetching.get_mut(id) else { continue };
            let is_spoiled = fetch.is_spoiled;
            fetch.count -= 1;
            if fetch.count == 0 {
                self.fetching.remove(id);
            }
            if is_spoiled || self.entries.contains_key(id) {
                continue;
            }
            if let Some(found) = &mut found {
                self.used += 1;
                let now = found[number].take();
                let class = Class::Content;
                let entry = Entry { class, now, before: None, flushing: 0, used: self.used };
                self.entries.insert(*id, entry);
                self.may_go(id);
            }
        }
        self.shrink();
    }

    /// These blocks are needed until they are let go.
    pub(crate) fn hold(&mut self, ids: &[Id]) {
        for id in ids {
            *self.held.entry(*id).or_default() += 1;
            if let Some(entry) = self.entries.get(id) {
                self.order.remove(&entry.used);
            }
        }
    }

    /// Who held these blocks needs them no more.
    pub(crate) fn let_go(&mut self, ids: &[Id]) {
        for id in ids {
            if let Some(count) = self.held.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    self.held.remove(id);
                    self.may_go(id);
                }
            }
        }
        self.shrink();
    }

    /// A block can go, unless somebody still needs it.
    fn may_go(&mut self, id: &Id) {
        if let Some(entry) = self.entries.get(id)
            && !entry.is_pinned()
            && !self.held.contains_key(id)
        {
            self.order.insert(entry.used, *id);
        }
    }

    /// All changes, which from now on are in a commit that is under way.
    pub(crate) fn take_changes(&mut self) -> Vec<Changed> {
        let mut changes = Vec::with_capacity(self.changed);
        for (id, entry) in &mut self.entries {
            if let Some(before) = entry.before.take() {
                entry.flushing += 1;
                changes.push(Changed {
                    id: *id,
                    class: entry.class,
                    before,
                    now: entry.now.clone(),
                });
            }
        }
        self.changed = 0;
        // Runs that begin alike go on alike.
        changes.sort_unstable_by_key(|change| change.id);
        changes
    }

    /// Metadata in a commit has this content there: the same, and its stamp.
    pub(crate) fn stamped(&mut self, id: &Id, now: &Bytes) {
        if let Some(entry) = self.entries.get_mut(id)
            && entry.before.is_none()
        {
            entry.now = Some(now.clone());
        }
    }

    /// The commit with these blocks is done.
    pub(crate) fn flushed<'a>(&mut self, ids: impl Iterator<Item = &'a Id>) {
        for id in ids {
            if let Some(entry) = self.entries.get_mut(id) {
                entry.flushing = entry.flushing.saturating_sub(1);
                self.may_go(id);
            }
        }
        self.shrink();
    }

    /// What these blocks are does not matter any more: what waits for a commit need not wait.
    pub(crate) fn discard(&mut self, ids: impl Iterator<Item = Id>) {
        for id in ids {
            let Some(entry) = self.entries.get(&id) else { continue };
            if entry.before.is_some() && entry.flushing == 0 {
                self.entries.remove(&id);
                self.changed -= 1;
            }
        }
    }

    /// Others may have changed everything; nothing waits for a commit.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.changed = 0;
        for fetch in self.fetching.values_mut() {
            fetch.is_spoiled = true;
        }
    }

    fn shrink(&mut self) {
        while self.entries.len() > self.len_max {
            let Some((_, id)) = self.order.pop_first() else { break };
            self.entries.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_stays_until_it_is_let_go() {
        let mut cache = Cache::new(2);
        let ids: Vec<Id> = (0..6).map(|n| [n; 32]).collect();
        let fetch = |cache: &mut Cache, ids: &[Id]| {
            cache.begin_fetch(ids);
            cache.hold(ids);
            cache.end_fetch(ids, Some(vec![Some(Bytes::from_static(b"block")); ids.len()]));
        };
        let here = |cache: &mut Cache| ids.iter().filter(|id| cache.get(id).is_ok()).count();
        fetch(&mut cache, &ids[..4]);
        // A second one needs two of them, too.
        cache.hold(&ids[..2]);
        assert_eq!(here(&mut cache), 4);
        cache.let_go(&ids[..4]);
        assert_eq!(here(&mut cache), 2);
        assert!(cache.get(&ids[0]).is_ok() && cache.get(&ids[1]).is_ok());
        fetch(&mut cache, &ids[4..]);
        assert_eq!(here(&mut cache), 4, "what is held is not in the way of others");
        cache.clear();
        assert_eq!(here(&mut cache), 0);
        fetch(&mut cache, &ids[..2]);
        cache.let_go(&ids[..2]);
        assert_eq!(here(&mut cache), 2, "the second one has not ended");
        cache.let_go(&ids[..2]);
        cache.let_go(&ids[4..]);
        fetch(&mut cache, &ids[2..4]);
        cache.let_go(&ids[2..4]);
        assert_eq!((here(&mut cache), cache.held.len()), (2, 0));
    }

    /// However often it is written to before it is stored.
    #[test]
    fn a_block_takes_room_once() {
        let mut cache = Cache::new(8);
        let id: Id = [7; 32];
        assert!(cache.is_new(&id));
        cache.put(id, Some(Bytes::from_static(b"one")), Class::Content);
        assert!(!cache.is_new(&id), "written to again");
        cache.put(id, None, Class::Content);
        assert!(cache.is_new(&id), "it was freed meanwhile");
    }
}
