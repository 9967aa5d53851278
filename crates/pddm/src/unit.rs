//! The bytes of a unit: pure, no I/O. Layout: docs/spec/pddm.md, section 3.
//!
//! ```text
//! header   salt | tag | sealed: numbers, ids and tags of public slots, MAC, zeros | hidden part
//! slots    public slots, then hidden slots class by class
//! ```
//!
//! The hidden part is, for each class, its sealed ids; then a tag for each hidden slot; then a cell
//! for each class. Whatever of it is not in use is noise. The public seal covers it, and the MAC
//! covers the hidden slots, so that whoever has the public key sees whether a unit is whole, and
//! nothing else.

use std::ops::Range;

use tacita_secret::{Digest, Key, Sealing, TAG_LEN, Tag};

use crate::geometry::{BLOCK_LEN, Geometry, Level, Seq};
use crate::keys::{CELL_LEN, SLOT_HEAD, Salt, mac_key, unit_opening};

/// One block.
pub(crate) type Block = [u8; BLOCK_LEN];

/// Numbers end here: at a unit a nanosecond that is three centuries away.
const SEQ_MAX: u64 = 1 << 63;

/// Id of an empty slot.
pub(crate) const NO_ID: u32 = u32::MAX;

const SALT_LEN: usize = 32;
const TAG_AT: usize = SALT_LEN;
const SEALED_AT: usize = TAG_AT + TAG_LEN;
const NUMBERS_LEN: usize = 4 * 8 + 2 * 32;
const DOMAIN_MAC: u8 = 0;

/// What stands in the public part of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// The unit's number.
    pub(crate) seq: Seq,
    /// All units before this one were on the medium when this one was sealed.
    pub(crate) durable: Seq,
    /// All pages of the public position map have been written in this unit or later.
    pub(crate) replay_from: Seq,
    /// The sweep under way ends before this unit; one that has ended is behind.
    pub(crate) sweep_until: Seq,
    /// Hash of the header before.
    pub(crate) previous: Digest,
    /// Of the hidden slots.
    pub(crate) mac: Digest,
    /// What lies in the public slots.
    pub(crate) slots: Slots,
}

/// What lies in the slots of a level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) ids: Vec<u32>,
    /// The same of the unit before: if that is damaged, it is known what is lost.
    pub(crate) ids_before: Vec<u32>,
    pub(crate) tags: Vec<Tag>,
}

impl Slots {
    pub(crate) fn empty(count: usize) -> Self {
        Self {
            ids: vec![NO_ID; count],
            ids_before: vec![NO_ID; count],
            tags: vec![[0; TAG_LEN]; count],
        }
    }
}

/// A header whose public part has been opened.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) salt: Salt,
    pub(crate) head: Head,
    block: Box<Block>,
}

/// Where the hidden part begins.
fn hidden_at(geometry: &Geometry) -> usize {
    hidden_part(geometry).start
}

/// The hidden part of a header.
pub(crate) fn hidden_part(geometry: &Geometry) -> Range<usize> {
    let p = geometry.parameters();
    let classes = p.classes as usize;
    let slots = p.hidden_slots as usize;
    BLOCK_LEN - slots * (8 + TAG_LEN) - classes * (TAG_LEN + CELL_LEN)..BLOCK_LEN
}

/// Where the sealed ids of a class lie.
fn ids_range(geometry: &Geometry, level: Level) -> Range<usize> {
    let before = geometry.slots(level).start - geometry.slots(Level::hidden(1)).start;
    let start = hidden_at(geometry) + 8 * before as usize + TAG_LEN * (level.index() - 1);
    start..start + 8 * geometry.slot_count(level) + TAG_LEN
}

/// Where the tags of a class lie.
fn tags_range(geometry: &Geometry, level: Level) -> Range<usize> {
    let p = geometry.parameters();
    let ids = 8 * p.hidden_slots as usize + TAG_LEN * p.classes as usize;
    let before = geometry.slots(level).start - geometry.slots(Level::hidden(1)).start;
    let start = hidden_at(geometry) + ids + TAG_LEN * before as usize;
    start..start + TAG_LEN * geometry.slot_count(level)
}

fn cell_range(geometry: &Geometry, level: Level) -> Range<usize> {
    let start = BLOCK_LEN - CELL_LEN * (geometry.parameters().classes as usize + 1 - level.index());
    start..start + CELL_LEN
}

