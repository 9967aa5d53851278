//! Blobs as objects of a bucket, of Amazon S3 or a server like it, called as objects are displayed, under a
//! prefix.
//!
//! A blob is put with `If-None-Match: *`, the root with `If-Match` and the `ETag` of the one that was
//! expected. Servers that take such a request twice are refused when a store is opened. Each put has a
//! mark of its own beside its bytes: whoever was not told what came of one finds by the mark whether the
//! object that is there is its own, although others may have put the same bytes.

mod access;
mod credentials;
mod http;
mod probe;
mod profile;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, UpdateVersion,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::{BlobStore, Put, ROOT_LEN_MAX, Swap};
use crate::error::{Error, Kind, Result};
use crate::object::Object;
use crate::waiters::{Waiter, Waiters};
pub use access::{S3Access, S3Place};
use credentials::Asking;
pub use credentials::{Credentials, Keys, ProfilePlace, Role};
use http::{CONNECTING, Requests, Trouble, no_retries};
pub use profile::{ProfileFile, Profiles, WrongLine};

/// How long the server may take for a request when all before it are answered, and how many bytes a second
/// are to go through besides.
const PATIENCE: Duration = Duration::from_secs(20);
const PACE_BYTES: u64 = 256 << 10;
/// Requests under way at once; more of them wait.
const REQUESTS_MAX: usize = 128;
/// How long what fails for now is tried again, while the store is opened and later.
const OPENING: Duration = Duration::from_secs(8);
const WORKING: Duration = Duration::from_secs(20);
/// How long to wait after the first failure, and at most; twice as long after each further one.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A store in a bucket.
pub struct S3Store {
    bucket: AmazonS3,
    asking: Arc<Asking>,
    place: S3Place,
    requests: Semaphore,
    /// Those who have a request under way, or wait for their turn.
    asked: Arc<Waiters>,
    trying: Duration,
}

/// A root as it lies in the bucket.
struct Kept {
    bytes: Bytes,
    e_tag: Option<String>,
    mark: Option<String>,
}

/// How often something is tried, and for how long.
struct Attempts {
    until: Instant,
    pause: Duration,
    jitter: u8,
}

