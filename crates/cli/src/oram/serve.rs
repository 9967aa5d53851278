//! `tacita oram serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use tacita_daemon::Interrupts;
use tacita_daemon::control::{Control, Identity, Reply, Request, Service};
use tacita_oram::Kind;
use tacita_oram::link::Address;
use tacita_oram::server::{Limits, Place, Running};

use super::failure;
use crate::exit::Outcome;

/// What is served, and who can ask about it.
struct Started {
    running: Arc<Running>,
    control: Option<Control>,
    interrupts: Interrupts,
}

pub(super) fn run(
    store: &Place,
    listen: &[Address],
    metrics: Option<SocketAddr>,
    foreground: bool,
) -> Outcome<()> {
    let run = |started| {
        until_signalled(started);
        Ok(())
    };
    tacita_daemon::serve(foreground, || start(store, listen, metrics), run)
}

fn start(store: &Place, listen: &[Address], metrics: Option<SocketAddr>) -> Outcome<Started> {
    let interrupts = Interrupts::watch()?;
    let running = Running::start(store, listen, metrics, Limits::default());
    let running = running.map_err(|error| {
        let failure = failure(&error);
        if error.kind() == Kind::Unreachable {
            return failure.with_remedy("does another server listen there already?");
        }
        failure
    })?;
    for address in running.addresses() {
        eprintln!("tacita: {store} is served at {address}");
    }
    if let Some(at) = running.metrics_at() {
        eprintln!("tacita: counts are told at http://{at}/metrics");
    }
    let running = Arc::new(running);
    let source = match store {
        Place::Folder(folder) => Some(folder.canonicalize()?),
        Place::Redis(..) | Place::Memory => None,
    };
    let socket = running.addresses().iter().find_map(|address| match address {
        Address::Unix(path) => Some(path.canonicalize()),
        Address::Tcp(_) => None,
    });
    // It is asked by its socket or its folder; who has neither is asked for its metrics.
    let at: Option<PathBuf> = socket.transpose()?.or_else(|| source.clone());
    let control = at.map(|at| {
        let identity = Identity { system: "oram", at, device: None, source };
        Control::start(identity, Arc::new(Served(Arc::downgrade(&running))))
    });
    Ok(Started { running, control: control.transpose()?, interrupts })
}

fn until_signalled(started: Started) {
    let Started { running, control, mut interrupts } = started;
    interrupts.wait();
    drop(control);
    drop(running);
}

/// What a server is asked from outside.
struct Served(Weak<Running>);

impl Service for Served {
    fn status(&self) -> Value {
        let Some(running) = self.0.upgrade() else { return Value::Null };
        let metrics = running.metrics();
        let addresses: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
        json!({
            "addresses": addresses,
            "connections": metrics.connections.get() - metrics.connections_ended.get(),
            "queries": metrics.queries.get(),
            "bytes_in": metrics.bytes_in.get(),
            "bytes_out": metrics.bytes_out.get(),
            "storage_failures": metrics.storage_failures.get(),
        })
    }

    fn serve(&self, request: &Request, reply: Reply) {
        reply.unknown(request);
    }
}
