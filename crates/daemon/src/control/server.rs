//! The daemon's end.

use std::fs::{self, DirEntry, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::{Value, json};
use tacita_clock::{Clock, System};

use super::client::Client;
use super::paths::path_to_json;
use super::peer::Peer;
use super::protocol::{REQUEST_LEN_MAX_BYTES, Request, VERSION};
use crate::runtime_folder::{file_name, private_folder};
use crate::{Error, Failure, FuseDevice, Result, exit, voice};

/// How long somebody who has come has to say what is wanted.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the name of a socket ends with, behind that of the record.
const SOCKET_END: &str = ".control";

/// What is between the name and a number where a socket has been put aside.
const ASIDE: &str = "-";

/// Who is answered at the same time: a sweep takes long, and its owner may look at the status.
const CLIENTS_MAX: usize = 16;

/// What a daemon is and what it serves.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The system, such as `hifs`.
    pub system: &'static str,
    /// Where it is served: the canonical path of a folder or socket.
    pub at: PathBuf,
    /// Number of the mounted file system, by which it is found from elsewhere.
    pub device: Option<FuseDevice>,
    /// The image, device or folder that is served: its canonical path.
    pub source: Option<PathBuf>,
}

/// What a daemon does when it is asked, beside what all daemons do.
pub trait Service: Send + Sync + 'static {
    /// Facts for `status`.
    fn status(&self) -> Value;

    /// Does what is asked, and answers. Each request has a thread of its own, as long as the system has any.
    fn serve(&self, request: &Request, reply: Reply);
}

/// Where an answer goes.
#[derive(Debug)]
pub struct Reply {
    stream: UnixStream,
}

impl Reply {
    /// Says how far it has come; `false` if nobody listens any more.
    pub fn progress(&mut self, facts: &Value) -> bool {
        self.write(&json!({ "progress": facts }))
    }

    /// The last words: facts, and why it was not done if it was not.
    pub fn end(mut self, facts: &Value, failure: Option<&Failure>) {
        self.write(&json!({ "facts": facts, "failure": failure.map(Failure::json) }));
    }

    /// The last words: facts, or why it was not done.
    pub fn answer(self, result: std::result::Result<Value, Failure>) {
        match result {
            Ok(facts) => self.end(&facts, None),
            Err(failure) => self.end(&Value::Null, Some(&failure)),
        }
    }

    /// What is asked for is not among the things that are served here.
    pub fn unknown(self, request: &Request) {
        let cause = format!("the daemon there does not know the request `{}`", request.word);
        self.answer(Err(Failure::usage(cause)));
    }

    fn write(&mut self, line: &Value) -> bool {
        self.stream.write_all(format!("{line}\n").as_bytes()).is_ok()
    }
}

/// An open control channel. Dropping it closes the door; those who are inside are answered.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    /// The socket there, by its number: by the path alone it may be that of whoever serves there next.
    socket: Option<[u64; 2]>,
}

impl Control {
    /// Answers from now on.
    ///
    /// Whoever serves `identity.at` holds the one lock on that: a socket that is left here is of the dead, and
    /// taken over, or of one who has lost that. It may live on: the folder of its socket was renamed, or the socket
    /// removed. Then it is found behind this one.
    ///
    /// # Errors
    /// [`crate::Kind::NoPlace`]; [`crate::Kind::Io`].
    pub fn start(identity: Identity, service: Arc<dyn Service>) -> Result<Self> {
        let cannot = |e: std::io::Error| Error::of_private("cannot open the control channel", e);
        let path = private_folder().map_err(cannot)?.join(socket_name(&identity.at));
        make_way(&path).map_err(cannot)?;
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        let control = Self { socket: number_of(&path), path };
        fs::set_permissions(&control.path, Permissions::from_mode(0o600)).map_err(cannot)?;
        let daemon = Arc::new(Daemon {
            source: identity.source.as_deref().and_then(number_of),
            identity,
            service,
            since: System.unix_seconds(),
            clients: AtomicUsize::new(0),
        });
        std::thread::Builder::new()
            .name("tacita-control".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    daemon.receive(stream);
                }
            })
            .map_err(cannot)?;
        Ok(control)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let aside = self.socket.map(|number| aside(&self.path, number));
        let own = [Some(self.path.clone()), aside].into_iter().flatten();
        for path in own.filter(|path| number_of(path) == self.socket) {
            if let Err(e) = fs::remove_file(&path) {
                log::debug!("the control channel stays: {e}");
            }
        }
    }
}

