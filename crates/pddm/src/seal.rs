//! From plans to sealed units.

use std::sync::Arc;

use tacita_secret::{Digest, Noise, Opening, Sealing, TAG_LEN, Tag};

use crate::faults::{Fault, StaleCells, planted};
use crate::geometry::{BLOCK_LEN, Geometry, Level, Place, Seq};
use crate::keys::{unit_opening, unit_sealing};
use crate::level::{LevelHead, OpenLevel, SlotTable};
use crate::open_log::OpenLog;
use crate::plan::{Filled, LevelPlan, Moved, Plan, Source};
use crate::tail::Tail;
use crate::unit::{Block, Head, HiddenPart, NO_ID, Slots, mac, seal_header, seal_number};

/// A unit whose slots are sealed.
pub(crate) struct Sealed {
    /// By level.
    levels: Vec<Option<SealedLevel>>,
    /// Of the hidden slots.
    mac: Digest,
}

struct SealedLevel {
    slots: Slots,
    sealing: Sealing,
    /// Carried blocks that could not be read.
    lost: Vec<(u32, Place)>,
}

/// What the header of a unit takes from the unit before.
#[derive(Debug)]
pub(crate) struct Before {
    /// The hash of its header.
    pub(crate) hash: Digest,
    /// Its cells.
    pub(crate) stale_cells: StaleCells,
}

/// Seals units of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sealer<'a> {
    shared: &'a OpenLog,
}

impl<'a> Sealer<'a> {
    pub(crate) const fn new(shared: &'a OpenLog) -> Self {
        Self { shared }
    }

    /// Seals the slots of a unit.
    pub(crate) fn seal_slots(self, plan: &Plan, bytes: &mut [u8]) -> Sealed {
        let geometry = &self.shared.log.geometry;
        // The hidden part of the header and all hidden slots that are not filled are noise.
        let mut noise = Noise::new(&plan.noise);
        noise.fill(&mut bytes[..BLOCK_LEN]);
        for level in geometry.levels().skip(1) {
            let filled = plan.levels[level.index()].as_ref().map_or(0, |level| level.filled.len());
            let slots = geometry.slots(level);
            let empty = &mut bytes
                [slots.start as usize * BLOCK_LEN..slots.end as usize * BLOCK_LEN]
                [filled * BLOCK_LEN..];
            if planted(Fault::ZeroDummies) {
                empty.fill(0);
            } else if planted(Fault::WeakDummies) {
                weak_noise(empty, plan.seq);
            } else {
                noise.fill(empty);
            }
        }
        let levels = self.shared.levels.iter().zip(&plan.levels).map(|(open, planned)| {
            let (open, planned) = (open.as_ref()?, planned.as_ref()?);
            Some(self.seal_level(open, planned, plan, &mut noise, bytes))
        });
        let levels = levels.collect();
        Sealed { levels, mac: mac(geometry, &self.shared.log.public, &plan.salt, bytes) }
    }

    fn seal_level(
        self,
        open: &OpenLevel,
        planned: &LevelPlan,
        plan: &Plan,
        noise: &mut Noise,
        bytes: &mut [u8],
    ) -> SealedLevel {
        let range = self.shared.log.geometry.slots(open.level);
        let mut sealing = unit_sealing(&open.master, &plan.salt);
        let mut slots = Slots::empty(range.len());
        let mut lost = Vec::new();
        let tail = plan.tail.as_ref().and_then(|tail| TailSlots::new(open, range.start, tail));
        let blocks = bytes[range.start as usize * BLOCK_LEN..].chunks_exact_mut(BLOCK_LEN);
        for (index, slot) in blocks.enumerate().take(range.len()) {
            let Some(filled) = planned.filled.get(index) else {
                if open.level == Level::PUBLIC {
                    // Padding is sealed as well: a unit looks the same, however full.
                    slot.fill(0);
                    let context = NO_ID.to_le_bytes();
                    slots.tags[index] = sealing.seal(seal_number(index), &context, slot);
                }
                continue;
            };
            if let (Source::Carried { block, tag }, Some(tail)) = (&filled.source, &tail)
                && planted(Fault::CopiedCiphertext)
                && open.level != Level::PUBLIC
            {
                slot.copy_from_slice(tail.sealed(*block));
                (slots.ids[index], slots.tags[index]) = (filled.id, *tag);
                continue;
            }
            let is_lost = !put_content(filled, tail.as_ref(), slot);
            if is_lost {
                let place = self.shared.log.geometry.slot_place(open.level, plan.seq, index);
                lost.push((filled.id, place));
                // What is lost leaves an empty slot, which looks like any other.
                if open.level != Level::PUBLIC {
                    noise.fill(slot);
                    continue;
                }
                slot.fill(0);
            }
            let id = if is_lost { NO_ID } else { filled.id };
            slots.ids[index] = id;
            slots.tags[index] = sealing.seal(seal_number(index), &id.to_le_bytes(), slot);
        }
        SealedLevel { slots, sealing, lost }
    }

