//! `tacita oram engine`: one client of a store that asks for many users.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tacita_daemon::control::{Client, Control, Identity};
use tacita_oram::link::Address;
use tacita_oram::{AnchorAt, Hosted, Store, Way};

use super::export::Asked;
use super::serve::{End, when_to_end};
use super::{anchor_of, failure, key_of, open_with};
use crate::arguments::Oram as Command;
use crate::exit::Outcome;
use crate::keys::warn_of_swap;
use crate::output::{self, shown_name};

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Engine { foreground, .. } = command else {
        unreachable!("called for engine");
    };
    tacita_daemon::serve(*foreground, || start(command), Running::until_asked)
}

/// An engine that takes users.
struct Running {
    hosted: Vec<Hosted>,
    store: Arc<Store>,
    control: Option<Control>,
    ends: Receiver<End>,
}

fn start(command: &Command) -> Outcome<Running> {
    let Command::Engine { address, client, writing, listen, .. } = command else {
        unreachable!("called for engine");
    };
    let (caller, ends) = when_to_end()?;
    let way = Way::Server(address.clone());
    let key = key_of(client)?;
    let store = Arc::new(open_with(&way, client, &key, &writing.options())?);
    warn_of_swap();
    let host = |address: &Address| store.host(address, &key).map_err(|e| failure(&e));
    let hosted = listen.iter().map(host).collect::<Outcome<Vec<_>>>()?;
    // It is asked by its socket, or by its anchor, which no other one has, or by its key.
    let at: Option<PathBuf> = match (hosted.iter().find_map(Hosted::socket), anchor_of(client)?) {
        (Some(socket), _) => Some(socket.to_owned()),
        (None, AnchorAt::File(anchor)) => Some(anchor.canonicalize()?),
        (None, AnchorAt::Shared(_)) => unless_served(client.key.canonicalize()?),
    };
    let control = at.map(|at| {
        let identity = Identity { system: "oram", at, device: None, source: None };
        let asked = Asked { store: Arc::clone(&store), ends: caller };
        Control::start(identity, Arc::new(asked))
    });
    let control = control.transpose()?;
    for hosted in &hosted {
        let address = shown_name(hosted.address().to_string());
        output::say_when_serving(&format!("tacita: users are served at engine:{address}"));
    }
    Ok(Running { hosted, store, control, ends })
}

/// The key, unless another engine is asked by it, which stays so.
fn unless_served(key: PathBuf) -> Option<PathBuf> {
    if Client::serving_at(&key).is_none() {
        return Some(key);
    }
    log::warn!(
        "another engine with this key is asked and closed by it: this one is ended by SIGTERM alone, unless it \
         listens at a Unix socket, too"
    );
    None
}

impl Running {
    fn until_asked(self) -> Outcome<()> {
        let Self { hosted, store, control, ends } = self;
        let end = End::of(&ends);
        drop(hosted);
        drop(control);
        // Whoever else has it may not let it go before the process ends.
        store.close();
        end.told(&ends)
    }
}
