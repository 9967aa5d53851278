//! Which key opens what.
//!
//! A password and the salt of the superblock give a *wrap* key. Each level has a random *master*
//! key. The superblock holds the public master, sealed under the public wrap key. Each unit has a
//! *cell* for each class: the hidden master sealed under its wrap key, and, sealed under that
//! master, the wrap key again, the master of the level below and where the position map is to be
//! read from. So a password opens its level and all below, and all their cells can be renewed.
//!
//! Everything in a unit is sealed under keys derived from a master and the unit's random salt, so no
//! nonce is stored and none repeats, even where a power cut makes a number come twice.
//!
//! Design note, section 1.7.

use tacita_secret::{Forged, KEY_LEN, Key, Opening, Openings, Sealing, TAG_LEN};

use crate::geometry::Seq;

/// Salt of a unit.
pub(crate) type Salt = [u8; 32];

/// Length of a cell.
pub(crate) const CELL_LEN: usize = FRONT_LEN + INSIDE_LEN + TAG_LEN;
const FRONT_LEN: usize = KEY_LEN + TAG_LEN;
const INSIDE_LEN: usize = 2 * KEY_LEN + 2 * 8;

/// Slots under the key of a unit that are no data: those of data are counted from 1.
pub(crate) const SLOT_HEAD: u8 = 0;
const SLOT_CELL: u8 = 127;

const DOMAIN_UNIT: u8 = 1;
const DOMAIN_MAC: u8 = 2;
const DOMAIN_FRONT: u8 = 3;
const DOMAIN_SUPERBLOCK: u8 = 4;
const DOMAIN_SUPERBLOCK_WRAP: u8 = 5;

/// Opens what was sealed under the key of one level for one unit.
pub(crate) fn unit_opening(master: &Key, salt: &Salt) -> Opening {
    Opening::under(master, DOMAIN_UNIT, &[salt])
}

/// Opens what was sealed under the keys of one level for many units, one after the other.
pub(crate) const fn unit_openings(master: &Key) -> Openings<'_> {
    Openings::under(master, DOMAIN_UNIT)
}

/// Seals under the key of one level for one unit.
pub(crate) fn unit_sealing(master: &Key, salt: &Salt) -> Sealing {
    Sealing::under(master, DOMAIN_UNIT, &[salt])
}

/// The key that authenticates the hidden slots of one unit, known to whoever has the public master.
pub(crate) fn mac_key(public: &Key, salt: &Salt) -> Key {
    public.derive(DOMAIN_MAC, &[salt])
}

/// The key that seals the public master in one superblock.
pub(crate) fn superblock_key(wrap: &Key, salt: &Salt) -> Key {
    wrap.derive(DOMAIN_SUPERBLOCK, &[salt])
}

/// The key that seals the public wrap key in one superblock.
pub(crate) fn superblock_wrap_key(public: &Key, salt: &Salt) -> Key {
    public.derive(DOMAIN_SUPERBLOCK_WRAP, &[salt])
}

/// What belongs to an open hidden level.
#[derive(Debug, Clone)]
pub(crate) struct HiddenKeys {
    pub(crate) wrap: Key,
    pub(crate) master: Key,
    /// Master of the level below.
    pub(crate) below: Key,
}

/// What stands in a cell beside keys.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) keys: HiddenKeys,
    pub(crate) numbers: CellNumbers,
}

/// How far a hidden volume has come with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CellNumbers {
    /// All pages of the position map have been written in this unit or later.
    pub(crate) replay_from: Seq,
    /// The last epoch that is complete with this unit.
    pub(crate) epoch: u64,
}

