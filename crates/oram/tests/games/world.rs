//! A server and its clients in one thread, on simulated time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tacita_oram::anchor::{Anchor, MemoryAnchor};
use tacita_oram::blob::{BlobStore, MemoryStore};
use tacita_oram::client::{
    self, Access, Anchorage, Client, Connect, Lasting, Patience, Surroundings,
};
use tacita_oram::geometry::Geometry;
use tacita_oram::keys::Id;
use tacita_oram::link::{Delay, Stream};
use tacita_oram::record::Operation;
use tacita_oram::server::{Limits, Server};
use tacita_oram::wire::HEADER_LEN;
use tacita_oram::{Error, Kind, Result};
use tacita_secret::Key;
use tokio::time::Instant;

use super::proxy::Trace;

/// A server that can be stopped and started, and the way to it.
pub(crate) struct World {
    /// What the server keeps its bytes in, if in memory.
    pub(crate) memory: Arc<MemoryStore>,
    store: Arc<dyn BlobStore>,
    pub(crate) anchor: Arc<dyn Anchor>,
    way: Arc<Way>,
    seed: Arc<Mutex<u64>>,
}

struct Way {
    server: Mutex<Option<Server>>,
    /// Connections that are served.
    served: Mutex<tokio::task::JoinSet<()>>,
    delay: Delay,
    geometry: Geometry,
    watched: Mutex<Option<(Arc<Mutex<Trace>>, Instant)>>,
    lie: Mutex<Option<Lie>>,
}

/// Changes frames from the server.
pub(crate) type Lie = Arc<dyn Fn(&[u8; HEADER_LEN], &mut Vec<u8>) + Send + Sync>;

#[async_trait]
impl Connect for Way {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        let server = self.server.lock().unwrap().clone();
        let server = server.ok_or_else(|| Error::new(Kind::Unreachable, "nobody is there"))?;
        let (near, far) = tokio::io::duplex(1 << 16);
        self.served.lock().unwrap().spawn(async move { server.serve(far).await });
        let near = self.delay.wrap(near);
        let (trace, begin) = self
            .watched
            .lock()
            .unwrap()
            .clone()
            .unwrap_or_else(|| (Arc::default(), Instant::now()));
        let lie = self.lie.lock().unwrap().clone();
        Ok(Box::new(super::proxy::watch(trace, lie, self.geometry, begin, near)))
    }
}

/// A way that can be cut for a while.
#[derive(Default)]
pub(crate) struct Gate {
    way: Mutex<Option<Arc<Way>>>,
    is_cut: AtomicBool,
    carried: Mutex<tokio::task::JoinSet<()>>,
}

impl Gate {
    /// All connections end, and there are no new ones, or there are again.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
        if is_cut {
            self.carried.lock().unwrap().abort_all();
        }
    }
}

#[async_trait]
impl Connect for Gate {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Unreachable, "the way is cut"));
        }
        let way = self.way.lock().unwrap().clone().unwrap();
        let mut far = way.connect().await?;
        let (near, mut middle) = tokio::io::duplex(1 << 16);
        self.carried.lock().unwrap().spawn(async move {
            let _ = tokio::io::copy_bidirectional(&mut middle, &mut far).await;
        });
        Ok(Box::new(near))
    }
}

pub(crate) fn key() -> Key {
    Key::take(&mut [7; 32])
}

impl World {
    /// A store of these shapes, and a server for it whose round-trip time is `round_trip_ms`.
    pub(crate) async fn new(geometry: Geometry, round_trip_ms: u64) -> Self {
        Self::called([5; 16], geometry, round_trip_ms).await
    }

    /// As [`World::new`], with the bytes in `store`, which is empty.
    pub(crate) async fn over(
        store: Arc<dyn BlobStore>,
        geometry: Geometry,
        round_trip_ms: u64,
    ) -> Self {
        Self::made([5; 16], store, geometry, round_trip_ms).await
    }

    /// A store of this id in memory: its keys, and all that looks random, follow from that.
    pub(crate) async fn called(store_id: [u8; 16], geometry: Geometry, round_trip_ms: u64) -> Self {
        let memory = Arc::new(MemoryStore::new());
        let world = Self::made(store_id, memory.clone(), geometry, round_trip_ms).await;
        Self { memory, ..world }
    }

    async fn made(
        store_id: [u8; 16],
        store: Arc<dyn BlobStore>,
        geometry: Geometry,
        round_trip_ms: u64,
    ) -> Self {
        let delay = Delay::of(Duration::from_millis(round_trip_ms) / 2);
        let way = Arc::new(Way {
            server: Mutex::default(),
            served: Mutex::default(),
            delay,
            geometry,
            watched: Mutex::default(),
            lie: Mutex::default(),
        });
        let world = Self {
            memory: Arc::default(),
            store,
            anchor: Arc::new(MemoryAnchor::default()),
            way,
            seed: Arc::new(Mutex::new(1)),
        };
        world.start().await;
        client::init(&*world.way, &key(), geometry, store_id).await.unwrap();
        world
    }

    /// Another server, which goes on from what this one's store holds now.
    pub(crate) async fn forked(&self) -> Self {
        let memory = Arc::new(MemoryStore::new());
        memory.restore(self.memory.snapshot());
        let way = Way {
            server: Mutex::default(),
            served: Mutex::default(),
            delay: self.way.delay,
            geometry: self.way.geometry,
            watched: Mutex::default(),
            lie: Mutex::default(),
        };
        let world = Self {
            memory: memory.clone(),
            store: memory,
            anchor: self.anchor.clone(),
            way: Arc::new(way),
            seed: self.seed.clone(),
        };
        world.start().await;
        world
    }

