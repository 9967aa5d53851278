//! Devices by somebody who has the public password and this program's source: sealed as they should
//! be, with any numbers in them. For tests and fuzzing.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo};
use tacita_secret::Key;

use crate::error::Result;
use crate::geometry::{BLOCK_LEN, Geometry, Level, Seq};
use crate::keys::unit_sealing;
use crate::unit::{Block, Head, Slots, mac, seal_header};
use crate::unlock::{Unlock, Wanted, unlock};

/// Numbers to be put into a header.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// The unit's number.
    pub seq: u64,
    /// What is said to be durable.
    pub durable: u64,
    /// Where replaying is said to begin.
    pub replay_from: u64,
    /// Ids of the public slots; the rest are empty.
    pub ids: Vec<u32>,
    /// What every slot says: as a page of the map it is a place, over and over.
    pub word: u32,
}

/// Puts a unit with these numbers where its number says, whole by every seal.
///
/// # Errors
/// As opening the device.
pub fn plant(device: &Arc<dyn BlockDevice>, with: Unlock<'_>, numbers: &Numbers) -> Result<()> {
    let log = unlock(device, with, Wanted::default())?.log;
    let geometry = log.geometry;
    let unit = geometry.unit_of(Seq(numbers.seq));
    let bytes = seal(&geometry, &log.public, numbers);
    Ok(device.write(geometry.unit_start(unit), &bytes)?)
}

fn seal(geometry: &Geometry, public: &Key, numbers: &Numbers) -> Vec<u8> {
    let salt = tacita_secret::digest(&numbers.seq.to_le_bytes());
    let mut bytes = vec![0x33; geometry.unit_len()];
    let mut sealing = unit_sealing(public, &salt);
    let mut slots = Slots::empty(geometry.slot_count(Level::PUBLIC));
    for (index, block) in geometry.slots(Level::PUBLIC).enumerate() {
        let id = numbers.ids.get(index).copied().unwrap_or(u32::MAX);
        let slot = &mut bytes[block as usize * BLOCK_LEN..][..BLOCK_LEN];
        slot.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&numbers.word.to_le_bytes()));
        slots.ids[index] = id;
        let number = crate::unit::seal_number(index);
        slots.tags[index] = sealing.seal(number, &id.to_le_bytes(), slot);
    }
    slots.ids_before.clone_from(&slots.ids);
    let head = Head {
        seq: Seq(numbers.seq),
        durable: Seq(numbers.durable),
        replay_from: Seq(numbers.replay_from),
        sweep_until: Seq(0),
        previous: [0; 32],
        mac: mac(geometry, public, &salt, &mut bytes),
        slots,
    };
    let block: &mut Block = bytes.first_chunk_mut().expect("a header");
    seal_header(geometry, &salt, &head, &mut sealing, block);
    bytes
}

/// Reads and writes whatever opens; must neither panic nor hang.
pub fn exercise(device: &Arc<dyn BlockDevice>, with: Unlock<'_>) {
    let Ok(session) = crate::Session::open(device, with, crate::Options::default()) else {
        return;
    };
    for volume in session.volumes() {
        let mut block = [0; BLOCK_LEN];
        for at in 0..volume.geometry().blocks {
            let _ = volume.read(BlockNo(at), &mut block);
        }
        let _ = volume.write(BlockNo(0), &block);
    }
    for _ in 0..session.geometry().units() + 3 {
        if session.beat().is_err() {
            break;
        }
    }
    let _ = session.check(&mut |_| {});
    drop(session);
    let _ = crate::examine::examine(device, with);
}
