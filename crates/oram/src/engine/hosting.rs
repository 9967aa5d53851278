//! The engine's end: what users ask is asked once, whatever becomes of their connections.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tacita_secret::{Key, digest_of};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::channel::{Receiver, Sender, accept};
use super::message::{
    Answer, Asked, HELLO_LEN, Request, SessionId, Told, open_hello, request_len, welcome,
};
use crate::client::Lasting;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::link::{Listener, Stream};

/// Connections at once; further ones are closed.
const CONNECTIONS_MAX: usize = 256;
/// Requests of a session that are under way, or whose answers the user has not said to have.
const REQUESTS_MAX: usize = 512;
/// Sessions at once; further users are sent away.
const SESSIONS_MAX: usize = 1024;
/// How long a session waits for its user to come back.
const SESSION_LIFE: Duration = Duration::from_mins(10);
/// How long a user has to say who it is.
const GREETING: Duration = Duration::from_secs(10);
/// After how long a silence a connection is closed.
const SILENCE: Duration = Duration::from_mins(5);

/// An engine. Clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Hosting>);

#[derive(Debug)]
struct Hosting {
    client: Arc<Lasting>,
    key: Key,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    connections: Arc<Semaphore>,
}

/// What a user has asked and does not have the answer of.
#[derive(Debug)]
struct Session {
    id: SessionId,
    /// Records in the log when this engine heard of it first: what was sent before, it may have asked another one.
    begun: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests: BTreeMap<u64, Progress>,
    /// All answers below this number have been received.
    received: u64,
    connections: u32,
    left: Instant,
}

#[derive(Debug)]
enum Progress {
    /// The answer goes to this connection.
    UnderWay(mpsc::UnboundedSender<Bytes>),
    Answered(Bytes),
}

impl Engine {
    /// An engine that asks through `client`, for users that have `key`.
    pub fn new(client: Arc<Lasting>, key: Key) -> Self {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self(Arc::new(Hosting { client, key, sessions: Mutex::default(), connections }))
    }

