//! One query: into the log, through all generations, and its result beside the log.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Access, Anchorage, Shared, State};
use crate::anchor::Mark;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::geometry::Geometry;
use crate::keys::Id;
use crate::link::Connection;
use crate::log_view::Outcome;
use crate::lookup::{Asked, Lookup};
use crate::record::{Found, Operation, Position, Record, RequestId};
use crate::waiters::Waiter;
use crate::wire::{Answer, Refusal, Request};

/// Counts a query as under way.
struct UnderWay<'a>(&'a Shared);

impl<'a> UnderWay<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.change(|state| state.under_way += 1);
        Self(shared)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.under_way -= 1);
    }
}

/// Counts a result as one that has not reached the server.
struct Storing(Arc<Shared>);

impl Storing {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.lock().storing += 1;
        Self(shared.clone())
    }
}

impl Drop for Storing {
    fn drop(&mut self) {
        self.0.change(|state| state.storing -= 1);
    }
}

/// Counts a query as one that waits until builds are further.
struct HeldBack<'a> {
    shared: &'a Shared,
    is_counted: bool,
}

impl HeldBack<'_> {
    fn count(&mut self, state: &mut State) {
        if !self.is_counted {
            self.is_counted = true;
            state.held_back += 1;
        }
    }
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.shared.lock().held_back -= 1;
        }
    }
}

impl Shared {
    /// Waits until patience with a query ends. With a constant rate it may not yet be under way.
    pub(super) async fn patiently<T>(
        &self,
        query: &Waiter,
        done: impl Future<Output = T>,
    ) -> Result<T> {
        let done = query.patiently(self.surroundings.patience.query, done).await;
        done.ok_or_else(|| self.why_late())
    }

    /// What the query of this name told, if the log has it.
    pub(super) async fn logged(&self, name: &RequestId) -> Result<Option<Outcome>> {
        let Some(sequence) = self.lock().view.sequence_of(name) else { return Ok(None) };
        let outcome = self.when(|state| state.outcome(sequence)).await??;
        Ok(Some(outcome).filter(|outcome| *outcome != Outcome::Void))
    }

    /// Does `operation` with block `id`; nothing is begun when patience has ended.
    pub(super) async fn query(
        self: Arc<Self>,
        mut name: RequestId,
        id: Id,
        operation: Operation,
        awaited: Arc<Waiter>,
    ) -> Result<Outcome> {
        if self.surroundings.access == Access::Look {
            return Err(Error::new(Kind::Parameters, "the store was opened to look at only"));
        }
        let _under_way = UnderWay::begin(&self);
        loop {
            self.patiently(&awaited, self.admitted()).await??;
            let sequence = self.append(name, id, operation.clone(), &awaited).await?;
            self.look_up(sequence).await?;
            let outcome = self.when(|state| state.outcome(sequence)).await??;
            if outcome != Outcome::Void {
                awaited.is_answered();
                return Ok(outcome);
            }
            name = self.salt()?;
        }
    }

    /// Waits until all builds are as far as they have to be, and the period is open.
    async fn admitted(&self) -> Result<()> {
        let mut held_back = HeldBack { shared: self, is_counted: false };
        self.when(|state| {
            let queries = state.view.records() + state.appending;
            let is_open = queries < (state.period() + 1) * self.geometry.period();
            let is_paced =
                if state.builds { self.meter.admits(queries) } else { queries < state.limit };
            if is_open && is_paced {
                state.appending += 1;
                return Some(());
            }
            held_back.count(state);
            None
        })
        .await
    }

    /// Appends a record; returns its sequence number.
    async fn append(
        &self,
        name: RequestId,
        id: Id,
        operation: Operation,
        awaited: &Waiter,
    ) -> Result<u64> {
        let appended = self.append_as(name, id, operation, awaited).await;
        self.change(|state| state.appending -= 1);
        appended
    }

