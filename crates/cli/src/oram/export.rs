//! `tacita oram export`: a store as a block device.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use serde_json::{Value, json};
use tacita_block::BlockDevice;
use tacita_daemon::control::{Control, Identity, Reply, Request, Service};
use tacita_nbd::{Export as NbdExport, Listener, Server};
use tacita_oram::{Device, Store};

use super::open;
use super::serve::{End, ask_to_end, when_to_end};
use crate::arguments::Oram as Command;
use crate::exit::{self, Outcome};
use crate::keys::warn_of_swap;

/// How long clients have to take their last answers.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Export { foreground, .. } = command else {
        unreachable!("called for export");
    };
    tacita_daemon::serve(*foreground, || start(command), Exported::until_asked)
}

/// A store that is exported.
struct Exported {
    server: Server,
    store: Arc<Store>,
    control: Control,
    ends: Receiver<End>,
}

fn start(command: &Command) -> Outcome<Exported> {
    let Command::Export { address, client, writing, nbd, .. } = command else {
        unreachable!("called for export");
    };
    let (caller, ends) = when_to_end()?;
    let store = Arc::new(open(address, client, &writing.options())?);
    warn_of_swap();
    let device: Arc<dyn BlockDevice> = Arc::new(Device::new(Arc::clone(&store)));
    let of_nbd = |e: tacita_nbd::Error| exit::of_nbd(nbd, &e);
    let listener = Listener::unix(nbd).map_err(of_nbd)?;
    let server = Server::start(vec![NbdExport::new("oram", device)], vec![listener]);
    let server = server.map_err(of_nbd)?;
    let identity = Identity { system: "oram", at: nbd.canonicalize()?, device: None, source: None };
    let asked = Asked { store: Arc::clone(&store), ends: caller };
    let control = Control::start(identity, Arc::new(asked))?;
    Ok(Exported { server, store, control, ends })
}

impl Exported {
    fn until_asked(self) -> Outcome<()> {
        let Self { server, store, control, ends } = self;
        let end = End::of(&ends);
        server.stop(PATIENCE);
        drop(control);
        // Whoever else has it may not let it go before the process ends.
        store.close();
        end.told(&ends)
    }
}

/// What asks in the background, and whoever may end it.
pub(super) struct Asked {
    pub(super) store: Arc<Store>,
    pub(super) ends: Sender<End>,
}

impl Service for Asked {
    fn status(&self) -> Value {
        let mut facts = super::facts::of_store(&self.store).unwrap_or(Value::Null);
        facts["failure"] = self.store.failure().map(|failure| failure.to_string()).into();
        facts
    }

    fn serve(&self, request: &Request, reply: Reply) {
        match request.word.as_str() {
            // What has been answered is durable.
            "sync" => reply.answer(Ok(json!(null))),
            "stop" => ask_to_end(&self.ends, reply),
            _ => reply.unknown(request),
        }
    }
}