/// Lets the name of a socket be free: what somebody still answers at goes aside.
fn make_way(path: &Path) -> std::io::Result<()> {
    for socket in all_aside(path) {
        if Client::connect(&socket).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(socket);
        }
    }
    let there = number_of(path).filter(|_| Client::connect(path).is_ok());
    let done = match there {
        Some(number) => fs::rename(path, aside(path, number)),
        None => fs::remove_file(path),
    };
    done.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// Where the socket of this number is when it has been put aside.
fn aside(path: &Path, [_, inode]: [u64; 2]) -> PathBuf {
    let name = path.file_stem().unwrap_or_default();
    path.with_file_name(format!("{}{ASIDE}{inode}{SOCKET_END}", name.display()))
}

/// Sockets that were put aside, of whoever has lost what this one is of.
pub(super) fn all_aside(path: &Path) -> Vec<PathBuf> {
    let name = path.file_stem().unwrap_or_default();
    let beginning = format!("{}{ASIDE}", name.display());
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    let is_one = |entry: &DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(&beginning))
    };
    let found = entries.into_iter().flatten().flatten().filter(is_one);
    found.map(|entry| entry.path()).collect()
}

/// What a file is known by, whatever its name: its device, and its inode there.
fn number_of(path: &Path) -> Option<[u64; 2]> {
    fs::metadata(path).ok().map(|found| [found.dev(), found.ino()])
}

/// The file name of the socket of what is served at a path.
pub(super) fn socket_name(at: &Path) -> String {
    file_name(at) + SOCKET_END
}

/// The socket, beside the record of who serves the same.
pub(super) fn socket_of(record: &Path) -> PathBuf {
    let mut socket = record.as_os_str().to_owned();
    socket.push(SOCKET_END);
    socket.into()
}

/// The record, beside its socket, of who serves the same.
pub(super) fn record_of(socket: &Path) -> PathBuf {
    socket.with_extension("")
}

struct Daemon {
    /// The number of what is served.
    source: Option<[u64; 2]>,
    identity: Identity,
    service: Arc<dyn Service>,
    since: u64,
    clients: AtomicUsize,
}

impl Daemon {
    /// Answers in a thread of its own, if there is one, for some answers take long.
    fn receive(self: &Arc<Self>, stream: UnixStream) {
        let reply = Reply { stream };
        if self.clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            self.clients.fetch_sub(1, Ordering::Relaxed);
            let busy = Failure::new(exit::BUSY, "too many requests at the same time");
            reply.end(&Value::Null, Some(&busy.with_remedy("try again")));
            return;
        }
        let (own, waiting) = (Arc::clone(self), Arc::new(Mutex::new(Some(reply))));
        let answer = move || {
            let reply = waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(reply) = reply {
                own.answer(reply);
            }
            own.clients.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().name("tacita-answer".to_owned());
        if thread.spawn(answer.clone()).is_err() {
            // The system has none: whoever comes next waits.
            answer();
        }
    }

    fn answer(&self, reply: Reply) {
        match hear(&reply.stream) {
            Err(failure) => reply.answer(Err(failure)),
            Ok(request) => match request.word.as_str() {
                "status" => reply.answer(Ok(self.status())),
                "log" => reply.answer(set_level(&request)),
                _ => self.service.serve(&request, reply),
            },
        }
    }

    fn status(&self) -> Value {
        let messages: Vec<Value> = voice::last().iter().map(voice::Message::json).collect();
        json!({
            "version": VERSION,
            "system": self.identity.system,
            "at": path_to_json(&self.identity.at),
            "device": self.identity.device.as_ref().and_then(FuseDevice::number),
            "source": self.identity.source.as_deref().map(path_to_json),
            "source_number": self.source,
            "pid": std::process::id(),
            "since": self.since,
            "facts": self.service.status(),
            "messages": messages,
        })
    }
}

/// Reads what is wanted, of those who may ask: the daemon's own user and root.
fn hear(stream: &UnixStream) -> std::result::Result<Request, Failure> {
    let peer = Peer::of(stream)?;
    if !peer.uid.is_root() && peer.uid != geteuid() {
        return Err(Failure::new(exit::NOT_HERE, "only its own user and root may ask"));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    let heard = BufReader::new(stream.take(REQUEST_LEN_MAX_BYTES)).read_until(b'\n', &mut line);
    heard.map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => Failure::new(exit::BUSY, "nothing was asked for in time"),
        _ => Failure::from(e),
    })?;
    Request::parse(&line)
}

fn set_level(request: &Request) -> std::result::Result<Value, Failure> {
    let wanted = request.text("level").unwrap_or_default();
    let level = wanted.parse().map_err(|_| {
        Failure::usage(format!("{wanted}: no such level"))
            .with_remedy("error, warn, info, debug or trace")
    })?;
    voice::set_level(level);
    Ok(json!({ "level": wanted }))
}
