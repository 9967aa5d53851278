//! Blobs in memory: for tests, and for what need not outlive the process.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::{BlobStore, Put, Swap, within};
use crate::error::Result;
use crate::object::Object;

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    held: Mutex<Held>,
}

/// All that a store in memory keeps, as of one moment.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its blobs.
    pub blobs: BTreeMap<Object, Bytes>,
    /// Its root.
    pub root: Option<Bytes>,
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// What it keeps now.
    pub fn snapshot(&self) -> Held {
        self.lock().clone()
    }

    /// Sets it back, or wherever else.
    pub fn restore(&self, held: Held) {
        *self.lock() = held;
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl BlobStore for MemoryStore {
    async fn get(&self, object: Object, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        let Some(blob) = self.lock().blobs.get(&object).cloned() else { return Ok(None) };
        let cut = |range: &Range<u64>| {
            let range = within(object, range, blob.len() as u64)?;
            Ok(blob.slice(range))
        };
        ranges.iter().map(cut).collect::<Result<_>>().map(Some)
    }

    async fn len(&self, object: Object) -> Result<Option<u64>> {
        Ok(self.lock().blobs.get(&object).map(|blob| blob.len() as u64))
    }

    async fn put_if_absent(&self, object: Object, bytes: Bytes) -> Result<Put> {
        let mut held = self.lock();
        if held.blobs.contains_key(&object) {
            return Ok(Put::Exists);
        }
        held.blobs.insert(object, bytes);
        Ok(Put::Created)
    }

    async fn delete(&self, object: Object) -> Result<()> {
        self.lock().blobs.remove(&object);
        Ok(())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let held = self.lock();
        Ok(held.blobs.keys().filter(|o| o.to_string().starts_with(prefix)).copied().collect())
    }

    async fn root(&self) -> Result<Option<Bytes>> {
        Ok(self.lock().root.clone())
    }

    async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap> {
        let mut held = self.lock();
        if held.root != expected {
            return Ok(Swap::Differs(held.root.clone()));
        }
        held.root = Some(new);
        Ok(Swap::Swapped)
    }
}
