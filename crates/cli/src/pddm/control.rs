//! What the daemon of an open device is asked, and asking it. It says the same whatever is open.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tacita_block::{BlockDevice, Kind};
use tacita_clock::System;
use tacita_daemon::control::{Client, Reply, Request, Service};
use tacita_daemon::with_causes;
use tacita_pddm::{Geometry, Level, Session};

use super::serving::Call;
use super::sweep::{RateLimit, verdict};
use super::{AGAIN, name_of, only_if_wanted};
use crate::exit::{self, Failure, Outcome};
use crate::output;
use crate::status::{ask, daemon_of};

/// What `close` has asked for.
#[derive(Debug, Default)]
struct Asked {
    sweep: bool,
    /// Whoever waits for the end.
    waiting: Vec<Reply>,
    /// What waits has been dropped, or is about to be: nobody can ask any more that it is kept.
    is_dropping: bool,
    /// How it has ended, and what was dropped.
    told: Option<(Option<Failure>, Value)>,
    /// It has begun: sweeps stop.
    is_begun: bool,
    /// How many sweep for somebody who is to be answered.
    sweeping: usize,
}

/// The end of a session, and who has asked for it.
#[derive(Debug, Default)]
pub(super) struct Ending {
    asked: Mutex<Asked>,
    /// A sweep is answered.
    swept: Condvar,
}

/// Somebody sweeps, until this is dropped.
struct Sweeping<'a>(&'a Ending);

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.0.lock().sweeping -= 1;
        self.0.swept.notify_all();
    }
}

impl Ending {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody sweeps from now on, unless the end has begun.
    fn begin_sweep(&self) -> Outcome<Sweeping<'_>> {
        let mut asked = self.lock();
        if asked.is_begun {
            return Err(closed_meanwhile());
        }
        asked.sweeping += 1;
        Ok(Sweeping(self))
    }

    fn is_begun(&self) -> bool {
        self.lock().is_begun
    }

    /// The end begins.
    pub(super) fn begin(&self) {
        self.lock().is_begun = true;
    }

    /// Waits until all who sweep are answered.
    pub(super) fn await_sweeps(&self) {
        let swept = self.swept.wait_while(self.lock(), |asked| asked.sweeping > 0);
        drop(swept.unwrap_or_else(PoisonError::into_inner));
    }

    /// Somebody asks for it, and waits. Where two do, what one of them wants to keep is kept, unless it comes
    /// too late for that.
    fn ask(&self, sweep: bool, reply: Reply) {
        let mut asked = self.lock();
        if sweep && asked.is_dropping {
            let cause = "it is being closed already, by somebody who did not ask for a sweep";
            let late = Failure::new(exit::BUSY, cause);
            reply.answer(Err(late.with_remedy("what waited on hidden volumes is dropped")));
            return;
        }
        if let Some((why, dropped)) = &asked.told {
            reply.end(dropped, why.as_ref());
            return;
        }
        asked.sweep |= sweep;
        asked.waiting.push(reply);
    }

    /// Whether somebody waits for it.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Whether what waits is to be swept onto the device: from now on that is settled.
    pub(super) fn settle_sweep(&self) -> bool {
        let mut asked = self.lock();
        asked.is_dropping = !asked.sweep;
        asked.sweep
    }

    /// Tells whoever waits that it goes on, and why: nothing that they have asked for is done later.
    pub(super) fn refuse(&self, why: &Failure) {
        for reply in std::mem::take(&mut *self.lock()).waiting {
            reply.end(&Value::Null, Some(why));
        }
    }

    /// Tells whoever waits how it ended, and what was dropped.
    pub(super) fn tell(&self, ended: &Outcome<()>, dropped: &Value) {
        let (failure, dropped) = (ended.as_ref().err(), json!({ "dropped": dropped }));
        let mut asked = self.lock();
        for reply in std::mem::take(&mut asked.waiting) {
            reply.end(&dropped, failure);
        }
        asked.told = Some((failure.cloned(), dropped));
    }
}

/// An open device, to those who ask from outside.
pub(super) struct Opened {
    pub(super) session: Arc<Session>,
    pub(super) ending: Arc<Ending>,
    pub(super) calls: Sender<Call>,
    /// Hands over what programs have changed in mappings of the public file.
    pub(super) hand_over_public: Box<dyn Fn() + Send + Sync>,
}

impl Service for Opened {
    fn status(&self) -> Value {
        facts(&self.session)
    }

