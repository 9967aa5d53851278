//! What stands between clients and the server, and writes down what passes.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Decoder, Event, Frame, Side};
use crate::error::{Error, Kind, Result};
use crate::geometry::Geometry;
use crate::link::{Address, Listener, SocketFile, Stream};
use crate::threads;

/// Bytes that are handed on at once.
const CHUNK_LEN: usize = 1 << 16;
/// How long to wait when no connection can be taken: others end meanwhile.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long what is under way has when the recorder stops.
const STOPPING: Duration = Duration::from_secs(10);

/// Takes connections in a server's place, hands all bytes on as they come, and tells of each frame. Until it
/// is dropped.
#[derive(Debug)]
pub struct Recorder {
    listening: Address,
    socket: Option<SocketFile>,
    runtime: Option<Runtime>,
}

/// Who is told of frames.
type Told = Box<dyn FnMut(&Event) + Send>;

/// What all connections share.
struct Shared {
    server: Address,
    geometry: Arc<OnceLock<Geometry>>,
    begin: Instant,
    told: Mutex<Told>,
}

impl Recorder {
    /// Listens at `listen` in the place of the server at `server`. `told` is called for each frame, one after
    /// the other.
    ///
    /// Must not be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] if the server does not take a connection; [`Kind::Taken`] and [`Kind::Address`] if
    /// `listen` is not to be had; [`Kind::Parameters`] if what passes there could not be understood.
    pub fn start(
        server: &Address,
        listen: &Address,
        told: impl FnMut(&Event) + Send + 'static,
    ) -> Result<Self> {
        for address in [server, listen] {
            // What an encrypted connection shows is its ends' business.
            if !matches!(address, Address::Tcp(_) | Address::Unix(_)) {
                let what = format!("{address}: only HOST:PORT and unix:PATH can be recorded");
                return Err(Error::new(Kind::Parameters, what));
            }
        }
        let runtime = threads::runtime("oram-trace", 1)?;
        let listening = runtime.block_on(async {
            drop(server.connect().await?);
            let listener = listen.listen(None).await?;
            let listening = listener.address()?;
            let shared = Shared {
                server: server.clone(),
                geometry: Arc::default(),
                begin: Instant::now(),
                told: Mutex::new(Box::new(told)),
            };
            tokio::spawn(Arc::new(shared).take_all(listener));
            Ok::<_, Error>(listening)
        })?;
        let socket = SocketFile::of(&listening);
        Ok(Self { listening, socket, runtime: Some(runtime) })
    }

    /// Where it listens, with the port that was chosen.
    pub fn address(&self) -> &Address {
        &self.listening
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.socket.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(STOPPING);
        }
    }
}

impl Shared {
    async fn take_all(self: Arc<Self>, listener: Listener) {
        let mut connections = JoinSet::new();
        let mut count = 0;
        loop {
            while connections.try_join_next().is_some() {}
            if let Ok(incoming) = listener.accept().await {
                // No hands are shaken without TLS.
                let Ok(client) = incoming.stream().await else { continue };
                count += 1;
                connections.spawn(self.clone().carry_both(count, client));
            } else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }

    /// One connection; a server that is gone ends it.
    async fn carry_both(self: Arc<Self>, connection: u32, client: Box<dyn Stream>) {
        let Ok(server) = self.server.connect().await else { return };
        let (from_client, to_client) = split(client);
        let (from_server, to_server) = split(server);
        tokio::join!(
            self.carry((connection, Side::Client), from_client, to_server),
            self.carry((connection, Side::Server), from_server, to_client),
        );
    }

    /// Tells of bytes before they are handed on, so that the store's shapes are known when a client uses them.
    async fn carry(
        &self,
        (connection, side): (u32, Side),
        mut reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) {
        let mut decoder = Decoder::new(side, self.geometry.clone());
        let mut buffer = BytesMut::with_capacity(CHUNK_LEN);
        let mut seen = |frame| self.tell(connection, frame);
        while let Ok(1..) = reader.read_buf(&mut buffer).await {
            decoder.take(&buffer, &mut seen);
            if writer.write_all(&buffer).await.is_err() || writer.flush().await.is_err() {
                break;
            }
            buffer.clear();
            buffer.reserve(CHUNK_LEN);
        }
        decoder.end(&mut seen);
        let _ = writer.shutdown().await;
    }

    fn tell(&self, connection: u32, frame: Frame) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that times are in the order of events.
        let at_us = u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        told(&Event { at_us, connection, frame });
    }
}
