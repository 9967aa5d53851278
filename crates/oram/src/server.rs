//! The untrusted half: keeps what clients seal, in the order in which it comes, and tells the others.
//!
//! It learns what everybody sees: how many queries there are, which generations they ask, and labels and
//! pages that mean nothing without the key. It has no key, judges nothing by its content, and is
//! not believed by any client.
//!
//! Records are durable before they are answered: all that wait become one object (`log`). Results are
//! kept in memory until a period has all of them, for a query can always be played again
//! (`feed`). Each connection is a `session`.

mod assembly;
mod complaints;
mod feed;
mod fetch;
mod labels;
mod limits;
mod log;
mod metrics;
mod running;
mod session;
mod timed;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::blob::{BlobStore, Swap};
use crate::error::{Kind, Result};
use crate::geometry::Geometry;
use crate::link::{Incoming, Listener, Stream};
use crate::root::Root;
use crate::wire::codec::Codec;
use crate::wire::{Answer, Refusal};
use feed::Feed;
use labels::Labels;
pub use limits::Limits;
use log::Append;
pub use metrics::Metrics;
pub use running::{Listening, Place, Running};
use timed::Timed;

/// A server over a store. Clones are the same server, which stops with the last of them.
#[derive(Debug, Clone)]
pub struct Server {
    core: Arc<Core>,
    _tasks: Arc<[Task; 2]>,
}

/// What all connections share.
#[derive(Debug)]
struct Core {
    store: Timed,
    limits: Limits,
    metrics: Arc<Metrics>,
    geometry: OnceLock<Geometry>,
    /// The root as it was seen last.
    root: Mutex<Option<(Bytes, Root)>>,
    /// Held while records are made durable and while the root is swapped: no record of an old fence comes
    /// behind the answer to the swap.
    commit: tokio::sync::Mutex<log::Commits>,
    feed: Mutex<Feed>,
    changed: watch::Sender<()>,
    labels: Labels,
    appends: mpsc::Sender<Append>,
    /// Periods that have all their results.
    complete: mpsc::UnboundedSender<u64>,
    connections: Arc<Semaphore>,
    assembling: Arc<Semaphore>,
}

/// A task that ends when nobody needs it any more.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    /// Tells from now on what fails of what the store is kept in, for whoever serves others: they are told only
    /// that it does.
    pub(crate) fn tell_storage_failures(&self, told: fn(&str)) {
        self.core.store.tell(told);
    }

    /// What has failed last of what the store is kept in.
    pub(crate) fn storage_failure(&self) -> Option<crate::Error> {
        self.core.store.failure()
    }

    /// Whether there is a store.
    pub(crate) fn has_store(&self) -> bool {
        self.core.known_root().is_some()
    }

    /// Opens the store, which may be empty.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Kind::Storage`] if the store fails or its log has a hole; [`Kind::NotAStore`] if its root is none.
    pub async fn open(store: Arc<dyn BlobStore>, limits: Limits) -> Result<Self> {
        let metrics = Arc::new(Metrics::default());
        let (appends, queue) = mpsc::channel(limits.appends_waiting_max);
        let (complete, results) = mpsc::unbounded_channel();
        let core = Arc::new(Core {
            store: Timed::new(store, metrics.clone()),
            metrics,
            geometry: OnceLock::new(),
            root: Mutex::new(None),
            commit: tokio::sync::Mutex::default(),
            feed: Mutex::default(),
            changed: watch::Sender::new(()),
            labels: Labels::new(limits.labels_len_max),
            appends,
            complete,
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            assembling: Arc::new(Semaphore::new(limits.assembling_len_max)),
            limits,
        });
        if let Some(bytes) = core.store.root().await? {
            core.take_root(bytes, &mut *core.commit.lock().await).await?;
        }
        let tasks = [
            tokio::spawn(log::commit_all(Arc::downgrade(&core), queue)),
            tokio::spawn(log::put_all(Arc::downgrade(&core), results)),
        ];
        Ok(Self { core, _tasks: Arc::new(tasks.map(|task| Task(task.abort_handle()))) })
    }

    /// Serves one connection until its end.
    pub async fn serve(&self, stream: impl Stream + 'static) {
        let Some(_permit) = self.admit() else { return };
        session::serve(self.core.clone(), stream).await;
    }

    /// Serves somebody who has connected, once hands are shaken; who takes too long for that is left.
    async fn greet(&self, incoming: Incoming) {
        let Some(_permit) = self.admit() else { return };
        match timeout(self.core.limits.handshake, incoming.stream()).await {
            Ok(Ok(stream)) => session::serve(self.core.clone(), stream).await,
            _ => self.core.metrics.handshakes_failed.add(1),
        }
    }

    /// A place among those that are served, if there is one.
    fn admit(&self) -> Option<OwnedSemaphorePermit> {
        let permit = self.core.connections.clone().try_acquire_owned().ok();
        if permit.is_none() {
            self.core.metrics.connections_refused.add(1);
        }
        permit
    }

    /// Serves whoever comes, for ever. Dropping what this returns closes all connections.
    pub async fn listen(&self, listener: Listener) {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            if let Ok(incoming) = listener.accept().await {
                let server = self.clone();
                connections.spawn(async move { server.greet(incoming).await });
            } else {
                // Too many open files, most likely: others close theirs meanwhile.
                tokio::time::sleep(self.core.limits.accept_again).await;
            }
        }
    }

    /// What can be counted.
    pub fn metrics(&self) -> &Metrics {
        &self.core.metrics
    }
}

