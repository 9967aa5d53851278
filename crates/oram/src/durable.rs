//! Files of a client that are whole or not there, whenever power fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes the file `path`, which only its owner can read, with these bytes. It has been locked before it
/// got its name, where files can be, and is until it is dropped.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is one: it is as it was.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let (new, file) = beside(path, bytes)?;
    let _ = file.lock();
    let made = fs::hard_link(&new, path);
    let removed = fs::remove_file(&new);
    made.and(removed)?;
    sync_folder_of(path)?;
    Ok(file)
}

/// Gives the file `path` these bytes, and lets only its owner read it.
///
/// # Errors
/// It is as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Not a link to it.
    let path = path.canonicalize()?;
    let (new, _) = beside(&path, bytes)?;
    fs::rename(&new, &path).inspect_err(|_| drop(fs::remove_file(&new)))?;
    sync_folder_of(&path)
}

/// A durable file with these bytes beside `path`.
fn beside(path: &Path, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(name);
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(file)
    };
    let file = write().inspect_err(|_: &io::Error| drop(fs::remove_file(&new)))?;
    Ok((new, file))
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_folder(folder.unwrap_or_else(|| Path::new(".")))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
