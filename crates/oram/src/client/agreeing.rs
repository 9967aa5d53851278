//! The anchor that clients share. Before a query looks anything up, all of them remember that it is in the
//! log; whoever is shown another log finds that out first, and looks nothing up in it. Beside that the
//! anchor says which of them builds, and how far queries may go meanwhile.
//!
//! Note: oram.md 1.9, the rule of forks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::Shared;
use crate::agreement::{Agreement, Member};
use crate::anchor::Mark;
use crate::blob::{BlobStore, Swap};
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::keys::Keys;

/// How often a client looks whether who builds is there, in the time after which it no longer believes so.
const LOOKS: u32 = 4;

/// One client's view of the shared anchor.
#[derive(Debug)]
pub(super) struct Agreeing {
    place: Arc<dyn BlobStore>,
    keys: Keys,
    /// This client.
    me: Member,
    /// What the anchor was when it was looked at last.
    last: Mutex<Seen>,
}

#[derive(Debug, Clone)]
struct Seen {
    bytes: Bytes,
    agreement: Agreement,
    /// Whether this client's log begins as the mark says.
    is_compared: bool,
}

/// What is at `place`; `None`: nothing yet.
pub(super) async fn kept(
    place: &dyn BlobStore,
    keys: &Keys,
    store_id: &[u8; 16],
) -> Result<Option<Agreement>> {
    let bytes = place.root().await?;
    bytes.map(|bytes| Agreement::decode(keys, store_id, &bytes)).transpose()
}

/// What is at `place`; if there is nothing yet, a group of this name has agreed on nothing so far.
pub(super) async fn kept_or_made(
    place: &dyn BlobStore,
    keys: &Keys,
    store_id: [u8; 16],
    group: [u8; 16],
    patience: Duration,
) -> Result<Agreement> {
    let mark = Mark { store_id, sequence: 0, head: keys.genesis() };
    let new = Bytes::copy_from_slice(&Agreement::new(group, mark).encode(keys));
    let swapped = timeout(patience, place.swap_root(None, new.clone())).await;
    let there = match swapped.map_err(|_| stands_still())?? {
        Swap::Swapped => new,
        Swap::Differs(there) => there.ok_or_else(gone)?,
    };
    Agreement::decode(keys, &store_id, &there)
}

/// It is changed in one step, which takes no time.
fn stands_still() -> Error {
    let what = "the shared anchor cannot be changed: another client that shares it seems to stand still just \
                where it does that (Ctrl-Z, or its machine sleeps); let it go on or end it (of a folder, \
                `fuser -v FOLDER/lock` names it)";
    Error::new(Kind::Storage, what)
}

impl Agreeing {
    /// `agreement` is at `place`, and this client has compared its log with it or will before it asks.
    pub(super) fn new(
        place: Arc<dyn BlobStore>,
        keys: Keys,
        me: Member,
        agreement: Agreement,
    ) -> Self {
        let bytes = Bytes::copy_from_slice(&agreement.encode(&keys));
        let last = Mutex::new(Seen { bytes, agreement, is_compared: false });
        Self { place, keys, me, last }
    }

    /// What the anchor was when it was looked at last.
    pub(super) async fn known(&self) -> Agreement {
        self.last.lock().await.agreement
    }

    /// What is there now, whatever is waited for meanwhile; `None` if that cannot be told.
    async fn now(&self, shared: &Shared) -> Option<Agreement> {
        kept(&*self.place, &self.keys, &shared.root.store_id).await.ok().flatten()
    }

    /// The mark has been compared with the log.
    pub(super) async fn compared(&self) {
        self.last.lock().await.is_compared = true;
    }

    /// Returns when all remember `sequence` records; `newest` says what there is to remember.
    pub(super) async fn confirm(
        &self,
        shared: &Shared,
        sequence: u64,
        newest: impl Fn() -> Mark,
    ) -> Result<()> {
        let mut last = self.last.lock().await;
        loop {
            if !last.is_compared && !planted(Fault::AgreementIgnored) {
                compare(shared, &last.agreement.mark).await?;
                last.is_compared = true;
            }
            if last.agreement.mark.sequence >= sequence {
                return Ok(());
            }
            let new = Agreement { mark: newest(), ..last.agreement };
            self.swap(shared, &mut last, new).await?;
        }
    }

