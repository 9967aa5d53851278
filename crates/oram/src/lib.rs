//! PD-ORAM: an oblivious block store that many clients use at once, on servers that learn nothing
//! from it but how often it is used.
//!
//! Who keeps the bytes is behind [`blob::BlobStore`]; what the server and its clients say to each
//! other is [`wire`]; which generations live when is a function of the number of queries alone
//! ([`schedule`]).
//!
//! Paper: Williams, Sion, Tomescu, "`PrivateFS`: a parallel oblivious file system" (CCS 2012), of
//! which docs/design/oram.md tells what is held and what is completed.

pub mod agreement;
pub mod anchor;
pub mod blob;
pub mod build;
pub mod client;
mod device;
mod durable;
pub mod engine;
mod error;
#[cfg(not(feature = "faults"))]
#[allow(unreachable_pub, reason = "public with the feature only")]
mod faults;
#[cfg(feature = "faults")]
pub mod faults;
mod filter;
pub mod geometry;
mod item;
pub mod key_file;
pub mod keys;
pub mod link;
pub mod load;
pub mod log_view;
pub mod lookup;
pub mod manifest;
pub mod object;
pub mod plan;
pub mod record;
pub mod root;
pub mod schedule;
pub mod server;
mod store;
mod threads;
pub mod trace;
mod trust;
mod waiters;
pub mod wire;

pub use client::{Access, Checked, Patience, Progress, RATE_MAX, Status};
pub use device::Device;
pub use error::{Error, Kind, Result};
pub use store::{AnchorAt, Hosted, OpenPlace, Options, Store, Way};
