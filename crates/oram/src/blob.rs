//! The seam to whatever holds the bytes of a store: blobs that are written once, and one small root
//! that is compared and swapped.

#[cfg(any(test, feature = "faults"))]
pub mod conformance;
#[cfg(any(test, feature = "faults"))]
mod faulty;
mod folder;
mod leased;
mod memory;
mod redis;
mod s3;

#[cfg(any(test, feature = "faults"))]
pub use faulty::{FaultyStore, Mishap, Plan};
pub(crate) use folder::Beginning;
pub use folder::FolderStore;
pub use leased::{Lease, Leased, Loss, Process};
pub use memory::{Held, MemoryStore};
pub use redis::RedisStore;
pub use s3::{
    Credentials, Keys, ProfileFile, ProfilePlace, Profiles, Role, S3Access, S3Place, S3Store,
    WrongLine,
};

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, Kind, Result};
use crate::object::Object;

/// Bytes of the root at most.
pub const ROOT_LEN_MAX: usize = 4096;

/// Who keeps blobs. What has returned is durable, and everybody who asks later sees it.
#[async_trait]
pub trait BlobStore: Send + Sync + std::fmt::Debug {
    /// The bytes of each of `ranges` of the blob; `None` if there is no such blob. A range that ends
    /// behind the blob is an error.
    ///
    /// # Errors
    /// [`crate::Kind::Storage`].
    async fn get(&self, object: Object, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>>;

    /// Length of the blob in bytes; `None` if there is no such blob.
    ///
    /// # Errors
    /// [`crate::Kind::Storage`].
    async fn len(&self, object: Object) -> Result<Option<u64>>;

    /// Writes the blob whole, unless there is one of that name: then nothing is written. Of several
    /// writers at once one is told `Created`.
    ///
    /// # Errors
    /// [`crate::Kind::Storage`]; then the blob is there whole or not at all.
    async fn put_if_absent(&self, object: Object, bytes: Bytes) -> Result<Put>;

    /// Removes the blob; that there is none is no error.
    ///
    /// # Errors
    /// [`crate::Kind::Storage`].
    async fn delete(&self, object: Object) -> Result<()>;

    /// All blobs whose names begin with `prefix` (see [`Object`]'s `Display`), in no order.
    ///
    /// # Errors
    /// [`crate::Kind::Storage`].
    async fn list(&self, prefix: &str) -> Result<Vec<Object>>;

    /// The root; `None` if there is none yet.
    ///
    /// # Errors
    /// [`crate::Kind::Storage`].
    async fn root(&self) -> Result<Option<Bytes>>;

    /// Makes `new` the root if the root is `expected` now (`None`: if there is none).
    ///
    /// # Errors
    /// [`crate::Kind::Storage`]; then the root is one of the two.
    async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap>;
}

/// What came of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The blob is there now.
    Created,
    /// There was one already, and it is as it was.
    Exists,
}

/// What came of a swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The root is the new one.
    Swapped,
    /// The root is something else than what was expected: this (`None`: nothing).
    Differs(Option<Bytes>),
}

/// `range` of a blob of `len` bytes, for memory.
fn within(object: Object, range: &Range<u64>, len: u64) -> Result<Range<usize>> {
    let refuse =
        || Error::new(Kind::Storage, format!("{object} has {len} bytes: there are no {range:?}"));
    if range.start > range.end || range.end > len {
        return Err(refuse());
    }
    let index = |at: u64| usize::try_from(at).map_err(|_| refuse());
    Ok(index(range.start)?..index(range.end)?)
}

#[cfg(test)]
mod tests;
