//! A server with a runtime of its own, for callers that know none.

use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Limits, Metrics, Server};
use crate::blob::{
    Beginning, BlobStore, FolderStore, Leased, Loss, MemoryStore, RedisStore, S3Access, S3Place,
    S3Store,
};
use crate::error::{Error, Kind, Result};
use crate::link::{Address, Identity, SocketFile, cannot_listen};
use crate::threads;

/// How long operations of the store that are under way have when the server stops.
const STOPPING: Duration = Duration::from_secs(10);
/// How long who asks for metrics may take, and how many bytes.
const METRICS_PATIENCE: Duration = Duration::from_secs(5);
const METRICS_ASKED_MAX: u64 = 8192;

/// Where blobs are: a folder, `redis://HOST:PORT/DATABASE#NAME` or `unix:PATH#NAME` for Redis,
/// `s3://BUCKET[/PREFIX]`, or `memory:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a folder.
    Folder(PathBuf),
    /// In a Redis server, by its URL, under a name.
    Redis(String, String),
    /// In a bucket; where its server is and what it accepts, environment variables tell.
    S3(S3Place),
    /// In memory, until the server stops.
    Memory,
}

/// Where a server can be reached.
#[derive(Debug, Clone, Default)]
pub struct Listening {
    /// Where clients reach it.
    pub addresses: Vec<Address>,
    /// What it shows to those who come by TLS.
    pub identity: Option<Identity>,
    /// Where it answers HTTP requests with its counts: an address of this machine alone.
    pub metrics: Option<SocketAddr>,
}

impl Listening {
    /// At one address, without TLS and metrics.
    pub fn at(address: Address) -> Self {
        Self { addresses: vec![address], ..Self::default() }
    }
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Running {
    // Before what keeps others from the store: the next server may have sockets of the same names.
    _sockets: Vec<SocketFile>,
    background: Background,
    server: Server,
    listening: Vec<Address>,
    metrics_at: Option<SocketAddr>,
    // Behind what holds the store.
    made: Made,
}

/// The folder that a server has made for a store; it goes with this, unless a store is in it.
#[derive(Debug)]
struct Made(Mutex<Option<Beginning>>);

/// What runs beside the callers, and with which right.
#[derive(Debug)]
struct Background {
    /// Who takes connections, and who waits for the loss of the store.
    tasks: JoinSet<()>,
    alone: Alone,
    runtime: Option<Runtime>,
}

/// What keeps other servers from a store; given back when nothing is under way any more.
#[derive(Debug)]
enum Alone {
    /// Nobody else can reach it.
    Unshared,
    /// The lock on a folder.
    Locked(#[expect(dead_code, reason = "held until it is dropped")] File),
    /// What is said where others can reach it.
    Leased(Arc<Leased>),
}

impl Running {
    /// Opens the store and listens. If it fails, no folder and no socket has been made; if it does not, a
    /// new folder without a store goes with it until [`Running::keep_folder`].
    ///
    /// Must not be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if the metrics were to be seen by others, TLS was to be spoken without an
    /// identity, or an address is not to be had, [`Kind::Taken`] if one is taken, [`Kind::Busy`] if
    /// another server has the store, and as [`Server::open`].
    pub fn start(place: &Place, listening: &Listening, limits: Limits) -> Result<Self> {
        // Dropped behind all that holds the store.
        let made = Made::at(place);
        let Listening { addresses, identity, metrics } = listening;
        let (identity, metrics) = (identity.as_ref(), *metrics);
        if metrics.is_some_and(|at| !at.ip().is_loopback()) {
            let what = "metrics are told to this machine alone: listen on 127.0.0.1 or [::1]";
            return Err(Error::new(Kind::Parameters, what));
        }
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let runtime = threads::runtime("oram-server", processors)?;
        let (store, alone) = runtime.block_on(place.open_to_serve())?;
        let handle = runtime.handle().clone();
        let tasks = JoinSet::new();
        let mut background = Background { tasks, alone, runtime: Some(runtime) };
        let begun = &mut background.tasks;
        let mut sockets = Vec::new();
        let (server, listening, metrics_at) = handle.block_on(async {
            let server = Server::open(store, limits).await?;
            server.tell_storage_failures(|complaint| ::log::error!("{complaint}"));
            let mut listening = Vec::new();
            for address in addresses {
                let listener = address.listen(identity).await?;
                let address = listener.address()?;
                sockets.extend(SocketFile::of(&address));
                listening.push(address);
                let serving = server.clone();
                begun.spawn(async move { serving.listen(listener).await });
            }
            let mut metrics_at = None;
            if let Some(at) = metrics {
                let failed = |e| cannot_listen(&at, e);
                let listener = TcpListener::bind(at).await.map_err(failed)?;
                metrics_at = Some(listener.local_addr().map_err(failed)?);
                begun.spawn(tell_metrics(server.clone(), listener));
            }
            Ok::<_, Error>((server, listening, metrics_at))
        })?;
        Ok(Self { _sockets: sockets, background, server, listening, metrics_at, made })
    }

