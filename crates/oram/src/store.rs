//! The oblivious store as others see it: blocking and thread-safe.

mod making;
mod way;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tacita_secret::{Digest, Key};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use crate::anchor::{FileAnchor, MemoryAnchor};
use crate::client::{Access, Anchorage, Checked, Connect, Lasting, RATE_MAX, Status, Surroundings};
use crate::engine::{Engine, User};
use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;
use crate::keys::Id;
use crate::link::{Address, Remote, SocketFile};
use crate::log_view::Outcome;
use crate::record::{Operation, digest_of};
use crate::server::Place;
use crate::threads::Threads;
pub use making::OpenPlace;
use way::Slow;
pub use way::{AnchorAt, Options, Way};

/// Threads that serve one open store.
const THREADS: usize = 2;
/// How long a store that is closed waits for what is in the background.
const ENDING: Duration = Duration::from_secs(1);
/// How long it waits for the shared anchor: as long as others would for its signs of life.
const LEAVING: Duration = Duration::from_secs(10);

/// An open store. Whatever is asked is one query, and the server sees no more than that there was one.
#[derive(Debug)]
pub struct Store {
    asking: Arc<Asking>,
    /// Queries that may begin now.
    free: Arc<Semaphore>,
    at_once: usize,
    is_closed: AtomicBool,
    // Behind who asks, so that it is dropped after it.
    runtime: Threads,
}

#[derive(Debug)]
enum Asking {
    Client(Arc<Lasting>),
    User(User),
}

impl Store {
    /// Makes a store of these shapes at `place`, which nobody serves meanwhile.
    ///
    /// # Errors
    /// [`Kind::Busy`] if there is one already: nothing is changed then; [`Kind::Storage`].
    pub fn init(place: &Place, key: &Key, geometry: Geometry) -> Result<()> {
        OpenPlace::open(place)?.init(key, geometry)
    }

    /// Opens the store that `way` leads to. What a client of a server has seen is remembered at `anchor`,
    /// which is only read by whoever looks.
    ///
    /// # Errors
    /// As [`Client::open`](crate::client::Client::open); [`Kind::Busy`] if another process has the anchor;
    /// [`Kind::Parameters`] if an engine is asked for what is its own to decide: a rate, or taking over.
    pub fn open(way: Way, key: &Key, anchor: &AnchorAt, options: &Options) -> Result<Self> {
        let (address, is_engine) = match way {
            Way::Server(address) => (address, false),
            Way::Engine(address) => (address, true),
        };
        let remote = Remote::new(address, options.roots.as_deref())?;
        let connect: Arc<dyn Connect> = match options.delay {
            None => Arc::new(remote),
            Some(delay) => Arc::new(Slow { remote, delay }),
        };
        if is_engine {
            return Self::open_engine(connect, key, options);
        }
        let runtime = Threads::new("oram", THREADS)?;
        let anchor = match (anchor, options.access) {
            (AnchorAt::File(path), Access::Look) => {
                Anchorage::Own(Arc::new(MemoryAnchor::of(FileAnchor::look(path)?)))
            }
            (AnchorAt::File(path), _) => Anchorage::Own(Arc::new(FileAnchor::open(path)?)),
            (AnchorAt::Shared(place), Access::Look) => {
                Anchorage::Shared(in_time(&runtime, options, place.look())?)
            }
            (AnchorAt::Shared(place), _) => {
                Anchorage::Shared(in_time(&runtime, options, place.open())?)
            }
        };
        Self::open_on(runtime, connect, key, anchor, options)
    }

    /// Opens the store that `connect` leads to.
    ///
    /// # Errors
    /// As [`Client::open`](crate::client::Client::open).
    pub fn open_with(
        connect: Arc<dyn Connect>,
        key: &Key,
        anchor: Anchorage,
        options: &Options,
    ) -> Result<Self> {
        Self::open_on(Threads::new("oram", THREADS)?, connect, key, anchor, options)
    }

    fn open_on(
        runtime: Threads,
        connect: Arc<dyn Connect>,
        key: &Key,
        anchor: Anchorage,
        options: &Options,
    ) -> Result<Self> {
        let surroundings = Surroundings {
            connect,
            anchor,
            random: Arc::new(tacita_secret::random::<16>),
            patience: options.patience,
            access: options.access,
            between: options.rate.map(|rate| Duration::from_secs(1) / rate.clamp(1, RATE_MAX)),
        };
        let client = in_time(&runtime, options, Lasting::open(key, surroundings))?;
        Ok(Self::of(Asking::Client(Arc::new(client)), runtime, options))
    }

