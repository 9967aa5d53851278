//! Listeners, connections, and an end that leaves no request half answered.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::net::Shutdown;
use tacita_clock::{Cancellation, Clock, Event, System};

use crate::connection;
use crate::export::{Export, Exports};
use crate::limits::Limits;
use crate::listener::Listener;
use crate::socket::Socket;
use crate::{Error, Result};

/// Pause after a failure to accept, such as too many open files, which will not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long clients may take to read their last answers after the patience of [`Server::stop`].
const LAST_ANSWERS_WAIT: Duration = Duration::from_secs(1);

/// Serves block devices to NBD clients from threads of its own. Dropping it stops it without
/// waiting for requests under way.
pub struct Server {
    shared: Arc<Shared>,
    acceptors: Vec<(Arc<Listener>, JoinHandle<()>)>,
}

struct Shared {
    exports: Exports,
    limits: Limits,
    clock: Arc<dyn Clock>,
    stopping: Cancellation,
    connections: Mutex<Connections>,
    /// A connection has ended.
    ended: Event,
}

#[derive(Default)]
struct Connections {
    open: HashMap<u64, Open>,
    last: u64,
}

struct Open {
    socket: Arc<Socket>,
    stage: Stage,
}

/// How far a connection is. What has left is not counted, but may have requests under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Negotiating,
    Served(usize),
    Left,
}

/// For each connection that may be served, so many that have left may have requests under way.
const LEFT_SHARE: usize = 8;

/// A connection among those that are open, until dropped.
pub(crate) struct Registered {
    shared: Arc<Shared>,
    number: u64,
    socket: Arc<Socket>,
}

impl Server {
    /// Serves `exports` to whoever connects to `listeners`, with the default [`Limits`]. The empty
    /// name stands for the first export.
    ///
    /// # Errors
    /// [`crate::Kind::Invalid`] if there is nothing to serve or a name is too long or there twice;
    /// [`crate::Kind::Io`] if the system has no thread for it.
    pub fn start(exports: Vec<Export>, listeners: Vec<Listener>) -> Result<Self> {
        Self::start_with(exports, listeners, Limits::default(), Arc::new(System))
    }

    /// As [`Server::start`] with other limits, which are times of `clock`.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(
        exports: Vec<Export>,
        listeners: Vec<Listener>,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            exports: Exports::new(exports, limits.content_len_bytes)?,
            limits,
            clock,
            stopping: Cancellation::default(),
            connections: Mutex::default(),
            ended: Event::default(),
        });
        let mut server = Self { shared, acceptors: Vec::new() };
        for listener in listeners {
            let listener = Arc::new(listener);
            let (shared, listening) = (Arc::clone(&server.shared), Arc::clone(&listener));
            let acceptor = Builder::new()
                .name("nbd-accept".to_owned())
                .spawn(move || accept(&shared, &listening))
                .map_err(|e| Error::from_io("there is no thread to accept clients", e))?;
            server.acceptors.push((listener, acceptor));
        }
        Ok(server)
    }

    /// How many clients are connected.
    pub fn connections(&self) -> usize {
        let connections = self.shared.connections();
        connections.open.len() - connections.count(Stage::Left)
    }

    /// Lets nobody in any more, serves what has been received and closes all connections. `false`
    /// if something is still under way after `patience`; it goes on, but its client is cut off.
    pub fn stop(mut self, patience: Duration) -> bool {
        self.close();
        self.shared.shut_down(Shutdown::Read);
        if self.shared.await_none(patience) {
            return true;
        }
        self.shared.shut_down(Shutdown::Both);
        self.shared.await_none(LAST_ANSWERS_WAIT);
        false
    }

    /// Lets nobody in any more; the socket files go.
    fn close(&mut self) {
        self.shared.stopping.cancel();
        for (listener, acceptor) in self.acceptors.drain(..) {
            listener.close();
            // A panic there has been printed already.
            let _ = acceptor.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
        self.shared.shut_down(Shutdown::Both);
    }
}

impl std::fmt::Debug for Server {
    // The exports are nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut_down(&self, how: Shutdown) {
        self.connections().open.values().for_each(|open| open.socket.shut_down(how));
    }

    /// Waits until no connection is open; `false` if that takes longer than `wait_max`.
    fn await_none(&self, wait_max: Duration) -> bool {
        let any = |connections: &mut Connections| !connections.open.is_empty();
        self.ended.wait_while(&*self.clock, &self.connections, wait_max, any).1
    }

    /// Takes a client in; `None` if there are too many.
    fn register(self: &Arc<Self>, fd: OwnedFd) -> io::Result<Option<Registered>> {
        let socket = Arc::new(Socket::new(fd, self.limits.request, Arc::clone(&self.clock))?);
        let mut connections = self.connections();
        let count_max = self.limits.connections;
        if connections.count(Stage::Negotiating) >= count_max
            || connections.count(Stage::Left) >= LEFT_SHARE * count_max
        {
            return Ok(None);
        }
        connections.last += 1;
        let number = connections.last;
        let open = Open { socket: Arc::clone(&socket), stage: Stage::Negotiating };
        connections.open.insert(number, open);
        Ok(Some(Registered { shared: Arc::clone(self), number, socket }))
    }
}

impl Connections {
    fn count(&self, stage: Stage) -> usize {
        self.open.values().filter(|open| open.stage == stage).count()
    }
}

impl Registered {
    /// The client has chosen an export; false if that has too many clients.
    pub(crate) fn serves(&self, export: usize) -> bool {
        let mut connections = self.shared.connections();
        let has_room = connections.count(Stage::Served(export)) < self.shared.limits.connections;
        if has_room && let Some(open) = connections.open.get_mut(&self.number) {
            open.stage = Stage::Served(export);
        }
        has_room
    }

    /// The client has left: its place is free, even if something of it is under way.
    pub(crate) fn has_left(&self) {
        if let Some(open) = self.shared.connections().open.get_mut(&self.number) {
            open.stage = Stage::Left;
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.connections().open.remove(&self.number);
        self.shared.ended.notify();
    }
}

/// Accepts clients until the server stops.
fn accept(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        let accepted = listener.accept();
        if shared.stopping.is_cancelled() {
            return;
        }
        // What goes wrong with one client is no reason not to serve the next.
        let Ok(Some(registered)) = accepted.and_then(|fd| shared.register(fd)) else {
            shared.clock.wait_or(&shared.stopping, ACCEPT_PAUSE);
            continue;
        };
        // Without a thread the client is closed at once.
        let _ = Builder::new().name("nbd-client".to_owned()).spawn(move || {
            let Registered { shared, socket, .. } = &registered;
            // The client sees for itself that the connection has ended.
            let (exports, limits) = (&shared.exports, &shared.limits);
            let _ = connection::serve(socket, &registered, exports, limits, &shared.stopping);
        });
    }
}
