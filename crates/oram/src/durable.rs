//! Files of a client that are whole or not there, whenever power fails.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use tacita_block::NewFile;

/// Files that are open at once, at most, while one is made or taken back.
pub(crate) const OPEN_MAX: usize = 4;

/// Looks whether so many files can be open at once: whoever finds out in the middle could not take back what it
/// has begun.
pub(crate) fn can_be_open(count: usize) -> io::Result<()> {
    (0..count).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<_>>>().map(drop)
}

/// Makes the file `path`, which only its owner can read, with these bytes. It has been locked before it
/// got its name, where files can be, and is until it is dropped.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is one: it is as it was.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // A link that leads nowhere has the name, too.
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    can_be_open(OPEN_MAX)?;
    let mut new = NewFile::create(path)?;
    new.file().write_all(bytes)?;
    let file = new.file().try_clone()?;
    let _ = file.lock();
    new.take_free_name()?;
    Ok(file)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