    /// Seals the header of the unit after `before`.
    pub(crate) fn seal_head(
        self,
        before: &mut Before,
        heads: &mut [Option<LevelHead>],
        plan: &Plan,
        unit: &mut Sealed,
        bytes: &mut [u8],
    ) {
        let geometry = &self.shared.log.geometry;
        let (block, _) = bytes.split_first_chunk_mut::<BLOCK_LEN>().expect("a header");
        let mut public = None;
        for (index, (sealed, state)) in unit.levels.iter_mut().zip(heads).enumerate() {
            let (Some(sealed), Some(state)) = (sealed, state) else { continue };
            let ids_before = std::mem::replace(&mut state.ids_before, sealed.slots.ids.clone());
            sealed.slots.ids_before = ids_before;
            let Some(open) = &self.shared.levels[index] else { continue };
            let planned = plan.levels[index].as_ref().expect("an open level is planned");
            let Some(keys) = &open.hidden else {
                public = Some((planned.numbers.replay_from, sealed));
                continue;
            };
            let mut part = HiddenPart::new(geometry, block);
            part.put_slots(open.level, &sealed.slots, &mut sealed.sealing);
            let mut cell = keys.seal_cell(planned.numbers, &plan.salt, &mut sealed.sealing);
            if planted(Fault::StaleCell) {
                before.stale_cells.put(index, planned.filled.is_empty(), &mut cell);
            }
            part.put_cell(open.level, &cell);
        }
        if planted(Fault::ZeroTags) {
            zero_tags(geometry, block, &unit_hidden_ids(geometry, plan));
        }
        let (replay_from, sealed) = public.expect("the public volume is always open");
        let public = Head {
            seq: plan.seq,
            durable: plan.durable,
            replay_from,
            sweep_until: plan.sweep_until,
            previous: before.hash,
            mac: unit.mac,
            slots: sealed.slots.clone(),
        };
        let (block, _) = bytes.split_first_chunk_mut::<BLOCK_LEN>().expect("a header");
        seal_header(geometry, &plan.salt, &public, &mut sealed.sealing, block);
        before.hash = tacita_secret::digest(block);
    }

    /// The run can be read now: the maps learn of its places.
    pub(crate) fn publish(self, plan: &Plan, unit: Sealed, moved: &Moved) {
        let geometry = &self.shared.log.geometry;
        for (open, sealed) in self.shared.levels.iter().zip(unit.levels) {
            let (Some(open), Some(sealed)) = (open, sealed) else { continue };
            for (index, id) in sealed.slots.ids.iter().enumerate().filter(|(_, id)| **id != NO_ID) {
                // A later unit of the run may have it too, or may have seen it dropped.
                let place = geometry.slot_place(open.level, plan.seq, index);
                if moved.get(&(open.level, *id)) == Some(&place) {
                    open.map.set(*id, place);
                }
            }
            let mut stage = open.stage();
            for (id, place) in &sealed.lost {
                if moved.get(&(open.level, *id)) == Some(place) {
                    open.lose(&mut stage, *id);
                }
            }
            for filled in &plan.levels[open.level.index()].as_ref().expect("it is open").filled {
                if let Source::Written(content) = &filled.source {
                    stage.settle(filled.id, content);
                }
            }
            drop(stage);
            let table = SlotTable::new(plan.seq, plan.salt, sealed.slots);
            open.cache.put(geometry.unit_of(plan.seq), Arc::new(table));
        }
    }
}

/// The slots of a level in the unit at the tail.
struct TailSlots<'a> {
    tail: &'a Tail,
    opening: Opening,
    start: u32,
}

impl<'a> TailSlots<'a> {
    fn new(open: &OpenLevel, start: u32, tail: &'a Tail) -> Option<Self> {
        let salt = &tail.header.as_ref()?.salt;
        Some(Self { tail, opening: unit_opening(&open.master, salt), start })
    }

    /// A slot as it lies there.
    fn sealed(&self, block: u32) -> &[u8] {
        &self.tail.bytes[block as usize * BLOCK_LEN..][..BLOCK_LEN]
    }

    /// Puts the content of a slot into `target`; false if it is damaged.
    fn open(&self, block: u32, id: u32, tag: &Tag, target: &mut [u8]) -> bool {
        target.copy_from_slice(self.sealed(block));
        let number = seal_number((block - self.start) as usize);
        self.opening.open(number, &id.to_le_bytes(), target, tag).is_ok()
    }
}

/// Puts into a slot what belongs there, not yet sealed; false if that is lost.
fn put_content(filled: &Filled, tail: Option<&TailSlots<'_>>, slot: &mut [u8]) -> bool {
    match &filled.source {
        Source::Written(content) => slot.copy_from_slice(content),
        Source::Moved(content) | Source::Page(content) => slot.copy_from_slice(&content[..]),
        Source::Carried { block, tag } => {
            return tail.is_some_and(|tail| tail.open(*block, filled.id, tag, slot));
        }
    }
    true
}

/// A planted fault: a generator that statistics can see through.
fn weak_noise(bytes: &mut [u8], seq: Seq) {
    let mut state = seq.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}

/// By hidden slot: whether it is filled.
fn unit_hidden_ids(geometry: &Geometry, plan: &Plan) -> Vec<bool> {
    let hidden = geometry.levels().skip(1);
    let filled = hidden.flat_map(|level| {
        let filled = plan.levels[level.index()].as_ref().map_or(0, |level| level.filled.len());
        (0..geometry.slot_count(level)).map(move |index| index < filled)
    });
    filled.collect()
}

/// A planted fault: tags of empty slots are zero.
fn zero_tags(geometry: &Geometry, block: &mut Block, filled: &[bool]) {
    let mut part = HiddenPart::new(geometry, block);
    let p = geometry.parameters();
    let start = 8 * p.hidden_slots as usize + TAG_LEN * p.classes as usize;
    let tags = part.bytes()[start..].chunks_exact_mut(TAG_LEN);
    tags.zip(filled).filter(|(_, filled)| !**filled).for_each(|(tag, _)| tag.fill(0));
}