    /// As if all that happened here had happened there, to others.
    pub(crate) async fn copied(&self) -> Self {
        let mark = self.anchor.load().await.unwrap();
        let seed = *self.seed.lock().unwrap();
        Self {
            anchor: Arc::new(MemoryAnchor::of(mark)),
            seed: Arc::new(Mutex::new(seed)),
            ..self.forked().await
        }
    }

    pub(crate) async fn start(&self) {
        let server = Server::open(self.store.clone(), Limits::default()).await.unwrap();
        *self.way.server.lock().unwrap() = Some(server);
    }

    /// The server is gone, in the middle of whatever it does.
    pub(crate) async fn stop(&self) {
        self.way.server.lock().unwrap().take();
        let mut served = std::mem::take(&mut *self.way.served.lock().unwrap());
        served.shutdown().await;
    }

    /// Records in the log.
    pub(crate) async fn records(&self) -> u64 {
        let stream = self.way.connect().await.unwrap();
        let options = tacita_oram::link::Options::default();
        tacita_oram::link::Connection::open(stream, options, |_| ()).await.unwrap().1.records
    }

    /// From now on all that passes on new connections is written down.
    pub(crate) fn watch(&self) -> Arc<Mutex<Trace>> {
        let trace = Arc::new(Mutex::new(Trace::default()));
        *self.way.watched.lock().unwrap() = Some((trace.clone(), Instant::now()));
        trace
    }

    /// Writes blocks 0 to `count`, each with its number, and lets all builds end.
    pub(crate) async fn prepare(&self, count: u64) {
        let client = self.open().await.unwrap();
        for n in 0..count {
            let content = block(client.geometry(), n);
            client.query(id(n), Operation::Write(content)).await.unwrap();
        }
        client.idle().await.unwrap();
    }

    /// From now on the server lies so on new connections.
    pub(crate) fn lie(&self, lie: Option<Lie>) {
        *self.way.lie.lock().unwrap() = lie;
    }

    pub(crate) async fn open(&self) -> Result<Client> {
        self.open_with(key(), Access::Write).await
    }

    pub(crate) async fn open_with(&self, key: Key, access: Access) -> Result<Client> {
        self.open_by(self.anchor.clone(), key, access).await
    }

    pub(crate) async fn open_by(
        &self,
        anchor: Arc<dyn Anchor>,
        key: Key,
        access: Access,
    ) -> Result<Client> {
        self.open_at(Anchorage::Own(anchor), key, access).await
    }

    pub(crate) async fn open_at(
        &self,
        anchor: Anchorage,
        key: Key,
        access: Access,
    ) -> Result<Client> {
        Client::open(&key, self.surroundings(anchor, access)).await
    }

    /// By somebody who soon takes others for gone.
    pub(crate) async fn open_hastily(&self, anchor: Anchorage) -> Result<Client> {
        let mut surroundings = self.surroundings(anchor, Access::Write);
        surroundings.patience.take_over = Duration::from_millis(400);
        Client::open(&key(), surroundings).await
    }

    /// As [`World::open_hastily`], by somebody who comes back after others have gone on without.
    pub(crate) async fn open_lastingly(&self, anchor: Anchorage) -> Result<Lasting> {
        let mut surroundings = self.surroundings(anchor, Access::Write);
        surroundings.patience.take_over = Duration::from_millis(400);
        Lasting::open(&key(), surroundings).await
    }

    /// By somebody whose way to the server can be cut.
    pub(crate) async fn open_through(
        &self,
        gate: &Arc<Gate>,
        anchor: Anchorage,
    ) -> Result<Lasting> {
        *gate.way.lock().unwrap() = Some(self.way.clone());
        let surroundings = self.surroundings(anchor, Access::Write);
        Lasting::open(&key(), Surroundings { connect: gate.clone(), ..surroundings }).await
    }

    /// With a query each time.
    pub(crate) async fn open_at_rate(&self, between: Duration) -> Result<Client> {
        let surroundings = self.surroundings(Anchorage::Own(self.anchor.clone()), Access::Write);
        Client::open(&key(), Surroundings { between: Some(between), ..surroundings }).await
    }

    fn surroundings(&self, anchor: Anchorage, access: Access) -> Surroundings {
        let seed = self.seed.clone();
        let random = move || {
            let mut seed = seed.lock().unwrap();
            *seed += 1;
            let digest = tacita_secret::digest(&seed.to_le_bytes());
            Ok(digest[..16].try_into().unwrap())
        };
        Surroundings {
            connect: self.way.clone(),
            anchor,
            random: Arc::new(random),
            // Nothing else happens in the same instant: what comes first then is drawn by the runtime.
            patience: Patience { again: Duration::from_micros(100_007), ..Patience::default() },
            access,
            between: None,
        }
    }
}

pub(crate) fn id(n: u64) -> Id {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&n.to_le_bytes());
    id
}

pub(crate) fn block(geometry: &Geometry, content: u64) -> Bytes {
    let mut block = vec![0; geometry.block_len()];
    block[..8].copy_from_slice(&content.to_le_bytes());
    Bytes::from(block)
}

/// Random enough, and the same each time.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}
