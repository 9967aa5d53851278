//! The query log: all records that wait become one object, durable before any of them is answered.
//!
//! Objects do not reach beyond a period. Each begins where the one before ends, and is put only
//! if there is none: so of two servers on one store, one finds that the other was faster, takes its
//! records for what they are, and appends its own behind them.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::sleep;

use super::Core;
use super::feed::{ConnectionId, Feed, Owner};
use super::session::Answers;
use crate::blob::Put;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::object::Object;
use crate::wire::{Answer, Refusal};

/// How often an object is tried to be put before its records are refused.
const PUTS_MAX: u32 = 6;
/// Records that are taken from the queue at once.
const BATCH_MAX: usize = 4096;
/// How long to wait after the first failure; twice as long after each further one.
const PAUSE: Duration = Duration::from_millis(20);

/// A record that waits to be durable.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) fence: u64,
    pub(super) record: Bytes,
    pub(super) number: u64,
    pub(super) answers: Answers,
    /// The connection, if it follows: then it is answered in the order of what it follows.
    pub(super) follower: Option<ConnectionId>,
    /// One of the connection's requests under way.
    pub(super) permit: OwnedSemaphorePermit,
}

/// What is known to whoever commits.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// The latest period that was seen to have a manifest.
    open: Option<u64>,
    /// Whether the log was read.
    pub(super) is_loaded: bool,
}

/// Periods whose records are kept: clients that join read those of three before the latest, and may be
/// in the middle of it while others go on.
const PERIODS_KEPT: u64 = 5;

/// Puts the results of periods that have all of them, until the server is gone.
pub(super) async fn put_all(core: Weak<Core>, mut complete: mpsc::UnboundedReceiver<u64>) {
    while let Some(period) = complete.recv().await {
        let Some(core) = core.upgrade() else { return };
        core.put_results(period).await;
    }
}

/// Makes durable what waits, until the server is gone.
pub(super) async fn commit_all(core: Weak<Core>, mut queue: mpsc::Receiver<Append>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, BATCH_MAX).await > 0 {
        let Some(core) = core.upgrade() else { return };
        while !waiting.is_empty() {
            core.commit_some(&mut waiting).await;
        }
    }
}

impl Core {
    /// Makes durable what of `waiting` belongs to the period that the next record belongs to.
    async fn commit_some(&self, waiting: &mut Vec<Append>) {
        let mut commits = self.commit.lock().await;
        let fence = self.known_root().as_ref().map(|(_, root)| root.fence);
        let refused: Vec<_> = waiting.extract_if(.., |w| Some(w.fence) != fence).collect();
        self.refuse(refused, Refusal::Fenced);
        let Some(period_len) = self.geometry.get().map(crate::geometry::Geometry::period) else {
            return;
        };
        let first = self.feed().next();
        let room = usize::try_from(period_len - first % period_len).expect("a period is short");
        let batch: Vec<_> = waiting.drain(..waiting.len().min(room)).collect();
        if batch.is_empty() {
            return;
        }
        match self.is_open(&mut commits, first / period_len).await {
            Ok(true) => {}
            Ok(false) => return self.refuse(batch, Refusal::PeriodClosed),
            Err(_) => return self.refuse(batch, Refusal::Storage),
        }
        let mut bytes = BytesMut::new();
        for append in &batch {
            bytes.extend_from_slice(&append.record);
        }
        if planted(Fault::EarlyAnswer) {
            return self.publish(batch);
        }
        match self.put_records(first, bytes.freeze()).await {
            Ok(None) => self.publish(batch),
            Ok(Some(others)) => {
                self.feed().append(others.into_iter().map(|record| (record, None)));
                self.changed.send_replace(());
                // Behind those they may belong to another period.
                waiting.splice(..0, batch);
            }
            Err(_) => self.refuse(batch, Refusal::Storage),
        }
    }

    /// Tells of records that are durable now.
    fn publish(&self, batch: Vec<Append>) {
        self.metrics.commits.add(1);
        self.metrics.queries.add(batch.len() as u64);
        let mut feed = self.feed();
        let mut records = Vec::with_capacity(batch.len());
        for (sequence, append) in (feed.next()..).zip(batch) {
            let Append { record, number, answers, follower, permit, .. } = append;
            let owner = if let Some(id) = follower.filter(|_| !planted(Fault::OrderLost)) {
                Some(Owner { id, number, permit: Some(permit) })
            } else {
                answers.send(number, Answer::Appended { sequence }, vec![permit]);
                None
            };
            records.push((record, owner));
        }
        feed.append(records);
        drop(feed);
        self.changed.send_replace(());
    }

    fn refuse(&self, batch: Vec<Append>, refusal: Refusal) {
        for append in batch {
            self.metrics.refused(refusal);
            append.answers.send(append.number, Answer::Refused(refusal), vec![append.permit]);
        }
    }

