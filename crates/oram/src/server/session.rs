//! One connection: requests are read one after the other and done at the same time; one task writes.

mod telling;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, BufReader, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Core;
use super::assembly::Assembly;
use super::feed::{ConnectionId, Kept};
use super::log::Append;
use crate::error::Error;
use crate::faults::{Fault, planted};
use crate::link::Stream;
use crate::link::frames::{read_body, read_head};
use crate::object::Object;
use crate::wire::codec::Head;
use crate::wire::{Answer, HEADER_LEN, Refusal, Request, VERSION};

static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// What the writing task is given.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// An answer, and what it takes of the connection's limits until it is written.
    Answer(u64, Answer, Vec<OwnedSemaphorePermit>),
    /// From here on the connection follows.
    Follow { number: u64, record: u64, result: u64 },
}

/// Where answers of a connection go.
#[derive(Debug, Clone)]
pub(super) struct Answers(mpsc::UnboundedSender<Outgoing>);

impl Answers {
    /// `permits` are given back when the answer is written.
    pub(super) fn send(&self, number: u64, answer: Answer, permits: Vec<OwnedSemaphorePermit>) {
        // Nobody takes it where the connection has ended.
        let _ = self.0.send(Outgoing::Answer(number, answer, permits));
    }
}

/// What belongs to one connection.
struct Session {
    core: Arc<Core>,
    id: ConnectionId,
    answers: Answers,
    in_flight: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    assembly: Assembly,
    works: JoinSet<()>,
    is_following: bool,
}

/// Why reading ends.
enum End {
    /// The client has left, or says nothing.
    Gone,
    /// The client is told why with its last answer.
    Refused,
}

/// Serves a connection until its end.
pub(super) async fn serve(core: Arc<Core>, stream: impl Stream) {
    core.metrics.connections.add(1);
    let (reader, writer) = split(stream);
    let (sender, outgoing) = mpsc::unbounded_channel();
    let id = ConnectionId(LAST_ID.fetch_add(1, Ordering::Relaxed));
    let limits = core.limits;
    let mut session = Session {
        id,
        answers: Answers(sender),
        in_flight: Arc::new(Semaphore::new(limits.in_flight_max)),
        refusals: Arc::new(Semaphore::new(limits.in_flight_max)),
        reading: Arc::new(Semaphore::new(limits.reading_len_max)),
        assembly: Assembly::default(),
        works: JoinSet::new(),
        is_following: false,
        core: core.clone(),
    };
    let mut reader = BufReader::with_capacity(1 << 16, reader);
    let read = async move {
        if let End::Refused = session.read(&mut reader).await {
            // What was asked before is answered.
            while session.works.join_next().await.is_some() {}
        }
    };
    let tell = telling::tell(core.clone(), id, writer, outgoing);
    tokio::pin!(read, tell);
    let is_read = tokio::select! {
        () = &mut read => true,
        () = &mut tell => false,
    };
    if is_read {
        // Answers that are under way are written, if the client takes them.
        let _ = timeout(limits.stalled, tell).await;
    }
    core.feed().leave(id);
    core.metrics.connections_ended.add(1);
}

/// What is read from a client; one that takes longer is gone.
async fn in_time<T>(
    patience: Duration,
    reading: impl Future<Output = Result<T, Error>>,
) -> Result<T, End> {
    let patience = if planted(Fault::SilenceKept) { Duration::MAX } else { patience };
    timeout(patience, reading).await.ok().and_then(Result::ok).ok_or(End::Gone)
}

