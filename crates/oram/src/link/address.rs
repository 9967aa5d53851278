//! Where a server is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::Stream;
use crate::error::{Error, Kind, Result};

/// Where a server is: `HOST:PORT`, or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host and a port.
    Tcp(String),
    /// A socket of this machine.
    Unix(PathBuf),
}

/// Takes connections.
#[derive(Debug)]
pub enum Listener {
    /// At a TCP port.
    Tcp(TcpListener),
    /// At a Unix socket.
    Unix(UnixListener),
}

impl Address {
    /// A stream to the server.
    ///
    /// # Errors
    /// [`Kind::Unreachable`].
    pub async fn connect(&self) -> Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(place) => {
                let stream = TcpStream::connect(place).await.map_err(|e| self.unreachable(&e))?;
                stream.set_nodelay(true).map_err(|e| self.unreachable(&e))?;
                Ok(Box::new(stream))
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|e| self.unreachable(&e))?;
                Ok(Box::new(stream))
            }
        }
    }

    /// Takes connections from now on. A socket file that nobody listens on any more is taken over.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] if the place is taken or is none.
    pub async fn listen(&self) -> Result<Listener> {
        match self {
            Self::Tcp(place) => {
                let listener = TcpListener::bind(place).await.map_err(|e| self.unreachable(&e))?;
                Ok(Listener::Tcp(listener))
            }
            Self::Unix(path) => {
                let is_left_over = matches!(
                    UnixStream::connect(path).await,
                    Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused
                );
                if is_left_over {
                    std::fs::remove_file(path).map_err(|e| self.unreachable(&e))?;
                }
                Ok(Listener::Unix(UnixListener::bind(path).map_err(|e| self.unreachable(&e))?))
            }
        }
    }

    fn unreachable(&self, error: &std::io::Error) -> Error {
        Error::new(Kind::Unreachable, format!("{self}: {error}"))
    }
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] if none could be taken, for now.
    pub async fn accept(&self) -> Result<Box<dyn Stream>> {
        let failed = |e: std::io::Error| Error::new(Kind::Unreachable, format!("accept: {e}"));
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Ok(Box::new(stream))
            }
            Self::Unix(listener) => Ok(Box::new(listener.accept().await.map_err(failed)?.0)),
        }
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
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(text.into()))
            }
            _ => Err(Error::new(
                Kind::Parameters,
                format!("{text}: an address is HOST:PORT or unix:PATH"),
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => f.write_str(place),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