    /// Opens the store of the engine that `connect` leads to.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_engine(connect: Arc<dyn Connect>, key: &Key, options: &Options) -> Result<Self> {
        if options.rate.is_some() || options.access == Access::TakeOver {
            let whose = "the rate, and taking over, are for the engine itself to be told";
            return Err(Error::new(Kind::Parameters, whose));
        }
        let runtime = Threads::new("oram", THREADS)?;
        let user = in_time(&runtime, options, User::open(connect, key, options.patience))?;
        Ok(Self::of(Asking::User(user), runtime, options))
    }

    fn of(asking: Asking, runtime: Threads, options: &Options) -> Self {
        let at_once = options.at_once.map_or(Semaphore::MAX_PERMITS, NonZeroUsize::get);
        let free = Arc::new(Semaphore::new(at_once));
        let is_closed = AtomicBool::new(false);
        Self { asking: Arc::new(asking), free, at_once, is_closed, runtime }
    }

    /// Lets users that have `key` ask through this store at `address`, until what is returned is dropped.
    ///
    /// # Errors
    /// [`Kind::Taken`] and [`Kind::Address`] if the place is not to be had; [`Kind::Parameters`] if this store is
    /// an engine's.
    pub fn host(&self, address: &Address, key: &Key) -> Result<Hosted> {
        let client = self.client()?.clone();
        if matches!(address, Address::Tls(_)) {
            let sealed = "what an engine and its users say is sealed already: no TLS is needed";
            return Err(Error::new(Kind::Parameters, sealed));
        }
        let listener = self.runtime.block_on(address.listen(None))?;
        let address = listener.address()?;
        let socket = SocketFile::of(&address);
        let engine = Engine::new(client, key.clone());
        let task = self.runtime.spawn(async move { engine.listen(listener).await });
        Ok(Hosted { address, socket, task: task.abort_handle() })
    }

    /// Who asks the server itself.
    fn client(&self) -> Result<&Arc<Lasting>> {
        match &*self.asking {
            Asking::Client(client) => Ok(client),
            Asking::User(_) => Err(Error::new(
                Kind::Parameters,
                "this is for clients of the server: an engine's users cannot ask for it",
            )),
        }
    }

    /// The shapes of the store.
    pub fn geometry(&self) -> &Geometry {
        match &*self.asking {
            Asking::Client(client) => client.geometry(),
            Asking::User(user) => user.geometry(),
        }
    }

    /// The content of block `id`; `None` if there is no such block.
    ///
    /// # Errors
    /// As [`Client::query`](crate::client::Client::query).
    pub fn read(&self, id: Id) -> Result<Option<Bytes>> {
        was(self.query(id, Operation::Read)?)
    }

    /// Makes `content` the content of block `id`.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if there is no such block yet and the store is full; [`Kind::Parameters`] if it is
    /// not as long as blocks are; others as [`Client::query`](crate::client::Client::query).
    pub fn write(&self, id: Id, content: Bytes) -> Result<()> {
        was(self.query(id, Operation::Write(content))?).map(drop)
    }

    /// Lets there be no block `id`.
    ///
    /// # Errors
    /// As [`Client::query`](crate::client::Client::query).
    pub fn free(&self, id: Id) -> Result<()> {
        was(self.query(id, Operation::Free)?).map(drop)
    }

    /// Makes `new` the content of block `id` if it is now `expected` (`None`: no such block); returns
    /// whether it was, and the content before.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn compare_and_write(
        &self,
        id: Id,
        expected: Option<&[u8]>,
        new: Bytes,
    ) -> Result<(bool, Option<Bytes>)> {
        let expected: Option<Digest> = expected.map(digest_of);
        match self.query(id, Operation::CompareAndWrite { expected, new })? {
            Outcome::Compared { written, was } => Ok((written, was)),
            other => was(other).map(|was| (false, was)),
        }
    }

    /// Does several operations at once; each is a query of its own, in no particular order. As soon as one
    /// ends another begins, as far as [`Options::at_once`] lets it: who asks for little does not wait until
    /// all that others ask for has begun.
    ///
    /// # Errors
    /// The first error, when all have ended that had begun; no other begins then.
    pub fn all(&self, operations: Vec<(Id, Operation)>) -> Result<Vec<Outcome>> {
        for (_, operation) in &operations {
            self.fits(operation)?;
        }
        self.runtime.block_on(async {
            let mut outcomes = vec![None; operations.len()];
            let mut failed = None;
            let mut queries = JoinSet::new();
            let mut left = operations.into_iter().enumerate();
            loop {
                while failed.is_none()
                    && queries.len() < self.at_once
                    && let Some((number, (id, operation))) = left.next()
                {
                    let (asking, free) = (self.asking.clone(), self.free.clone());
                    queries.spawn(async move {
                        let _leave = free.acquire().await;
                        (number, asking.query(id, operation).await)
                    });
                }
                let Some(ended) = queries.join_next().await else { break };
                let (number, outcome) = ended.expect("queries do not panic");
                match outcome {
                    Ok(outcome) => outcomes[number] = Some(outcome),
                    Err(error) => {
                        failed.get_or_insert(error);
                    }
                }
            }
            match failed {
                Some(error) => Err(error),
                None => Ok(outcomes.into_iter().map(|o| o.expect("all have ended")).collect()),
            }
        })
    }

    /// Queries that are under way at once, at most.
    pub const fn at_once(&self) -> usize {
        self.at_once
    }

    /// Does one operation.
    ///
    /// # Errors
    /// As [`Client::query`](crate::client::Client::query); [`Kind::Parameters`] if a content is not as long as
    /// blocks are.
    pub fn query(&self, id: Id, operation: Operation) -> Result<Outcome> {
        self.fits(&operation)?;
        self.runtime.block_on(self.asking.query(id, operation))
    }

    /// Reads all generations that live; see [`Client::check`](crate::client::Client::check).
    ///
    /// # Errors
    /// As [`Client::check`](crate::client::Client::check); [`Kind::Parameters`] if this store is an engine's.
    pub fn check(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Checked> {
        self.runtime.block_on(self.client()?.client()?.check(progress))
    }

    /// Queries so far, blocks that are there, builds that are under way.
    ///
    /// # Errors
    /// As [`Client::query`](crate::client::Client::query), if this store is an engine's.
    pub fn status(&self) -> Result<Status> {
        match &*self.asking {
            Asking::Client(client) => client.status(),
            Asking::User(user) => self.runtime.block_on(user.status()),
        }
    }

    /// Why nothing goes any more until the store is opened again, if that is so.
    pub fn failure(&self) -> Option<Error> {
        match &*self.asking {
            Asking::Client(client) => client.failure(),
            Asking::User(user) => user.failure(),
        }
    }

    /// Waits until nothing is being built, opened or removed that could be without further queries, and the
    /// server has all that was found.
    ///
    /// # Errors
    /// As [`Client::query`](crate::client::Client::query); [`Kind::Parameters`] if this store is an engine's.
    pub fn idle(&self) -> Result<()> {
        self.runtime.block_on(self.client()?.client()?.idle())
    }

    /// Ends in order, and waits for little, however the server is: nothing can be asked any more, and others
    /// need not wait until they notice. Dropping it does the same; a daemon that ends may not come to that.
    pub fn close(&self) {
        if let Asking::Client(client) = &*self.asking
            && !self.is_closed.swap(true, Ordering::SeqCst)
        {
            self.runtime.block_on(client.close(ENDING, LEAVING));
        }
    }

    fn fits(&self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Write(block) | Operation::CompareAndWrite { new: block, .. }
                if block.len() != self.geometry().block_len() =>
            {
                Err(Error::new(
                    Kind::Parameters,
                    format!(
                        "{} bytes are not a block of {}",
                        block.len(),
                        self.geometry().block_len()
                    ),
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

impl Asking {
    async fn query(&self, id: Id, operation: Operation) -> Result<Outcome> {
        match self {
            Self::Client(client) => client.query(id, operation).await,
            Self::User(user) => user.query(id, operation).await,
        }
    }
}

/// An engine that takes users; it no longer does when this is dropped, and its socket is gone.
#[derive(Debug)]
pub struct Hosted {
    address: Address,
    socket: Option<SocketFile>,
    task: AbortHandle,
}

impl Hosted {
    /// Where it is: with the port that was chosen, if the address asked for any.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Its socket, by a path without links.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(SocketFile::path)
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        // While others are kept from the store: the next engine may have a socket of the same name.
        drop(self.socket.take());
        self.task.abort();
    }
}

fn was(outcome: Outcome) -> Result<Option<Bytes>> {
    match outcome {
        Outcome::Was(block) | Outcome::Compared { was: block, .. } => Ok(block),
        Outcome::Full => {
            Err(Error::new(Kind::NoSpace, "the store has as many blocks as it was made for"))
        }
        Outcome::Void => Err(Error::new(Kind::Protocol, "the query was not done")),
    }
}

fn in_time<T>(
    runtime: &Threads,
    options: &Options,
    opening: impl Future<Output = Result<T>>,
) -> Result<T> {
    let opened =
        runtime.block_on(async { tokio::time::timeout(options.patience.query, opening).await });
    opened.map_err(|_| {
        Error::new(Kind::Unreachable, "the server did not let the store be opened in time")
    })?
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::link::Delay;
    use crate::server::{Limits, Listening, Running};

    /// However fast the machine is: ten rounds, one after the other, take ten round trips.
    #[test]
    fn no_more_queries_are_under_way_at_once_than_was_asked_for() {
        const ONE_WAY: Duration = Duration::from_millis(10);
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Folder(folder.path().join("store"));
        let key = Key::take(&mut [7; 32]);
        let geometry = Geometry::new(512, 64, 4, 600).unwrap();
        Store::init(&place, &key, geometry).unwrap();
        let at = Address::Unix(folder.path().join("server"));
        let running = Running::start(&place, &Listening::at(at), Limits::default()).unwrap();
        let way = Way::Server(running.addresses()[0].clone());
        let anchor = AnchorAt::File(folder.path().join("anchor"));
        let delay = Some(Delay::of(ONE_WAY));
        let options = Options { at_once: NonZeroUsize::new(2), delay, ..Options::default() };
        let store = Store::open(way, &key, &anchor, &options).unwrap();
        let begin = Instant::now();
        let outcomes = store.all((0..20).map(|n| ([n; 32], Operation::Read)).collect()).unwrap();
        assert_eq!(outcomes, vec![Outcome::Was(None); 20]);
        assert!(begin.elapsed() >= 10 * 2 * ONE_WAY, "{:?}", begin.elapsed());
    }
}