/// The cells of a header, class by class: they can be read without a key.
pub(crate) fn cells<'a>(
    geometry: &Geometry,
    block: &'a Block,
) -> impl Iterator<Item = &'a [u8; CELL_LEN]> + Clone {
    let start = BLOCK_LEN - CELL_LEN * geometry.parameters().classes as usize;
    block[start..].chunks_exact(CELL_LEN).map(|cell| cell.try_into().expect("a cell"))
}

/// The hidden slots of a unit.
pub(crate) fn hidden_slots(geometry: &Geometry, unit: &[u8]) -> Range<usize> {
    geometry.slots(Level::hidden(1)).start as usize * BLOCK_LEN..unit.len()
}

/// The MAC over the hidden slots of a unit, which is as before when this returns: meanwhile the byte
/// in front of them is their domain, so that all is hashed in one piece.
pub(crate) fn mac(geometry: &Geometry, public: &Key, salt: &Salt, unit: &mut [u8]) -> Digest {
    let hidden = hidden_slots(geometry, unit);
    let bytes = &mut unit[hidden.start - 1..hidden.end];
    let before = std::mem::replace(&mut bytes[0], DOMAIN_MAC);
    let mac = mac_key(public, salt).value_in_one(bytes);
    bytes[0] = before;
    mac
}

/// The hidden part of a header that is being made.
pub(crate) struct HiddenPart<'a> {
    geometry: &'a Geometry,
    block: &'a mut Block,
}

impl<'a> HiddenPart<'a> {
    /// The hidden part of this header; what is not put into it stays.
    pub(crate) const fn new(geometry: &'a Geometry, block: &'a mut Block) -> Self {
        Self { geometry, block }
    }

    /// All its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.block[hidden_at(self.geometry)..]
    }

    /// Puts in what an open class has.
    pub(crate) fn put_slots(&mut self, level: Level, slots: &Slots, sealing: &mut Sealing) {
        let range = ids_range(self.geometry, level);
        let (ids, tag) = self.block[range].split_at_mut(8 * slots.ids.len());
        write_ids(ids, slots.ids.iter().chain(&slots.ids_before));
        tag.copy_from_slice(&sealing.seal(SLOT_HEAD, &[], ids));
        let tags = &mut self.block[tags_range(self.geometry, level)];
        for ((place, tag), id) in tags.chunks_exact_mut(TAG_LEN).zip(&slots.tags).zip(&slots.ids) {
            // The tag of an empty slot is the noise that is there.
            if *id != NO_ID {
                place.copy_from_slice(tag);
            }
        }
    }

    /// Puts in the cell of a class.
    pub(crate) fn put_cell(&mut self, level: Level, cell: &[u8; CELL_LEN]) {
        self.block[cell_range(self.geometry, level)].copy_from_slice(cell);
    }
}

fn write_ids<'a>(bytes: &mut [u8], ids: impl Iterator<Item = &'a u32>) {
    for (place, id) in bytes.chunks_exact_mut(4).zip(ids) {
        place.copy_from_slice(&id.to_le_bytes());
    }
}

fn read_ids(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    words.map(|word| u32::from_le_bytes(word.try_into().expect("4 bytes"))).collect()
}

/// Seals the public part into a header whose hidden part is done.
pub(crate) fn seal_header(
    geometry: &Geometry,
    salt: &Salt,
    head: &Head,
    sealing: &mut Sealing,
    block: &mut Block,
) {
    let end = hidden_at(geometry);
    let (public, hidden) = block.split_at_mut(end);
    public.fill(0);
    public[..SALT_LEN].copy_from_slice(salt);
    let sealed = &mut public[SEALED_AT..];
    let numbers = [head.seq, head.durable, head.replay_from, head.sweep_until];
    for (place, seq) in sealed.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&seq.0.to_le_bytes());
    }
    sealed[32..64].copy_from_slice(&head.previous);
    sealed[64..96].copy_from_slice(&head.mac);
    let (ids, tags) = sealed[NUMBERS_LEN..].split_at_mut(8 * head.slots.ids.len());
    write_ids(ids, head.slots.ids.iter().chain(&head.slots.ids_before));
    for (place, tag) in tags.chunks_exact_mut(TAG_LEN).zip(&head.slots.tags) {
        place.copy_from_slice(tag);
    }
    let tag = sealing.seal(SLOT_HEAD, hidden, sealed);
    public[TAG_AT..SEALED_AT].copy_from_slice(&tag);
}

