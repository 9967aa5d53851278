//! `PrivateFS`: a file system in an oblivious store. The store's server sees a stream of equal queries, and
//! not which file they are for, whether it is there, or whether it is read or written.
//!
//! Everything is a block whose id follows from a key ([`ids`]): an inode, a part of a file, a bucket of
//! names. Operations are pure steps over a view of blocks in memory (`view`, `tree`, `content`); what
//! they miss is fetched with no lock held, and they begin anew. What they change is collected, and
//! `commit` makes it durable at once, whatever happens in between. Several mounts of one store take
//! turns (`turn`).
//!
//! Paper: Williams, Sion, Tomescu, "`PrivateFS`: a parallel oblivious file system" (CCS 2012), of which
//! docs/design/privatefs.md tells what is held and what is completed; the bytes: docs/spec/privatefs.md.

pub mod blocks;
mod cache;
mod check;
mod commit;
mod content;
pub mod directory;
mod error;
#[cfg(not(feature = "faults"))]
#[allow(unreachable_pub, reason = "public with the feature only")]
mod faults;
#[cfg(feature = "faults")]
pub mod faults;
mod fields;
mod file_system;
mod format;
pub mod ids;
pub mod inode;
pub mod journal;
mod links;
mod nodes;
mod privatefs;
mod reaper;
pub mod register;
mod tree;
mod turn;
mod usage;
mod view;

pub use check::{Findings, check};
pub use error::{Error, Kind, Result};
pub use fields::Stamp;
pub use format::{Facts, facts, format};
pub use privatefs::{Background, Options, PrivateFs};
