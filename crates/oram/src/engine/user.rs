//! A user's end: what was asked is asked again on the next connection when one is lost, and done once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tacita_secret::Key;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::channel::{Receiver, Sender, open};
use super::message::{
    Answer, Asked, Request, SessionId, Told, WELCOME_LEN, answer_len, hello, open_welcome,
};
use crate::client::{Connect, Patience, Status};
use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;
use crate::keys::Id;
use crate::link::Stream;
use crate::log_view::Outcome;
use crate::record::Operation;
use crate::root::Root;
use crate::waiters::{Waiter, Waiters};

/// For how long what was heard of the log is good enough to ask something at most: others may go on with it.
pub(super) const FRESH_MAX: Duration = Duration::from_millis(250);

/// No engine does more queries in a row than one in this time.
const QUERY: Duration = Duration::from_millis(1);

/// For how long it is where periods are so short: half of one may have gone by.
fn fresh(geometry: &Geometry) -> Duration {
    let half = u32::try_from(geometry.period() / 2).unwrap_or(u32::MAX);
    FRESH_MAX.min(QUERY.saturating_mul(half))
}

/// Requests under way at once; others wait.
const IN_FLIGHT_MAX: u64 = 128;

/// So few that an engine that begins anew remembers the log from before they were asked, if there are
/// several users.
fn in_flight_max(geometry: &Geometry) -> usize {
    let few = IN_FLIGHT_MAX.min(geometry.period() / 2);
    usize::try_from(few).expect("few")
}

/// A user of an engine.
#[derive(Debug)]
pub(crate) struct User {
    asking: Arc<Asking>,
    keeping: JoinHandle<()>,
}

struct Asking {
    connect: Arc<dyn Connect>,
    key: Key,
    patience: Patience,
    session: SessionId,
    root: Root,
    in_flight: Semaphore,
    asked: Arc<Waiters>,
    state: Mutex<State>,
    /// Something is to be sent.
    unsent: Notify,
}

#[derive(Debug)]
struct State {
    last: u64,
    /// Records in the log, as far as was heard, and when that was.
    records: u64,
    heard: Instant,
    waiting: BTreeMap<u64, Waiting>,
    /// Why nothing goes any more.
    failed: Option<Error>,
    /// Why nothing goes at the moment.
    trouble: Option<Error>,
}

impl State {
    /// The log has so many records now.
    fn hear(&mut self, records: u64) {
        self.records = records;
        self.heard = Instant::now();
    }
}

#[derive(Debug)]
struct Waiting {
    asked: Asked,
    /// On the connection that there is.
    is_sent: bool,
    /// If it was sent on one that was lost: then the log had so many records.
    asked_since: Option<u64>,
    /// When it was sent first, the log had so many records.
    sent_at: Option<u64>,
    answer: oneshot::Sender<Told>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("state", &self.state).finish_non_exhaustive()
    }
}

type Channel = (Sender<Box<dyn Stream>>, Receiver<Box<dyn Stream>>);

impl User {
    /// A user of the engine that `connect` leads to.
    ///
    /// # Errors
    /// [`Kind::WrongKey`]; [`Kind::Unreachable`]; [`Kind::Protocol`].
    pub(crate) async fn open(
        connect: Arc<dyn Connect>,
        key: &Key,
        patience: Patience,
    ) -> Result<Self> {
        let session = tacita_secret::random()
            .map_err(|e| Error::new(Kind::Storage, format!("no random bytes: {e}")))?;
        let (channel, root, records) = greeted(&*connect, key, &session).await?;
        let asking = Arc::new(Asking {
            connect,
            key: key.clone(),
            patience,
            session,
            root,
            in_flight: Semaphore::new(in_flight_max(&root.geometry)),
            asked: Arc::default(),
            state: Mutex::new(State {
                last: 0,
                records,
                heard: Instant::now(),
                waiting: BTreeMap::new(),
                failed: None,
                trouble: None,
            }),
            unsent: Notify::new(),
        });
        let keeping = tokio::spawn(asking.clone().keep(channel));
        Ok(Self { asking, keeping })
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.asking.root.geometry
    }