impl Session {
    async fn read(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> End {
        let limits = self.core.limits;
        let mut patience = limits.frame;
        let mut is_welcome = false;
        loop {
            let (number, request) = match self.next(reader, patience).await {
                Ok(next) => next,
                Err(end) => return end,
            };
            if is_welcome != !matches!(request, Request::Hello { .. }) {
                self.refuse(number, Refusal::Malformed);
                return End::Refused;
            }
            if let Request::Hello { version } = request {
                if version != VERSION {
                    self.refuse(number, Refusal::Version);
                    return End::Refused;
                }
                match self.core.welcome().await {
                    Ok(welcome) => self.answers.send(number, welcome, Vec::new()),
                    Err(refusal) => {
                        self.refuse(number, refusal);
                        return End::Refused;
                    }
                }
                (is_welcome, patience) = (true, limits.idle);
                continue;
            }
            while self.works.try_join_next().is_some() {}
            let Ok(permit) = self.in_flight.clone().try_acquire_owned() else {
                // Who does not take refusals is not read any more.
                let permit = self.refusals.clone().acquire_owned().await;
                let answer = Answer::Refused(Refusal::Overloaded);
                self.answer(number, answer, permit.into_iter().collect());
                continue;
            };
            self.core.metrics.asked(&request);
            if let Err(end) = self.start(number, request, permit).await {
                return end;
            }
        }
    }

    /// The next request.
    async fn next(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        patience: Duration,
    ) -> Result<(u64, Request), End> {
        let Some(bytes) = in_time(patience, read_head(reader)).await? else {
            return Err(End::Gone);
        };
        let codec = self.core.codec();
        let Ok(head) = codec.request_head(&bytes) else {
            return Err(self.malformed(&bytes));
        };
        let body = in_time(self.core.limits.frame, read_body(reader, head.len)).await?;
        self.core.metrics.bytes_in.add((HEADER_LEN + head.len) as u64);
        let Head { number, .. } = head;
        match codec.request(head, body) {
            Ok(request) => Ok((number, request)),
            Err(_) => Err(self.malformed(&bytes)),
        }
    }

    fn malformed(&self, head: &[u8; HEADER_LEN]) -> End {
        let number = head.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if number == 0 {
            return End::Gone;
        }
        self.refuse(number, Refusal::Malformed);
        End::Refused
    }

    fn refuse(&self, number: u64, refusal: Refusal) {
        self.core.metrics.refused(refusal);
        self.answers.send(number, Answer::Refused(refusal), Vec::new());
    }

    /// Begins a request; what comes in an order is done in it, all else at the same time.
    async fn start(
        &mut self,
        number: u64,
        request: Request,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), End> {
        match request {
            Request::Append { fence, record } => {
                let answers = self.answers.clone();
                let follower = self.is_following.then_some(self.id);
                let append = Append { fence, record, number, answers, follower, permit };
                self.core.appends.send(append).await.map_err(|_| End::Gone)?;
            }
            Request::Store { sequence, result } => {
                let answer = self.store(sequence, result);
                self.answer(number, answer, vec![permit]);
            }
            Request::Follow { record, result } => {
                if self.is_following {
                    self.refuse(number, Refusal::Malformed);
                    return Err(End::Refused);
                }
                match self.core.can_follow(record, result).await {
                    Ok(()) => {
                        self.is_following = true;
                        self.core.feed().enter(self.id);
                        let _ = self.answers.0.send(Outgoing::Follow { number, record, result });
                    }
                    Err(refusal) => {
                        self.answer(number, Answer::Refused(refusal), vec![permit]);
                    }
                }
            }
            Request::Put { object, total, offset, bytes } => {
                match self.assembly.take(&self.core, object, (total, offset), &bytes) {
                    Ok(whole) => {
                        let core = self.core.clone();
                        self.work(number, permit, async move {
                            let opens = whole.opens();
                            let answer = core.put(whole).await;
                            if let Some(period) = opens {
                                core.remove_old(period).await;
                            }
                            answer
                        });
                    }
                    Err(answer) => self.answer(number, answer, vec![permit]),
                }
            }
            Request::Get { object, offset, len } => self.get(number, object, offset, len, permit),
            request => {
                let core = self.core.clone();
                self.work(number, permit, async move { core.answer(request).await });
            }
        }
        Ok(())
    }

    fn store(&self, sequence: u64, result: Bytes) -> Answer {
        let kept = self.core.feed().keep(sequence, result, self.id);
        let created = match kept {
            Kept::NoQuery => return Answer::Refused(Refusal::Absent),
            Kept::Exists => false,
            Kept::Created => true,
            Kept::Complete(period) => {
                // The server ends if nobody takes it.
                let _ = self.core.complete.send(period);
                true
            }
        };
        if created {
            self.core.metrics.results.add(1);
            self.core.changed.send_replace(());
        }
        Answer::Kept { created }
    }

    fn get(
        &mut self,
        number: u64,
        object: Object,
        offset: u64,
        len: u32,
        permit: OwnedSemaphorePermit,
    ) {
        let (core, answers) = (self.core.clone(), self.answers.clone());
        let reading = self.reading.clone();
        // A piece larger than all the room takes all of it.
        let room = len.min(u32::try_from(core.limits.reading_len_max).unwrap_or(u32::MAX));
        self.works.spawn(async move {
            let room = reading.acquire_many_owned(room).await.expect("nobody closes it");
            let answer = core.get(object, offset, len).await;
            core.count(&answer);
            answers.send(number, answer, vec![permit, room]);
        });
    }

    fn work(
        &mut self,
        number: u64,
        permit: OwnedSemaphorePermit,
        work: impl Future<Output = Answer> + Send + 'static,
    ) {
        let (core, answers) = (self.core.clone(), self.answers.clone());
        self.works.spawn(async move {
            let answer = work.await;
            core.count(&answer);
            answers.send(number, answer, vec![permit]);
        });
    }

    fn answer(&self, number: u64, answer: Answer, permits: Vec<OwnedSemaphorePermit>) {
        self.core.count(&answer);
        self.answers.send(number, answer, permits);
    }
}

impl Core {
    fn count(&self, answer: &Answer) {
        if let Answer::Refused(refusal) = answer {
            self.metrics.refused(*refusal);
        }
    }

