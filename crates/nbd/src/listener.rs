//! Where clients come in: a Unix socket for its owner alone, or a TCP port of this machine alone.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, shutdown, socket_with, sockopt,
};
use tacita_clock::{Clock, System};

use crate::{Error, Kind, Result};

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Longest path that every client can name.
const PATH_LEN_MAX_BYTES: usize = 107;

/// How long whoever else has the folder locked may take. A server does so for a moment, but anybody who may
/// read a folder can keep it locked.
const LOCKED_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether the folder is still locked.
const LOCKED_LOOK: Duration = Duration::from_millis(20);

/// Permissions of a socket file: its owner alone may connect.
const SOCKET_MODE: u32 = 0o600;

/// Listens for clients. When dropped it takes its socket file away.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The path does without links, which may lead elsewhere by the time the file is taken away: a descriptor
    /// in `/proc/self/fd` does when this process has let go of what it was started with.
    Unix {
        path: PathBuf,
        identity: (u64, u64),
    },
    Tcp(SocketAddr),
}

impl Listener {
    /// Listens on a new Unix socket at `path`, which only its owner (and root) may connect to.
    ///
    /// A socket file that a server left behind is replaced, but only if nobody listens on it.
    ///
    /// # Errors
    /// [`Kind::Busy`] if somebody listens there, or keeps the folder locked; [`Kind::Exists`] if something
    /// else is there; [`Kind::Invalid`] for a path that is too long for a socket; [`Kind::Unavailable`];
    /// [`Kind::Io`].
    pub fn unix(path: impl AsRef<Path>) -> Result<Self> {
        Self::unix_with(path, &System)
    }

    /// As [`Listener::unix`] by another clock.
    ///
    /// # Errors
    /// As there.
    pub fn unix_with(path: impl AsRef<Path>, clock: &dyn Clock) -> Result<Self> {
        let path = std::path::absolute(path.as_ref())
            .map_err(|e| Error::from_io("no current folder", e))?;
        let failed = |what: &'static str| {
            let shown = path.display().to_string();
            move |e: io::Error| Error::from_io(format!("{shown}: {what}"), e)
        };
        let too_long = || {
            let text = "a socket's path has at most 107 bytes; choose a shorter one";
            Error::new(Kind::Invalid, format!("{}: {text}", path.display()))
        };
        let address = SocketAddrUnix::new(&path).map_err(|_| too_long())?;
        // The system takes a byte more, without the zero behind it that clients put there.
        if path.as_os_str().len() > PATH_LEN_MAX_BYTES {
            return Err(too_long());
        }
        let folder_path = path.parent().unwrap_or(Path::new("/"));
        let folder = File::open(folder_path).map_err(failed("cannot open the folder"))?;
        // From looking whether somebody listens to listening nobody else may do the same. Released
        // when `folder` is closed.
        if !lock(&folder, clock).map_err(|e| failed("cannot lock the folder")(e.into()))? {
            let text = "another program keeps the folder locked; end it, or choose another folder";
            return Err(Error::new(Kind::Busy, format!("{}: {text}", path.display())));
        }
        clear(&path, &address)?;
        let cannot = failed("cannot listen");
        let listening = || -> rustix::io::Result<OwnedFd> {
            let fd = stream_socket(SocketFlags::empty())?;
            // The file gets the mode that the socket has when it is bound, so there is no moment
            // in which others could connect.
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(SOCKET_MODE))?;
            bind(&fd, &address)?;
            listen(&fd, BACKLOG)?;
            Ok(fd)
        };
        let fd = listening().map_err(|e| cannot(e.into()))?;
        let metadata = fs::symlink_metadata(&path).map_err(failed("cannot be examined"))?;
        let identity = (metadata.dev(), metadata.ino());
        let folder_path = folder_path.canonicalize().map_err(failed("cannot be examined"))?;
        let path = folder_path.join(path.file_name().unwrap_or_default());
        Ok(Self { fd, place: Place::Unix { path, identity } })
    }

    /// Listens on a TCP port of the loopback interface; port 0 lets the system choose.
    ///
    /// Every user of this machine can connect.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for an address that others can reach; [`Kind::Busy`];
    /// [`Kind::Unavailable`]; [`Kind::Io`].
    pub fn tcp(address: SocketAddr) -> Result<Self> {
        if !address.ip().is_loopback() {
            let text = "not a loopback address; what is served here is not encrypted in transit";
            return Err(Error::new(Kind::Invalid, format!("{address}: {text}")));
        }
        let cannot = |e| Error::from_io(format!("{address}: cannot listen"), e);
        let listener = TcpListener::bind(address).map_err(cannot)?;
        let place = Place::Tcp(listener.local_addr().map_err(cannot)?);
        Ok(Self { fd: listener.into(), place })
    }

    /// The TCP address, with the port that the system chose.
    pub const fn tcp_address(&self) -> Option<SocketAddr> {
        match self.place {
            Place::Tcp(address) => Some(address),
            Place::Unix { .. } => None,
        }
    }

    /// Waits for a client.
    pub(crate) fn accept(&self) -> io::Result<OwnedFd> {
        let fd = accept_with(&self.fd, SocketFlags::CLOEXEC)?;
        if let Place::Tcp(_) = self.place {
            sockopt::set_tcp_nodelay(&fd, true)?;
        }
        Ok(fd)
    }

    /// Lets [`Listener::accept`] fail from now on.
    pub(crate) fn close(&self) {
        // Nothing could be done about a failure, and none is known for a listening socket.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Place::Unix { path, identity } = &self.place
            && fs::symlink_metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == *identity)
        {
            // If it stays, the next server takes it over.
            let _ = fs::remove_file(path);
        }
    }
}

fn stream_socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Locks a folder; `false` if somebody else keeps it locked.
fn lock(folder: &File, clock: &dyn Clock) -> rustix::io::Result<bool> {
    let begin = clock.monotonic();
    loop {
        match rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if clock.elapsed(begin) < LOCKED_MAX => clock.wait(LOCKED_LOOK),
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
}

/// Takes away a socket file on which nobody listens.
fn clear(path: &Path, address: &SocketAddrUnix) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::from_io(format!("{}: cannot be examined", path.display()), e)),
    };
    if !metadata.file_type().is_socket() {
        let text = "exists and is not a socket; remove it, or choose another path";
        return Err(Error::new(Kind::Exists, format!("{}: {text}", path.display())));
    }
    // Without waiting: a server that is too busy to accept is a server.
    let tried = stream_socket(SocketFlags::NONBLOCK).and_then(|fd| connect(&fd, address));
    match tried {
        Err(Errno::CONNREFUSED) => fs::remove_file(path)
            .map_err(|e| Error::from_io(format!("{}: cannot be replaced", path.display()), e)),
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => {
            let text = "another server listens here; stop it, or choose another path";
            Err(Error::new(Kind::Busy, format!("{}: {text}", path.display())))
        }
        Err(e) => Err(Error::from_io(format!("{}: cannot be connected to", path.display()), e)),
    }
}
