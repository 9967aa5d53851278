//! Talking to the daemon of an open device: a socket in a private folder, found by the path that
//! `open` was given. It says the same whatever is open.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tacita_pddm::{Level, Session};

use super::serving::Call;
use super::sweep::{Pace, verdict};
use super::{name_of, only_if_wanted};
use crate::exit::{self, Failure, Outcome};
use crate::output;

/// What `close` has asked for.
#[derive(Debug, Default)]
struct Ending {
    sweep: bool,
    /// Whoever waits for the end.
    waiting: Vec<UnixStream>,
}

/// The daemon's end.
pub(super) struct Control {
    path: PathBuf,
    ending: Arc<Mutex<Ending>>,
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
    /// Answers from now on; `calls` hears of those who want it closed.
    pub(super) fn start(front: &Path, session: Arc<Session>, calls: Sender<Call>) -> Outcome<Self> {
        let path = place(front)?;
        // Whoever serves this front holds the front's own lock; what is left here is of the dead.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let ending = Arc::<Mutex<Ending>>::default();
        let own = Arc::clone(&ending);
        std::thread::Builder::new().name("tacita-control".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let (session, own, calls) = (Arc::clone(&session), Arc::clone(&own), calls.clone());
                // A client that goes away, or has no thread, is no matter.
                let _ = std::thread::Builder::new()
                    .name("tacita-answer".to_owned())
                    .spawn(move || answer(stream, &session, &own, &calls));
            }
        })?;
        Ok(Self { path, ending })
    }

    /// Whether what waits is to be swept onto the device.
    pub(super) fn wants_sweep(&self) -> bool {
        lock(&self.ending).sweep
    }

    /// Tells whoever waits that it goes on, and why.
    pub(super) fn refuse(&self, why: &Failure) {
        let line = json!({ "code": why.code, "failure": why.text() });
        for mut stream in std::mem::take(&mut *lock(&self.ending)).waiting {
            let _ = stream.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Tells whoever waits how it ended, and what was dropped.
    pub(super) fn finish(self, ended: &Outcome<()>, dropped: &Value) {
        let _ = std::fs::remove_file(&self.path);
        let line = match ended {
            Ok(()) => json!({ "dropped": dropped }),
            Err(e) => json!({ "dropped": dropped, "code": e.code, "failure": e.text() }),
        };
        let mut ending = lock(&self.ending);
        for stream in &mut ending.waiting {
            let _ = stream.write_all(format!("{line}\n").as_bytes());
        }
        // The streams end with the process: then the device is free.
        std::mem::forget(std::mem::take(&mut ending.waiting));
    }
}

fn lock(ending: &Mutex<Ending>) -> MutexGuard<'_, Ending> {
    ending.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(
    mut stream: UnixStream,
    session: &Session,
    ending: &Mutex<Ending>,
    calls: &Sender<Call>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(2)))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?.take(64)).read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["status"] => stream.write_all(facts(session).to_string().as_bytes()),
        ["hidden"] => stream.write_all(hidden_facts(session).to_string().as_bytes()),
        ["close", rest] => {
            {
                let mut ending = lock(ending);
                ending.sweep = rest == "sweep";
                ending.waiting.push(stream);
            }
            calls.send(Call::Close).map_err(std::io::Error::other)
        }
        ["sweep", wanted, rate] => {
            answer_sweep(&mut stream, session, wanted == "public-only", rate.parse().ok())
        }
        _ => Ok(()),
    }
}

/// Sweeps as long as the client listens; every line says how far it has come.
fn answer_sweep(
    stream: &mut UnixStream,
    session: &Session,
    public_only: bool,
    rate: Option<u64>,
) -> std::io::Result<()> {
    let unit_len = u64::from(session.geometry().unit_blocks()) * 4096;
    let (pace, mut first) = (Pace::new(rate), None);
    let ended = only_if_wanted(session, public_only).and_then(|()| {
        let whole = session.sweep(&mut |done, units| {
            pace.keep((done - *first.get_or_insert(done)) * unit_len);
            let line = json!({ "done": done * unit_len, "of": units * unit_len });
            stream.write_all(format!("{line}\n").as_bytes()).is_ok()
        });
        whole.map_err(|e| Failure::new(exit::DEVICE, e.to_string()))?;
        verdict(session.volume(Level::PUBLIC).expect("it is always open").lost_blocks())
    });
    let line = match ended {
        Ok(()) => json!({ "code": exit::DONE }),
        Err(e) => json!({ "code": e.code, "failure": e.cause, "remedy": e.remedy }),
    };
    stream.write_all(format!("{line}\n").as_bytes())
}

