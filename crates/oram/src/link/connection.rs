//! A client's end of a connection.
//!
//! Answers come in any order, each to who waits for it. What tells of the log comes in the log's
//! order and goes to one handler: records of others, and that own ones are appended, before whoever
//! waits for that is told. So who is told that its record has a sequence number has seen, through the
//! handler, every record before it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, BufReader, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::Stream;
use super::frames::{read_body, read_head, write_all};
use crate::error::{Error, Kind, Result};
use crate::root::Root;
use crate::wire::codec::{Codec, Reply};
use crate::wire::{Answer, PIECE_LEN_MAX, Push, Refusal, Request, VERSION};

/// Pieces of an object that are on their way at once.
const PIECES_MAX: usize = 8;

/// How patient a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// After how long a call ends in [`Kind::Unreachable`], waiting for others included.
    pub time_out: Duration,
    /// Requests under way at once; more of them wait. Servers refuse more than 256.
    pub in_flight_max: usize,
    /// After how long a silence the server is asked for its root, so that it does not take the client
    /// for gone, and the client notices when it is. `None`: never.
    pub keep_alive: Option<Duration>,
}

/// What happens on a connection, in the order in which the server did it.
#[derive(Debug, Clone)]
pub enum Event {
    /// The server tells of a record or a result of others.
    Push(Push),
    /// A record of this connection is in the log.
    Appended {
        /// Its sequence number.
        sequence: u64,
        /// The record.
        record: Bytes,
    },
    /// The connection has ended; nothing comes any more.
    Lost(Error),
}

/// What the server said of itself at the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The root; `None` if there is no store yet.
    pub root: Option<Bytes>,
    /// Records in the log.
    pub records: u64,
    /// The latest period that is open.
    pub period: u64,
    /// Connections that follow the log: clients that have the store open.
    pub followers: u32,
}

/// A connection to the server. Clones are the same connection, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct Connection {
    ends: Arc<Ends>,
}

/// A request that is under way.
#[derive(Debug)]
pub struct Pending {
    answer: oneshot::Receiver<Result<Answer>>,
    until: Instant,
}

/// What lives as long as somebody can ask.
#[derive(Debug)]
struct Ends {
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<Bytes>,
    in_flight: Arc<Semaphore>,
    options: Options,
    tasks: [AbortHandle; 2],
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    codec: Codec,
    last_number: u64,
    waiting: HashMap<u64, Waiting>,
    lost: Option<Error>,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    answer: oneshot::Sender<Result<Answer>>,
    _permit: OwnedSemaphorePermit,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            time_out: Duration::from_secs(30),
            in_flight_max: 128,
            keep_alive: Some(Duration::from_mins(1)),
        }
    }
}

impl Connection {
    /// Speaks with the server at the other end of `stream`. `handler` is called for each event, in order,
    /// by the task that reads; it must not wait.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Kind::Unreachable`], [`Kind::Protocol`], [`Kind::Storage`] if the server's storage fails, and
    /// [`Kind::NotAStore`] if the root is none.
    pub async fn open(
        stream: impl Stream + 'static,
        options: Options,
        handler: impl FnMut(Event) + Send + 'static,
    ) -> Result<(Self, Welcome)> {
        let (reader, writer) = split(stream);
        let (outgoing, frames) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let writing = tokio::spawn(write_all(writer, frames)).abort_handle();
        let reading = tokio::spawn(read(shared.clone(), reader, handler)).abort_handle();
        let in_flight = Arc::new(Semaphore::new(options.in_flight_max.max(1)));
        let tasks = [writing, reading];
        let ends = Ends { shared, outgoing, in_flight, options, tasks };
        let connection = Self { ends: Arc::new(ends) };
        let welcome = connection.hello().await?;
        if let Some(silence) = options.keep_alive {
            tokio::spawn(keep_alive(Arc::downgrade(&connection.ends), silence));
        }
        Ok((connection, welcome))
    }

