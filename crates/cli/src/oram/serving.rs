//! `tacita oram serve` and `close`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::{Value, json};
use tacita_daemon::Interrupts;
use tacita_daemon::control::{Control, Identity, Reply, Request, Service};
use tacita_oram::link::Address;
use tacita_oram::{Hosted, Location};

use super::failure;
use crate::exit::{self, Failure, Outcome};
use crate::status::daemon_of;

pub(super) fn run(store: &Location, listen: &Address, foreground: bool) -> Outcome<()> {
    tacita_daemon::serve(foreground, || start(store, listen), Serving::run)
}

/// A served store.
struct Serving {
    _hosted: Arc<Hosted>,
    control: Option<Control>,
    ends: Receiver<Option<Reply>>,
    socket: Option<PathBuf>,
}

fn start(store: &Location, listen: &Address) -> Outcome<Serving> {
    let (caller, ends) = when_to_end()?;
    let hosted = Arc::new(Hosted::start(store, listen).map_err(|e| failure(&e))?);
    let socket = match hosted.address() {
        Address::Unix(path) => Some(path.canonicalize()?),
        Address::Tcp(_) => None,
    };
    let source = match store {
        Location::Folder(path) => Some(path.canonicalize()?),
        Location::Memory => None,
    };
    eprintln!("tacita: serving at {}", hosted.address());
    let service = Arc::new(Asked { hosted: hosted.clone(), ends: caller });
    // What has neither a socket nor a folder is asked by nobody.
    let at = socket.clone().or_else(|| source.clone());
    let control = at
        .map(|at| Control::start(Identity { system: "oram", at, device: None, source }, service))
        .transpose()?;
    Ok(Serving { _hosted: hosted, control, ends, socket })
}

/// Who says that it is to end, and who hears it. The first signal ends it.
pub(super) fn when_to_end() -> Outcome<(Sender<Option<Reply>>, Receiver<Option<Reply>>)> {
    let mut interrupts = Interrupts::watch()?;
    let (caller, ends) = channel();
    let signalled = caller.clone();
    std::thread::Builder::new().name("tacita-signals".to_owned()).spawn(move || {
        while interrupts.wait() {
            let _ = signalled.send(None);
        }
    })?;
    Ok((caller, ends))
}

impl Serving {
    fn run(self) -> Outcome<()> {
        let asked = self.ends.recv().ok().flatten();
        drop(self.control);
        if let Some(socket) = self.socket {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(socket);
        }
        if let Some(reply) = asked {
            reply.end(&Value::Null, None);
        }
        Ok(())
    }
}

struct Asked {
    hosted: Arc<Hosted>,
    ends: Sender<Option<Reply>>,
}

impl Service for Asked {
    fn status(&self) -> Value {
        json!({ "address": self.hosted.address().to_string() })
    }

    fn serve(&self, request: &Request, reply: Reply) {
        match request.word.as_str() {
            // What has been answered is durable.
            "sync" => reply.answer(Ok(Value::Null)),
            "metrics" => reply.answer(Ok(json!({ "metrics": self.hosted.metrics() }))),
            "stop" => {
                let _ = self.ends.send(Some(reply));
            }
            _ => reply.unknown(request),
        }
    }
}

/// Ends the daemon of a socket or a store, and waits until it is gone.
pub(super) fn close(target: &Path) -> Outcome<()> {
    let daemon = daemon_of(target, exit::DEVICE)?;
    let answer = daemon.ask_to_stop(&Request::new("stop", Value::Null))?;
    answer.result().map(drop).map_err(|e: Failure| e)
}
