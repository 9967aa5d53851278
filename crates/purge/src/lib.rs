//! Purgefs: what any program deletes, truncates or replaces is overwritten, on an ordinary file
//! system (Joukov and Zadok, SISW 2005).
//!
//! The engine overwrites one file and says what can be said of it ([`Removal`], [`Suitability`]);
//! the overlay ([`Overlay`]) does so for every program that works through its mount.

mod descriptors;
mod erasure;
mod error;
mod ext4;
mod extents;
pub mod faults;
mod fillers;
mod handle;
mod kernel;
mod lower_fs;
mod method;
mod names;
mod obstacle;
mod overlay;
mod policy;
mod purger;
mod readers;
mod removal;
pub mod spool;
mod statistics;
mod suits;
mod verdict;
mod virtual_disk;
pub mod witness;
mod xattrs;

pub use error::{Error, Kind, Result};
pub use extents::{Extent, Map, State};
pub use lower_fs::{InPlace, Journal, LowerFs, Names};
pub use method::{METHOD_LEN_MAX, Method, PASS_COUNT_MAX, Pattern};
pub use overlay::{Overlay, OverlayOptions};
pub use policy::{OnFailure, POLICY_ATTRIBUTE, Policy, Rule, parse_rules};
pub use removal::{Removal, RemovalOptions, Watcher};
pub use suits::Suitability;
pub use verdict::{Content, Part, Proof, Verdict};
pub use virtual_disk::is_virtual_disk;