impl S3Store {
    /// Opens the store at `place`, and tries there whether the server does what a store needs.
    ///
    /// # Errors
    /// [`Kind::Storage`] if the server or who gives the credentials cannot be reached, does not accept them,
    /// has no such bucket, does not let it be read and written, or takes conditional writes that it has to
    /// refuse; [`Kind::Parameters`] if nobody can vouch for it, or if this machine has no role and there is
    /// nothing else.
    pub async fn open(place: &S3Place, access: &S3Access) -> Result<Self> {
        let asking = Arc::new(Asking::new(access)?);
        asking.try_machine().await?;
        let http = Requests::new(access.roots.as_deref(), access.is_plain(), CONNECTING)?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&place.bucket)
            .with_region(&access.region)
            .with_credentials(asking.clone())
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_disable_bulk_delete(true)
            .with_http_connector(http)
            // What was tried before has to be known to judge what is answered.
            .with_retry(no_retries());
        if let Some(endpoint) = &access.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        // It is not shown what is wrong, for it may have been made from credentials.
        let wrong = |_| Error::new(Kind::Parameters, format!("{place}: it makes no requests"));
        let bucket = builder.build().map_err(wrong)?;
        let requests = Semaphore::new(REQUESTS_MAX);
        let (place, asked) = (place.clone(), Arc::default());
        let mut store = Self { bucket, asking, place, requests, asked, trying: OPENING };
        store.probe().await?;
        store.trying = WORKING;
        Ok(store)
    }

    /// The root that says who serves this store, in the same place.
    pub(crate) fn served(&self) -> Self {
        let place = S3Place { prefix: self.name("served"), ..self.place.clone() };
        let requests = Semaphore::new(REQUESTS_MAX);
        let (bucket, asking) = (self.bucket.clone(), self.asking.clone());
        Self { bucket, asking, place, requests, asked: Arc::default(), trying: self.trying }
    }

    fn name(&self, name: &str) -> String {
        match self.place.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    fn path(&self, name: impl fmt::Display) -> Path {
        Path::from(self.name(&name.to_string()))
    }

    fn failed(&self, operation: &str, trouble: &Trouble) -> Error {
        let text = format!("{}, {operation}: {trouble}", self.place);
        if trouble.is_of_room() {
            return Error::of_full_storage(text);
        }
        Error::new(Kind::Storage, text)
    }

    /// A list is never absent: an empty one is a list.
    fn no_buckets(&self) -> Error {
        Error::new(Kind::Storage, format!("{}, list: the server knows no buckets", self.place))
    }

    fn attempts(&self) -> Result<(Attempts, String)> {
        let random = tacita_secret::random::<16>();
        let random =
            random.map_err(|e| Error::new(Kind::Storage, format!("no random bytes: {e}")))?;
        let attempts =
            Attempts { until: Instant::now() + self.trying, pause: PAUSE, jitter: random[0] };
        Ok((attempts, format!("{:032x}", u128::from_le_bytes(random))))
    }

    /// Asks once, about so many bytes.
    async fn once<T>(
        &self,
        len: u64,
        asked: impl Future<Output = object_store::Result<T>>,
    ) -> std::result::Result<T, Trouble> {
        let waiter = Waiter::begin(&self.asked);
        let _permit = self.requests.acquire().await.expect("nobody closes it");
        let patience = PATIENCE + Duration::from_secs(len / PACE_BYTES);
        let begun = Instant::now();
        // A server may do one after the other of all that are under way.
        let Some(answer) = waiter.patiently(patience, asked).await else {
            let why = "the server does not answer in time".to_owned();
            return Err(Trouble::Lost { why, is_passing: true });
        };
        let answer = answer.map_err(|e| {
            let trouble = Trouble::of(&e);
            let is_renewed = trouble.may_be_of_credentials() && self.asking.renew(begun);
            if is_renewed { trouble.renewed() } else { trouble }
        });
        // That there is no such thing is an answer, too.
        if !answer.as_ref().is_err_and(Trouble::is_passing) {
            waiter.is_answered();
        }
        answer
    }

    /// Asks until there is an answer, for what can be done any number of times; `None` if there is no such
    /// thing.
    async fn repeat<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        operation: &str,
        len: u64,
        mut ask: impl FnMut() -> F,
    ) -> Result<Option<T>> {
        let (mut attempts, _) = self.attempts()?;
        loop {
            match self.once(len, ask()).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(Trouble::Refused(refused)) if refused.is_absent() => return Ok(None),
                Err(trouble) if trouble.is_passing() && attempts.wait().await => {}
                Err(trouble) => return Err(self.failed(operation, &trouble)),
            }
        }
    }

    /// The object as the bucket tells of it, without its bytes.
    async fn look(&self, path: &Path) -> Result<Option<GetResult>> {
        let options = || GetOptions { head: true, ..GetOptions::default() };
        self.repeat("look", 0, || self.bucket.get_opts(path, options())).await
    }

    async fn part(&self, path: &Path, range: &Range<u64>) -> Result<Option<Bytes>> {
        let len = range.end - range.start;
        let ask = || {
            let range = Some(GetRange::Bounded(range.clone()));
            let options = GetOptions { range, ..GetOptions::default() };
            async { self.bucket.get_opts(path, options).await?.bytes().await }
        };
        self.repeat("read", len, ask).await
    }

    /// Puts an object with a mark, if things are as `mode` has them.
    async fn put(
        &self,
        path: &Path,
        bytes: &Bytes,
        mode: PutMode,
        mark: &str,
    ) -> std::result::Result<Option<String>, Trouble> {
        let attributes = Attributes::from_iter([(mark_attribute(), mark.to_owned())]);
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        let payload = PutPayload::from(bytes.clone());
        let put = self.once(bytes.len() as u64, self.bucket.put_opts(path, payload, options));
        put.await.map(|put| put.e_tag)
    }

    async fn kept_root(&self) -> Result<Option<Kept>> {
        let path = self.path("root");
        let ask = || async {
            let got = self.bucket.get_opts(&path, GetOptions::default()).await?;
            let (mark, e_tag) = (mark_of(&got), got.meta.e_tag.clone());
            let is_root = got.meta.size <= ROOT_LEN_MAX as u64;
            let bytes = if is_root { Some(got.bytes().await?) } else { None };
            Ok((bytes, e_tag, mark))
        };
        match self.repeat("read the root", ROOT_LEN_MAX as u64, ask).await? {
            None => Ok(None),
            Some((Some(bytes), e_tag, mark)) => Ok(Some(Kept { bytes, e_tag, mark })),
            Some((None, ..)) => {
                let what = format!("{}: the object `root` is none of a store", self.place);
                Err(Error::new(Kind::NotAStore, what))
            }
        }
    }
}

impl Attempts {
    /// Waits for the next one; `false` if there is no time for it.
    async fn wait(&mut self) -> bool {
        // So that those that failed at the same time do not come again at the same time.
        let share = u32::from(self.jitter % 128) + 128;
        self.jitter = self.jitter.wrapping_mul(77).wrapping_add(29);
        let pause = self.pause * share / 256;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        if Instant::now() + pause >= self.until {
            return false;
        }
        sleep(pause).await;
        true
    }
}