impl Core {
    fn codec(&self) -> Codec {
        Codec::new(self.geometry.get().copied())
    }

    fn feed(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_root(&self) -> MutexGuard<'_, Option<(Bytes, Root)>> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn root_bytes(&self) -> Bytes {
        self.known_root().as_ref().map(|(bytes, _)| bytes.clone()).unwrap_or_default()
    }

    /// Takes the root that the store has, and with the first one the log.
    async fn take_root(&self, bytes: Bytes, commits: &mut log::Commits) -> Result<()> {
        let (root, _) = Root::decode(&bytes)?;
        let geometry = self.geometry.get_or_init(|| root.geometry);
        if *geometry != root.geometry {
            let what = "the root has become that of another store";
            return Err(crate::Error::new(Kind::NotAStore, what));
        }
        if !commits.is_loaded {
            self.load_log().await?;
            commits.is_loaded = true;
        }
        *self.known_root() = Some((bytes, root));
        Ok(())
    }

    async fn read_root(&self) -> Answer {
        let mut commits = self.commit.lock().await;
        match self.store.root().await {
            Ok(None) => Answer::Root(Bytes::new()),
            Ok(Some(bytes)) if bytes == self.root_bytes() => Answer::Root(bytes),
            Ok(Some(bytes)) => match self.take_root(bytes.clone(), &mut commits).await {
                Ok(()) => Answer::Root(bytes),
                Err(_) => Answer::Refused(Refusal::Storage),
            },
            Err(_) => Answer::Refused(Refusal::Storage),
        }
    }

    async fn swap_root(&self, expected: Bytes, new: Bytes) -> Answer {
        let Ok((root, _)) = Root::decode(&new) else {
            return Answer::Refused(Refusal::Malformed);
        };
        let mut commits = self.commit.lock().await;
        if let Some((_, old)) = &*self.known_root()
            && (old.geometry, old.store_id) != (root.geometry, root.store_id)
        {
            return Answer::Refused(Refusal::Malformed);
        }
        let expected = (!expected.is_empty()).then_some(expected);
        let swapped = self.store.swap_root(expected, new.clone()).await;
        let now = match &swapped {
            Ok(Swap::Swapped) => Some(new),
            Ok(Swap::Differs(now)) => now.clone(),
            // One of the two; whoever appends has to have the fence of the one that it is.
            Err(_) => self.store.root().await.ok().flatten(),
        };
        if let Some(now) = &now
            && self.take_root(now.clone(), &mut commits).await.is_err()
        {
            return Answer::Refused(Refusal::Storage);
        }
        match swapped {
            Ok(swap) => {
                Answer::Swapped { swapped: swap == Swap::Swapped, root: now.unwrap_or_default() }
            }
            Err(_) => Answer::Refused(Refusal::Storage),
        }
    }
}

#[cfg(test)]
mod tests;
