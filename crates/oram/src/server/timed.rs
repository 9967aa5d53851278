//! The store, with what it takes counted, and what fails told.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use super::complaints::Complaints;
use super::metrics::{Latency, Metrics};
use crate::blob::{BlobStore, Put, Swap};
use crate::error::{Error, Result};
use crate::object::Object;

/// A store whose operations are counted and timed.
#[derive(Debug)]
pub(super) struct Timed {
    store: Arc<dyn BlobStore>,
    metrics: Arc<Metrics>,
    complaints: Mutex<Complaints>,
    /// Who hears them.
    told: OnceLock<fn(&str)>,
}

impl Timed {
    pub(super) fn new(store: Arc<dyn BlobStore>, metrics: Arc<Metrics>) -> Self {
        Self { store, metrics, complaints: Mutex::default(), told: OnceLock::new() }
    }

    /// Tells from now on what fails.
    pub(super) fn tell(&self, told: fn(&str)) {
        let _ = self.told.set(told);
    }

    /// What has failed last.
    pub(super) fn failure(&self) -> Option<Error> {
        self.complaints().last()
    }

    fn complaints(&self) -> MutexGuard<'_, Complaints> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn time<T>(
        &self,
        of: &Latency,
        operation: &'static str,
        result: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begun = Instant::now();
        let result = result.await;
        of.add(begun.elapsed());
        if let Err(error) = &result {
            self.metrics.storage_failures.add(1);
            let complaint = self.complaints().of(operation, error, Instant::now());
            if let Some((complaint, told)) = complaint.zip(self.told.get()) {
                told(&complaint);
            }
        }
        result
    }

    pub(super) async fn get(&self, object: Object, range: Range<u64>) -> Result<Option<Bytes>> {
        let ranges = [range];
        let got = self.time(&self.metrics.reads, "read", self.store.get(object, &ranges)).await?;
        Ok(got.and_then(|parts| parts.into_iter().next()))
    }

    pub(super) async fn len(&self, object: Object) -> Result<Option<u64>> {
        self.time(&self.metrics.reads, "look", self.store.len(object)).await
    }

    /// The whole blob.
    pub(super) async fn whole(&self, object: Object) -> Result<Option<Bytes>> {
        let Some(len) = self.len(object).await? else { return Ok(None) };
        self.get(object, 0..len).await
    }

    pub(super) async fn put_if_absent(&self, object: Object, bytes: Bytes) -> Result<Put> {
        self.time(&self.metrics.writes, "write", self.store.put_if_absent(object, bytes)).await
    }

    pub(super) async fn delete(&self, object: Object) -> Result<()> {
        self.time(&self.metrics.writes, "remove", self.store.delete(object)).await
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.time(&self.metrics.reads, "list", self.store.list(prefix)).await
    }

    pub(super) async fn root(&self) -> Result<Option<Bytes>> {
        self.time(&self.metrics.reads, "read the root", self.store.root()).await
    }

    pub(super) async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap> {
        self.time(&self.metrics.writes, "write the root", self.store.swap_root(expected, new)).await
    }
}
