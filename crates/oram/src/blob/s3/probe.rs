//! Whether a server does what a store needs, tried before anything is believed of it.

use bytes::Bytes;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, UpdateVersion};

use super::S3Store;
use crate::error::{Error, Kind, Result};

/// What is put there to be refused.
const OTHER: &[u8] = b"something else";
/// The `ETag` of nothing.
const NO_TAG: &str = "\"00000000000000000000000000000000\"";

impl S3Store {
    /// Lists, then puts, swaps, reads and removes an object of which nobody else knows, and has the server
    /// refuse what it has to refuse.
    pub(super) async fn probe(&self) -> Result<()> {
        let options = PaginatedListOptions { max_keys: Some(1), ..Default::default() };
        let begin = self.name("");
        let prefix = (!begin.is_empty()).then_some(begin.as_str());
        let list = || self.bucket.list_paginated(prefix, options.clone());
        self.repeat("list", 0, list).await?.ok_or_else(|| self.no_buckets())?;
        let (_, mark) = self.attempts()?;
        let path = self.path(format!("probe-{mark}"));
        let tried = self.conditions(&path, &mark).await;
        let removed = self.repeat("remove", 0, || self.bucket.delete(&path)).await;
        tried.and(removed.map(drop))
    }

    async fn conditions(&self, path: &Path, mark: &str) -> Result<()> {
        let put = async |bytes: &Bytes, mode: PutMode| {
            let (mut attempts, _) = self.attempts()?;
            loop {
                match self.put(path, bytes, mode.clone(), mark).await {
                    Err(trouble) if trouble.is_passing() && attempts.wait().await => {}
                    put => return Ok::<_, Error>(put),
                }
            }
        };
        let (first, other) = (Bytes::from(mark.to_owned()), Bytes::from_static(OTHER));
        let e_tag = match put(&first, PutMode::Create).await? {
            Ok(e_tag) => e_tag,
            // An attempt before this one has done it.
            Err(trouble) if trouble.is_conflict() => {
                self.look(path).await?.and_then(|found| found.meta.e_tag)
            }
            Err(trouble) => return Err(self.failed("write", &trouble)),
        };
        let Some(e_tag) = e_tag else { return Err(self.careless("gives no ETag for an object")) };
        let swap =
            |e_tag: String| PutMode::Update(UpdateVersion { e_tag: Some(e_tag), version: None });
        for (mode, wrong) in [
            (PutMode::Create, "writes over an object in spite of If-None-Match"),
            (swap(NO_TAG.to_owned()), "writes over an object in spite of If-Match"),
        ] {
            match put(&other, mode).await? {
                Err(trouble) if trouble.is_conflict() => {}
                Err(trouble) => return Err(self.failed("write on a condition", &trouble)),
                Ok(_) => return Err(self.careless(wrong)),
            }
        }
        let len = first.len() as u64;
        if self.part(path, &(0..len)).await? != Some(first) {
            return Err(self.careless("does not give back what was put"));
        }
        put(&other, swap(e_tag)).await?.map_err(|trouble| self.failed("write", &trouble)).map(drop)
    }

    fn careless(&self, what: &str) -> Error {
        let text = format!(
            "{}: the server {what}: it would lose what clients write, and no store is kept there. A \
             newer version of it may do better",
            self.place
        );
        Error::new(Kind::Storage, text)
    }
}
