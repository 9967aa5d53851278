//! The number of a mounted FUSE file system.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The number of a mounted FUSE file system, as in `0:42`, by whoever serves it. Another file system may get the
/// number as soon as the kernel has let go of this one, and that may be long before its server ends.
#[derive(Debug, Clone)]
pub struct FuseDevice {
    number: String,
    channel: Arc<OwnedFd>,
}

impl FuseDevice {
    /// Of what is served through `channel`, an open `/dev/fuse`.
    pub fn new(number: String, channel: OwnedFd) -> Self {
        Self { number, channel: Arc::new(channel) }
    }

    /// The number, until the kernel has let go of the file system.
    pub fn number(&self) -> Option<&str> {
        let mut polled = [PollFd::new(&*self.channel, PollFlags::empty())];
        let at_once = Timespec::default();
        let has_gone = poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready != 0);
        (!has_gone).then_some(&self.number)
    }
}
