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

    /// What system calls are given: not what it is called.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A name in this folder.
    ///
    /// # Errors
    /// If this folder has to be held open, and cannot be.
    pub(super) fn child(&self, name: &OsStr) -> io::Result<Self> {
        let Self { path, held } = self;
        if path.as_os_str().as_bytes().len() <= PATH_LEN_MAX {
            return Ok(Self { path: path.join(name), held: held.clone() });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, held: Some(Arc::new(folder)) })
    }
}
