//! What somebody sees who has the device and a password, all of it at once: for games, on small
//! devices.

use std::sync::Arc;

use tacita_block::BlockDevice;
use tacita_secret::{Key, Tag};

use crate::error::Result;
use crate::geometry::{BLOCK_LEN, Geometry, Level};
use crate::keys::HiddenKeys;
use crate::keys::unit_opening;
use crate::log::Log;
use crate::unit::{Header, Slots, hidden_part, hidden_slots, seal_number};
use crate::unlock::{Opened, Unlock, Wanted, read_superblock, unlock};

/// The shapes of a device, which need no password; `None` if it has no superblock.
///
/// # Errors
/// The device's.
pub fn geometry(device: &dyn BlockDevice) -> Result<Option<Geometry>> {
    Ok(read_superblock(device)?.map(|superblock| superblock.geometry))
}

/// A unit that the public key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitView {
    /// Its number.
    pub seq: u64,
    /// All units before this one were durable.
    pub durable: u64,
    /// Where the public map is to be replayed from.
    pub replay_from: u64,
    /// Its random salt.
    pub salt: [u8; 32],
    /// Hash of the header before, as it stands in this one.
    pub previous: [u8; 32],
    /// Hash of this header.
    pub hash: [u8; 32],
    /// What lies in its public slots, and what lay in those of the unit before.
    pub ids: Vec<u32>,
    /// The content of its public slots; `None` where it is damaged.
    pub public: Vec<Option<Vec<u8>>>,
    /// By class: ids and contents of its slots, where the password opens it.
    pub hidden: Vec<Option<Vec<SlotView>>>,
    /// Ids, tags and cells of hidden slots, as they stand there.
    pub hidden_part: Vec<u8>,
    /// The hidden slots, as they stand there.
    pub hidden_slots: Vec<u8>,
    /// Whether all slots are what the header says.
    pub whole: bool,
}

/// Id and content of a slot; no content where it is empty or damaged.
pub type SlotView = (u32, Option<Vec<u8>>);

/// The device as the public key shows it.
#[derive(Debug)]
pub struct View {
    /// Shapes.
    pub geometry: Geometry,
    /// Number of the unit that would be written next.
    pub next: u64,
    /// By unit of the log; `None` where nothing can be opened.
    pub units: Vec<Option<UnitView>>,
}

/// Looks at every unit, and keeps what it holds.
///
/// # Errors
/// [`crate::Kind::NoVolume`] if the password opens nothing; [`crate::Kind::Memory`];
/// [`crate::Kind::Device`].
pub fn examine(device: &Arc<dyn BlockDevice>, with: Unlock<'_>) -> Result<View> {
    let Opened { log, end, keys, .. } = unlock(device, with, Wanted::default())?;
    let units = (0..log.geometry.units()).map(|unit| view(&log, &keys, unit)).collect();
    Ok(View { geometry: log.geometry, next: end.next.0, units })
}

fn view(log: &Log, keys: &[Option<HiddenKeys>], unit: u32) -> Option<UnitView> {
    let geometry = &log.geometry;
    let (mut bytes, _) = log.unit(unit).ok()?;
    let block = bytes[..BLOCK_LEN].try_into().expect("one block");
    let header: Header = log.open(unit, block)?;
    let contents = |level: Level, master: &Key, slots: &Slots| {
        let opening = unit_opening(master, &header.salt);
        let blocks = geometry.slots(level).zip(slots.ids.iter().zip(&slots.tags)).enumerate();
        let content = |(index, (block, (id, tag))): (usize, (u32, (&u32, &Tag)))| {
            let mut content = bytes[block as usize * BLOCK_LEN..][..BLOCK_LEN].to_vec();
            let opened = opening.open(seal_number(index), &id.to_le_bytes(), &mut content, tag);
            (*id, opened.is_ok().then_some(content))
        };
        blocks.map(content).collect::<Vec<_>>()
    };
    let hidden = geometry.levels().zip(keys).skip(1).map(|(level, keys)| {
        let master = &keys.as_ref()?.master;
        let slots = header.hidden(geometry, level, master)?;
        Some(contents(level, master, &slots))
    });
    let hidden = hidden.collect();
    let public = contents(Level::PUBLIC, &log.public, &header.head.slots);
    let ids = header.head.slots.ids.iter().chain(&header.head.slots.ids_before);
    let whole = header.proves(geometry, &log.public, &mut bytes);
    Some(UnitView {
        seq: header.head.seq.0,
        durable: header.head.durable.0,
        replay_from: header.head.replay_from.0,
        salt: header.salt,
        previous: header.head.previous,
        hash: header.hash(),
        ids: ids.copied().collect(),
        public: public.into_iter().map(|(_, content)| content).collect(),
        hidden,
        hidden_part: bytes[hidden_part(geometry)].to_vec(),
        hidden_slots: bytes[hidden_slots(geometry, &bytes)].to_vec(),
        whole,
    })
}
