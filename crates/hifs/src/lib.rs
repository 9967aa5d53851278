//! HIFS, the history-independent file system (Bajaj and Sion, CCS 2013), with the design note's
//! placement rule D, batch commit and redo journal.
#![forbid(unsafe_code)]

mod error;
pub mod geometry;
mod map_block;
mod names;
mod page;
pub mod placement;
mod record;
mod superblock;
mod trie;

pub use error::{Error, Kind, Result};
