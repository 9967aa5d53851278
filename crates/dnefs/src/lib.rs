//! DNEFS, the data node encrypted flash file system: every node has a key of its own, keys lie in an
//! area that is purged, and what was deleted cannot be decrypted after the next purge.
//!
//! Paper: *Data Node Encrypted File System: Efficient Secure Deletion for Flash Memory*; what is built
//! here, and where it differs, is in `docs/design/dnefs.md`, the bytes in `docs/spec/dnefs.md`.

mod check;
mod checkpoint;
mod collection;
mod content;
mod dnefs;
mod entries;
mod ephemeral;
mod error;
#[cfg(not(feature = "faults"))]
#[allow(unreachable_pub, reason = "public with the feature only")]
mod faults;
#[cfg(feature = "faults")]
pub mod faults;
mod file_system;
mod format;
mod granularity;
mod index;
mod inodes;
mod keys;
mod load;
mod log;
mod map;
mod password;
mod policy;
mod purge;
mod receipts;
mod roots;
mod store;
mod unread;

pub use check::{Findings, check};
pub use dnefs::{Dnefs, PurgeScope, Usage};
pub use ephemeral::make_ephemeral;
pub use error::{Error, Kind, Result};
pub use format::{FormatOptions, format, plan, read_superblock};
pub use granularity::{ChipShape, PAPER_PURGE, VolumeCost};
pub use map::{BlockUse, KeyUse, Map, Role, map};
pub use password::{erase, set_password};
pub use policy::Policy;
pub use receipts::receipts;
pub use tacita_dnefs_format::receipt::Receipt;
pub use tacita_dnefs_format::record::Time;
pub use tacita_dnefs_format::{
    CipherChoice, Compression, LEBS_MIN, Layout, Parameters, Protection, Superblock,
};