/// What waits on hidden volumes and what they have lost, and how fast it leaves.
pub(super) fn hidden_facts(session: &Session) -> Value {
    let geometry = session.geometry();
    let hidden = session.volumes().into_iter().filter(|volume| volume.level() != Level::PUBLIC);
    let volumes = hidden.map(|volume| {
        json!({
            "name": name_of(volume.level()),
            "waiting_blocks": volume.waiting_blocks(),
            "queue_blocks": volume.queue_blocks(),
            "blocks_per_unit_max": geometry.slots_per_unit(volume.level()),
            "lost_blocks": volume.lost_blocks(),
        })
    });
    json!({
        "volumes": volumes.collect::<Vec<_>>(),
        "units_last_minute": session.units_last_minute(),
    })
}

fn facts(session: &Session) -> Value {
    let geometry = session.geometry();
    let p = geometry.parameters();
    json!({
        "device_bytes": geometry.device_blocks() * 4096,
        "public_bytes": u64::from(geometry.volume_blocks(Level::PUBLIC)) * 4096,
        "units": geometry.units(),
        "unit_bytes": u64::from(geometry.unit_blocks()) * 4096,
        "written_units": session.written_units(),
        "lost_blocks": session.volume(Level::PUBLIC).map_or(0, |volume| volume.lost_blocks()),
        "classes": p.classes,
        "heartbeat_seconds": f64::from(p.heartbeat_ms) / 1000.0,
    })
}

/// Speaks to the daemon of a front.
pub(super) fn connect(front: &Path) -> Outcome<UnixStream> {
    let closed = || {
        Failure::new(exit::DEVICE, format!("{}: no device is open there", front.display()))
            .with_remedy("give the socket or folder that `tacita pddm open` was given")
    };
    UnixStream::connect(place(front).map_err(|_| closed())?).map_err(|_| closed())
}

/// Asks for one thing; returns all that is answered.
pub(super) fn request(front: &Path, line: &str) -> Outcome<String> {
    let mut stream = connect(front)?;
    stream.write_all(line.as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

/// Whether this is what a device is served by, and not a device.
pub(super) fn is_front(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_dir() || m.file_type().is_socket())
}

pub(super) fn status(front: &Path, hidden: bool, json: bool) -> Outcome<()> {
    let reply = request(front, if hidden { "hidden\n" } else { "status\n" })?;
    let value: Value = serde_json::from_str(&reply)
        .map_err(|e| Failure::new(exit::DEVICE, format!("{}: {e}", front.display())))?;
    let mut text = String::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        for part in value.as_array().unwrap_or(&vec![value.clone()]) {
            let _ = writeln!(text, "{:18} {part}", name.replace('_', " "));
        }
    }
    output::facts(json, &value, &text)
}

/// Sweeps where a device is open.
pub(super) fn sweep(front: &Path, public_only: bool, rate: Option<u64>) -> Outcome<()> {
    let mut stream = connect(front)?;
    let wanted = if public_only { "public-only" } else { "-" };
    let rate = rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
    stream.write_all(format!("sweep {wanted} {rate}\n").as_bytes())?;
    let bar = output::progress("sweeping", 0);
    for line in BufReader::new(stream).lines() {
        let value: Value = serde_json::from_str(&line?).unwrap_or_default();
        if let (Some(done), Some(of)) = (value["done"].as_u64(), value["of"].as_u64()) {
            bar.set_length(of);
            bar.set_position(done);
        } else if let Some(code) = value["code"].as_u64() {
            bar.finish_and_clear();
            let Some(cause) = value["failure"].as_str() else { return Ok(()) };
            let code = u8::try_from(code).unwrap_or(exit::DEVICE);
            let remedy = value["remedy"].as_str().map(str::to_owned);
            return Err(Failure { code, cause: cause.to_owned(), remedy });
        }
    }
    Err(Failure::new(exit::DEVICE, "the daemon ended without a word"))
}
