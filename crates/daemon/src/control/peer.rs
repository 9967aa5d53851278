//! Who is at the other end of a socket.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Uid};

/// A process at the other end, as it was when it connected or began to listen.
pub(super) struct Peer {
    pub(super) uid: Uid,
    /// None if it is in a namespace of processes that is not seen from here, as those of a container
    /// see none outside.
    pub(super) pid: Option<Pid>,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = libc::socklen_t::try_from(size_of_val(&found)).expect("a few bytes");
        // JUSTIFICATION: rustix's call has no way to tell of a process that is not seen from here.
        // SAFETY: the descriptor is open, and both pointers are to what is as long as they say.
        #[allow(unsafe_code)]
        let result = unsafe {
            let (descriptor, to) = (stream.as_raw_fd(), (&raw mut found).cast());
            libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { uid: Uid::from_raw(found.uid), pid: Pid::from_raw(found.pid) })
    }
}