    /// Leaves a folder that it has made where it is, whatever comes: for whoever has nothing more to do
    /// that could fail.
    pub fn keep_folder(&self) {
        self.made.taken();
    }

    /// Does `then` if another server takes the store over, which happens to one that could not say for
    /// long that it is there, or if what it says is removed.
    pub fn when_lost(&mut self, then: impl FnOnce(Loss) + Send + 'static) {
        let Background { tasks, alone: Alone::Leased(leased), runtime: Some(runtime) } =
            &mut self.background
        else {
            return;
        };
        let leased = Arc::clone(leased);
        let wait = async move {
            then(leased.lost().await);
        };
        tasks.spawn_on(wait, runtime.handle());
    }

    /// Where it listens, with the ports that were chosen.
    pub fn addresses(&self) -> &[Address] {
        &self.listening
    }

    /// Where it tells its metrics.
    pub fn metrics_at(&self) -> Option<SocketAddr> {
        self.metrics_at
    }

    /// What it has counted.
    pub fn metrics(&self) -> &Metrics {
        self.server.metrics()
    }
}

impl Made {
    /// To be called before the store there is opened.
    fn at(place: &Place) -> Self {
        Self(Mutex::new(match place {
            Place::Folder(folder) if !folder.exists() => Some(Beginning::of(folder)),
            _ => None,
        }))
    }

    fn taken(&self) -> Option<Beginning> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.taken().as_ref().map(Beginning::take_back);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        runtime.block_on(async {
            self.tasks.shutdown().await;
            if let Alone::Leased(leased) = &self.alone {
                leased.give_back().await;
            }
        });
        runtime.shutdown_timeout(STOPPING);
    }
}

impl Place {
    /// The store there.
    ///
    /// # Errors
    /// [`Kind::Storage`], [`Kind::Parameters`].
    pub async fn open(&self) -> Result<Arc<dyn BlobStore>> {
        Ok(match self {
            Self::Folder(path) => Arc::new(FolderStore::open(path)?),
            Self::Redis(url, name) => Arc::new(RedisStore::open(url, name).await?),
            Self::S3(place) => Arc::new(open_bucket(place).await?),
            Self::Memory => Arc::new(MemoryStore::new()),
        })
    }

