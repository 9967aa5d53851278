//! PD-ORAM: an oblivious block store that many clients use at once, on servers that learn nothing
//! from it but how often it is used.
//!
//! Who keeps the bytes is behind [`blob::BlobStore`]; what the server and its clients say to each
//! other is [`wire`]; which generations live when is a function of the number of queries alone
//! ([`schedule`]).
//!
//! Paper: Williams, Sion, Tomescu, "`PrivateFS`: a parallel oblivious file system" (CCS 2012), of
//! which docs/design/oram.md tells what is held and what is completed.

pub mod blob;
mod error;
mod faults;
pub mod geometry;
pub mod link;
pub mod object;
pub mod root;
pub mod schedule;
pub mod server;
pub mod wire;

pub use error::{Error, Kind, Result};
