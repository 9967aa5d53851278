//! HIFS, the history-independent file system (Bajaj and Sion, CCS 2013), with the design note's
//! placement rule D, batch commit and redo journal.
#![forbid(unsafe_code)]

mod check;
mod commit;
mod committer;
mod content;
mod error;
#[cfg(not(feature = "faults"))]
#[allow(unreachable_pub, reason = "public with the feature only")]
mod faults;
#[cfg(feature = "faults")]
pub mod faults;
mod file_system;
mod format;
pub mod geometry;
mod hifs;
mod journal;
mod load;
mod map_block;
mod medium;
mod names;
pub mod pack;
mod page;
pub mod placement;
mod record;
mod salvage;
mod superblock;
mod survey;
mod tree;
mod trie;

pub use check::Report;
pub use commit::CommitCost;
pub use error::{Error, Kind, Result};
pub use format::{RootOwner, format};
pub use hifs::{Hifs, OpenOptions, Sync};
pub use journal::Recovery;
pub use salvage::{Loss, Losses};
pub use superblock::Superblock;
pub use survey::{GroupMap, Occupant, Survey};