    /// Serves whoever comes, for ever. Dropping what this returns closes all connections.
    pub async fn listen(&self, listener: Listener) {
        let mut users = JoinSet::new();
        loop {
            while users.try_join_next().is_some() {}
            if let Ok(incoming) = listener.accept().await {
                let engine = self.clone();
                users.spawn(async move {
                    if let Ok(stream) = incoming.stream().await {
                        engine.serve(stream).await;
                    }
                });
            } else {
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Serves one connection until its end.
    pub async fn serve(&self, stream: impl Stream + 'static) {
        let Ok(_permit) = self.0.connections.clone().try_acquire_owned() else { return };
        // Why it ended is the user's to find out.
        let _ = self.0.serve(stream).await;
    }
}

impl Hosting {
    async fn serve<S: Stream + 'static>(self: &Arc<Self>, stream: S) -> Result<()> {
        let late = |_| Error::new(Kind::Protocol, "no greeting");
        let greeted = timeout(GREETING, async {
            let (mut sender, mut receiver) = accept(stream, &self.key).await?;
            let id = open_hello(&receiver.receive(HELLO_LEN).await?)?;
            sender.send(&welcome(self.client.root(), self.client.status()?.queries)).await?;
            Ok((sender, receiver, id))
        });
        let (sender, receiver, id) = greeted.await.map_err(late)??;
        let session = self.enter(id)?;
        let (answers, outgoing) = mpsc::unbounded_channel();
        let ended = tokio::select! {
            ended = self.hear(receiver, &session, answers) => ended,
            ended = tell(sender, outgoing) => ended,
        };
        let mut state = session.lock();
        state.connections -= 1;
        state.left = Instant::now();
        ended
    }

    /// The session of this id, which may begin.
    fn enter(&self, id: SessionId) -> Result<Arc<Session>> {
        let begun = self.client.status()?.queries;
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, session| {
            let state = session.lock();
            state.connections > 0 || state.left.elapsed() < SESSION_LIFE
        });
        if let Some(session) = sessions.get(&id) {
            session.lock().connections += 1;
            return Ok(session.clone());
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(Error::new(Kind::Busy, "the engine has too many users"));
        }
        let state =
            State { requests: BTreeMap::new(), received: 1, connections: 1, left: Instant::now() };
        let session = Arc::new(Session { id, begun, state: Mutex::new(state) });
        sessions.insert(id, session.clone());
        Ok(session)
    }

    async fn hear<S: Stream>(
        self: &Arc<Self>,
        mut receiver: Receiver<S>,
        session: &Arc<Session>,
        answers: mpsc::UnboundedSender<Bytes>,
    ) -> Result<()> {
        let geometry = self.client.geometry();
        let silent = |_| Error::new(Kind::Unreachable, "the user says nothing");
        loop {
            let message = receiver.receive(request_len(geometry));
            let message = timeout(SILENCE, message).await.map_err(silent)??;
            let request = Request::decode(geometry, &message)?;
            let Request { number, received, asked_since, asked } = request;
            let Asked::Query(id, operation) = asked else {
                let told = match self.client.status() {
                    Ok(status) => Told::Status(status),
                    Err(error) => Told::Failed(error.kind(), error.to_string()),
                };
                let _ = answers.send(self.told(number, told));
                continue;
            };
            if !session.take(number, received, &answers)? {
                continue;
            }
            // Of what was sent before it heard of the session an engine cannot know whether it was asked: the log can.
            let asked_since = asked_since.filter(|since| *since <= session.begun);
            let (hosting, session) = (self.clone(), session.clone());
            let name = digest_of([&session.id[..], &number.to_le_bytes()]);
            let mut name = *name.first_chunk().expect("a digest is longer");
            if planted(Fault::DoneTwice) {
                name = tacita_secret::random().unwrap_or(name);
            }
            tokio::spawn(async move {
                let told = match hosting.client.query_as(name, asked_since, id, operation).await {
                    Ok(outcome) => Told::Outcome(outcome),
                    Err(error) => Told::Failed(error.kind(), error.to_string()),
                };
                session.answered(number, hosting.told(number, told));
            });
        }
    }

    fn told(&self, number: u64, told: Told) -> Bytes {
        let records = self.client.status().map_or(0, |status| status.queries);
        Bytes::from(Answer { number, records, told }.encode(self.client.geometry()))
    }
}

async fn tell<S: Stream>(
    mut sender: Sender<S>,
    mut outgoing: mpsc::UnboundedReceiver<Bytes>,
) -> Result<()> {
    while let Some(answer) = outgoing.recv().await {
        sender.send(&answer).await?;
    }
    Ok(())
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes request `number`, whose answer goes to `answers`; whether it is to be done, for the first time.
    fn take(
        &self,
        number: u64,
        received: u64,
        answers: &mpsc::UnboundedSender<Bytes>,
    ) -> Result<bool> {
        let mut state = self.lock();
        state.received = state.received.max(received);
        let received = state.received;
        state.requests.retain(|&other, _| other >= received);
        if planted(Fault::DoneTwice) {
            state.requests.remove(&number);
        }
        let is_full = state.requests.len() >= REQUESTS_MAX;
        match state.requests.get_mut(&number) {
            Some(Progress::Answered(answer)) => {
                // The connection finds out by itself that it has ended.
                let _ = answers.send(answer.clone());
                Ok(false)
            }
            Some(Progress::UnderWay(to)) => {
                *to = answers.clone();
                Ok(false)
            }
            None if number < received || is_full => {
                Err(Error::new(Kind::Protocol, "requests that were answered, or too many"))
            }
            None => {
                state.requests.insert(number, Progress::UnderWay(answers.clone()));
                Ok(true)
            }
        }
    }

    fn answered(&self, number: u64, answer: Bytes) {
        if let Some(progress) = self.lock().requests.get_mut(&number)
            && let Progress::UnderWay(to) =
                std::mem::replace(progress, Progress::Answered(answer.clone()))
        {
            // If the connection has ended, the user asks again on another one.
            let _ = to.send(answer);
        }
    }
}
