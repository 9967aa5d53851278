//! Where a server is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::{Identity, Stream, Trust, socket_file};
use crate::error::{Error, Kind, Result};

/// Where a server is: `HOST:PORT`, `tls:HOST:PORT`, or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host and a port.
    Tcp(String),
    /// A host and a port, where TLS is spoken.
    Tls(String),
    /// A socket of this machine.
    Unix(PathBuf),
}

/// Takes connections.
#[derive(Debug)]
pub enum Listener {
    /// At a TCP port.
    Tcp(TcpListener),
    /// At a TCP port, where TLS is spoken with this identity.
    Tls(TcpListener, Identity),
    /// At a Unix socket.
    Unix(UnixListener),
}

/// Somebody who has connected, and with whom no word was spoken yet.
#[derive(Debug)]
pub enum Incoming {
    /// From a TCP port.
    Tcp(TcpStream),
    /// From a TCP port, where TLS is spoken.
    Tls(TcpStream, Identity),
    /// From a Unix socket.
    Unix(UnixStream),
}

/// A server, and whom a client believes that it is that one.
#[derive(Debug, Clone)]
pub struct Remote {
    address: Address,
    /// With TLS only.
    trust: Option<Trust>,
}

impl Address {
    /// A stream to the server, which is believed with TLS if the system believes it.
    ///
    /// # Errors
    /// [`Kind::Unreachable`]; [`Kind::Parameters`] if there is no such address or the system believes
    /// nobody.
    pub async fn connect(&self) -> Result<Box<dyn Stream>> {
        Remote::new(self.clone(), None)?.connect().await
    }

    /// Takes connections from now on, with TLS as `identity`. A socket file that nobody listens on any more
    /// is taken over.
    ///
    /// # Errors
    /// [`Kind::Taken`] if another program listens there; [`Kind::Address`] if it is not to be had;
    /// [`Kind::Storage`] if this machine has no open files or memory for it; [`Kind::Parameters`] if
    /// something else than a socket has its path, and for TLS without identity.
    pub async fn listen(&self, identity: Option<&Identity>) -> Result<Listener> {
        let cannot = |e| cannot_listen(self, e);
        let bound = async |place: &str| TcpListener::bind(place).await.map_err(cannot);
        match self {
            Self::Tcp(place) => Ok(Listener::Tcp(bound(place).await?)),
            Self::Tls(place) => {
                let none = || {
                    let what = format!("{self}: a server with TLS needs a certificate and its key");
                    Error::new(Kind::Parameters, what)
                };
                let identity = identity.cloned().ok_or_else(none)?;
                Ok(Listener::Tls(bound(place).await?, identity))
            }
            Self::Unix(path) => {
                let listener = socket_file::listen(path).await.map_err(cannot)?;
                listener.map(Listener::Unix).ok_or_else(|| {
                    let what = format!("{self}: what is there is no socket, and stays");
                    Error::new(Kind::Parameters, what)
                })
            }
        }
    }

    /// The socket file that is listened at, by a path without links, which may lead elsewhere later: a
    /// descriptor in `/proc/self/fd` does when this process has let go of what it was started with.
    pub fn socket_file(&self) -> Option<PathBuf> {
        match self {
            Self::Unix(path) => path.canonicalize().ok(),
            Self::Tcp(_) | Self::Tls(_) => None,
        }
    }

    fn unreachable(&self, error: std::io::Error) -> Error {
        if is_of_this_machine(&error) {
            return Error::of_storage(self, error);
        }
        // Such as the path of a socket that is longer than they can be.
        let is_none = error.kind() == std::io::ErrorKind::InvalidInput;
        let kind = if is_none { Kind::Parameters } else { Kind::Unreachable };
        Error::new(kind, format!("{self}: {error}"))
    }
}