    async fn hello(&self) -> Result<Welcome> {
        match self.call(Request::Hello { version: VERSION }).await? {
            Answer::Welcome { version: VERSION, root, records, period, followers } => {
                let root = (!root.is_empty()).then_some(root);
                Ok(Welcome { root, records, period, followers })
            }
            Answer::Welcome { .. } | Answer::Refused(Refusal::Version) => {
                Err(Error::new(Kind::Protocol, "the server speaks another version"))
            }
            Answer::Refused(Refusal::Overloaded) => {
                Err(Error::new(Kind::Unreachable, "the server has too many connections"))
            }
            other => {
                if other == Answer::Refused(Refusal::Storage) {
                    Self::expect(other)?;
                }
                Err(Error::new(Kind::Protocol, "the server gives no welcome"))
            }
        }
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] when the connection is lost or the time is over, and then the server may have
    /// done what it was asked or may still do it; [`Kind::Protocol`] if the request cannot be sent.
    pub async fn call(&self, request: Request) -> Result<Answer> {
        self.begin(request).await?.answer().await
    }

    /// Asks, and returns when the request is on its way. Requests that are begun one after the other reach
    /// the server in this order.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn begin(&self, request: Request) -> Result<Pending> {
        let until = Instant::now() + self.ends.options.time_out;
        let permit = timeout_at(until, self.ends.in_flight.clone().acquire_owned());
        let permit = permit.await.map_err(|_| late())?.expect("nobody closes it");
        let (sender, answer) = oneshot::channel();
        let mut state = self.ends.shared.lock();
        if let Some(error) = &state.lost {
            return Err(error.clone());
        }
        state.last_number += 1;
        let number = state.last_number;
        let frame = state.codec.encode_request(number, &request)?;
        state.waiting.insert(number, Waiting { request, answer: sender, _permit: permit });
        // The state is held meanwhile, so that frames leave in the order of their numbers. If nobody
        // writes any more, the end of reading tells.
        let _ = self.ends.outgoing.send(frame);
        Ok(Pending { answer, until })
    }

    /// Puts a whole object in pieces; whether it is this one that is kept.
    ///
    /// # Errors
    /// As [`Connection::call`]; refusals as [`Connection::expect`] has them.
    pub async fn put(&self, object: crate::object::Object, bytes: Bytes) -> Result<bool> {
        let total = bytes.len() as u64;
        let mut under_way = std::collections::VecDeque::new();
        let (mut offset, mut rest) = (0, bytes);
        loop {
            let piece = rest.split_to(rest.len().min(PIECE_LEN_MAX));
            let len = piece.len() as u64;
            under_way
                .push_back(self.begin(Request::Put { object, total, offset, bytes: piece }).await?);
            offset += len;
            while under_way.len() >= PIECES_MAX || (rest.is_empty() && !under_way.is_empty()) {
                let pending = under_way.pop_front().expect("it is not empty");
                if let Answer::Kept { created } = Self::expect(pending.answer().await?)? {
                    return Ok(created);
                }
            }
        }
    }

    /// Bytes of an object, asked for in pieces; `None` if there is no such object.
    ///
    /// # Errors
    /// As [`Connection::call`]; other refusals as [`Connection::expect`] has them.
    pub async fn get(
        &self,
        object: crate::object::Object,
        range: std::ops::Range<u64>,
    ) -> Result<Option<Bytes>> {
        let mut whole = bytes::BytesMut::new();
        let mut under_way = std::collections::VecDeque::new();
        let mut offset = range.start;
        while offset < range.end || !under_way.is_empty() {
            if offset < range.end && under_way.len() < PIECES_MAX {
                let len = (range.end - offset).min(PIECE_LEN_MAX as u64);
                let len = u32::try_from(len).expect("a piece is short");
                under_way.push_back(self.begin(Request::Get { object, offset, len }).await?);
                offset += u64::from(len);
                continue;
            }
            let pending = under_way.pop_front().expect("it is not empty");
            match pending.answer().await? {
                Answer::Bytes(bytes) => whole.extend_from_slice(&bytes),
                Answer::Refused(Refusal::Absent) => return Ok(None),
                other => {
                    Self::expect(other)?;
                }
            }
        }
        Ok(Some(whole.freeze()))
    }

    /// The answer, or the refusal as an error: [`Kind::Busy`] for [`Refusal::Fenced`], [`Kind::Storage`] for
    /// [`Refusal::Storage`], [`Kind::Hostile`] for [`Refusal::Absent`], [`Kind::Unreachable`] for
    /// [`Refusal::Overloaded`], [`Kind::Protocol`] for the others.
    ///
    /// # Errors
    /// As said.
    pub fn expect(answer: Answer) -> Result<Answer> {
        let Answer::Refused(refusal) = answer else { return Ok(answer) };
        let (kind, what) = match refusal {
            Refusal::Fenced => (Kind::Busy, "another client has taken the store over"),
            Refusal::Storage => (Kind::Storage, "the server's storage failed or is full"),
            Refusal::Absent => (Kind::Hostile, "the server does not have what must be there"),
            Refusal::Overloaded => (Kind::Unreachable, "the server cannot take more now"),
            Refusal::PeriodClosed => (Kind::Protocol, "the period is not open yet"),
            Refusal::Malformed => (Kind::Protocol, "the server does not understand the request"),
            Refusal::Version => (Kind::Protocol, "the server speaks another version"),
        };
        Err(Error::new(kind, what))
    }

    /// Why the connection has ended, if it has.
    pub fn lost(&self) -> Option<Error> {
        self.ends.shared.lock().lost.clone()
    }
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn answer(self) -> Result<Answer> {
        match timeout_at(self.until, self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Error::new(Kind::Unreachable, "the connection was closed")),
            Err(_) => Err(late()),
        }
    }
}

