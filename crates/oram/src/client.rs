//! A client: it records its queries in the log, looks blocks up, leaves what it found, and builds
//! generations in the background, while it trusts the server with nothing.
//!
//! A query is done once it and all before it have results; whoever waits too long for another's takes it
//! over, with the very same lookups. What a query does follows from the log, so everybody agrees on it.
//!
//! Paper: section 4 as far as docs/design/oram.md reconstructs it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::agreement::Agreement;
use crate::anchor::Anchor;
use crate::blob::BlobStore;
use crate::error::{Error, Kind, Result};
use crate::geometry::{Generation, Geometry};
use crate::keys::{GenerationKeys, Id, Keys};
use crate::link::Stream;
use crate::log_view::{LogView, Outcome};
use crate::manifest::Manifest;
use crate::record::{Operation, RequestId};
use crate::root::Root;
use crate::waiters::{Waiter, Waiters};

mod agreeing;
mod builder;
mod checking;
mod confirming;
mod joining;
mod lasting;
mod line;
mod meter;
mod query;
mod queue;
mod rate;

pub use checking::Checked;
pub(crate) use joining::exists;
pub use joining::init;
pub use lasting::Lasting;
pub use meter::Progress;
pub use rate::RATE_MAX;

use agreeing::Agreeing;
use confirming::Confirming;
use line::Line;
use meter::Meter;
use queue::Queue;
use rate::Turns;

/// Of a client that was stopped, or cut off, for too long.
const LEFT_BEHIND: &str =
    "other clients of the store have gone on so far that this one cannot follow";

/// How to reach the server.
#[async_trait]
pub trait Connect: Send + Sync {
    /// A new stream to it.
    ///
    /// # Errors
    /// [`Kind::Unreachable`], [`Kind::Untrusted`]; [`Kind::Storage`] if this machine can have no more connections.
    async fn connect(&self) -> Result<Box<dyn Stream>>;
}

#[async_trait]
impl Connect for crate::link::Address {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        Self::connect(self).await
    }
}

#[async_trait]
impl Connect for crate::link::Remote {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        Self::connect(self).await
    }
}

/// How patient a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// After how long a query ends in an error, if the server lets neither it end otherwise nor any that
    /// was asked before it.
    pub query: Duration,
    /// After how long without a result another's query is taken over.
    pub take_over: Duration,
    /// How long to wait before the server is tried again.
    pub again: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            query: Duration::from_mins(1),
            take_over: Duration::from_secs(10),
            again: Duration::from_millis(100),
        }
    }
}

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// To read and write. If another client follows the log, it has so long to end as patience has before a
    /// query is taken over; then opening is refused.
    #[default]
    Write,
    /// To read and write, whoever else does: others are told that they no longer can.
    TakeOver,
    /// To look at what is there: nothing is asked, nothing is built, and nobody notices.
    Look,
}

/// How a store is.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Queries so far, of all clients.
    pub queries: u64,
    /// Blocks that are there after all queries that have results.
    pub present: u64,
    /// How far the builds are that are under way.
    pub builds: Vec<Progress>,
}

/// Where it is remembered what the log was, so that a server that shows another one is found out.
#[derive(Debug, Clone)]
pub enum Anchorage {
    /// By this client for itself: it is the only one that writes.
    Own(Arc<dyn Anchor>),
    /// By all clients that write, together, in the root of a store of its own, whose owner does not act
    /// together with the server's. See [`crate::agreement`].
    Shared(Arc<dyn BlobStore>),
}

/// What a client needs besides the key.
#[derive(Clone)]
pub struct Surroundings {
    /// The way to the server.
    pub connect: Arc<dyn Connect>,
    /// Where it is remembered what the log was.
    pub anchor: Anchorage,
    /// Sixteen random bytes at a time.
    pub random: Arc<dyn Fn() -> std::io::Result<[u8; 16]> + Send + Sync>,
    /// How patient it is.
    pub patience: Patience,
    /// What the store is opened for.
    pub access: Access,
    /// The time between two queries, always the same, with dummies where nothing is asked; `None`: queries
    /// as they come.
    pub between: Option<Duration>,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("anchor", &self.anchor).finish_non_exhaustive()
    }
}