    async fn append_as(
        &self,
        request: RequestId,
        id: Id,
        operation: Operation,
        awaited: &Waiter,
    ) -> Result<u64> {
        let (seen, head) = {
            let state = self.lock();
            (state.view.records(), state.view.head())
        };
        let record = Record { request, id, operation, seen, head };
        let sealed = record.seal(&self.keys, self.salt()?, self.geometry.block_len());
        let sealed = Bytes::from(sealed);
        let fence = self.root.fence;
        loop {
            let connected = self.when(|_| self.queue.current());
            let connection = self.patiently(awaited, connected).await??;
            // What was sent on a connection that is lost may have come all the same.
            if let Some(sequence) = self.lock().view.sequence_of(&request) {
                return Ok(sequence);
            }
            awaited.goes_out();
            let call = connection.call(Request::Append { fence, record: sealed.clone() });
            match call.await {
                Ok(Answer::Appended { .. }) => {
                    self.lock().trouble = None;
                    return self.when(|state| state.view.sequence_of(&request)).await;
                }
                Ok(Answer::Refused(Refusal::Fenced)) => {
                    let error = Error::new(Kind::Busy, "another client has taken the store over");
                    self.fail(error.clone());
                    return Err(error);
                }
                Ok(Answer::Refused(Refusal::Storage)) => {
                    self.lock().trouble =
                        Connection::expect(Answer::Refused(Refusal::Storage)).err();
                }
                Ok(Answer::Refused(Refusal::PeriodClosed | Refusal::Overloaded)) => {}
                Err(error) if error.kind() == Kind::Unreachable => {}
                Ok(other) => {
                    Connection::expect(other)?;
                    return Err(Error::new(Kind::Protocol, "the server answers something else"));
                }
                Err(error) => return Err(error),
            }
            if Instant::now() >= awaited.until(self.surroundings.patience.query) {
                return Err(self.why_late());
            }
            sleep(self.surroundings.patience.again).await;
        }
    }

    /// Looks up what query `sequence` looks for, whoever has asked, and keeps what was found.
    pub(super) async fn look_up(self: &Arc<Self>, sequence: u64) -> Result<()> {
        let newest = || {
            let state = self.lock();
            let store_id = self.root.store_id;
            Mark { store_id, sequence: state.view.records(), head: state.view.head() }
        };
        match (&self.agreeing, &self.surroundings.anchor) {
            (Some(agreeing), _) => {
                agreeing
                    .confirm(self, sequence + 1, newest)
                    .await
                    .inspect_err(|e| self.fail(e.clone()))?;
                // Others may have opened the period that the query is in.
                let period = sequence / self.geometry.period();
                self.when(|state| (state.period() >= period).then_some(())).await?;
            }
            (None, Anchorage::Own(anchor)) => {
                while let Err(error) =
                    self.confirming.confirm(&**anchor, sequence + 1, newest).await
                {
                    if error.kind() != Kind::Storage {
                        return Err(error);
                    }
                    // It may get better. Queries wait, and tell why when their patience ends.
                    self.wait_for_storage(error).await;
                    self.when(|_| Some(())).await?;
                }
            }
            (None, Anchorage::Shared(_)) => unreachable!("who only looks asks nothing"),
        }
        let fresh = planted(Fault::FreshOnReplay).then(|| self.salt()).transpose()?;
        let begun = {
            let mut state = self.lock();
            let begun = state.begin(sequence, &self.geometry, fresh);
            if let Ok(Some(_)) = &begun {
                state.mine.insert(sequence);
            }
            begun
        };
        let begun = begun.inspect_err(|error| self.fail(error.clone()))?;
        let Some((mut lookup, position)) = begun else { return Ok(()) };
        while let Some(step) = lookup.step() {
            let request = Request::Fetch { page: step.page, item: step.item };
            let answer = self.lookups.call(request).await;
            if let Err(error) = &answer
                && error.kind() == Kind::Storage
            {
                // The server's disk fails: the same step is asked again.
                self.lock().trouble = Some(error.clone());
                sleep(self.surroundings.patience.again * 10).await;
                continue;
            }
            let taken = answer.and_then(|answer| match answer {
                Answer::Fetched { page, item } => lookup.take(page.as_deref(), item.as_deref()),
                _ => Err(Error::new(Kind::Protocol, "the server answers something else")),
            });
            if let Err(error) = taken {
                // Who builds may have removed what others no longer need, since somebody else has finished
                // this query.
                if self.agreeing.is_some() && self.settles(sequence).await? {
                    self.lock().mine.remove(&sequence);
                    return Ok(());
                }
                let records = self.lock().view.records();
                if error.kind() == Kind::Hostile && self.is_left_behind(records).await {
                    return Err(self.fail_left_behind());
                }
                self.fail(error.clone());
                return Err(error);
            }
        }
        self.has_found(position, lookup.finish())
    }