#[async_trait]
impl BlobStore for S3Store {
    async fn get(&self, object: Object, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        let path = self.path(object);
        let (mut parts, mut whole) = (Vec::with_capacity(ranges.len()), None);
        if !ranges.iter().any(|range| range.start < range.end) {
            let Some(len) = self.len(object).await? else { return Ok(None) };
            whole = Some(len);
        }
        for range in ranges {
            if range.start >= range.end {
                // Nothing can be asked for by no bytes.
                if whole.is_none() {
                    whole = self.len(object).await?;
                }
                let Some(len) = whole else { return Ok(None) };
                super::within(object, range, len)?;
                parts.push(Bytes::new());
                continue;
            }
            let Some(part) = self.part(&path, range).await? else { return Ok(None) };
            if part.len() as u64 != range.end - range.start {
                let what = format!("{}, read: {object} ends within {range:?}", self.place);
                return Err(Error::new(Kind::Storage, what));
            }
            parts.push(part);
        }
        Ok(Some(parts))
    }

    async fn len(&self, object: Object) -> Result<Option<u64>> {
        Ok(self.look(&self.path(object)).await?.map(|found| found.meta.size))
    }

    async fn put_if_absent(&self, object: Object, bytes: Bytes) -> Result<Put> {
        let path = self.path(object);
        let (mut attempts, mark) = self.attempts()?;
        loop {
            let Err(trouble) = self.put(&path, &bytes, PutMode::Create, &mark).await else {
                return Ok(Put::Created);
            };
            if trouble.is_conflict() {
                // An earlier attempt may have done it. If nothing is there somebody else is at it.
                if let Some(found) = self.look(&path).await? {
                    let is_own = mark_of(&found).as_ref() == Some(&mark);
                    return Ok(if is_own { Put::Created } else { Put::Exists });
                }
            } else if !trouble.is_passing() {
                return Err(self.failed("write", &trouble));
            }
            if !attempts.wait().await {
                return Err(self.failed("write", &trouble));
            }
        }
    }

    async fn delete(&self, object: Object) -> Result<()> {
        let path = self.path(object);
        self.repeat("remove", 0, || self.bucket.delete(&path)).await.map(|_| ())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let begin = self.name("");
        let (prefix, mut names, mut page) = (self.name(prefix), Vec::new(), None);
        loop {
            let ask = || {
                let options =
                    PaginatedListOptions { page_token: page.clone(), ..Default::default() };
                self.bucket.list_paginated(
                    Some(&prefix).filter(|p| !p.is_empty()).map(String::as_str),
                    options,
                )
            };
            let listed = self.repeat("list", 0, ask).await?.ok_or_else(|| self.no_buckets())?;
            names.extend(listed.result.objects.iter().filter_map(|found| {
                found.location.as_ref().strip_prefix(&begin)?.parse::<Object>().ok()
            }));
            page = listed.page_token;
            if page.is_none() {
                return Ok(names);
            }
        }
    }

    async fn root(&self) -> Result<Option<Bytes>> {
        Ok(self.kept_root().await?.map(|kept| kept.bytes))
    }

    async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap> {
        let path = self.path("root");
        let (mut attempts, mark) = self.attempts()?;
        loop {
            let now = self.kept_root().await?;
            if let Some(now) = &now
                && now.mark.as_ref() == Some(&mark)
            {
                // An earlier attempt has done it.
                return Ok(Swap::Swapped);
            }
            if now.as_ref().map(|now| &now.bytes) != expected.as_ref() {
                return Ok(Swap::Differs(now.map(|now| now.bytes)));
            }
            let mode = now.map_or(PutMode::Create, |now| {
                PutMode::Update(UpdateVersion { e_tag: now.e_tag, version: None })
            });
            let trouble = loop {
                let Err(trouble) = self.put(&path, &new, mode.clone(), &mark).await else {
                    return Ok(Swap::Swapped);
                };
                // What the server has against it may be that an attempt has done it.
                if trouble.is_conflict() || !trouble.is_passing() || !attempts.wait().await {
                    break trouble;
                }
            };
            if !trouble.is_conflict() || !attempts.wait().await {
                return Err(self.failed("write the root", &trouble));
            }
        }
    }
}

impl fmt::Debug for S3Store {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store").field("place", &self.place).finish_non_exhaustive()
    }
}

fn mark_attribute() -> Attribute {
    Attribute::Metadata("tacita".into())
}

fn mark_of(found: &GetResult) -> Option<String> {
    found.attributes.get(&mark_attribute()).map(|mark| mark.as_ref().to_owned())
}