/// An open store. What is under way goes on when those who asked have gone; all ends with the client.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    /// Whether the anchor remembered anything with which the log was compared.
    is_compared: bool,
}

/// What all parts of a client work on.
#[derive(Debug)]
struct Shared {
    root: Root,
    keys: Keys,
    geometry: Geometry,
    surroundings: Surroundings,
    state: Mutex<State>,
    /// Queries that somebody waits for.
    awaited: Arc<Waiters>,
    /// Whenever the state has changed.
    changed: Notify,
    /// The log: one connection, for the order of what comes on it.
    queue: Queue,
    /// Lookups.
    lookups: Line,
    /// Large builds.
    bulk: Line,
    /// Builds that are due soon, and what opens periods: they do not wait behind the large ones.
    short: Line,
    /// With an anchor of its own.
    confirming: Confirming,
    /// With a shared anchor, unless this client only looks.
    agreeing: Option<Agreeing>,
    meter: Meter,
    /// Memory for parts of large builds.
    rooms: Arc<Semaphore>,
    /// With a constant rate only.
    turns: Option<Turns>,
}

#[derive(Debug)]
struct State {
    view: LogView,
    /// Manifests, as they are stored, of periods from the one before the latest on.
    manifests: BTreeMap<u64, (Manifest, Vec<u8>)>,
    generations: HashMap<Generation, Arc<GenerationKeys>>,
    /// Builds of the latest period that are complete.
    built: Vec<Generation>,
    /// Queries of this client that are under way, and those of them whose records are.
    under_way: u64,
    /// Builds that wait for room in memory.
    waiting_for_room: u64,
    /// Whether the manifest of the next period is being stored.
    opening: bool,
    /// Periods whose dead generations are being removed.
    removing: u64,
    appending: u64,
    /// Results that this client has found, and that have not reached the server.
    storing: u64,
    /// Queries that this client looks up at the moment.
    mine: HashSet<u64>,
    /// Whether this client builds: always, with an anchor of its own.
    builds: bool,
    /// Queries from this one on have to wait until whoever builds is further, as far as it has told.
    limit: u64,
    /// Queries that wait for that.
    held_back: u64,
    /// Why nothing goes any more.
    failed: Option<Error>,
    /// Whether that is that others have gone on so far that this client cannot follow.
    is_left_behind: bool,
    /// Why builds do not go on at the moment.
    trouble: Option<Error>,
}

impl Client {
    /// The root, as it was when the store was opened.
    pub fn root(&self) -> &Root {
        &self.shared.root
    }

    /// The shapes of the store.
    pub fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    /// Does `operation` with block `id`: one query, whatever it is.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] or [`Kind::Storage`] when patience ends: the query may be done or may be done
    /// still; [`Kind::Busy`] when another client has taken the store over; [`Kind::Hostile`] and
    /// [`Kind::RolledBack`] when the server is caught, and ever after.
    pub async fn query(&self, id: Id, operation: Operation) -> Result<Outcome> {
        self.query_as(self.shared.salt()?, None, id, operation).await
    }

    /// As [`Client::query`], under a random name by which it is found in the log if it is asked again:
    /// then it may have been asked before, but not before the log had `asked_since` records.
    ///
    /// # Errors
    /// As [`Client::query`]; [`Kind::Unreachable`] if the log is not remembered from there on and the rest
    /// does not have it.
    pub async fn query_as(
        &self,
        name: RequestId,
        asked_since: Option<u64>,
        id: Id,
        operation: Operation,
    ) -> Result<Outcome> {
        let waiting = Arc::new(Waiter::begin(&self.shared.awaited));
        self.ask(name, asked_since, (id, operation), waiting).await
    }

