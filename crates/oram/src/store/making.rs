//! Making a store, in a place that nobody serves meanwhile.

use tacita_secret::Key;
use tokio::runtime::Runtime;

use super::THREADS;
use crate::blob::Beginning;
use crate::client::{self, Connect};
use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;
use crate::link::Stream;
use crate::server::{Limits, Place, Server};
use crate::threads;

/// Files that are open at once while what was begun of a store is taken back, and a few more.
const OPEN_MAX: usize = 8;

/// A place that can be used, for a new store.
#[derive(Debug)]
pub struct OpenPlace {
    server: Server,
    runtime: Runtime,
    beginning: Option<Beginning>,
}

impl OpenPlace {
    /// Opens a place that nobody serves meanwhile. If it fails, nothing has been made there.
    ///
    /// # Errors
    /// [`Kind::Storage`], [`Kind::Parameters`]; [`Kind::Busy`] while somebody else makes a store there.
    pub fn open(place: &Place) -> Result<Self> {
        durable::can_be_open(OPEN_MAX)
            .map_err(|e| Error::of_storage("a store cannot be made", e))?;
        let runtime = threads::runtime("oram", THREADS)?;
        let mut beginning = match place {
            Place::Folder(folder) => Some(Beginning::of(folder)),
            Place::Redis(..) | Place::S3(_) | Place::Memory => None,
        };
        let opened = runtime.block_on(async {
            let store = place.open().await?;
            beginning.as_mut().map_or(Ok(()), Beginning::alone)?;
            Server::open(store, Limits::default()).await
        });
        match opened {
            Ok(server) => Ok(Self { server, runtime, beginning }),
            // It is the folder of whoever makes a store there.
            Err(error) if error.kind() == Kind::Busy => Err(error),
            Err(error) => {
                // To take it back needs open files, too, of which there may be no more.
                drop(runtime);
                beginning.as_ref().map(Beginning::take_back);
                Err(error)
            }
        }
    }

    /// Makes a store of these shapes there.
    ///
    /// # Errors
    /// As [`Store::init`](super::Store::init). After [`Kind::Storage`] it may be there all the same: see
    /// [`OpenPlace::take_back`].
    pub fn init(&self, key: &Key, geometry: Geometry) -> Result<()> {
        // Whatever else fails there, none is made.
        if self.server.has_store() {
            return Err(client::exists());
        }
        let store_id = tacita_secret::random()
            .map_err(|e| Error::new(Kind::Storage, format!("no random bytes: {e}")))?;
        let within = Within(self.server.clone());
        let made = self.runtime.block_on(client::init(&within, key, geometry, store_id));
        made.map_err(|error| match self.server.storage_failure() {
            // Clients are told only that it fails.
            Some(failure) if error.kind() == Kind::Storage => failure,
            _ => error,
        })
    }

    /// Takes back what an init has begun that has failed, as far as that is known to be no store; whether
    /// it is.
    pub fn take_back(self) -> bool {
        let Self { server, runtime, beginning } = self;
        // To take it back needs open files, too, of which there may be no more.
        drop(server);
        drop(runtime);
        beginning.is_some_and(|beginning| beginning.take_back())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// It is known not to have been made, and whoever has made a key for it takes that away again.
    #[test]
    fn where_a_store_is_none_is_made_whatever_fails() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Folder(folder.path().to_owned());
        let geometry = Geometry::new(512, 64, 4, 600).unwrap();
        let init = || OpenPlace::open(&place)?.init(&Key::take(&mut [7; 32]), geometry);
        init().unwrap();
        assert_eq!(init().unwrap_err().kind(), Kind::Busy);
        // As on a disk that fails: the manifests cannot be looked at.
        let manifests = folder.path().join("manifest");
        std::fs::remove_dir_all(&manifests).unwrap();
        std::fs::write(&manifests, b"").unwrap();
        assert_eq!(init().unwrap_err().kind(), Kind::Busy);
    }
}
