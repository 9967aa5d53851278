//! From a password to the volumes it opens.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo};
use tacita_secret::{Key, Password};

use crate::error::{Error, Kind, Result};
use crate::geometry::{BLOCK_LEN, Geometry, Level, Seq};
use crate::keys::{CELL_LEN, Cell, HiddenKeys, Salt};
use crate::log::Log;
use crate::recovery::{End, find_end, newest_cell};
use crate::superblock::{Superblock, VERSION};
use crate::unit::Block;

/// What opens a volume.
#[derive(Debug, Clone, Copy)]
pub enum Unlock<'a> {
    /// Its password.
    Password(&'a Password),
    /// The key made from the password: spares tests the time that this takes.
    #[doc(hidden)]
    Wrap(&'a Key),
}

impl Unlock<'_> {
    /// # Errors
    /// [`Kind::Memory`].
    pub(crate) fn wrap(&self, salt: &[u8; 32]) -> Result<Key> {
        match self {
            Self::Password(password) => Ok(password.stretch(salt)?),
            Self::Wrap(key) => Ok((*key).clone()),
        }
    }
}

pub(crate) fn no_volume() -> Error {
    let text = "no volume opens with this password: it is wrong, there is no such volume, or the \
                superblock is damaged";
    Error::new(Kind::NoVolume, text)
}

pub(crate) fn shape(device: &dyn BlockDevice) -> Result<u64> {
    let shape = device.geometry();
    if shape.block_len_bytes as usize != BLOCK_LEN {
        let text = format!("the device must be opened in blocks of {BLOCK_LEN} bytes");
        return Err(Error::new(Kind::Geometry, text));
    }
    Ok(shape.blocks)
}

/// A device that has grown, and was not opened for writing since, has its second superblock where it
/// was: it is looked for before so many ends of whole MiB.
const GROWN_ENDS: u64 = 64 << 10;
const MIB_BLOCKS: u64 = 256;

/// The superblock, or its copy at the end: that of the device, or of the device as it was.
///
/// # Errors
/// The device's, where more cannot be read than one of them, or that one alone could be it; [`Kind::Version`].
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    let blocks = shape(device)?;
    if blocks == 0 {
        return Ok(None);
    }
    let whole = (blocks - 1) / MIB_BLOCKS;
    let ends = (whole.saturating_sub(GROWN_ENDS) + 1..=whole).rev();
    let ends = ends.map(|end| end * MIB_BLOCKS - 1);
    let (mut unreadable, mut another) = (None, None);
    for at in [0, blocks - 1].into_iter().chain(ends) {
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        match device.read(BlockNo(at), &mut block[..]) {
            Err(error) if unreadable.is_none() => unreadable = Some(error),
            read => read?,
        }
        if let Some(superblock) = Superblock::decode(&block) {
            return Ok(Some(superblock));
        }
        another = another.or(Superblock::version(&block).filter(|version| *version != VERSION));
    }
    if let Some(version) = another {
        let text = format!(
            "version {version} of the format, where this program knows {VERSION}, or both superblocks are damaged; \
             nothing has been changed"
        );
        return Err(Error::new(Kind::Version, text));
    }
    unreadable.map_or(Ok(None), |error| Err(error.into()))
}

/// Where a superblock should be and another one, or none, is. The last block of a device that has
/// grown need not have one before the device is opened for writing.
///
/// # Errors
/// The device's.
pub(crate) fn damaged_superblocks(
    device: &dyn BlockDevice,
    superblock: &Superblock,
) -> Result<Vec<BlockNo>> {
    let last = BlockNo(shape(device)? - 1);
    let second = superblock.geometry.second_superblock();
    let good = superblock.encode();
    let mut damaged = Vec::new();
    for at in [BlockNo(0), second, last] {
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        let is_read = match device.read(at, &mut block[..]) {
            Ok(()) => true,
            Err(error) if error.kind() == tacita_block::Kind::Io => false,
            Err(error) => return Err(error.into()),
        };
        let is_good = is_read && block == good;
        let is_due = [BlockNo(0), second].contains(&at) || Superblock::decode(&block).is_some();
        if !is_good && is_due && !damaged.contains(&at) {
            damaged.push(at);
        }
    }
    Ok(damaged)
}

/// Writes the superblock wherever it is damaged: what it says is public, and so is this.
///
/// # Errors
/// The device's.
pub(crate) fn restore_superblocks(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    let block = superblock.encode();
    // One after the other: a power cut leaves one of them whole.
    for at in damaged_superblocks(device, superblock)? {
        device.write(at, &block[..])?;
        device.flush()?;
    }
    Ok(())
}

/// What a password opens.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) end: End,
    pub(crate) superblock: Superblock,
    /// By level from the public one on.
    pub(crate) keys: Vec<Option<HiddenKeys>>,
}

/// Which volumes are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// Hidden ones stay closed.
    pub(crate) public_only: bool,
    /// A password that opens the public volume is tried on all cells, and not only on the newest.
    pub(crate) search: bool,
}