impl Ends {
    fn stop(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on every call fails, those that wait included.
    fn lose(&self, error: &Error) {
        let mut state = self.lock();
        state.lost.get_or_insert_with(|| error.clone());
        for (_, waiting) in state.waiting.drain() {
            let _ = waiting.answer.send(Err(error.clone()));
        }
    }

    fn codec(&self) -> Codec {
        self.lock().codec
    }

    /// What the shapes are follows from the first root that is seen.
    fn learn(&self, answer: &Answer) -> Result<()> {
        let root = match answer {
            Answer::Welcome { root, .. } | Answer::Root(root) | Answer::Swapped { root, .. }
                if !root.is_empty() =>
            {
                root
            }
            _ => return Ok(()),
        };
        let (root, _) = Root::decode(root)?;
        self.lock().codec = Codec::new(Some(root.geometry));
        Ok(())
    }
}

/// Breaks each silence, as long as there is somebody who can ask.
async fn keep_alive(ends: Weak<Ends>, silence: Duration) {
    let mut last = 0;
    loop {
        sleep(silence).await;
        let Some(ends) = ends.upgrade() else { return };
        let connection = Connection { ends };
        if std::mem::replace(&mut last, connection.ends.shared.lock().last_number) != last {
            continue;
        }
        if let Err(error) = connection.call(Request::Root).await
            && error.kind() == Kind::Unreachable
        {
            connection.ends.shared.lose(&error);
            connection.ends.stop();
            return;
        }
    }
}

/// Reads until the end, which it tells everybody.
async fn read(
    shared: Arc<Shared>,
    reader: impl AsyncRead + Unpin,
    mut handler: impl FnMut(Event) + Send,
) {
    let mut reader = BufReader::with_capacity(1 << 16, reader);
    let error = loop {
        if let Err(error) = read_one(&shared, &mut reader, &mut handler).await {
            break error;
        }
    };
    shared.lose(&error);
    handler(Event::Lost(error));
}

async fn read_one(
    shared: &Shared,
    reader: &mut (impl AsyncRead + Unpin),
    handler: &mut (impl FnMut(Event) + Send),
) -> Result<()> {
    let Some(head) = read_head(reader).await? else {
        return Err(Error::new(Kind::Unreachable, "the server has closed the connection"));
    };
    let head = shared.codec().reply_head(&head)?;
    let body = read_body(reader, head.len).await?;
    match shared.codec().reply(head, body)? {
        Reply::Push(push) => handler(Event::Push(push)),
        Reply::Answer(number, answer) => {
            let waiting = shared.lock().waiting.remove(&number);
            let Some(waiting) = waiting else {
                return Err(Error::new(Kind::Protocol, "an answer that nobody has asked for"));
            };
            if !waiting.request.is_answered_by(&answer) {
                let error = Error::new(Kind::Protocol, "an answer to something else");
                let _ = waiting.answer.send(Err(error.clone()));
                return Err(error);
            }
            if let Err(error) = shared.learn(&answer) {
                let _ = waiting.answer.send(Err(error.clone()));
                return Err(error);
            }
            if let (Answer::Appended { sequence }, Request::Append { record, .. }) =
                (&answer, waiting.request)
            {
                handler(Event::Appended { sequence: *sequence, record });
            }
            let _ = waiting.answer.send(Ok(answer));
        }
    }
    Ok(())
}

fn late() -> Error {
    Error::new(Kind::Unreachable, "the server did not answer in time")
}