/// Whether this machine cannot even ask, or listen, whatever the address is.
pub(super) fn is_of_this_machine(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

/// Why connections cannot be taken `at` an address.
pub(crate) fn cannot_listen(at: &impl std::fmt::Display, error: std::io::Error) -> Error {
    if is_of_this_machine(&error) {
        return Error::of_storage(at, error);
    }
    if error.kind() == std::io::ErrorKind::AddrInUse {
        return Error::new(Kind::Taken, format!("{at}: {error}"));
    }
    Error::new(Kind::Address, format!("{at}: cannot be listened at: {error}"))
}

impl Remote {
    /// The server at `address`, which a certificate of the file `roots` vouches for, or who the system
    /// believes. The file is read now.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if the file has no certificates, if there is one for an address without TLS, or
    /// if the system believes nobody.
    pub fn new(address: Address, roots: Option<&Path>) -> Result<Self> {
        let trust = match (&address, roots) {
            (Address::Tls(_), roots) => Some(Trust::new(roots)?),
            (_, None) => None,
            (_, Some(_)) => {
                let what = format!("{address}: certificates are for addresses tls:HOST:PORT alone");
                return Err(Error::new(Kind::Parameters, what));
            }
        };
        Ok(Self { address, trust })
    }

    /// A stream to the server.
    ///
    /// # Errors
    /// [`Kind::Unreachable`]; [`Kind::Untrusted`] if the server's certificate is not accepted;
    /// [`Kind::Storage`] if this machine can have no more connections.
    pub async fn connect(&self) -> Result<Box<dyn Stream>> {
        let unreachable = |e: std::io::Error| self.address.unreachable(e);
        match (&self.address, &self.trust) {
            (Address::Unix(path), _) => {
                Ok(Box::new(UnixStream::connect(path).await.map_err(unreachable)?))
            }
            (Address::Tcp(place) | Address::Tls(place), trust) => {
                let stream = TcpStream::connect(place).await.map_err(unreachable)?;
                stream.set_nodelay(true).map_err(unreachable)?;
                match trust {
                    None => Ok(Box::new(stream)),
                    Some(trust) => Ok(Box::new(trust.connect(place, stream).await?)),
                }
            }
        }
    }
}

impl Incoming {
    /// The stream, when hands are shaken.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] and [`Kind::Protocol`] if that fails.
    pub async fn stream(self) -> Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(stream) => Box::new(stream),
            Self::Tls(stream, identity) => Box::new(identity.accept(stream).await?),
            Self::Unix(stream) => Box::new(stream),
        })
    }
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] if none could be taken, for now.
    pub async fn accept(&self) -> Result<Incoming> {
        let failed = |e: std::io::Error| Error::new(Kind::Unreachable, format!("accept: {e}"));
        let stream = match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => {
                listener.accept().await.map_err(failed)?.0
            }
            Self::Unix(listener) => {
                return Ok(Incoming::Unix(listener.accept().await.map_err(failed)?.0));
            }
        };
        stream.set_nodelay(true).map_err(failed)?;
        Ok(match self {
            Self::Tls(_, identity) => Incoming::Tls(stream, identity.clone()),
            _ => Incoming::Tcp(stream),
        })
    }

    /// Where it is: with the port that was chosen, if the address asked for any.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] if the socket does not tell.
    pub fn address(&self) -> Result<Address> {
        let failed = |e: std::io::Error| Error::new(Kind::Unreachable, e.to_string());
        match self {
            Self::Tcp(listener) => {
                Ok(Address::Tcp(listener.local_addr().map_err(failed)?.to_string()))
            }
            Self::Tls(listener, _) => {
                Ok(Address::Tls(listener.local_addr().map_err(failed)?.to_string()))
            }
            Self::Unix(listener) => {
                let place = listener.local_addr().map_err(failed)?;
                let path = place.as_pathname().ok_or_else(|| {
                    Error::new(Kind::Unreachable, "the socket has no name in the file system")
                })?;
                Ok(Address::Unix(path.to_path_buf()))
            }
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(Error::new(Kind::Parameters, "unix: needs a path behind it"));
            }
            // Whoever connects again may have gone to another folder by then.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
            return Ok(Self::Unix(path));
        }
        let (form, place): (fn(String) -> Self, _) = match text.strip_prefix("tls:") {
            Some(place) => (Self::Tls, place),
            None => (Self::Tcp, text),
        };
        match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(form(place.into()))
            }
            _ => Err(Error::new(
                Kind::Parameters,
                format!("{text}: an address is HOST:PORT, tls:HOST:PORT or unix:PATH"),
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => f.write_str(place),
            Self::Tls(place) => write!(f, "tls:{place}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