    /// Looks at the anchor, and changes what `change` says unless that is nothing; returns what is there then.
    async fn change(
        &self,
        shared: &Shared,
        change: impl Fn(&Agreement) -> Option<Agreement>,
    ) -> Result<Agreement> {
        let mut last = self.last.lock().await;
        loop {
            let Some(new) = change(&last.agreement) else { return Ok(last.agreement) };
            if self.swap(shared, &mut last, new).await? {
                return Ok(new);
            }
        }
    }

    /// Looks at the anchor.
    async fn look(&self, shared: &Shared) -> Result<Agreement> {
        let mut last = self.last.lock().await;
        let bytes = self.place.root().await?.ok_or_else(gone)?;
        self.take(shared, &mut last, bytes)?;
        Ok(last.agreement)
    }

    /// Makes it `new`, unless it is something else by now than `last`; whether it is new.
    async fn swap(&self, shared: &Shared, last: &mut Seen, new: Agreement) -> Result<bool> {
        let bytes = Bytes::copy_from_slice(&new.encode(&self.keys));
        loop {
            match self.swapped(shared, last.bytes.clone(), bytes.clone()).await {
                Ok(Swap::Swapped) => {
                    *last = Seen { bytes, agreement: new, is_compared: last.is_compared };
                    shared.agreed(&new, &self.me);
                    return Ok(true);
                }
                Ok(Swap::Differs(there)) => {
                    self.take(shared, last, there.ok_or_else(gone)?)?;
                    return Ok(false);
                }
                // It may get better. Queries wait, and tell why when their patience ends.
                Err(error) if error.kind() == Kind::Storage => shared.wait_for_storage(error).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits however long it takes, for it may be done at any time; what keeps it is told to those who lose their
    /// patience meanwhile.
    async fn swapped(&self, shared: &Shared, expected: Bytes, new: Bytes) -> Result<Swap> {
        let swap = self.place.swap_root(Some(expected), new);
        tokio::pin!(swap);
        let mut stands = false;
        loop {
            let patience = shared.surroundings.patience.take_over;
            if let Ok(swapped) = timeout(patience, &mut swap).await {
                if stands {
                    shared.lock().trouble = None;
                }
                return swapped;
            }
            stands = true;
            shared.lock().trouble = Some(stands_still());
        }
    }

    /// These bytes are there.
    fn take(&self, shared: &Shared, last: &mut Seen, bytes: Bytes) -> Result<()> {
        if bytes == last.bytes {
            return Ok(());
        }
        let before = &last.agreement;
        let agreement = Agreement::decode(&self.keys, &before.mark.store_id, &bytes)?;
        if agreement.group != before.group || agreement.mark.sequence < before.mark.sequence {
            let what = "the shared anchor was set back, or replaced by another one";
            return Err(Error::new(Kind::RolledBack, what));
        }
        let is_compared = last.is_compared && agreement.mark == before.mark;
        *last = Seen { bytes, agreement, is_compared };
        shared.agreed(&agreement, &self.me);
        Ok(())
    }
}

/// Returns when this client's log is as long as `mark` says, and begins so.
async fn compare(shared: &Shared, mark: &Mark) -> Result<()> {
    let comes = |patience: Duration| {
        timeout(
            patience,
            shared.when(|state| (state.view.records() >= mark.sequence).then_some(())),
        )
    };
    let patience = shared.surroundings.patience;
    while comes(patience.take_over).await.map_or(Ok(true), |came| came.map(|()| false))? {
        let withheld = "the server does not show what other clients have seen of the log";
        shared.lock().trouble = Some(Error::new(Kind::Unreachable, withheld));
    }
    let head = shared.lock().view.head_after(mark.sequence);
    if head != Some(mark.head) {
        let forked = "the server shows this client another log than others have seen";
        return Err(Error::new(Kind::RolledBack, forked));
    }
    Ok(())
}

fn gone() -> Error {
    Error::new(Kind::RolledBack, "the shared anchor is gone")
}

impl Shared {
    /// The agreement is this now.
    fn agreed(&self, agreement: &Agreement, me: &Member) {
        self.change(|state| {
            state.limit = state.limit.max(agreement.admitted);
            state.builds &= agreement.builder == *me;
        });
    }

    pub(super) async fn wait_for_storage(&self, error: Error) {
        self.lock().trouble = Some(error);
        sleep(self.surroundings.patience.again * 10).await;
    }

    /// Sees to it that one of the clients builds: this one, if nobody does, or if who does gives no sign of
    /// life for as long as patience has before a query is taken over. `is_alone`: nobody else was there
    /// when this client came.
    pub(super) async fn share_building(self: Arc<Self>, is_alone: bool) -> Result<()> {
        let Some(agreeing) = &self.agreeing else { return Ok(()) };
        let mut seen = agreeing.known().await;
        // Looks in a row that found no sign of life.
        let mut silent = if is_alone { LOOKS } else { 0 };
        loop {
            // Whoever has failed builds nothing: with a sign of life all others would wait for it.
            let has_failed = self.lock().failed.is_some();
            if has_failed {
                return self.leave().await;
            }
            let is_mine = seen.builder == agreeing.me;
            if is_mine || silent >= LOOKS || seen.builder == Member::default() {
                // Unless somebody else comes first.
                let change = |now: &Agreement| {
                    let is_same = (now.builder, now.beat) == (seen.builder, seen.beat);
                    is_same.then(|| Agreement { builder: agreeing.me, beat: seen.beat + 1, ..*now })
                };
                let now = agreeing.change(&self, change).await?;
                if !is_mine && now.builder == agreeing.me {
                    self.begin_building().await?;
                }
                (seen, silent) = (now, 0);
            }
            sleep(self.surroundings.patience.take_over / LOOKS).await;
            match agreeing.look(&self).await {
                Ok(now) => {
                    let is_same = (now.builder, now.beat) == (seen.builder, seen.beat);
                    silent = if is_same { silent + 1 } else { 0 };
                    seen = now;
                }
                Err(error) if error.kind() == Kind::Storage => self.wait_for_storage(error).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// This client builds from now on.
    async fn begin_building(self: &Arc<Self>) -> Result<()> {
        let (period, begun) = {
            let mut state = self.lock();
            state.builds = true;
            let mut builds = self.geometry.builds(state.period());
            builds.retain(|build| !state.built.contains(&build.generation));
            (state.period(), self.begin_builds(&state, builds))
        };
        self.run_builds(begun);
        match self.remove_leftovers(period).await {
            // What stays is removed when somebody begins to build the next time.
            Err(error) if error.kind() == Kind::Storage => Ok(()),
            removed => removed,
        }
    }

    /// Tells others how far queries may go, or asks who builds when queries wait for that.
    pub(super) async fn share_progress(self: Arc<Self>) -> Result<()> {
        let Some(agreeing) = &self.agreeing else { return Ok(()) };
        loop {
            sleep(self.surroundings.patience.again).await;
            let (builds, limit, waits) = {
                let state = self.lock();
                let end = (state.period() + 1) * self.geometry.period();
                let limit = self.meter.limit().min(end);
                (state.builds, limit, state.held_back > 0)
            };
            let done = if builds {
                let further = |now: &Agreement| {
                    let is_further = limit > now.admitted && now.builder == agreeing.me;
                    is_further.then_some(Agreement { admitted: limit, ..*now })
                };
                agreeing.change(&self, further).await
            } else if waits {
                agreeing.look(&self).await
            } else {
                continue;
            };
            match done {
                Err(error) if error.kind() == Kind::Storage => self.wait_for_storage(error).await,
                other => other.map(drop)?,
            }
        }
    }

    /// Whether others have seen so much of the log behind `records` that what followed those may be gone: the
    /// anchor says so, whatever the server does.
    pub(super) async fn is_left_behind(&self, records: u64) -> bool {
        let Some(agreeing) = &self.agreeing else { return false };
        let now = agreeing.now(self).await;
        now.is_some_and(|now| now.mark.sequence > records + self.geometry.period())
    }

    /// Whether somebody else builds by now: then what this client still builds is nobody's, and may be gone.
    pub(super) async fn is_relieved(&self) -> bool {
        let Some(agreeing) = &self.agreeing else { return false };
        agreeing.now(self).await.is_some_and(|now| now.builder != agreeing.me)
    }

    /// Leaves the building to others.
    pub(super) async fn leave(&self) -> Result<()> {
        let Some(agreeing) = &self.agreeing else { return Ok(()) };
        let none = |now: &Agreement| {
            let is_mine = now.builder == agreeing.me;
            is_mine.then(|| Agreement { builder: Member::default(), ..*now })
        };
        agreeing.change(self, none).await.map(drop)
    }
}
