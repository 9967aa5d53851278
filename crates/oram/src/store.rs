//! The oblivious store as others see it: blocking and thread-safe.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tacita_secret::{Digest, Key};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::anchor::{Anchor, FileAnchor};
use crate::client::{self, Checked, Client, Connect, Patience, Progress, Surroundings};
use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;
use crate::keys::Id;
use crate::link::{Address, Delay, Remote, Stream};
use crate::log_view::Outcome;
use crate::record::{Operation, digest_of};
use crate::server::{Limits, Place, Server};

/// Threads that serve one open store.
const THREADS: usize = 2;

/// How a store is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How patient the client is.
    pub patience: Patience,
    /// Queries a second, neither more nor less; `None`: as they come.
    pub rate: Option<u32>,
    /// How slow the way to the server is made.
    pub delay: Option<Delay>,
    /// A file of certificates that vouch for a server with TLS; `None`: whom the system believes.
    pub roots: Option<PathBuf>,
}

/// An open store. Whatever is asked is one query, and the server sees no more than that there was one.
#[derive(Debug)]
pub struct Store {
    client: Arc<Client>,
    // Behind the client, so that it is dropped after it.
    runtime: Runtime,
}

impl Store {
    /// Makes a store of these shapes at `place`, which nobody serves meanwhile.
    ///
    /// # Errors
    /// [`Kind::Busy`] if there is one already: nothing is changed then; [`Kind::Storage`].
    pub fn init(place: &Place, key: &Key, geometry: Geometry) -> Result<()> {
        let store_id = tacita_secret::random()
            .map_err(|e| Error::new(Kind::Storage, format!("no random bytes: {e}")))?;
        runtime()?.block_on(async {
            let server = Server::open(place.open().await?, Limits::default()).await?;
            client::init(&Within(server), key, geometry, store_id).await
        })
    }

    /// Opens the store at `address`; what this client has seen is remembered in the file `anchor`.
    ///
    /// # Errors
    /// As [`Client::open`]; [`Kind::Busy`] if another process has the anchor.
    pub fn open(address: Address, key: &Key, anchor: &Path, options: &Options) -> Result<Self> {
        let remote = Remote::new(address, options.roots.as_deref())?;
        let connect: Arc<dyn Connect> = match options.delay {
            None => Arc::new(remote),
            Some(delay) => Arc::new(Slow { remote, delay }),
        };
        Self::open_with(connect, key, Arc::new(FileAnchor::open(anchor)?), options)
    }

    /// Opens the store that `connect` leads to.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn open_with(
        connect: Arc<dyn Connect>,
        key: &Key,
        anchor: Arc<dyn Anchor>,
        options: &Options,
    ) -> Result<Self> {
        let runtime = runtime()?;
        let surroundings = Surroundings {
            connect,
            anchor,
            random: Arc::new(tacita_secret::random::<16>),
            patience: options.patience,
            between: options.rate.map(|rate| Duration::from_secs(1) / rate.max(1)),
        };
        let patience = options.patience.query;
        let opened = runtime.block_on(async {
            tokio::time::timeout(patience, Client::open(key, surroundings)).await
        });
        let client = opened.map_err(|_| {
            Error::new(Kind::Unreachable, "the server did not let the store be opened in time")
        })??;
        Ok(Self { client: Arc::new(client), runtime })
    }

    /// The shapes of the store.
    pub fn geometry(&self) -> &Geometry {
        self.client.geometry()
    }

    /// The content of block `id`; `None` if there is no such block.
    ///
    /// # Errors
    /// As [`Client::query`].
    pub fn read(&self, id: Id) -> Result<Option<Bytes>> {
        was(self.query(id, Operation::Read)?)
    }

    /// Makes `content` the content of block `id`.
    ///
    /// # Errors
    /// [`Kind::NoSpace`] if there is no such block yet and the store is full; [`Kind::Parameters`] if it is
    /// not as long as blocks are; others as [`Client::query`].
    pub fn write(&self, id: Id, content: Bytes) -> Result<()> {
        was(self.query(id, Operation::Write(content))?).map(drop)
    }

    /// Lets there be no block `id`.
    ///
    /// # Errors
    /// As [`Client::query`].
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

    /// Does several operations at once; each is a query of its own, in no particular order.
    ///
    /// # Errors
    /// The first error, when all have ended.
    pub fn all(&self, operations: Vec<(Id, Operation)>) -> Result<Vec<Outcome>> {
        for (_, operation) in &operations {
            self.fits(operation)?;
        }
        self.runtime.block_on(async {
            let mut queries = JoinSet::new();
            let count = operations.len();
            for (number, (id, operation)) in operations.into_iter().enumerate() {
                let client = self.client.clone();
                queries.spawn(async move { (number, client.query(id, operation).await) });
            }
            let mut outcomes = vec![None; count];
            let mut failed = None;
            while let Some(ended) = queries.join_next().await {
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

    /// Does one operation.
    ///
    /// # Errors
    /// As [`Client::query`]; [`Kind::Parameters`] if a content is not as long as blocks are.
    pub fn query(&self, id: Id, operation: Operation) -> Result<Outcome> {
        self.fits(&operation)?;
        self.runtime.block_on(self.client.query(id, operation))
    }

    /// Reads all generations that live; see [`Client::check`].
    ///
    /// # Errors
    /// As [`Client::query`].
    pub fn check(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<Checked> {
        self.runtime.block_on(self.client.check(progress))
    }

    /// How far the builds are that are under way.
    pub fn progress(&self) -> Vec<Progress> {
        self.client.progress()
    }

    /// Queries so far, of all clients.
    pub fn queries(&self) -> u64 {
        self.client.queries()
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

/// The way to a server within this process.
struct Within(Server);

#[async_trait::async_trait]
impl Connect for Within {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(far).await });
        Ok(Box::new(near))
    }
}

/// A way to the server that is made slower.
struct Slow {
    remote: Remote,
    delay: Delay,
}

#[async_trait::async_trait]
impl Connect for Slow {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        let stream = self.remote.connect().await?;
        Ok(Box::new(self.delay.wrap(stream)))
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

fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("oram")
        .enable_all()
        .build()
        .map_err(|e| Error::new(Kind::Storage, format!("no threads: {e}")))
}