    /// The store there for whoever only looks: where there is no folder none is made, and it is empty.
    ///
    /// # Errors
    /// As [`Place::open`].
    pub async fn look(&self) -> Result<Arc<dyn BlobStore>> {
        let Self::Folder(path) = self else { return self.open().await };
        Ok(match FolderStore::look(path)? {
            Some(store) => Arc::new(store),
            None => Arc::new(MemoryStore::new()),
        })
    }
}

impl Place {
    /// The store there for a server, which has it for itself.
    async fn open_to_serve(&self) -> Result<(Arc<dyn BlobStore>, Alone)> {
        let (store, served): (Arc<dyn BlobStore>, Arc<dyn BlobStore>) = match self {
            Self::Folder(path) => {
                let store = FolderStore::open(path)?;
                let lock = store.serve_alone()?;
                return Ok((Arc::new(store), Alone::Locked(lock)));
            }
            Self::Memory => return Ok((Arc::new(MemoryStore::new()), Alone::Unshared)),
            Self::Redis(url, name) => {
                let store = RedisStore::open(url, name).await?;
                let served = store.served();
                (Arc::new(store), Arc::new(served))
            }
            Self::S3(place) => {
                let store = open_bucket(place).await?;
                let served = store.served();
                (Arc::new(store), Arc::new(served))
            }
        };
        let leased = Leased::take(store, served).await?;
        Ok((Arc::clone(&leased) as Arc<dyn BlobStore>, Alone::Leased(leased)))
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |what: &str| Err(Error::new(Kind::Parameters, format!("{text}: {what}")));
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        if ["redis:", "unix:"].iter().any(|scheme| text.starts_with(scheme)) {
            return match text.rsplit_once('#') {
                Some((url, name)) if !name.is_empty() => Ok(Self::Redis(url.into(), name.into())),
                _ => refuse("a store in Redis needs a name behind a #"),
            };
        }
        if text.starts_with("s3:") {
            return text.parse().map(Self::S3);
        }
        if text.is_empty() || text.contains("://") {
            return refuse(
                "a store is a folder, redis://HOST:PORT/DATABASE#NAME, unix:PATH#NAME or \
                 s3://BUCKET/PREFIX",
            );
        }
        Ok(Self::Folder(text.into()))
    }
}

impl fmt::Display for Place {
    /// Without what may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Redis(url, name) => {
                let (scheme, rest) = url.split_once(':').unwrap_or(("redis", url));
                let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                // A password for a socket is among what follows its path.
                let place = place.split_once('?').map_or(place, |(place, _)| place);
                write!(f, "{scheme}:{place}#{name}")
            }
            Self::S3(place) => place.fmt(f),
            Self::Memory => f.write_str("memory:"),
        }
    }
}

async fn open_bucket(place: &S3Place) -> Result<S3Store> {
    let access = S3Access::of_variables(|name| std::env::var(name).ok())?;
    S3Store::open(place, &access).await
}

/// Answers whoever asks, one after the other, with the counts.
async fn tell_metrics(server: Server, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = timeout(METRICS_PATIENCE, tell_once(&server, stream)).await;
            }
            Err(_) => tokio::time::sleep(server.core.limits.accept_again).await,
        }
    }
}

