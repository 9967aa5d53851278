//! A file that is locked.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FlockOperation, flock};

/// A file with a lock, which goes with this. It would stay with a process that is just being started: that has
/// all that is open until it runs its program.
#[derive(Debug)]
pub(super) struct Locked(pub(super) File);

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl AsFd for Locked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
