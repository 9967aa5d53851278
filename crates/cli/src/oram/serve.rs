//! `tacita oram serve` and `close`.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use tacita_daemon::Interrupts;
use tacita_daemon::control::{Control, Identity, Reply, Request, Service};
use tacita_oram::Kind;
use tacita_oram::blob::Loss;
use tacita_oram::link::{self, Address};
use tacita_oram::server::{Limits, Listening, Place, Running};

use super::failure;
use crate::arguments::OramReach;
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};
use crate::status::daemon_of;

/// What is served, and who can ask about it.
struct Started {
    running: Arc<Running>,
    control: Option<Control>,
    ends: Receiver<End>,
}

pub(super) fn run(store: &Place, reach: &OramReach, foreground: bool) -> Outcome<()> {
    tacita_daemon::serve(foreground, || start(store, reach), until_asked)
}

fn start(store: &Place, reach: &OramReach) -> Outcome<Started> {
    // Until it serves a signal ends it at once, for it may have to wait for another server's end.
    let running = Running::start(store, &listening(reach)?, Limits::default());
    let mut running = running.map_err(|error| {
        let failure = failure(&error);
        if error.kind() != Kind::Busy {
            return failure;
        }
        failure.with_remedy(
            "a store has one server: `tacita status FOLDER` or SOCKET says where it listens, \
             `tacita oram close` with the same ends it",
        )
    })?;
    let (caller, ends) = when_to_end()?;
    let (losing, place) = (caller.clone(), shown_name(store.to_string()));
    running.when_lost(move |loss| {
        let (code, remedy) = match loss {
            Loss::TakenOver => (
                exit::BUSY,
                "this one could not say in time that it is there: has it been stopped, or cut off?",
            ),
            Loss::Removed => (
                exit::DEVICE,
                "has somebody emptied the place that the store is in? restore it before it is served again",
            ),
        };
        let failure = Failure::new(code, format!("{place}: {}", loss.text()));
        let _ = losing.send(End::Failed(failure.with_remedy(remedy)));
    });
    let running = Arc::new(running);
    let source = match store {
        Place::Folder(folder) => Some(folder.canonicalize()?),
        Place::Redis(..) | Place::S3(_) | Place::Memory => None,
    };
    let socket = running.addresses().iter().find_map(Address::socket_file);
    // It is asked by its socket or its folder; who has neither is asked for its metrics.
    let at: Option<PathBuf> = socket.or_else(|| source.clone());
    let control = at.map(|at| {
        let identity = Identity { system: "oram", at, device: None, source };
        Control::start(identity, Arc::new(Served { running: Arc::downgrade(&running), caller }))
    });
    let control = control.transpose()?;
    for address in running.addresses() {
        let (store, address) = (store.to_string(), address.to_string());
        let [store, address] = [store, address].map(shown_name);
        output::say_when_serving(&format!("tacita: {store} is served at {address}"));
    }
    if let Some(at) = running.metrics_at() {
        output::say_when_serving(&format!("tacita: counts are told at http://{at}/metrics"));
    }
    Ok(Started { running, control, ends })
}

/// Where it listens, and as whom.
fn listening(reach: &OramReach) -> Outcome<Listening> {
    let has_tls = reach.listen.iter().any(|address| matches!(address, Address::Tls(_)));
    let identity = match (&reach.tls_certificate, &reach.tls_key) {
        (Some(certificate), Some(key)) if has_tls => {
            Some(link::Identity::read(certificate, key).map_err(|e| failure(&e))?)
        }
        (None, None) if !has_tls => None,
        (None, None) => {
            let text = "to listen at tls:HOST:PORT takes a certificate and its key";
            return Err(Failure::usage(text).with_remedy("give --tls-certificate and --tls-key"));
        }
        _ => {
            let text = "--tls-certificate and --tls-key are for --listen tls:HOST:PORT";
            return Err(Failure::usage(text).with_remedy("give both of them and that, or none"));
        }
    };
    Ok(Listening { addresses: reach.listen.clone(), identity, metrics: reach.metrics })
}

fn until_asked(started: Started) -> Outcome<()> {
    let Started { running, control, ends } = started;
    // Nothing can fail any more that has to be done before it serves.
    running.keep_folder();
    let end = End::of(&ends);
    drop(control);
    drop(running);
    end.told(&ends)
}