async fn tell_once(server: &Server, mut stream: TcpStream) -> std::io::Result<()> {
    let mut asked = Vec::new();
    let (reader, mut writer) = stream.split();
    let mut reader = reader.take(METRICS_ASKED_MAX);
    while !asked.ends_with(b"\r\n\r\n") {
        if reader.read_buf(&mut asked).await? == 0 {
            return Ok(());
        }
    }
    let (status, text) = if asked.starts_with(b"GET /metrics ") {
        ("200 OK", server.metrics().render())
    } else {
        ("404 Not Found", "What there is is at /metrics.\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    writer.write_all(head.as_bytes()).await?;
    writer.write_all(text.as_bytes()).await?;
    writer.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use tokio::runtime::Builder;

    use super::*;
    use crate::link::{Connection, Options};
    use crate::wire::{Answer, Request};

    fn asked(at: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn it_serves_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let place = Place::Folder(folder.path().join("store"));
        let addresses = [Address::Unix(socket.clone()), Address::Tcp("127.0.0.1:0".into())];
        for _ in 0..2 {
            let any = "127.0.0.1:0".parse().unwrap();
            let listening =
                Listening { addresses: addresses.to_vec(), identity: None, metrics: Some(any) };
            let running = Running::start(&place, &listening, Limits::default()).unwrap();
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            for address in running.addresses() {
                runtime.block_on(async {
                    let stream = address.connect().await.unwrap();
                    let opened = Connection::open(stream, Options::default(), drop).await;
                    let (connection, welcome) = opened.unwrap();
                    assert_eq!(welcome.root, None);
                    let answer = connection.call(Request::Root).await.unwrap();
                    assert_eq!(answer, Answer::Root(bytes::Bytes::new()));
                });
            }
            let at = running.metrics_at().unwrap();
            let told = asked(at, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
            assert!(told.contains("\ntacita_oram_connections_total 2\n"), "{told}");
            assert!(asked(at, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
            let second = Running::start(&place, &Listening::default(), Limits::default());
            assert_eq!(second.unwrap_err().kind(), Kind::Busy);
            drop(running);
            assert!(!socket.exists());
        }
    }

    /// Whose socket was removed, and another one has come there since.
    #[test]
    fn one_that_has_lost_its_socket_leaves_that_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listening = Listening::at(Address::Unix(socket.clone()));
        let start = || Running::start(&Place::Memory, &listening, Limits::default()).unwrap();
        let first = start();
        std::fs::remove_file(&socket).unwrap();
        let next = start();
        drop(first);
        std::os::unix::net::UnixStream::connect(&socket).unwrap();
        drop(next);
        assert!(!socket.exists());
    }

    #[test]
    fn what_cannot_be_listened_at_is_refused() {
        let at = "0.0.0.0:0".parse().unwrap();
        let public = Listening { metrics: Some(at), ..Listening::default() };
        let nobody = Listening {
            addresses: vec!["tls:127.0.0.1:0".parse().unwrap()],
            ..Listening::default()
        };
        for listening in [public, nobody] {
            let refused = Running::start(&Place::Memory, &listening, Limits::default());
            assert_eq!(refused.unwrap_err().kind(), Kind::Parameters);
        }
    }

    /// Neither the folder of a store, with those above, nor a socket; what is there stays.
    #[test]
    fn one_that_cannot_listen_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |store: &str| {
            // No machine has it: it is for documents (RFC 5737).
            let addresses = [
                Address::Unix(folder.path().join("socket")),
                Address::Tcp("192.0.2.1:1".to_owned()),
            ];
            let listening = Listening { addresses: addresses.to_vec(), ..Listening::default() };
            let place = Place::Folder(folder.path().join(store));
            let refused = Running::start(&place, &listening, Limits::default()).unwrap_err();
            assert_eq!(refused.kind(), Kind::Address);
        };
        let names = || std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name());
        refused("above/store");
        assert_eq!(names().collect::<Vec<_>>(), Vec::<std::ffi::OsString>::new());
        std::fs::create_dir(folder.path().join("own")).unwrap();
        refused("own");
        assert_eq!(names().collect::<Vec<_>>(), ["own"]);
    }

    /// Until nothing can fail any more that has to be done before it serves.
    #[test]
    fn a_new_folder_goes_with_who_does_not_keep_it() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("above");
        let place = Place::Folder(above.join("store"));
        let listening = Listening::at(Address::Unix(folder.path().join("socket")));
        let start = || Running::start(&place, &listening, Limits::default()).unwrap();
        drop(start());
        assert!(!above.exists());
        start().keep_folder();
        assert!(above.join("store").is_dir());
        drop(start());
        assert!(above.join("store").is_dir(), "it was there");
    }

    #[test]
    fn places_are_read_and_shown() {
        for (text, shown) in [
            ("memory:", "memory:"),
            ("/srv/store", "/srv/store"),
            ("store", "store"),
            ("redis://:secret@host:1/0#a-1", "redis:host:1/0#a-1"),
            ("unix:/run/redis#a", "unix:/run/redis#a"),
            ("unix:/run/redis?db=1&pass=secret#a", "unix:/run/redis#a"),
            ("s3://bucket/a/", "s3://bucket/a"),
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), shown);
        }
        for text in ["", "redis://host:1", "unix:/run/redis#", "s3://", "https://bucket"] {
            assert_eq!(text.parse::<Place>().unwrap_err().kind(), Kind::Parameters, "{text}");
        }
    }
}