    /// Why nothing goes any more; what ends the engine it tells whoever asks.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.asking.lock().failed.clone()
    }

    pub(crate) async fn query(&self, id: Id, operation: Operation) -> Result<Outcome> {
        if self.asking.is_stale() {
            self.asking.ask(Asked::Status).await?;
        }
        match self.asking.ask(Asked::Query(id, operation)).await? {
            Told::Outcome(outcome) => Ok(outcome),
            Told::Failed(kind, text) => Err(Error::new(kind, text)),
            Told::Status(_) => Err(other()),
        }
    }

    pub(crate) async fn status(&self) -> Result<Status> {
        match self.asking.ask(Asked::Status).await? {
            Told::Status(status) => Ok(status),
            _ => Err(other()),
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

fn other() -> Error {
    Error::new(Kind::Protocol, "the engine answers something else")
}

/// A channel to the engine, its store, and the records of the log.
async fn greeted(
    connect: &dyn Connect,
    key: &Key,
    session: &SessionId,
) -> Result<(Channel, Root, u64)> {
    let (mut sender, mut receiver) = open(connect.connect().await?, key).await?;
    sender.send(&hello(session)).await?;
    let (root, records) = open_welcome(&receiver.receive(WELCOME_LEN).await?)?;
    Ok(((sender, receiver), root, records))
}

impl Asking {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the log may have gone on so far since an answer came that an engine which begins anew would
    /// not know of what is asked now whether it was done.
    fn is_stale(&self) -> bool {
        self.lock().heard.elapsed() > fresh(&self.root.geometry)
    }

    async fn ask(&self, asked: Asked) -> Result<Told> {
        let waiter = Waiter::begin(&self.asked);
        let ask = async {
            let _permit = self.in_flight.acquire().await.expect("nobody closes it");
            let (answer, told) = oneshot::channel();
            let number = {
                let mut state = self.lock();
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                state.last += 1;
                let number = state.last;
                let waiting =
                    Waiting { asked, is_sent: false, asked_since: None, sent_at: None, answer };
                state.waiting.insert(number, waiting);
                number
            };
            let _forget = Forget { asking: self, number };
            self.unsent.notify_one();
            told.await.map_err(|_| self.why())
        };
        let answer = waiter.patiently(self.patience.query, ask).await;
        let answer = answer.unwrap_or_else(|| Err(self.why()));
        if answer.is_ok() {
            waiter.is_answered();
        }
        answer
    }

    fn why(&self) -> Error {
        let state = self.lock();
        state
            .failed
            .clone()
            .or_else(|| state.trouble.clone())
            .unwrap_or_else(|| Error::new(Kind::Unreachable, "the engine did not answer in time"))
    }

    /// Keeps a channel, one after the other, until nothing goes any more.
    async fn keep(self: Arc<Self>, mut channel: Channel) {
        loop {
            let error = tokio::select! {
                Err(error) = self.send(channel.0) => error,
                Err(error) = self.receive(channel.1) => error,
                Err(error) = self.stay_alive() => error,
            };
            self.lost(error);
            channel = loop {
                sleep(self.patience.again).await;
                let greeted = greeted(&*self.connect, &self.key, &self.session);
                match timeout(self.patience.query, greeted).await {
                    Ok(Ok((channel, root, records))) if root.store_id == self.root.store_id => {
                        self.lock().hear(records);
                        break channel;
                    }
                    Ok(Ok(_)) => {
                        let what = "the engine has another store than before";
                        return self.fail(Error::new(Kind::NotAStore, what));
                    }
                    Ok(Err(error)) => self.lost(error),
                    Err(_) => {}
                }
            };
            self.unsent.notify_one();
        }
    }

    /// The connection is gone: what was sent on it is sent again on the next.
    fn lost(&self, error: Error) {
        let mut state = self.lock();
        for waiting in state.waiting.values_mut() {
            waiting.asked_since = waiting.sent_at;
            waiting.is_sent = false;
        }
        state.trouble = Some(error);
    }

    fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.failed = Some(error);
        state.waiting.clear();
    }

    /// The next request that this connection has not sent.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let received = state.waiting.first_key_value().map_or(state.last + 1, |(first, _)| *first);
        let records = state.records;
        let (&number, waiting) = state.waiting.iter_mut().find(|(_, waiting)| !waiting.is_sent)?;
        waiting.is_sent = true;
        waiting.sent_at.get_or_insert(records);
        // A read may be done again, whether it was or not.
        let is_read = matches!(waiting.asked, Asked::Query(_, Operation::Read));
        let (asked, asked_since) =
            (waiting.asked.clone(), waiting.asked_since.filter(|_| !is_read));
        let request = Request { number, received, asked_since, asked };
        Some(request.encode(&self.root.geometry))
    }

    async fn send(&self, mut sender: Sender<Box<dyn Stream>>) -> Result<()> {
        loop {
            while let Some(request) = self.next() {
                sender.send(&request).await?;
            }
            self.unsent.notified().await;
        }
    }

    async fn receive(&self, mut receiver: Receiver<Box<dyn Stream>>) -> Result<()> {
        let geometry = &self.root.geometry;
        loop {
            let answer = timeout(self.patience.query, receiver.receive(answer_len(geometry)));
            let silent = |_| Error::new(Kind::Unreachable, "the engine says nothing");
            let answer = answer.await.map_err(silent)??;
            let Answer { number, records, told } = Answer::decode(geometry, &answer)?;
            let mut state = self.lock();
            state.hear(records);
            state.trouble = None;
            if let Some(waiting) = state.waiting.remove(&number) {
                // Who asked may have given up.
                let _ = waiting.answer.send(told);
            }
        }
    }

    /// Asks for something now and then, so that each side hears of the other.
    async fn stay_alive(&self) -> Result<()> {
        loop {
            sleep((self.patience.query / 3).min(Duration::from_mins(1))).await;
            // An answer that does not come is noticed by who receives.
            let _ = self.ask(Asked::Status).await;
        }
    }
}

/// A request that nobody waits for any more.
struct Forget<'a> {
    asking: &'a Asking,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.asking.lock().waiting.remove(&self.number);
    }
}
