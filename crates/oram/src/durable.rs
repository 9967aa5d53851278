//! Files of a client that are whole or not there, whenever power fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes the file `path`, which only its owner can read, with these bytes.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is one: it is as it was.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = Path::new(&name);
    let made = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::hard_link(new, path)
    };
    let made = made();
    let removed = fs::remove_file(new);
    made.and(removed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync_folder(folder.unwrap_or_else(|| Path::new(".")))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