    fn serve(&self, request: &Request, mut reply: Reply) {
        match request.word.as_str() {
            // What is hidden keeps to its own flushes: this says and does the same whatever is open.
            "sync" => {
                (self.hand_over_public)();
                let public = self.session.volume(Level::PUBLIC).expect("it is always open");
                let failed = |e: tacita_block::Error| of_session(&e);
                reply.answer(public.flush().map(|()| Value::Null).map_err(failed));
            }
            "hidden" => reply.answer(Ok(hidden_facts(&self.session))),
            "sweep" => match self.ending.begin_sweep() {
                Ok(_sweeping) => {
                    let swept = sweep_telling(self, request, &mut reply);
                    reply.answer(swept.map(|()| Value::Null));
                }
                Err(closed) => reply.answer(Err(closed)),
            },
            "stop" => {
                self.ending.ask(request.text("rest") == Some("sweep"), reply);
                // Where nobody listens it ends already, and tells whoever waits.
                let _ = self.calls.send(Call::Close);
            }
            _ => reply.unknown(request),
        }
    }
}

/// Why a sweep is not done, or not to its end.
fn closed_meanwhile() -> Failure {
    Failure::new(exit::BUSY, "it was closed before the sweep was done")
        .with_remedy("open it, and sweep again")
}

/// Sweeps as long as the client listens, who hears how far it has come, and nobody closes.
fn sweep_telling(opened: &Opened, request: &Request, reply: &mut Reply) -> Outcome<()> {
    let Opened { session, ending, .. } = opened;
    only_if_wanted(session, request.is_set("public_only"))?;
    let unit_len = u64::from(session.geometry().unit_blocks()) * 4096;
    let (limit, mut first) = (RateLimit::new(request.number("rate"), Arc::new(System)), None);
    let whole = session.sweep_whole(&mut |done, units| {
        // Somebody else may begin anew meanwhile.
        let bytes = done.saturating_sub(*first.get_or_insert(done)) * unit_len;
        let progress = json!({ "done": done * unit_len, "of": units * unit_len });
        limit.keep(bytes, &mut || !ending.is_begun() && reply.progress(&progress))
    });
    if ending.is_begun() && !matches!(whole, Ok(true)) {
        return Err(closed_meanwhile());
    }
    whole.map_err(|e| of_session(&(&e).into()))?;
    verdict(session.volume(Level::PUBLIC).expect("it is always open").lost_blocks())
}

/// A failure of an open device, the same whichever volumes are open.
pub(super) fn of_session(error: &tacita_block::Error) -> Failure {
    let (code, remedy) = match error.kind() {
        Kind::NoSpace => (exit::NO_SPACE, "make room there, close the device, and open it again"),
        Kind::ReadOnly => (exit::DEVICE, "close it, and open it without `--read-only`"),
        _ => (exit::DEVICE, AGAIN),
    };
    Failure::new(code, with_causes(error)).with_remedy(remedy)
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
    let mut facts = shapes(session.geometry());
    facts["written_units"] = session.written_units().into();
    let lost = session.volume(Level::PUBLIC).map_or(0, |volume| volume.lost_blocks());
    facts["lost_blocks"] = lost.into();
    facts
}

/// What the superblock says to everybody.
pub(super) fn shapes(geometry: &Geometry) -> Value {
    let p = geometry.parameters();
    json!({
        "device_bytes": geometry.device_blocks() * 4096,
        "public_bytes": u64::from(geometry.volume_blocks(Level::PUBLIC)) * 4096,
        "units": geometry.units(),
        "unit_bytes": u64::from(geometry.unit_blocks()) * 4096,
        "classes": p.classes,
        "heartbeat_seconds": f64::from(p.heartbeat_ms) / 1000.0,
    })
}

/// The daemon of an endpoint.
pub(super) fn connect(endpoint: &Path) -> Outcome<Client> {
    daemon_of(endpoint)
}

/// Whether this is what a device is served by, and not a device.
pub(super) fn is_endpoint(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_dir() || m.file_type().is_socket())
}

pub(super) fn status(endpoint: &Path, hidden: bool, json: bool) -> Outcome<()> {
    let facts = if hidden {
        ask(connect(endpoint)?, "hidden", Value::Null)?
    } else {
        ask(connect(endpoint)?, "status", Value::Null)?["facts"].take()
    };
    output::facts(json, &facts, &output::lines(&facts))
}

