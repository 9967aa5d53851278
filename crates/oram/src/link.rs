//! Transports between clients and the server.
//!
//! [`Connection`] is the client's end: it has many requests under way at once and hands on what the
//! server pushes. It speaks over any stream of bytes: TCP, TLS, a Unix socket ([`Address`]), a pipe in
//! memory, or one of them made slow by [`Delay`].

mod address;
mod connection;
mod delay;
pub(crate) mod frames;
mod socket_file;
mod tls;

use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use address::cannot_listen;
pub use address::{Address, Incoming, Listener, Remote};
pub use connection::{Connection, Event, Options, Pending, Welcome};
pub use delay::Delay;
pub use socket_file::SocketFile;
pub use tls::{Identity, Trust};

/// A stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

#[cfg(test)]
mod tests;
