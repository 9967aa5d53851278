//! A server with threads of its own, for those who know no asynchrony.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use tacita_secret::Key;
use tokio::runtime::Runtime;

use crate::blob::{BlobStore, FolderStore, MemoryStore};
use crate::client::{self, Connect};
use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;
use crate::link::{Address, Stream};
use crate::server::{Limits, Server};
use crate::store::runtime;

/// Who keeps the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder of this machine.
    Folder(PathBuf),
    /// The memory of the server: all is gone with it.
    Memory,
}

impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "memory:" => Ok(Self::Memory),
            "" => Err(Error::new(Kind::Parameters, "a store is a folder or memory:")),
            folder => Ok(Self::Folder(folder.into())),
        }
    }
}

impl Location {
    async fn open(&self) -> Result<Arc<dyn BlobStore>> {
        Ok(match self {
            Self::Folder(path) => Arc::new(FolderStore::open(path)?),
            Self::Memory => Arc::new(MemoryStore::new()),
        })
    }
}

/// A server that takes connections until it is dropped.
#[derive(Debug)]
pub struct Hosted {
    server: Server,
    address: Address,
    _runtime: Runtime,
}

impl Hosted {
    /// Serves the store at `location` at `address`.
    ///
    /// # Errors
    /// [`Kind::Storage`]; [`Kind::NotAStore`]; [`Kind::Unreachable`] if the address is taken.
    pub fn start(location: &Location, address: &Address) -> Result<Self> {
        let runtime = runtime()?;
        let (server, listener) = runtime.block_on(async {
            let server = Server::open(location.open().await?, Limits::default()).await?;
            Ok::<_, Error>((server, address.listen().await?))
        })?;
        let address = listener.address()?;
        let listening = server.clone();
        runtime.spawn(async move { listening.listen(listener).await });
        Ok(Self { server, address, _runtime: runtime })
    }

    /// Where it is: with the port that was chosen, if any was asked for.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// What it has counted, in Prometheus' text format.
    pub fn metrics(&self) -> String {
        self.server.metrics().render()
    }
}

/// Makes a store of these shapes at `location`.
///
/// # Errors
/// [`Kind::Busy`] if there is one already: nothing is changed then; [`Kind::Storage`].
pub fn init(location: &Location, key: &Key, geometry: Geometry) -> Result<()> {
    let store_id = tacita_secret::random()
        .map_err(|e| Error::new(Kind::Storage, format!("no random bytes: {e}")))?;
    runtime()?.block_on(async {
        let server = Server::open(location.open().await?, Limits::default()).await?;
        client::init(&Within(server), key, geometry, store_id).await
    })
}

/// The way to a server within this process.
struct Within(Server);

#[async_trait]
impl Connect for Within {
    async fn connect(&self) -> Result<Box<dyn Stream>> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(far).await });
        Ok(Box::new(near))
    }
}