impl HiddenKeys {
    /// The cell for the unit with this salt. `sealing` is that of the level in the unit.
    pub(crate) fn seal_cell(
        &self,
        numbers: CellNumbers,
        salt: &Salt,
        sealing: &mut Sealing,
    ) -> [u8; CELL_LEN] {
        let mut bytes = [0; CELL_LEN];
        let (front, inside) = bytes.split_at_mut(FRONT_LEN);
        front[..KEY_LEN].copy_from_slice(self.master.expose());
        let mut under_wrap = Sealing::new(&self.wrap.derive(DOMAIN_FRONT, &[salt]));
        let tag = under_wrap.seal(0, &[], &mut front[..KEY_LEN]);
        front[KEY_LEN..].copy_from_slice(&tag);
        inside[..KEY_LEN].copy_from_slice(self.wrap.expose());
        inside[KEY_LEN..2 * KEY_LEN].copy_from_slice(self.below.expose());
        let words = inside[2 * KEY_LEN..INSIDE_LEN].chunks_exact_mut(8);
        for (place, number) in words.zip([numbers.replay_from.0, numbers.epoch]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let tag = sealing.seal(SLOT_CELL, &[], &mut inside[..INSIDE_LEN]);
        inside[INSIDE_LEN..].copy_from_slice(&tag);
        bytes
    }
}

impl Cell {
    /// Opens a cell by password.
    ///
    /// # Errors
    /// [`Forged`] if it is not one for this wrap key.
    pub(crate) fn open_by_wrap(
        bytes: &[u8; CELL_LEN],
        salt: &Salt,
        wrap: &Key,
    ) -> Result<Self, Forged> {
        let mut master = [0; KEY_LEN];
        master.copy_from_slice(&bytes[..KEY_LEN]);
        let tag = bytes[KEY_LEN..FRONT_LEN].try_into().expect("a tag");
        Opening::new(&wrap.derive(DOMAIN_FRONT, &[salt])).open(0, &[], &mut master, &tag)?;
        Self::open_by_master(bytes, salt, &Key::take(&mut master))
    }

    /// Opens a cell from the level above.
    ///
    /// # Errors
    /// [`Forged`] if it is not one for this master.
    pub(crate) fn open_by_master(
        bytes: &[u8; CELL_LEN],
        salt: &Salt,
        master: &Key,
    ) -> Result<Self, Forged> {
        let mut inside = [0; INSIDE_LEN];
        inside.copy_from_slice(&bytes[FRONT_LEN..FRONT_LEN + INSIDE_LEN]);
        let tag = bytes[FRONT_LEN + INSIDE_LEN..].try_into().expect("a tag");
        unit_opening(master, salt).open(SLOT_CELL, &[], &mut inside, &tag)?;
        let take = |bytes: &mut [u8]| Key::take(bytes.try_into().expect("a key"));
        let (keys, numbers) = inside.split_at_mut(2 * KEY_LEN);
        let number =
            |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("8 bytes"));
        let numbers = CellNumbers { replay_from: Seq(number(0)), epoch: number(8) };
        let (wrap, below) = keys.split_at_mut(KEY_LEN);
        Ok(Self {
            keys: HiddenKeys { wrap: take(wrap), master: master.clone(), below: take(below) },
            numbers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        Key::take(&mut [n; 32])
    }

    #[test]
    fn a_cell_opens_by_its_password_and_from_above() {
        let keys = HiddenKeys { wrap: key(1), master: key(2), below: key(3) };
        let salt = [9; 32];
        let mut sealing = unit_sealing(&key(2), &salt);
        let numbers = CellNumbers { replay_from: Seq(77), epoch: 5 };
        let bytes = keys.seal_cell(numbers, &salt, &mut sealing);
        for opened in [
            Cell::open_by_wrap(&bytes, &salt, &key(1)).unwrap(),
            Cell::open_by_master(&bytes, &salt, &key(2)).unwrap(),
        ] {
            assert_eq!(opened.keys.wrap.expose(), key(1).expose());
            assert_eq!(opened.keys.master.expose(), key(2).expose());
            assert_eq!(opened.keys.below.expose(), key(3).expose());
            assert_eq!(opened.numbers, numbers);
        }
        assert!(Cell::open_by_wrap(&bytes, &salt, &key(2)).is_err());
        assert!(Cell::open_by_master(&bytes, &salt, &key(1)).is_err());
        assert!(Cell::open_by_wrap(&bytes, &[8; 32], &key(1)).is_err());
    }
}
