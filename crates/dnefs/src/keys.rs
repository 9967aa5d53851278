//! The key storage area: the state of every key, where its node lies, and the keys themselves.
//!
//! The key state map of the paper (section 4.3, as completed in `docs/design/dnefs.md`): keys are
//! unused, used or deleted. Unused ones are fresh: they have encrypted nothing, and will encrypt one
//! node. A purge makes deleted ones unused, by putting others in their place.

mod pages;
mod places;
mod purge;

use std::ops::Range;

use tacita_dnefs_format::checkpoint::{KeyMap, Location, NodeRef};
use tacita_dnefs_format::{KeyPos, Layout, Malformed};
use tacita_flash::Volume;
use tacita_secret::{FreshKey, Key, MessageKey, OneTimeCipher};

pub(crate) use pages::KeyPages;
use places::{NOWHERE, Places};
pub(crate) use purge::{Purged, fresh_block, new_uuid, no_randomness};

use crate::error::{Error, Kind, Result};

/// A key, by its position, counted through the whole key storage area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeyId(pub(crate) u32);

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// It has encrypted nothing: it may be handed out.
    Fresh,
    /// It was handed out; its node is on its way.
    Taken,
    /// A node of the file system has it.
    Used,
    /// A node of the checkpoint, or one that is needed until the next, has it.
    Passing,
    /// Its node is not needed any more; that is not on the medium yet.
    Pending,
    /// Its node is not needed any more, whatever happens: it is to be purged.
    Deleted,
}

/// What a key takes in memory, in bytes, whether a node has it or not.
pub(crate) const fn len_of_each(layout: &Layout) -> u64 {
    (size_of::<State>() + Places::len_of_each(layout)) as u64
}

/// What is known of an erase block of keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyLeb {
    fresh: u32,
    deleted: u32,
    /// It has keys that have encrypted something, or may have.
    needs_purge: bool,
    /// Where the newest checkpoint has its map, if that has not changed since.
    stored: Option<NodeRef>,
}

impl KeyLeb {
    /// Where the newest checkpoint has its map, if that has not changed since.
    pub(crate) const fn stored(&self) -> Option<NodeRef> {
        self.stored
    }
}

/// What the keys of an erase block are there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyUse {
    /// Nodes have them.
    pub used: u32,
    /// They can be handed out.
    pub fresh: u32,
    /// They are to be purged first.
    pub to_purge: u32,
}

/// All keys.
#[derive(Debug)]
pub(crate) struct Keys {
    layout: Layout,
    states: Vec<State>,
    places: Places,
    lebs: Vec<KeyLeb>,
    pages: KeyPages,
    /// Where maps lay that have changed, for the next checkpoint to free.
    dropped: Vec<NodeRef>,
    pending: Vec<KeyId>,
    /// Where the next key is looked for.
    cursor: KeyId,
    fresh: u32,
    deleted: u32,
    /// How many maps the newest checkpoint has as they are.
    stored: usize,
    /// What was purged and is in no receipt yet.
    purged: Purged,
}

impl Keys {
    /// All keys, none of which may be handed out before it is purged.
    pub(crate) fn new(layout: Layout, cipher: OneTimeCipher, master: Key) -> Self {
        let count = layout.keys() as usize;
        let leb = KeyLeb { deleted: layout.keys_per_leb, needs_purge: true, ..KeyLeb::default() };
        Self {
            layout,
            states: vec![State::Deleted; count],
            places: Places::new(&layout),
            lebs: vec![leb; layout.key_lebs as usize],
            pages: KeyPages::new(layout, cipher, master),
            dropped: Vec::new(),
            pending: Vec::new(),
            cursor: KeyId(0),
            fresh: 0,
            deleted: layout.keys(),
            stored: 0,
            purged: Purged::default(),
        }
    }

    /// Its position on the medium.
    pub(crate) const fn position(&self, key: KeyId) -> KeyPos {
        let per_leb = self.layout.keys_per_leb;
        KeyPos { leb: key.0 / per_leb, slot: key.0 % per_leb }
    }

    /// The key at a position.
    pub(crate) fn id(&self, position: KeyPos) -> std::result::Result<KeyId, Malformed> {
        if self.layout.has_key(position) {
            Ok(KeyId(position.leb * self.layout.keys_per_leb + position.slot))
        } else {
            Err(Malformed("there is no such key"))
        }
    }

