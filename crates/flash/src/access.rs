//! Files and devices as volumes open them: for one writer, or for several readers.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::{Error, Kind, Result};

/// What something is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing of it changes; other readers are let in.
    ReadOnly,
    /// Nobody else is let in.
    ReadWrite,
}

impl Access {
    /// Refuses to write where that was not asked for.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`].
    pub(crate) fn check_writable(self) -> Result<()> {
        match self {
            Self::ReadWrite => Ok(()),
            Self::ReadOnly => Err(Error::new(Kind::ReadOnly, "the volume is open for reading")),
        }
    }

    fn options(self) -> OpenOptions {
        // A pipe without a writer would make everybody wait.
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).write(self == Self::ReadWrite).custom_flags(flags.bits().cast_signed());
        options
    }
}

/// Opens what is at `path`, or with `create` makes an empty file for its owner alone.
///
/// # Errors
/// [`Kind::ReadOnly`] if it could be opened for reading only; [`Kind::Busy`], [`Kind::Unavailable`],
/// [`Kind::NoSpace`], [`Kind::Io`].
pub(crate) fn open(path: &Path, access: Access, create: bool) -> Result<File> {
    let opened = access.options().create(create).mode(0o600).truncate(false).open(path);
    opened.map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy => in_use(&path.display()),
        // A program that runs.
        io::ErrorKind::ExecutableFileBusy => in_use(&path.display()).because(e),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            if access == Access::ReadWrite && Access::ReadOnly.options().open(path).is_ok() =>
        {
            let text = format!("cannot open {} for writing", path.display());
            Error::new(Kind::ReadOnly, text).because(e)
        }
        _ => Error::from_io(format!("cannot open {}", path.display()), e),
    })
}

/// Locks what is called `name`; it stays locked for all who share this description of the file.
///
/// # Errors
/// [`Kind::Busy`], [`Kind::Io`].
pub(crate) fn lock(file: &File, name: &dyn Display, access: Access) -> Result<()> {
    let how = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(file, how).map_err(|e| match e {
        Errno::WOULDBLOCK => in_use(name),
        e => Error::from_io(format!("cannot lock {name}"), e.into()),
    })
}

/// That somebody else has it.
pub(crate) fn in_use(name: &dyn Display) -> Error {
    let text = format!("{name} is in use by another process: wait until it has ended, or end it");
    Error::new(Kind::Busy, text)
}