    /// This is the result of the query there. That the server keeps it is not waited for: it follows from the log.
    fn has_found(self: &Arc<Self>, position: Position, found: Found) -> Result<()> {
        let sequence = position.sequence;
        let block_len = self.geometry.block_len();
        let sealed = Bytes::from(found.seal(&self.keys, &position, self.salt()?, block_len));
        let storing = Storing::begin(self);
        tokio::spawn(async move {
            if let Err(error) = storing.0.store(sequence, sealed).await {
                storing.0.fail(error);
            }
        });
        self.change(|state| {
            state.mine.remove(&sequence);
            state.view.found_here(sequence, found)
        })
    }

    /// Whether the query has its result, or gets it from others in time.
    async fn settles(&self, sequence: u64) -> Result<bool> {
        let settled = self.when(|state| (state.view.settled() > sequence).then_some(()));
        match tokio::time::timeout(self.surroundings.patience.take_over, settled).await {
            Ok(settled) => settled.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Takes over queries that get no result: when the oldest has waited long enough, all that had come
    /// when it began to wait.
    pub(super) async fn take_over(self: Arc<Self>) -> Result<()> {
        loop {
            let waiting = |state: &mut State| {
                let oldest = state.view.oldest_unsettled();
                oldest
                    .filter(|oldest| !state.mine.contains(oldest))
                    .map(|n| n..state.view.records())
            };
            let waiting = self.when(waiting).await?;
            if self.settles(waiting.start).await? {
                continue;
            }
            let mut lookups = JoinSet::new();
            {
                let state = self.lock();
                let open = |n: &u64| !state.mine.contains(n) && !state.view.is_found(*n);
                for sequence in waiting.filter(open) {
                    let shared = self.clone();
                    lookups.spawn(async move { shared.look_up(sequence).await });
                }
            }
            while let Some(ended) = lookups.join_next().await {
                ended.expect("lookups do not panic")?;
            }
        }
    }
}

impl State {
    fn outcome(&self, sequence: u64) -> Option<Result<Outcome>> {
        if self.view.is_forgotten(sequence) {
            let late = "the query was done, but what it told was forgotten before it was asked for";
            return Some(Err(Error::new(Kind::Unreachable, late)));
        }
        self.view.outcome(sequence).map(Ok)
    }

    /// The lookups of query `sequence`, unless it has its result; `fresh` with a planted fault only.
    fn begin(
        &self,
        sequence: u64,
        geometry: &Geometry,
        fresh: Option<[u8; 16]>,
    ) -> Result<Option<(Lookup, Position)>> {
        let position = self.view.position(sequence).filter(|_| sequence >= self.view.settled());
        let Some(position) = position else { return Ok(None) };
        let mut asked = Vec::new();
        for generation in geometry.live(sequence / geometry.period()) {
            let keys = self.generations.get(&generation).cloned().ok_or_else(|| {
                Error::new(Kind::Hostile, "the server shows queries of a period that is not open")
            })?;
            let mut index = sequence - geometry.born(generation);
            if let Some([random, ..]) = fresh {
                index = (index + u64::from(random)) % geometry.shape(generation).fakes;
            }
            asked.push(Asked { generation, keys, index });
        }
        if self.view.compares(sequence) && planted(Fault::CompareStopsEarly) {
            asked.truncate(1);
        }
        Ok(Some((Lookup::new(self.view.target(sequence), asked), position)))
    }
}
