//! What lies in the spool of a mount that is served: no path leads there.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::error::During;
use crate::spool::SPOOL_NAME;
use crate::{Error, Kind, Result, names};

/// Refuses the spool of a mount that is served: what lies there is purged by that one.
pub(super) fn check_unserved(folder: &OwnedFd, name: &OsStr) -> Result<()> {
    if name != SPOOL_NAME {
        return Ok(());
    }
    let spool = names::reopen_folder(folder).during("opening a folder")?;
    match flock(&spool, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {
            let text =
                "what a mount has not purged yet lies there: it is purged when that is unmounted";
            Err(Error::new(Kind::InUse, text))
        }
        // Where nothing can be locked nobody has locked it.
        _ => Ok(()),
    }
}

/// The same of what is in such a spool.
pub(super) fn check_outside(folder: &Path) -> Result<()> {
    let Ok(real) = folder.canonicalize() else { return Ok(()) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for above in real.ancestors() {
        let Some(name) = above.file_name().filter(|name| *name == SPOOL_NAME) else { continue };
        if let Ok(spool) = openat(CWD, above, flags, Mode::empty()) {
            check_unserved(&spool, name)?;
        }
    }
    Ok(())
}
