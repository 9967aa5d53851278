//! A store that servers on several machines can reach, and that one of them has at a time.
//!
//! Who serves it says so in a root beside the store's own, and says so anew every [`RENEW`]. Whoever finds
//! there what does not change for [`TERM`] takes the store over. A server that could not say for [`HELD`]
//! that it is there does nothing any more until it could: others may have taken the store for theirs.
//! Nothing but lengths of time is compared, so clocks need not agree; the time in which a machine sleeps
//! counts.

mod lease;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Mutex, Notify, RwLock, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{BlobStore, Put, Swap};
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::object::Object;
pub use lease::{Lease, Process};

/// How often a server says that it is there.
const RENEW: Duration = Duration::from_secs(10);
/// How long what it has said counts for itself.
const HELD: Duration = Duration::from_secs(25);
/// How long it counts for others. What was begun in time has the difference to end.
const TERM: Duration = Duration::from_secs(40);
/// How often others look, and how soon what has failed is tried again.
const LOOK: Duration = Duration::from_secs(1);
/// How long what is under way may take when the store is given back.
const ENDING: Duration = Duration::from_secs(10);

/// A store, and the right to serve it.
#[derive(Debug)]
pub struct Leased {
    store: Arc<dyn BlobStore>,
    cell: Arc<dyn BlobStore>,
    right: watch::Sender<Right>,
    /// Held by what is under way.
    working: RwLock<()>,
    keeper: Mutex<Option<Keeper>>,
}

/// The right to serve a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    /// There is one until then, and longer if it can be said in time that this server is there. The machine
    /// had slept so long when that was said last.
    Until(Instant, Duration),
    /// There is none any more.
    Lost(Loss),
    /// The store is not served any more.
    GivenBack,
}

/// How a server has lost the right to serve a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Another server has taken the store over.
    TakenOver,
    /// What it had said of itself is not there any more, nor what another one says.
    Removed,
}

impl Loss {
    /// What has happened.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TakenOver => "another server has taken the store over",
            Self::Removed => "what says who serves the store has been removed",
        }
    }
}

impl Right {
    fn is_there(&self, now: Instant, slept: Duration) -> bool {
        let Self::Until(until, before) = *self else { return false };
        now + slept.saturating_sub(before) < until || planted(Fault::LeaseOutlived)
    }
}

/// Who says again and again that the server is there.
#[derive(Debug)]
struct Keeper {
    stop: Arc<Notify>,
    /// What was said last, unless the store is lost.
    said: JoinHandle<Option<Lease>>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.said.abort();
    }
}

impl Leased {
    /// Takes `store` for this process, by the root of `cell`, as soon as nobody else has it.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Kind::Busy`] if another server has it and is there; [`Kind::NotAStore`] if the cell has something
    /// else; [`Kind::Storage`].
    pub async fn take(store: Arc<dyn BlobStore>, cell: Arc<dyn BlobStore>) -> Result<Arc<Self>> {
        Self::take_as(store, cell, Process::this()).await
    }

    async fn take_as(
        store: Arc<dyn BlobStore>,
        cell: Arc<dyn BlobStore>,
        process: Process,
    ) -> Result<Arc<Self>> {
        let lease = Lease::new(process)?;
        let mut seen: Option<(Bytes, Instant)> = None;
        let (asked, slept) = loop {
            let now = cell.root().await?;
            let is_free = match &now {
                None => true,
                Some(now) => is_free(now, &mut seen)?,
            };
            let asked = (Instant::now(), slept());
            if !is_free {
                sleep(LOOK).await;
            } else if cell.swap_root(now, lease.bytes()).await? == Swap::Swapped {
                break asked;
            }
        };
        let right = watch::Sender::new(Right::Until(asked + HELD, slept));
        let stop = Arc::new(Notify::new());
        let said = tokio::spawn(keep(Arc::clone(&cell), lease, right.clone(), Arc::clone(&stop)));
        let keeper = Mutex::new(Some(Keeper { stop, said }));
        Ok(Arc::new(Self { store, cell, right, working: RwLock::default(), keeper }))
    }

    /// Waits until the store is lost; for ever if it is not.
    pub async fn lost(&self) -> Loss {
        let mut right = self.right.subscribe();
        loop {
            if let Right::Lost(loss) = *right.borrow_and_update() {
                return loss;
            }
            right.changed().await.expect("there is a sender as long as there is this");
        }
    }