    /// The state of a key.
    pub(crate) fn state(&self, key: KeyId) -> State {
        self.states[key.0 as usize]
    }

    /// Where its node lies.
    pub(crate) fn location(&self, key: KeyId) -> Location {
        self.places.get(key)
    }

    /// How many keys can be handed out.
    pub(crate) const fn fresh(&self) -> u32 {
        self.fresh
    }

    /// How many keys there are to purge, or will be when the next checkpoint is there, or are replaced
    /// but perhaps not erased.
    pub(crate) fn waiting(&self) -> u64 {
        u64::from(self.deleted) + (self.pending.len() + self.purged.destroyed.len()) as u64
    }

    /// Bytes of nodes whose keys are replaced but perhaps not erased.
    pub(crate) const fn purged_bytes(&self) -> u64 {
        self.purged.obsolete_bytes
    }

    fn leb_of(&mut self, key: KeyId) -> &mut KeyLeb {
        &mut self.lebs[(key.0 / self.layout.keys_per_leb) as usize]
    }

    fn set(&mut self, key: KeyId, state: State) {
        let old = std::mem::replace(&mut self.states[key.0 as usize], state);
        let leb = self.leb_of(key);
        leb.fresh -= u32::from(old == State::Fresh);
        leb.fresh += u32::from(state == State::Fresh);
        leb.deleted -= u32::from(old == State::Deleted);
        leb.deleted += u32::from(state == State::Deleted);
        leb.needs_purge |= state == State::Deleted;
        self.fresh -= u32::from(old == State::Fresh);
        self.fresh += u32::from(state == State::Fresh);
        self.deleted -= u32::from(old == State::Deleted);
        self.deleted += u32::from(state == State::Deleted);
        if old == State::Used || state == State::Used {
            self.map_changed(key.0 / self.layout.keys_per_leb);
        }
    }

    fn map_changed(&mut self, leb: u32) {
        if let Some(stored) = self.lebs[leb as usize].stored.take() {
            self.dropped.push(stored);
            self.stored -= 1;
        }
    }

    /// How many maps the next checkpoint has to write, at most.
    pub(crate) fn changed(&self) -> usize {
        self.lebs.len() - self.stored
    }

    /// How many keys there are.
    pub(crate) const fn count(&self) -> u32 {
        self.layout.keys()
    }

    /// The key at a position that comes from here.
    pub(crate) fn known(&self, position: KeyPos) -> KeyId {
        self.id(position).expect("it is the position of a key")
    }