    /// As [`Client::query_as`], with patience of `waiting`, which is told when the query may have reached the
    /// server.
    async fn ask(
        &self,
        name: RequestId,
        asked_since: Option<u64>,
        (id, operation): (Id, Operation),
        waiting: Arc<Waiter>,
    ) -> Result<Outcome> {
        let shared = self.shared.clone();
        let awaited = waiting.clone();
        if asked_since.is_some() {
            waiting.goes_out();
        }
        // A task of its own: what is in the log has to be finished, whoever waits.
        let query = tokio::spawn(async move {
            let logged = shared.logged(&name).await.inspect_err(|_| awaited.goes_out())?;
            if let Some(outcome) = logged {
                return Ok(outcome);
            }
            if asked_since.is_some_and(|since| since < shared.lock().view.first()) {
                let unknown = "it was asked so long ago that it is not known whether it was done";
                return Err(Error::new(Kind::Unreachable, unknown));
            }
            if let Some(turns) = &shared.turns {
                turns.turn().await;
            }
            shared.query(name, id, operation, awaited).await
        });
        match self.shared.patiently(&waiting, query).await? {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::new(Kind::Poisoned, "the store is being closed")),
        }
    }

    /// How the store is.
    pub fn status(&self) -> Status {
        let (queries, present) = {
            let state = self.shared.lock();
            let present = state.view.present().unwrap_or(state.manifest().0.present);
            (state.view.records(), present)
        };
        Status { queries, present, builds: self.shared.meter.progress(queries) }
    }

    /// Leaves what others can do to them, if there are any that share its anchor; otherwise they notice some
    /// time after it has gone.
    ///
    /// # Errors
    /// Errors of the shared anchor.
    pub async fn leave(&self) -> Result<()> {
        self.shared.leave().await
    }

    /// Why nothing goes any more, if that is so.
    fn failure(&self) -> Option<Error> {
        self.shared.lock().failed.clone()
    }

    /// Whether others have gone on so far that this client cannot follow: nothing goes any more.
    fn is_left_behind(&self) -> bool {
        self.shared.lock().is_left_behind
    }

    /// Waits until nothing goes any more; whether it is because this client was left behind.
    async fn until_left_behind(&self) -> bool {
        let _ = self.shared.when(|_| None::<()>).await;
        self.is_left_behind()
    }

    /// What this client knows of the agreement with others, if it shares an anchor.
    async fn agreed(&self) -> Option<Agreement> {
        match &self.shared.agreeing {
            Some(agreeing) => Some(agreeing.known().await),
            None => None,
        }
    }

    /// Nothing goes any more.
    fn end(&self) {
        self.shared.fail(Error::new(Kind::Poisoned, "the store was closed"));
    }

    /// Waits until nothing is being built, opened or removed that could be without further queries, and the
    /// server has all that was found.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub async fn idle(&self) -> Result<()> {
        let shared = &self.shared;
        if shared.surroundings.access == Access::Look {
            return Ok(());
        }
        shared.when(|state| shared.rests(state).then_some(())).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and tells those who wait for a change.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_waiters();
        changed
    }

    /// Nothing goes any more, for this reason.
    fn fail(&self, error: Error) {
        self.change(|state| state.failed.get_or_insert(error).clone());
    }

    /// Nothing goes any more: others have gone on so far that this client cannot follow.
    fn fail_left_behind(&self) -> Error {
        self.change(|state| {
            if state.failed.is_none() {
                state.is_left_behind = true;
                log::warn!("{LEFT_BEHIND}: what was asked last may be done or not");
            }
            state.failed.get_or_insert_with(|| Error::new(Kind::Poisoned, LEFT_BEHIND)).clone()
        })
    }

    /// Waits until `ready` has something to say.
    async fn when<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                if let Some(said) = ready(&mut state) {
                    return Ok(said);
                }
            }
            changed.await;
        }
    }

    /// Random bytes that nothing else has.
    fn salt(&self) -> Result<[u8; 16]> {
        self.surroundings.salt()
    }

    /// What keeps a query from ending.
    fn why_late(&self) -> Error {
        let state = self.lock();
        state.failed.clone().or_else(|| state.trouble.clone()).unwrap_or_else(|| {
            Error::new(Kind::Unreachable, "the server did not let the query end in time")
        })
    }
}

impl State {
    /// The latest period that is open.
    fn period(&self) -> u64 {
        *self.manifests.last_key_value().expect("there is always one").0
    }

    fn manifest(&self) -> &(Manifest, Vec<u8>) {
        self.manifests.last_key_value().expect("there is always one").1
    }
}
