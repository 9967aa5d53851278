//! Talking to the daemon of an open device: a socket in a private folder, found by the path that
//! `open` was given. It says the same whatever is open.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tacita_pddm::Session;

use crate::exit::{self, Failure, Outcome};
use crate::output;

/// Whoever waits for the end.
type Waiting = Arc<Mutex<Vec<UnixStream>>>;

/// The daemon's end.
pub(super) struct Control {
    path: PathBuf,
    waiting: Waiting,
}

/// Where the socket for a front lies.
fn place(front: &Path) -> Outcome<PathBuf> {
    // The socket may not be there yet, but its folder is.
    let full = match (front.canonicalize(), front.parent(), front.file_name()) {
        (Ok(full), ..) => full,
        (Err(_), Some(folder), Some(name)) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            folder.canonicalize()?.join(name)
        }
        (Err(error), ..) => return Err(error.into()),
    };
    let hash = tacita_secret::digest(full.as_os_str().as_bytes());
    let number = u128::from_le_bytes(hash[..16].try_into().expect("16 bytes"));
    Ok(tacita_vfs::daemon::private_folder()?.join(format!("{number:032x}.control")))
}

impl Control {
    /// Answers from now on.
    pub(super) fn start(front: &Path, session: Arc<Session>) -> Outcome<Self> {
        let path = place(front)?;
        // Whoever serves this front holds the front's own lock; what is left here is of the dead.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let waiting = Waiting::default();
        let own = Arc::clone(&waiting);
        std::thread::Builder::new().name("tacita-control".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away is no matter.
                let _ = answer(stream, &session, &own);
            }
        })?;
        Ok(Self { path, waiting })
    }

    /// Tells whoever waits how it ended.
    pub(super) fn finish(self, ended: &Outcome<()>) {
        let _ = std::fs::remove_file(&self.path);
        let line = match ended {
            Ok(()) => "done\n".to_owned(),
            Err(failure) => format!("{}\n", failure.text()),
        };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in waiting.iter_mut() {
            let _ = stream.write_all(line.as_bytes());
        }
        // The streams end with the process: then the device is free.
        std::mem::forget(std::mem::take(&mut *waiting));
    }
}

fn answer(stream: UnixStream, session: &Session, waiting: &Waiting) -> std::io::Result<()> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(2)))?;
    let mut request = String::new();
    BufReader::new(stream.try_clone()?.take(64)).read_line(&mut request)?;
    match request.trim_end() {
        "status" => (&stream).write_all(facts(session).to_string().as_bytes()),
        "close" => {
            waiting.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            let own = rustix::process::getpid();
            Ok(rustix::process::kill_process(own, rustix::process::Signal::TERM)?)
        }
        _ => Ok(()),
    }
}

fn facts(session: &Session) -> Value {
    let geometry = session.geometry();
    let p = geometry.parameters();
    json!({
        "device_bytes": geometry.device_blocks() * 4096,
        "public_bytes": u64::from(geometry.volume_blocks(tacita_pddm::Level::PUBLIC)) * 4096,
        "units": geometry.units(),
        "unit_bytes": u64::from(geometry.unit_blocks()) * 4096,
        "written_units": session.written_units(),
        "classes": p.classes,
        "heartbeat_seconds": f64::from(p.heartbeat_ms) / 1000.0,
    })
}

fn ask(front: &Path, request: &str) -> Outcome<String> {
    let closed = || {
        Failure::new(exit::DEVICE, format!("{}: no device is open there", front.display()))
            .with_remedy("give the socket or folder that `tacita pddm open` was given")
    };
    let mut stream =
        UnixStream::connect(place(front).map_err(|_| closed())?).map_err(|_| closed())?;
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

pub(super) fn status(front: &Path, json: bool) -> Outcome<()> {
    let reply = ask(front, "status\n")?;
    let value: Value = serde_json::from_str(&reply)
        .map_err(|e| Failure::new(exit::DEVICE, format!("{}: {e}", front.display())))?;
    let mut text = String::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let _ = writeln!(text, "{:18} {value}", name.replace('_', " "));
    }
    output::facts(json, &value, &text)
}

pub(super) fn close(front: &Path) -> Outcome<()> {
    if front.is_dir() {
        // A mount is let go of by whoever uses it.
        return tacita_vfs::daemon::unmount(front).map_err(|e| exit::of_mount(&e));
    }
    let reply = ask(front, "close\n")?;
    match reply.trim_end() {
        "done" => Ok(()),
        "" => Err(Failure::new(exit::DEVICE, "the daemon ended without a word")
            .with_remedy("what was flushed is on the device; open it again")),
        text => Err(Failure::new(exit::DEVICE, text)),
    }
}