/// Refuses a device that has been cut short. Anybody can see that, so it is said before a password is
/// tried: the same whatever that would open.
fn check_length(device: &dyn BlockDevice, geometry: &Geometry) -> Result<()> {
    let (here, wanted) = (shape(device)?, geometry.device_blocks());
    if here >= wanted {
        return Ok(());
    }
    let text = format!(
        "the device is shorter than its superblock says: {here} blocks of {wanted}; nothing has \
         been changed"
    );
    Err(Error::new(Kind::TooShort, text))
}

/// The highest volume that the password opens, and all below it.
pub(crate) fn unlock(
    device: &Arc<dyn BlockDevice>,
    with: Unlock<'_>,
    wanted: Wanted,
) -> Result<Opened> {
    let superblock = read_superblock(&**device)?;
    if let Some(superblock) = &superblock {
        check_length(&**device, &superblock.geometry)?;
    }
    let salt = superblock.as_ref().map_or([0; 32], |superblock| superblock.salt);
    let wrap = with.wrap(&salt)?;
    let superblock = superblock.ok_or_else(no_volume)?;
    let geometry = superblock.geometry;
    let log = |public: Key| Log::new(device, geometry, public);
    let (log, mut found) = if let Some(master) = superblock.master(&wrap) {
        (log(master), None)
    } else {
        let all = 0..geometry.units();
        let cell = find_cell(&log(Key::take(&mut [0; 32])), &wrap, all)?;
        let (level, keys, master) = cell.ok_or_else(no_volume)?;
        (log(master), Some((level, keys)))
    };
    let hidden = found.as_ref().map(|(level, keys)| (*level, &keys.master));
    let end = find_end(&log, hidden)?;
    if found.is_none() {
        // It may open a hidden volume as well, and would destroy it.
        let units = newest_units(&geometry, end.next, wanted.search);
        found = find_cell(&log, &wrap, units)?.map(|(level, keys, _)| (level, keys));
    }
    let mut keys: Vec<Option<HiddenKeys>> = geometry.levels().map(|_| None).collect();
    if let Some((level, found)) = found.filter(|_| !wanted.public_only) {
        let mut master = found.master;
        let below: Vec<Level> = geometry.levels().skip(1).take(level.index()).collect();
        for level in below.into_iter().rev() {
            let Some((_, cell)) = newest_cell(&log, &end, level, &master)? else { break };
            master = cell.keys.below.clone();
            keys[level.index()] = Some(cell.keys);
        }
    }
    Ok(Opened { log, end, superblock, keys })
}

/// The newest two gaps of units, or all.
fn newest_units(geometry: &Geometry, next: Seq, all: bool) -> impl Iterator<Item = u32> + use<> {
    let units = u64::from(geometry.units());
    let count = if all { units } else { units.min(2 * u64::from(geometry.gap())) };
    let geometry = *geometry;
    (next.0.saturating_sub(count)..next.0).rev().map(move |seq| geometry.unit_of(Seq(seq)))
}

/// Looks for a cell that the password opens, in these units, and goes down from there to the public
/// master key. All of them are looked at before it is said that there is none.
fn find_cell(
    log: &Log,
    wrap: &Key,
    units: impl Iterator<Item = u32>,
) -> Result<Option<(Level, HiddenKeys, Key)>> {
    let geometry = &log.geometry;
    for unit in units {
        let Some((salt, cells)) = cells_of(log, unit)? else { continue };
        // The highest first.
        for (level, bytes) in geometry.levels().skip(1).zip(&cells).collect::<Vec<_>>().iter().rev()
        {
            let Ok(cell) = Cell::open_by_wrap(bytes, &salt, wrap) else { continue };
            let mut below = cell.keys.below.clone();
            let mut whole = true;
            for bytes in cells[..level.index() - 1].iter().rev() {
                match Cell::open_by_master(bytes, &salt, &below) {
                    Ok(lower) => below = lower.keys.below,
                    Err(_) => whole = false,
                }
            }
            if whole {
                return Ok(Some((*level, cell.keys, below)));
            }
            break;
        }
    }
    Ok(None)
}

/// Whether a password opens a cell of one of these classes, in whatever unit: an old one does so until
/// the unit is written anew.
pub(crate) fn opens_cell_of(log: &Log, wrap: &Key, classes: &[Level]) -> Result<bool> {
    let units = if classes.is_empty() { 0..0 } else { 0..log.geometry.units() };
    for unit in units {
        let Some((salt, cells)) = cells_of(log, unit)? else { continue };
        let mut cells = classes.iter().map(|class| &cells[class.index() - 1]);
        if cells.any(|cell| Cell::open_by_wrap(cell, &salt, wrap).is_ok()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The salt of a unit, and its cells from the lowest class on, unless a bad sector has cost them; the next
/// units are read, too.
fn cells_of(log: &Log, unit: u32) -> Result<Option<(Salt, Vec<[u8; CELL_LEN]>)>> {
    let geometry = &log.geometry;
    log.will_read_headers(Seq(unit.into()), Seq(geometry.units().into()));
    let Some(block) = log.header_block(unit)? else { return Ok(None) };
    let salt = block[..32].try_into().expect("a salt");
    Ok(Some((salt, crate::unit::cells(geometry, &block).copied().collect())))
}
