//! Places in a tree of folders that system calls reach, however long their paths are.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// A folder whose path is longer than so many bytes is held open, and what is below it is reached by way
/// of it. System calls take 4,095 bytes, of which a name has up to 255.
const PATH_LEN_MAX: usize = 3000;

/// A place, and the folder above it that is held open for it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    path: PathBuf,
    held: Option<Arc<OwnedFd>>,
}

impl Place {
    /// A place by its path as it was given.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), held: None }
    }

    /// A place by its path, however long that is.
    ///
    /// # Errors
    /// If a folder above it has to be held open, and cannot be.
    pub(super) fn reach(path: &Path) -> io::Result<Self> {
        if is_short(path) {
            return Ok(Self::new(path));
        }
        let mut place = Self::new(Path::new(""));
        for name in path {
            place = place.opened()?.child(name);
        }
        Ok(place)
    }

    /// What system calls are given: not what it is called.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// This folder, ready for what is below it: held open once, however many names are in it.
    ///
    /// # Errors
    /// If it has to be held open, and cannot be.
    pub(super) fn opened(self) -> io::Result<Self> {
        if is_short(&self.path) {
            return Ok(self);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, &self.path, flags, Mode::empty())?;
        // The folder itself, for calls that follow no links, too.
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(".");
        Ok(Self { path, held: Some(Arc::new(folder)) })
    }

    /// A name in this folder, which has been opened.
    pub(super) fn child(&self, name: &OsStr) -> Self {
        Self { path: self.path.join(name), held: self.held.clone() }
    }
}

fn is_short(path: &Path) -> bool {
    path.as_os_str().as_bytes().len() <= PATH_LEN_MAX
}