/// Why a daemon ends.
pub(super) enum End {
    /// A signal, or there is nothing left to do.
    Silent,
    /// Somebody waits for it.
    Asked(Reply),
    /// It cannot go on.
    Failed(Failure),
}

impl End {
    /// Waits for one.
    pub(super) fn of(ends: &Receiver<Self>) -> Self {
        ends.recv().unwrap_or(Self::Silent)
    }

    /// Says that all is done, to whoever waits: those who have asked since, too.
    pub(super) fn told(self, since: &Receiver<Self>) -> Outcome<()> {
        let (ended, first) = match self {
            Self::Failed(failure) => (Err(failure), Self::Silent),
            first => (Ok(()), first),
        };
        for end in std::iter::once(first).chain(since.try_iter()) {
            if let Self::Asked(reply) = end {
                reply.end(&Value::Null, ended.as_ref().err());
            }
        }
        ended
    }
}

/// Somebody asks for the end, and waits for it.
pub(super) fn ask_to_end(ends: &Sender<End>, reply: Reply) {
    // Where nobody listens any more all is done.
    if let Err(SendError(End::Asked(reply))) = ends.send(End::Asked(reply)) {
        reply.end(&Value::Null, None);
    }
}

/// Who says that it is to end, and who hears it.
pub(super) fn when_to_end() -> Outcome<(Sender<End>, Receiver<End>)> {
    let mut interrupts = Interrupts::watch()?;
    let (caller, ends) = channel();
    let signalled = caller.clone();
    std::thread::Builder::new().name("tacita-signals".to_owned()).spawn(move || {
        while interrupts.wait() {
            let _ = signalled.send(End::Silent);
        }
    })?;
    Ok((caller, ends))
}

/// Ends the daemon of a socket or a store, and waits until it is gone.
pub(super) fn close(target: &Path) -> Outcome<()> {
    let daemon = daemon_of(target)?;
    daemon.ask_to_stop(&Request::new("stop", Value::Null))?.result().map(drop)
}

/// What a server is asked from outside.
struct Served {
    running: Weak<Running>,
    caller: Sender<End>,
}

impl Service for Served {
    fn status(&self) -> Value {
        let Some(running) = self.running.upgrade() else { return Value::Null };
        let metrics = running.metrics();
        let addresses: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
        json!({
            "addresses": addresses,
            "connections": metrics.connections.get() - metrics.connections_ended.get(),
            "queries": metrics.queries.get(),
            "bytes_in": metrics.bytes_in.get(),
            "bytes_out": metrics.bytes_out.get(),
            "handshakes_failed": metrics.handshakes_failed.get(),
            "storage_failures": metrics.storage_failures.get(),
        })
    }

    fn serve(&self, request: &Request, reply: Reply) {
        match request.word.as_str() {
            // What has been answered is durable.
            "sync" => reply.answer(Ok(Value::Null)),
            "stop" => ask_to_end(&self.caller, reply),
            _ => reply.unknown(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use tacita_daemon::control::Answer;

    use super::*;

    struct Ends(Sender<End>);

    impl Service for Ends {
        fn status(&self) -> Value {
            Value::Null
        }

        fn serve(&self, _: &Request, reply: Reply) {
            ask_to_end(&self.0, reply);
        }
    }

    /// Also who asks when it is ending already, by a signal or for another one, and when all is done.
    #[test]
    fn all_who_ask_for_the_end_hear_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap().join("endpoint");
        let ask = || -> JoinHandle<Outcome<Answer>> {
            let client = daemon_of(&at).unwrap();
            let asked = move || client.ask(&Request::new("stop", Value::Null), &mut |_| ());
            std::thread::spawn(asked)
        };
        for is_signalled in [true, false] {
            let (caller, ends) = channel();
            let identity = Identity { system: "oram", at: at.clone(), device: None, source: None };
            let _control = Control::start(identity, Arc::new(Ends(caller.clone()))).unwrap();
            let mut clients = vec![];
            if is_signalled {
                caller.send(End::Silent).unwrap();
            } else {
                clients.push(ask());
            }
            let first = End::of(&ends);
            clients.push(ask());
            // It has come by now.
            caller.send(ends.recv().unwrap()).unwrap();
            first.told(&ends).unwrap();
            drop(ends);
            clients.push(ask());
            for client in clients {
                assert!(client.join().unwrap().unwrap().failure.is_none());
            }
        }
    }
}
