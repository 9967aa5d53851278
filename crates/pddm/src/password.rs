//! Changing a password: the same is done whatever volume it is of, so that nobody can tell.

use std::sync::Arc;

use tacita_block::BlockDevice;
use tacita_secret::{Key, Password};

use crate::entropy::Entropy;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::geometry::Level;
use crate::init::write_superblock;
use crate::session::{Options, Session};
use crate::superblock::Superblock;
use crate::unlock::{Opened, Unlock, Wanted, no_volume, opens_cell_of, unlock};

/// Refuses a password that cannot be anybody's.
///
/// # Errors
/// [`Kind::Password`] for an empty one.
pub fn check_new_password(password: &Password) -> Result<()> {
    if password.is_empty() {
        return Err(Error::new(Kind::Password, "the new password is empty"));
    }
    Ok(())
}

/// Changes the password of the volume that `with` opens, or of `volume`, which it opens too. Both
/// superblocks are written with a new salt, and a unit and a closing one, whatever volume it is.
///
/// Volumes above the one of `with` are closed meanwhile. Whoever has several gives the password of
/// the highest, and names the volume.
///
/// # Errors
/// As [`Session::open`]; [`Kind::NoVolume`] too if `with` does not open `volume`;
/// [`Kind::Password`] if `new` is empty, or opens one of the volumes that `with` opens, if only as the
/// password that it had before: each password opens one volume.
pub fn change_password(
    device: &Arc<dyn BlockDevice>,
    with: Unlock<'_>,
    volume: Option<Level>,
    new: Unlock<'_>,
    entropy: Entropy,
) -> Result<()> {
    let done = change(device, with, volume, new, entropy);
    device.forget_cached();
    done
}

fn change(
    device: &Arc<dyn BlockDevice>,
    with: Unlock<'_>,
    volume: Option<Level>,
    new: Unlock<'_>,
    mut entropy: Entropy,
) -> Result<()> {
    if let Unlock::Password(password) = new {
        check_new_password(password)?;
    }
    let opened = unlock(device, with, Wanted::default())?;
    let Opened { log, end, superblock, mut keys } = opened;
    let wrap = new.wrap(&superblock.salt)?;
    let taken = || Error::new(Kind::Password, "the new password already opens a volume");
    let used = keys.iter().flatten().any(|keys| keys.wrap.expose() == wrap.expose());
    if used || superblock.master(&wrap).is_some() {
        return Err(taken());
    }
    let top = keys.iter().rposition(Option::is_some).unwrap_or(0);
    let level = volume.map_or(top, Level::index);
    if level != Level::PUBLIC.index() && keys.get(level).is_none_or(Option::is_none) {
        return Err(no_volume());
    }
    // What was the password of another one is still that where units have not been written anew.
    let others = log.geometry.levels().zip(&keys).filter(|(_, keys)| keys.is_some());
    let others: Vec<Level> =
        others.map(|(other, _)| other).filter(|other| other.index() != level).collect();
    if opens_cell_of(&log, &wrap, &others)? {
        return Err(taken());
    }
    let mut public: Key = superblock.wrap(&log.public).ok_or_else(no_volume)?;
    if level == Level::PUBLIC.index() {
        public = wrap;
    } else {
        keys.get_mut(level).and_then(Option::as_mut).ok_or_else(no_volume)?.wrap = wrap;
    }
    let (geometry, salt) = (log.geometry, superblock.salt);
    let superblock = Superblock::new(geometry, salt, (entropy.public)()?, &public, &log.public);
    let options = Options { entropy, ..Options::default() };
    let session = Session::start(log, &end, superblock.clone(), keys, options)?;
    session.beat()?;
    if planted(Fault::QuietPassword) && level != Level::PUBLIC.index() {
        return Ok(());
    }
    session.close()?;
    write_superblock(&**device, &geometry, &superblock.encode())
}