    /// Hands out a fresh key, for sealing. Keys of one run lie together.
    pub(crate) fn take(&mut self, volume: &dyn Volume) -> Result<(KeyId, FreshKey)> {
        let mut unread = None;
        loop {
            let key = match self.next_fresh() {
                Ok(key) => key,
                Err(e) => return Err(unread.unwrap_or(e)),
            };
            let (cipher, position) = (self.pages.cipher(), self.position(key));
            let bytes = self.pages.key(volume, position);
            match bytes.map(|bytes| FreshKey::take(cipher, bytes)) {
                Ok(fresh) => {
                    self.set(key, State::Taken);
                    self.cursor = key;
                    return Ok((key, fresh));
                }
                // What cannot be read is not fresh.
                Err(e) if e.is_of_medium() => {
                    let page = position.slot / self.layout.keys_per_page;
                    for key in self.keys_of_page(position.leb, page).map(KeyId) {
                        if self.state(key) == State::Fresh {
                            self.set(key, State::Deleted);
                        }
                    }
                    unread = Some(e).filter(|e| e.device().is_some());
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn next_fresh(&self) -> Result<KeyId> {
        if self.fresh == 0 {
            return Err(Error::new(Kind::NoKeys, "all keys are in use"));
        }
        let mut at = self.cursor;
        while self.state(at) != State::Fresh {
            at = self.next_candidate(at);
        }
        Ok(at)
    }

    /// The keys in a page.
    fn keys_of_page(&self, leb: u32, page: u32) -> Range<u32> {
        let start = leb * self.layout.keys_per_leb + page * self.layout.keys_per_page;
        start..start + self.layout.keys_per_page
    }

    /// The next key of the same erase block, or the first of the one with the most fresh ones.
    fn next_candidate(&self, at: KeyId) -> KeyId {
        let per_leb = self.layout.keys_per_leb;
        let next = at.0 + 1;
        if !next.is_multiple_of(per_leb) && self.lebs[(at.0 / per_leb) as usize].fresh > 0 {
            return KeyId(next);
        }
        let most = (0..self.layout.key_lebs).max_by_key(|leb| self.lebs[*leb as usize].fresh);
        KeyId(most.expect("there are some") * per_leb)
    }

    /// The key of a node, for opening.
    pub(crate) fn for_opening(&mut self, volume: &dyn Volume, key: KeyId) -> Result<MessageKey> {
        let cipher = self.pages.cipher();
        Ok(MessageKey::take(cipher, self.pages.key(volume, self.position(key))?))
    }

    /// Its node lies there now: handed out, read from a checkpoint or from the log, or moved.
    pub(crate) fn is_at(&mut self, key: KeyId, state: State, location: Location) {
        self.places.set(key, location);
        self.set(key, state);
    }

    /// Its node is not needed any more, once that is on the medium.
    pub(crate) fn obsolete(&mut self, key: KeyId) {
        self.places.set(key, NOWHERE);
        self.set(key, State::Pending);
        self.pending.push(key);
    }

    /// All that was obsolete until now is on the medium.
    pub(crate) fn settle(&mut self) {
        for key in std::mem::take(&mut self.pending) {
            self.set(key, State::Deleted);
        }
    }

    /// After loading: keys that no node has are fresh if the volume was unmounted. Otherwise one of them
    /// may have encrypted a node that was cut short, so all of them have to be purged.
    pub(crate) fn loaded(&mut self, was_unmounted: bool) {
        for leb in &mut self.lebs {
            leb.needs_purge = !was_unmounted;
        }
        for key in (0..self.layout.keys()).map(KeyId) {
            if was_unmounted && self.state(key) == State::Deleted {
                self.set(key, State::Fresh);
            }
        }
    }

    /// Erase blocks with keys that are to be purged.
    pub(crate) fn to_purge(&self) -> Vec<u32> {
        let needs = |number: &u32| self.lebs[*number as usize].needs_purge;
        (0..self.layout.key_lebs).filter(needs).collect()
    }

    /// The map of an erase block of keys lies there now.
    pub(crate) fn store(&mut self, leb: u32, node: NodeRef) {
        self.lebs[leb as usize].stored = Some(node);
        self.stored += 1;
    }

    /// The erase block of keys with the most keys that can be purged.
    pub(crate) fn most_deleted(&self) -> Option<u32> {
        let most = (0..self.layout.key_lebs).max_by_key(|leb| self.lebs[*leb as usize].deleted)?;
        (self.lebs[most as usize].deleted > 0).then_some(most)
    }

    /// What is known of each erase block of keys.
    pub(crate) fn lebs(&self) -> std::slice::Iter<'_, KeyLeb> {
        self.lebs.iter()
    }

    /// What the keys of an erase block are there for.
    pub(crate) fn use_of(&self, leb: u32) -> KeyUse {
        let per_leb = self.layout.keys_per_leb as usize;
        let mut found = KeyUse::default();
        for state in &self.states[leb as usize * per_leb..][..per_leb] {
            match state {
                State::Taken | State::Used | State::Passing => found.used += 1,
                State::Fresh => found.fresh += 1,
                State::Pending | State::Deleted => found.to_purge += 1,
            }
        }
        found
    }

    /// The map of an erase block of keys.
    pub(crate) fn map_of(&self, leb: u32) -> KeyMap {
        let start = leb * self.layout.keys_per_leb;
        let used = (0..self.layout.keys_per_leb)
            .filter(|slot| self.state(KeyId(start + slot)) == State::Used)
            .map(|slot| (slot, self.location(KeyId(start + slot))));
        KeyMap { key_leb: leb, nodes: used.collect() }
    }

    /// Where maps lay that have changed since this was last asked.
    pub(crate) fn take_dropped(&mut self) -> Vec<NodeRef> {
        std::mem::take(&mut self.dropped)
    }

    /// Marks maps as changed that lie where `which` says.
    pub(crate) fn rewrite(&mut self, which: impl Fn(&NodeRef) -> bool) {
        for leb in &mut self.lebs {
            if leb.stored.as_ref().is_some_and(&which) {
                self.dropped.extend(leb.stored.take());
                self.stored -= 1;
            }
        }
    }
}
