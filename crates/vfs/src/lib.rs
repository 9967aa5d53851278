//! The file system seam: what a storage system supplies ([`FileSystem`]), the POSIX rules written
//! once above it, and the FUSE adapter that mounts the result.
//!
//! A system implements [`FileSystem`]: storage of nodes, entries and content, on plain types and
//! without FUSE, so that tests drive it directly.

pub mod credentials;
mod error;
mod file_system;
pub mod fuse;
pub mod posix;
mod timestamp;

pub use error::{Error, Kind, Result};
pub use file_system::{
    Attr, Change, Cookie, Demand, Entry, Exchange, FileSystem, FileType, FsStats, Link, NewNode,
    NodeId, Opened, Reserve, Seek, Stamps, Target, Timestamp, Wait, XattrMode, check_noted_flags,
};
pub use posix::{ACCESS_LIST, DEFAULT_LIST, Posix};
