//! A client that lasts: when it was left behind, for its machine slept while others went on, another one
//! joins them in its place, as a fresh one does that opens the store.
//!
//! What had been asked and may have reached the server is done or not, and nobody remembers that any more.
//! A read is asked again; of anything else it is said that this is not known. A dummy is asked in its place,
//! so that the server sees the same of all.

use std::sync::Arc;
use std::time::Duration;

use tacita_secret::Key;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::{Access, Anchorage, Client, Patience, Status, Surroundings};
use crate::agreement::Agreement;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::geometry::Geometry;
use crate::keys::Id;
use crate::log_view::Outcome;
use crate::record::{Operation, RequestId};
use crate::root::Root;
use crate::waiters::Waiter;

/// The client that there is now, or why there will be none any more.
type Current = Result<Arc<Client>>;

/// One client after the other, each in the place of one that was left behind.
#[derive(Debug)]
pub struct Lasting {
    root: Root,
    geometry: Geometry,
    patience: Patience,
    current: Arc<watch::Sender<Current>>,
    /// Of a client that shares its anchor: nobody else is left behind.
    keeper: Option<AbortHandle>,
}

impl Lasting {
    /// Opens the store with `key`.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub async fn open(key: &Key, surroundings: Surroundings) -> Result<Self> {
        // Whoever comes back takes nothing over.
        let again = Surroundings { access: Access::Write, ..surroundings.clone() };
        let first = Arc::new(Client::open(key, surroundings).await?);
        let (root, geometry) = (*first.root(), *first.geometry());
        let current = Arc::new(watch::Sender::new(Ok(first.clone())));
        let patience = again.patience;
        let can_be_left = matches!(again.anchor, Anchorage::Shared(_));
        let keeper = can_be_left.then(|| {
            let keeping = keep(key.clone(), again, first, current.clone());
            tokio::spawn(keeping).abort_handle()
        });
        Ok(Self { root, geometry, patience, current, keeper })
    }

    /// The root, as it was when the store was opened first.
    pub const fn root(&self) -> &Root {
        &self.root
    }

    /// The shapes of the store.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The client that there is now.
    ///
    /// # Errors
    /// Why there is none any more.
    pub fn client(&self) -> Result<Arc<Client>> {
        self.current.borrow().clone()
    }

    /// How the store is, as far as the client that there is has heard.
    ///
    /// # Errors
    /// As [`Lasting::client`].
    pub fn status(&self) -> Result<Status> {
        Ok(self.client()?.status())
    }

    /// Why nothing goes any more, if that is so; who was left behind comes back.
    pub fn failure(&self) -> Option<Error> {
        match self.client() {
            Ok(client) => client.failure().filter(|_| !client.is_left_behind()),
            Err(error) => Some(error),
        }
    }

    /// As [`Client::query`]; after the client was left behind [`Kind::Unreachable`], unless it is a read.
    ///
    /// # Errors
    /// As said.
    pub async fn query(&self, id: Id, operation: Operation) -> Result<Outcome> {
        let name = self.client()?.shared.salt()?;
        self.query_as(name, None, id, operation).await
    }

    /// As [`Client::query_as`] and [`Lasting::query`].
    ///
    /// # Errors
    /// As those.
    pub async fn query_as(
        &self,
        name: RequestId,
        mut asked_since: Option<u64>,
        id: Id,
        operation: Operation,
    ) -> Result<Outcome> {
        let mut client = self.client()?;
        loop {
            let waiting = Arc::new(Waiter::begin(&client.shared.awaited));
            let asked = (id, operation.clone());
            let ended = client.ask(name, asked_since, asked, waiting.clone()).await;
            if ended.is_ok() || !client.is_left_behind() {
                return ended;
            }
            client = self.after(&client).await?;
            if waiting.has_gone_out() {
                if !matches!(operation, Operation::Read | Operation::Dummy) {
                    if !planted(Fault::UnknownUnasked) {
                        let _ = client.query(Id::default(), Operation::Dummy).await;
                    }
                    return Err(Error::new(Kind::Unreachable, UNKNOWN));
                }
                asked_since = None;
            }
        }
    }

    /// The client that comes after one that was left behind.
    async fn after(&self, left: &Arc<Client>) -> Result<Arc<Client>> {
        let mut current = self.current.subscribe();
        let is_another =
            |current: &Current| current.as_ref().map_or(true, |client| !Arc::ptr_eq(client, left));
        let comes = timeout(self.patience.query, current.wait_for(is_another)).await;
        match comes {
            Ok(Ok(current)) => current.clone(),
            _ => Err(Error::new(Kind::Unreachable, NOT_BACK)),
        }
    }

    /// Ends in order: what is begun and can end soon is not left to others, and whoever shares the anchor
    /// is told that nobody builds. The one is waited for as long as `ending` says, the other as `leaving`.
    pub async fn close(&self, ending: Duration, leaving: Duration) {
        self.keeper.as_ref().map(AbortHandle::abort);
        let Ok(client) = self.client() else { return };
        let _ = timeout(ending, client.idle()).await;
        // Whoever has failed does not take the building on itself again.
        client.end();
        // Others would notice by themselves, later.
        let _ = timeout(leaving, client.leave()).await;
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        self.keeper.as_ref().map(AbortHandle::abort);
    }
}

/// How often it is tried again where a server seems to hide something.
const TRIES: u32 = 5;
const UNKNOWN: &str =
    "other clients of the store have gone on so far that it is not known whether this was done";
const NOT_BACK: &str = "other clients of the store have gone on so far that this one has to join them anew, and it could not yet";

/// Has another client in the place of each that was left behind, until one ends for another reason.
async fn keep(
    key: Key,
    surroundings: Surroundings,
    first: Arc<Client>,
    current: Arc<watch::Sender<Current>>,
) {
    let mut client = first;
    while client.until_left_behind().await {
        let patience = surroundings.patience;
        let known = client.agreed().await;
        // It builds nothing any more.
        let _ = timeout(patience.take_over, client.leave()).await;
        let mut tries_left = TRIES;
        let next = loop {
            let opening = Client::open(&key, surroundings.clone());
            match timeout(patience.query, opening).await {
                Ok(Ok(next)) => break follows(known, next).await,
                // It may get better.
                Ok(Err(e)) if e.kind().may_pass() || e.kind() == Kind::Storage => {}
                // Others who go on meanwhile remove what it would have read.
                Ok(Err(e)) if e.kind() == Kind::Hostile && tries_left > 0 => tries_left -= 1,
                Ok(Err(e)) => break Err(e),
                Err(_) => {}
            }
            sleep(patience.again * 10).await;
        };
        match next {
            Ok(next) => {
                log::warn!("it has joined the other clients of the store anew");
                client = next.clone();
                drop(current.send_replace(Ok(next)));
            }
            Err(error) => {
                log::error!("{error}");
                drop(current.send_replace(Err(error)));
                return;
            }
        }
    }
}

/// The next client, if it has agreed with the same others, and on no less than the one before.
async fn follows(before: Option<Agreement>, next: Client) -> Current {
    let now = next.agreed().await;
    let is_later = match (before, now) {
        (Some(before), Some(now)) => {
            now.group == before.group && now.mark.sequence >= before.mark.sequence
        }
        _ => false,
    };
    if is_later {
        return Ok(Arc::new(next));
    }
    let what = "the shared anchor was set back, or replaced by another one";
    Err(Error::new(Kind::RolledBack, what))
}
