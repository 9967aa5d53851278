//! Passwords, and the end of a volume.

use tacita_dnefs_format::{SUPERBLOCK_LEBS, Superblock};
use tacita_flash::{EraseReport, Leb, Volume};
use tacita_secret::Password;

use crate::error::Result;
use crate::format::{not_made, unlock, write_superblock};

/// Changes the password, or takes it away, and erases what the old one opens.
///
/// # Errors
/// [`crate::Kind::NotAVolume`]; [`crate::Kind::WrongPassword`]; [`crate::Kind::Memory`];
/// [`crate::Kind::Device`].
pub fn set_password(
    volume: &dyn Volume,
    old: Option<&Password>,
    new: Option<&Password>,
) -> Result<EraseReport> {
    let unlocked = unlock(volume, old)?;
    let Superblock { parameters, generation, .. } = unlocked.superblock;
    let superblock = Superblock::new(parameters, generation + 1, &unlocked.master, new);
    write_superblock(volume, &superblock.map_err(not_made)?)?;
    Ok(volume.flush_erases()?)
}

/// Erases a volume: without its superblocks no key can be opened any more, whoever knows the password.
///
/// # Errors
/// [`crate::Kind::Device`]: then it may not be erased.
pub fn erase(volume: &dyn Volume) -> Result<EraseReport> {
    for leb in SUPERBLOCK_LEBS {
        volume.unmap(Leb(leb))?;
    }
    Ok(volume.flush_erases()?)
}
