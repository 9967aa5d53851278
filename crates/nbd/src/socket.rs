//! A connected stream socket, Unix or TCP.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, getsockname,
};
use tacita_clock::Clock;

use crate::patience::Patience;

/// How long the kernel waits for a client before it is looked whether its time is over: the kernel
/// knows no clock but its own.
const LOOK: Duration = Duration::from_millis(500);

/// Bytes of answers that the kernel of a local client may hold before it fetches them: a whole long
/// read, so that the next is served meanwhile. Connections over a network find their own measure.
const LOCAL_SEND_LEN_BYTES: usize = 1 << 20;

/// What came of waiting for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many, at least one.
    Bytes(usize),
    /// None within a moment.
    Nothing,
    /// There are no more.
    End,
}

#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// How long a client may take to make room for a part of an answer.
    send_max: Duration,
    patience: Patience,
}

impl Socket {
    /// A socket on which one wait for bytes is short. Who takes no answers for `send_max` keeps memory
    /// from others.
    pub(crate) fn new(fd: OwnedFd, send_max: Duration, clock: Arc<dyn Clock>) -> io::Result<Self> {
        set_socket_timeout(&fd, Timeout::Recv, Some(LOOK))?;
        set_socket_timeout(&fd, Timeout::Send, Some(LOOK))?;
        if getsockname(&fd)?.address_family() == AddressFamily::UNIX {
            set_socket_send_buffer_size(&fd, LOCAL_SEND_LEN_BYTES)?;
        }
        Ok(Self { fd, send_max, patience: Patience::new(clock) })
    }

    /// The clock of the machine.
    pub(crate) const fn clock(&self) -> &Arc<dyn Clock> {
        self.patience.clock()
    }

    /// The time of its client: what passes while somebody waits for it.
    pub(crate) fn time(&self) -> Duration {
        self.patience.time()
    }

    /// Waits a moment for bytes.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        loop {
            return match rustix::io::read(&self.fd, &mut *buf) {
                Ok(0) => Ok(Received::End),
                Ok(len) => Ok(Received::Bytes(len)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Received::Nothing),
                Err(e) => Err(e.into()),
            };
        }
    }

    /// As [`Socket::receive`], but does not wait.
    pub(crate) fn receive_now(&self, buf: &mut [u8]) -> io::Result<Received> {
        match rustix::net::recv(&self.fd, buf, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Ok(Received::End),
            Ok((len, _)) => Ok(Received::Bytes(len)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Received::Nothing),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends all of `head`, then all of `data`.
    pub(crate) fn send(&self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let mut parts = [IoSlice::new(head), IoSlice::new(data)];
        let mut rest = &mut parts[..];
        IoSlice::advance_slices(&mut rest, 0);
        let mut begin = self.time();
        while !rest.is_empty() {
            let mut nothing = SendAncillaryBuffer::default();
            // Not a signal: who hung up is told by the error.
            match rustix::net::sendmsg(&self.fd, rest, &mut nothing, SendFlags::NOSIGNAL) {
                Ok(len) => {
                    IoSlice::advance_slices(&mut rest, len);
                    begin = self.time();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.time().saturating_sub(begin) < self.send_max => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Whether the other side has closed the connection.
    pub(crate) fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::empty())];
        let ends = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(ends)
    }

    /// Ends receiving, or both ways; threads that wait on them go on.
    pub(crate) fn shut_down(&self, how: Shutdown) {
        // It may have ended by itself.
        let _ = rustix::net::shutdown(&self.fd, how);
    }
}