    async fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Fetch { page, item } => self.fetch(page, item).await,
            Request::Delete { object } => self.delete(object).await,
            Request::List { prefix, after } => self.names(&prefix, after).await,
            Request::Root => self.read_root().await,
            Request::SwapRoot { expected, new } => self.swap_root(expected, new).await,
            _ => Answer::Refused(Refusal::Malformed),
        }
    }

    /// What a client is told first; or that storage fails, where it does not tell whether there is a store and
    /// which period is open.
    async fn welcome(&self) -> Result<Answer, Refusal> {
        // The store is asked, for another server may have swapped the root since. What is known is told
        // if it does not answer.
        let asked = self.read_root().await;
        let root = self.root_bytes();
        if let Answer::Refused(refusal) = asked
            && root.is_empty()
        {
            return Err(refusal);
        }
        let (records, followers) = {
            let feed = self.feed();
            (feed.next(), feed.followers())
        };
        let period = match self.geometry.get() {
            Some(geometry) => self.latest_open(records / geometry.period()).await,
            None => Ok(0),
        };
        let period = period.map_err(|_| Refusal::Storage)?;
        Ok(Answer::Welcome { version: VERSION, root, records, period, followers })
    }

    /// The latest period with a manifest: `current`, the one of the next record, or one about it.
    async fn latest_open(&self, current: u64) -> Result<u64, Error> {
        for period in [current + 1, current] {
            if self.store.len(Object::Manifest { period }).await?.is_some() {
                return Ok(period);
            }
        }
        Ok(current.saturating_sub(1))
    }

    /// Whether everything from `record` and `result` on is there to be told.
    async fn can_follow(&self, record: u64, result: u64) -> Result<(), Refusal> {
        let Some(geometry) = self.geometry.get() else { return Err(Refusal::Absent) };
        let next = {
            let feed = self.feed();
            if !feed.has(record) || result > feed.next() {
                return Err(Refusal::Absent);
            }
            feed.next()
        };
        for period in result / geometry.period()..next.div_ceil(geometry.period()) {
            if self.feed().is_collecting(period) {
                continue;
            }
            match self.store.len(Object::Results { period }).await {
                Ok(Some(_)) => {}
                Ok(None) => return Err(Refusal::Absent),
                Err(_) => return Err(Refusal::Storage),
            }
        }
        Ok(())
    }
}