/// Sweeps where a device is open.
pub(super) fn sweep(endpoint: &Path, public_only: bool, rate: Option<u64>) -> Outcome<()> {
    let request = Request::new("sweep", json!({ "public_only": public_only, "rate": rate }));
    let bar = output::progress("sweeping", 0);
    let answer = connect(endpoint)?.ask(&request, &mut |progress| {
        bar.set_length(progress["of"].as_u64().unwrap_or(0));
        bar.set_position(progress["done"].as_u64().unwrap_or(0));
    });
    bar.finish_and_clear();
    answer?.result().map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::JoinHandle;

    use tacita_block::MemoryDevice;
    use tacita_daemon::control::{Answer, Control, Identity};
    use tacita_pddm::{Entropy, Options, Parameters, Unlock, init};
    use tacita_secret::Key;
    use tempfile::TempDir;

    use super::*;

    /// An open device that somebody may ask to end.
    struct Asked {
        ending: Arc<Ending>,
        calls: Receiver<Call>,
        at: PathBuf,
        _folder: TempDir,
        _control: Control,
    }

    impl Asked {
        fn new() -> Self {
            let device: Arc<dyn BlockDevice> =
                Arc::new(MemoryDevice::new(tacita_block::Geometry {
                    block_len_bytes: 4096,
                    blocks: 3072,
                }));
            let key = Key::take(&mut [7; 32]);
            let parameters = Parameters { heartbeat_ms: 0, ..Parameters::default() };
            init(&device, &parameters, Unlock::Wrap(&key), &[], Entropy::default()).unwrap();
            let session = Session::open(&device, Unlock::Wrap(&key), Options::default()).unwrap();
            let (caller, calls) = channel();
            let ending = Arc::<Ending>::default();
            let opened = Opened {
                session: Arc::new(session),
                ending: Arc::clone(&ending),
                calls: caller,
                hand_over_public: Box::new(|| ()),
            };
            let folder = tempfile::tempdir().unwrap();
            let at = folder.path().canonicalize().unwrap().join("endpoint");
            let identity = Identity { system: "pddm", at: at.clone(), device: None, source: None };
            let control = Control::start(identity, Arc::new(opened)).unwrap();
            Self { ending, calls, at, _folder: folder, _control: control }
        }

        /// Asks for the end; what is answered comes by the thread.
        fn stop(&self, rest: &str) -> JoinHandle<Answer> {
            let client = connect(&self.at).unwrap();
            let request = Request::new("stop", json!({ "rest": rest }));
            let client = std::thread::spawn(move || client.ask(&request, &mut |_| ()).unwrap());
            assert_eq!(self.calls.recv().unwrap(), Call::Close);
            client
        }
    }

    /// Two who close at once: one of them wants to keep what waits, and what is refused to both is not done
    /// when somebody else ends the session.
    #[test]
    fn who_wants_to_keep_what_waits_is_heard() {
        let asked = Asked::new();
        let clients = ["sweep", "drop"].map(|rest| asked.stop(rest));
        let ending = &asked.ending;
        assert!(ending.is_asked_for());
        ending.refuse(&Failure::new(exit::BUSY, "in use"));
        assert!(!ending.is_asked_for());
        for client in clients {
            assert_eq!(client.join().unwrap().failure.unwrap().code, exit::BUSY);
        }
        assert!(!ending.settle_sweep());
        let asked = Asked::new();
        let clients = ["drop", "sweep"].map(|rest| asked.stop(rest));
        assert!(asked.ending.settle_sweep());
        asked.ending.tell(&Ok(()), &Value::Null);
        for client in clients {
            assert_eq!(client.join().unwrap().failure, None);
        }
    }

    /// Who wants to keep what is being dropped already is told so, and who comes when all is over is answered.
    #[test]
    fn who_comes_late_is_answered() {
        let asked = Asked::new();
        let first = asked.stop("drop");
        assert!(!asked.ending.settle_sweep());
        let late = asked.stop("sweep").join().unwrap();
        assert_eq!(late.failure.unwrap().code, exit::BUSY);
        let second = asked.stop("drop");
        let dropped = json!([{ "name": "hidden", "blocks": 3 }]);
        asked.ending.tell(&Err(Failure::new(exit::DEVICE, "gone")), &dropped);
        for client in [first, second, asked.stop("drop")] {
            let answer = client.join().unwrap();
            assert_eq!(answer.facts["dropped"], dropped);
            assert_eq!(answer.failure.unwrap().code, exit::DEVICE);
        }
    }
}
