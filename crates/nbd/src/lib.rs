//! An NBD server: block devices for the kernel's client, QEMU, libnbd and their like, over a Unix
//! socket or the loopback interface.
//!
//! [`Server::start`] serves [`Export`]s on [`Listener`]s until [`Server::stop`]. What exactly is
//! served, byte by byte, is in docs/spec/nbd.md.
//!
//! - [`negotiation`], [`request`] and [`reply`] are the protocol: pure, bytes in and bytes out.
//! - `connection` moves the bytes and calls the device.
//!
//! Nothing is logged: the name of an export, or that there is one, may be a secret.

mod buffers;
mod connection;
mod error;
mod export;
mod input;
mod limits;
mod listener;
mod memory;
pub mod negotiation;
mod patience;
pub mod protocol;
pub mod reply;
pub mod request;
mod server;
mod socket;

pub use error::{Error, Kind, Result};
pub use export::Export;
pub use limits::Limits;
pub use listener::Listener;
pub use server::Server;