    /// Lets others have the store once nothing is under way any more. Nothing is done here from then on.
    ///
    /// What cannot be given back in time is taken over by others when the lease ends.
    pub async fn give_back(&self) {
        let Some(mut keeper) = self.keeper.lock().await.take() else { return };
        let ended = async {
            let _all_ended = self.working.write().await;
            keeper.stop.notify_one();
            let said = (&mut keeper.said).await;
            self.right.send_replace(Right::GivenBack);
            if let Ok(Some(said)) = said {
                let _ = self.cell.swap_root(Some(said.bytes()), said.given_back().bytes()).await;
            }
        };
        let _ = timeout(ENDING, ended).await;
        self.right.send_replace(Right::GivenBack);
    }

    /// Does what takes the right to serve.
    async fn serving<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let _working = self.working.read().await;
        let refuse = |what: &'static str| Err(Error::new(Kind::Busy, what));
        let right = *self.right.borrow();
        match right {
            _ if right.is_there(Instant::now(), slept()) => operation.await,
            Right::Until(..) => refuse("nobody could be told in time that this server is there"),
            Right::Lost(loss) => refuse(loss.text()),
            Right::GivenBack => refuse("the store is not served any more"),
        }
    }
}

/// How long this machine has slept, which the clock of [`Instant`] leaves out.
fn slept() -> Duration {
    let of = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    // In this order it never seems to have slept less.
    let awake = of(ClockId::Monotonic);
    of(ClockId::Boottime).saturating_sub(awake)
}

/// Whether the store may be taken from whom `now` tells of; what was seen before, and since when, is kept
/// in `seen`.
fn is_free(now: &Bytes, seen: &mut Option<(Bytes, Instant)>) -> Result<bool> {
    let lease = Lease::decode(now)?;
    if !lease.is_held || lease.process.has_ended() || planted(Fault::LeaseIgnored) {
        return Ok(true);
    }
    if seen.as_ref().is_some_and(|(before, _)| before != now) {
        let at = match lease.process {
            here if here.is_here() => format!("process {} of this machine", here.number),
            _ => "on another machine".to_owned(),
        };
        return Err(Error::new(Kind::Busy, format!("another server serves the store, {at}")));
    }
    let (_, since) = seen.get_or_insert_with(|| {
        ::log::warn!(
            "a server has not given the store back: if it is no longer there, the store is taken \
             over in {} s",
            TERM.as_secs()
        );
        (now.clone(), Instant::now())
    });
    Ok(since.elapsed() >= TERM)
}

/// Says again and again that this server is there, until it is to stop or another one is there.
async fn keep(
    cell: Arc<dyn BlobStore>,
    mut said: Lease,
    right: watch::Sender<Right>,
    stop: Arc<Notify>,
) -> Option<Lease> {
    let mut has_failed = false;
    loop {
        tokio::select! {
            () = sleep(if has_failed { LOOK } else { RENEW }) => {}
            () = stop.notified() => return Some(said),
        }
        let (asked, slept, next) = (Instant::now(), slept(), said.next());
        match cell.swap_root(Some(said.bytes()), next.bytes()).await {
            Ok(Swap::Swapped) => {
                (said, has_failed) = (next, false);
                right.send_replace(Right::Until(asked + HELD, slept));
            }
            // It was done nevertheless. Since when others have seen it is not known: it does not count.
            Ok(Swap::Differs(Some(now))) if has_failed && now == next.bytes() => said = next,
            Ok(Swap::Differs(now)) => {
                let loss = if now.is_some() { Loss::TakenOver } else { Loss::Removed };
                right.send_replace(Right::Lost(loss));
                return None;
            }
            Err(_) => has_failed = true,
        }
    }
}

#[async_trait]
impl BlobStore for Leased {
    async fn get(&self, object: Object, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        self.serving(self.store.get(object, ranges)).await
    }

    async fn len(&self, object: Object) -> Result<Option<u64>> {
        self.serving(self.store.len(object)).await
    }

    async fn put_if_absent(&self, object: Object, bytes: Bytes) -> Result<Put> {
        self.serving(self.store.put_if_absent(object, bytes)).await
    }

    async fn delete(&self, object: Object) -> Result<()> {
        self.serving(self.store.delete(object)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.serving(self.store.list(prefix)).await
    }

    async fn root(&self) -> Result<Option<Bytes>> {
        self.serving(self.store.root()).await
    }

    async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap> {
        self.serving(self.store.swap_root(expected, new)).await
    }
}

#[cfg(test)]
mod tests;
