//! Names of what is removed.
//!
//! ext4's driver clears an entry that it removes; what is left to do is to have its directory
//! written before it is freed. Other file systems only mark it as free. There the name is replaced
//! by a random one of the same length, and the places it has left are filled with such names.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fstat, fsync, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::error::During;
use crate::lower_fs::{LowerFs, Names};
use crate::{Error, Result};

/// Names that are put into freed places: the first free place that fits need not be the right one.
const COVER_COUNT: usize = 8;

/// Length of a name that takes one slot of a folder of FAT, if it is in capitals.
const SHORT_LEN: usize = 8;

/// What such a name takes of a folder at least, in bytes (XFS; a slot of FAT has 32).
const ENTRY_LEN_MIN: u64 = 24;

/// Names that a folder is filled with at most: larger ones would cost more than they hide.
const FILL_COUNT_MAX: usize = 4096;

/// What names are made of.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";

/// A name of `len` bytes that says nothing.
pub(crate) fn random_name(len: usize) -> Result<String> {
    Ok(Letters::new()?.name(len))
}

/// Names that say nothing, one after the other.
pub(crate) struct Letters {
    stream: tacita_secret::Prf,
    used: u64,
}

impl Letters {
    pub(crate) fn new() -> Result<Self> {
        let key = tacita_secret::random().during("asking for random bytes")?;
        Ok(Self { stream: tacita_secret::Prf::new(key), used: 0 })
    }

    pub(crate) fn name(&mut self, len: usize) -> String {
        let mut bytes = vec![0_u8; len];
        self.stream.stream(0, self.used, &mut bytes);
        self.used += len as u64;
        bytes.iter().map(|b| char::from(LETTERS[usize::from(b & 31)])).collect()
    }
}

/// Takes a name away so that it is not left in its directory.
///
/// # Errors
/// [`crate::Kind::Io`], [`crate::Kind::NotPermitted`], [`crate::Kind::NotFound`].
pub(crate) fn remove(
    lower: &LowerFs,
    dir: impl AsFd,
    name: &std::ffi::OsStr,
    directory: bool,
) -> Result<()> {
    let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    if lower.names == Names::Cleared {
        return unlinkat(dir, name, flags).during("removing a name");
    }
    let stand_in = replace(&dir, name)?;
    let last = stand_in.as_deref().map_or(name, std::ffi::OsStr::new);
    unlinkat(&dir, last, flags).during("removing a name")?;
    cover(lower, dir, name.len());
    Ok(())
}

/// Gives an entry a random name of the same length; `None` if no such name is free.
pub(crate) fn replace(dir: impl AsFd, name: &std::ffi::OsStr) -> Result<Option<String>> {
    let mut full = None;
    for _ in 0..COVER_COUNT {
        let other = random_name(name.len())?;
        match renameat_with(&dir, name, &dir, other.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Some(other)),
            Err(Errno::EXIST) => {}
            Err(Errno::INVAL) => return Ok(None),
            // Without room, or beyond a quota: another name belongs into another block, which may have room.
            Err(e @ (Errno::NOSPC | Errno::DQUOT)) => full = Some(e),
            Err(e) => return Err(Error::of_kernel(e, "replacing a name")),
        }
    }
    full.map_or(Ok(None), |e| Err(Error::of_kernel(e, "replacing a name")))
}

/// Fills places that names of `len` bytes have left. As far as there is room: a failure leaves
/// nothing worse than before.
pub(crate) fn cover(lower: &LowerFs, dir: impl AsFd, len: usize) {
    // A long name takes several slots of FAT, and leaves what is too small for it: these take one.
    let slots = if lower.has_slots() { COVER_COUNT } else { 0 };
    let lens = std::iter::repeat_n(len, COVER_COUNT);
    make_and_remove(dir, lens.chain(std::iter::repeat_n(SHORT_LEN, slots)));
}

/// Fills a folder that is to be removed, as far as its size says, with names that fit everywhere.
pub(crate) fn fill(folder: impl AsFd) {
    let size = fstat(&folder).map_or(0, |stat| stat.st_size.cast_unsigned());
    let count = usize::try_from(size / ENTRY_LEN_MIN).unwrap_or(FILL_COUNT_MAX);
    let count = count.clamp(COVER_COUNT, FILL_COUNT_MAX);
    make_and_remove(folder, std::iter::repeat_n(SHORT_LEN, count));
}

fn make_and_remove(dir: impl AsFd, lens: impl Iterator<Item = usize>) {
    let mut made = Vec::new();
    for len in lens {
        let Ok(mut name) = random_name(len) else {
            break;
        };
        if len == SHORT_LEN {
            name.make_ascii_uppercase();
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(&dir, name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
            Ok(_) => made.push(name),
            Err(Errno::EXIST) => {}
            Err(e) => {
                log::debug!("names are not covered: {e}");
                break;
            }
        }
    }
    for name in made {
        if let Err(e) = unlinkat(&dir, name.as_str(), AtFlags::empty()) {
            log::warn!("a covering name cannot be removed again: {e}");
        }
    }
}

/// Opens a folder again so that it can be listed and flushed.
pub(crate) fn reopen_folder(dir: impl AsFd) -> rustix::io::Result<OwnedFd> {
    openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Writes a folder back.
pub(crate) fn flush_folder(dir: impl AsFd) -> Result<()> {
    if crate::faults::planted(crate::faults::Fault::UnflushedDirectory) {
        return Ok(());
    }
    let dir = reopen_folder(dir).during("opening a folder")?;
    fsync(dir).during("writing a folder back")
}