impl Header {
    /// Opens the public part; `None` if it is damaged or was never written.
    pub(crate) fn open(geometry: &Geometry, public: &Key, block: &Block) -> Option<Self> {
        let salt: Salt = block[..SALT_LEN].try_into().expect("a salt");
        let tag: Tag = block[TAG_AT..SEALED_AT].try_into().expect("a tag");
        let (front, hidden) = block.split_at(hidden_at(geometry));
        let mut sealed = front[SEALED_AT..].to_vec();
        let opening = unit_opening(public, &salt);
        opening.open(SLOT_HEAD, hidden, &mut sealed, &tag).ok()?;
        let seq_at =
            |at: usize| Seq(u64::from_le_bytes(sealed[at..at + 8].try_into().expect("8 bytes")));
        let count = geometry.slot_count(Level::PUBLIC);
        let (ids, tags) = sealed[NUMBERS_LEN..].split_at(8 * count);
        let (ids, ids_before) = ids.split_at(4 * count);
        let head = Head {
            seq: seq_at(0),
            durable: seq_at(8),
            replay_from: seq_at(16),
            sweep_until: seq_at(24),
            previous: sealed[32..64].try_into().expect("a hash"),
            mac: sealed[64..96].try_into().expect("a hash"),
            slots: Slots {
                ids: read_ids(ids),
                ids_before: read_ids(ids_before),
                tags: read_tags(&tags[..TAG_LEN * count]),
            },
        };
        // Whoever has the key may have sealed anything.
        let sound = head.durable <= head.seq
            && head.replay_from <= head.seq
            && head.seq.0 - head.replay_from.0 < u64::from(geometry.units())
            && head.seq.0 - head.durable.0 < u64::from(geometry.units())
            && head.sweep_until.0 <= head.seq.0.saturating_add(u64::from(geometry.units()))
            && head.seq.0 < SEQ_MAX;
        sound.then(|| Self { salt, head, block: Box::new(*block) })
    }

    /// What lies in the slots of an open hidden level; `None` if the unit was written without it.
    pub(crate) fn hidden(&self, geometry: &Geometry, level: Level, master: &Key) -> Option<Slots> {
        let count = geometry.slot_count(level);
        let (ids, tag) = self.block[ids_range(geometry, level)].split_at(8 * count);
        let mut ids = ids.to_vec();
        let opening = unit_opening(master, &self.salt);
        opening.open(SLOT_HEAD, &[], &mut ids, &tag.try_into().expect("a tag")).ok()?;
        let (ids, ids_before) = ids.split_at(4 * count);
        let tags = read_tags(&self.block[tags_range(geometry, level)]);
        Some(Slots { ids: read_ids(ids), ids_before: read_ids(ids_before), tags })
    }

    /// What lies in the slots of any level whose master key is at hand.
    pub(crate) fn slots(&self, geometry: &Geometry, level: Level, master: &Key) -> Option<Slots> {
        if level == Level::PUBLIC {
            return Some(self.head.slots.clone());
        }
        self.hidden(geometry, level, master)
    }

    /// The cell of a class.
    pub(crate) fn cell(&self, geometry: &Geometry, level: Level) -> &[u8; CELL_LEN] {
        self.block[cell_range(geometry, level)].try_into().expect("a cell")
    }

    /// What the next header calls the hash of the one before.
    pub(crate) fn hash(&self) -> Digest {
        tacita_secret::digest(&self.block[..])
    }

    /// Whether all slots of the unit are what the header says: as far as the public key shows it.
    pub(crate) fn proves(&self, geometry: &Geometry, public: &Key, unit: &mut [u8]) -> bool {
        let opening = unit_opening(public, &self.salt);
        let blocks = unit.chunks_exact(BLOCK_LEN).skip(1);
        let mut slots = blocks.zip(self.head.slots.ids.iter().zip(&self.head.slots.tags)).zip(1..);
        slots.all(|((block, (id, tag)), slot)| {
            opening.open(slot, &id.to_le_bytes(), &mut block.to_vec(), tag).is_ok()
        }) && mac(geometry, public, &self.salt, unit) == self.head.mac
    }
}

fn read_tags(bytes: &[u8]) -> Vec<Tag> {
    bytes.chunks_exact(TAG_LEN).map(|tag| tag.try_into().expect("a tag")).collect()
}

/// The number under which a slot is sealed: its index in its level, from 1.
pub(crate) fn seal_number(index: usize) -> u8 {
    u8::try_from(index + 1).expect("fewer than 64 slots")
}

#[cfg(test)]
mod tests;