    /// Puts an object of records; if there is another already, its records.
    ///
    /// After a failure the object may be there: then it is found at the next try, or by the next
    /// commit, whose records come behind it.
    async fn put_records(&self, first: u64, bytes: Bytes) -> Result<Option<Vec<Bytes>>> {
        let object = Object::Log { first };
        let mut pause = PAUSE;
        for attempt in 1.. {
            match self.store.put_if_absent(object, bytes.clone()).await {
                Ok(Put::Created) => return Ok(None),
                Ok(Put::Exists) => match self.read_records(first).await {
                    Ok(there) if there == bytes => return Ok(None),
                    Ok(there) => return self.cut_records(first, there).map(Some),
                    Err(error) if attempt == PUTS_MAX => return Err(error),
                    Err(_) => {}
                },
                Err(error) if attempt == PUTS_MAX => return Err(error),
                Err(_) => {}
            }
            sleep(pause).await;
            pause *= 2;
        }
        unreachable!("the last attempt returns")
    }

    async fn read_records(&self, first: u64) -> Result<Bytes> {
        let object = Object::Log { first };
        let gone = || Error::new(Kind::Storage, format!("{object} is there and is not"));
        self.store.whole(object).await?.ok_or_else(gone)
    }

    fn cut_records(&self, first: u64, mut bytes: Bytes) -> Result<Vec<Bytes>> {
        let geometry = self.geometry.get().expect("a log is read where there is a store");
        let (len, period) = (geometry.record_len(), geometry.period());
        let count = (bytes.len() / len) as u64;
        if count == 0 || !bytes.len().is_multiple_of(len) || first % period + count > period {
            let what = format!("{} is not as long as records are", Object::Log { first });
            return Err(Error::new(Kind::Storage, what));
        }
        Ok((0..count).map(|_| bytes.split_to(len)).collect())
    }

    /// Whether records may be appended to `period`: it has a manifest. Then what the period before the one
    /// before has left is in a generation, so results that it misses are needed by nobody; and what is
    /// in memory is bounded.
    async fn is_open(&self, commits: &mut Commits, period: u64) -> Result<bool> {
        if commits.open.is_none_or(|open| open < period) {
            if self.store.len(Object::Manifest { period }).await?.is_none() {
                return Ok(false);
            }
            commits.open = Some(period);
            let mut feed = self.feed();
            while let Some(earliest) = feed.earliest_collecting().filter(|e| e + 2 <= period) {
                feed.collected(earliest);
            }
        }
        Ok(true)
    }

    /// Reads where the log ends, and its last two periods.
    pub(super) async fn load_log(&self) -> Result<()> {
        let period = self.geometry.get().expect("there is a root").period();
        let mut firsts: Vec<u64> = Vec::new();
        for object in self.store.list("log/").await? {
            if let Object::Log { first } = object {
                firsts.push(first);
            }
        }
        firsts.sort_unstable();
        let mut feed = Feed::begin(period, 0, BTreeMap::new());
        if let Some(last) = firsts.last().copied() {
            let count = self.cut_records(last, self.read_records(last).await?)?.len() as u64;
            let current = (last + count - 1) / period;
            let base = current.saturating_sub(1) * period;
            let (old, recent): (Vec<u64>, Vec<u64>) =
                firsts.iter().copied().partition(|first| *first < base);
            let ends = firsts.iter().skip(1);
            let objects = old.iter().zip(ends).map(|(first, end)| (*first, end - first)).collect();
            feed = Feed::begin(period, recent.first().copied().unwrap_or(base), objects);
            for first in recent {
                if feed.next() != first {
                    let what = format!("the log has a hole before {}", Object::Log { first });
                    return Err(Error::new(Kind::Storage, what));
                }
                let records = self.cut_records(first, self.read_records(first).await?)?;
                feed.append(records.into_iter().map(|record| (record, None)));
            }
            for period in current.saturating_sub(1)..=current {
                if self.store.len(Object::Results { period }).await?.is_some() {
                    feed.collected(period);
                }
            }
        }
        *self.feed() = feed;
        self.changed.send_replace(());
        Ok(())
    }

    /// Removes records and results that nobody asks for any more, now that `period` has opened. What cannot
    /// be removed now is when the next one opens.
    pub(super) async fn remove_old(&self, period: u64) {
        let Some(geometry) = self.geometry.get() else { return };
        let kept = period.saturating_sub(PERIODS_KEPT);
        let is_old = |object: &Object| match object {
            Object::Log { first } => *first < kept * geometry.period(),
            Object::Results { period } => *period < kept,
            _ => false,
        };
        for prefix in ["log/", "results/"] {
            let Ok(names) = self.store.list(prefix).await else { return };
            for object in names.into_iter().filter(is_old) {
                // Counted where storage is asked.
                let _ = self.store.delete(object).await;
            }
        }
    }

    /// Puts the results of a period that has all of them, however often it takes.
    async fn put_results(&self, period: u64) {
        let Some(results) = self.feed().results(period) else { return };
        let bytes = Bytes::from(results.concat());
        let mut pause = PAUSE;
        while self.store.put_if_absent(Object::Results { period }, bytes.clone()).await.is_err() {
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
        self.feed().collected(period);
    }
}
