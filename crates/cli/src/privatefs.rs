//! `tacita privatefs ...`.

mod mount;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tacita_clock::{Clock, System};
use tacita_oram::link::Delay;
use tacita_oram::{Access, Options as StoreOptions, Patience, Store, Way};
use tacita_privatefs::blocks::Oblivious;
use tacita_privatefs::register::Register;
use tacita_privatefs::{Background, Error, Kind, Options, PrivateFs, check, facts, format};
use tacita_secret::Key;

use crate::arguments::{PrivateFs as Command, PrivateFsAt as At};
use crate::exit::{self, Failure, Outcome};
use crate::{oram, output};

/// Queries under way at once for what is no mount.
const FEW: u16 = 4;

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Format { at } => {
            let (blocks, key) = open(at, FEW, None, 0)?;
            let clock: Arc<dyn Clock> = Arc::new(System);
            let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
            format(&*blocks, &key, &clock, owner).map_err(|e| failure(&e))
        }
        Command::Mount(mount) => mount::run(mount),
        Command::Check { at, quick, clients, json } => whole(at, *quick, *clients, *json),
        Command::Info { at, json } => {
            let (blocks, key) = open(at, FEW, None, 0)?;
            let found = facts(&*blocks, &key).map_err(|e| failure(&e))?;
            let mut facts = of_register(&found.register);
            facts["blocks"] = found.room.capacity.into();
            facts["blocks_used"] = found.room.present.into();
            output::facts(*json, &facts, &output::lines(&facts))
        }
    }
}

fn of_register(register: &Register) -> Value {
    json!({
        "format": tacita_privatefs::register::VERSION,
        "mounts": register.slots.len(),
        "waiting": register.slots.iter().filter(|slot| slot.waits_since != 0).count(),
        "is_somebodys_turn": register.owner.is_some(),
        "turns": register.epoch,
        "commits": register.commit,
        "commit_to_finish": register.pending.is_some(),
    })
}

fn whole(at: &At, quick: bool, clients: u16, json: bool) -> Outcome<()> {
    let (blocks, key) = open(at, clients, None, 0)?;
    let options =
        Options { shared: is_shared(at), patience_away: patience(at), ..Options::default() };
    let opened = Opened::new(blocks, &key, &options)?;
    let background = Background::start(&opened.fs)?;
    let bar = output::progress("files", 0);
    let found = check(&opened.fs, !quick, &mut |files| bar.set_position(files));
    bar.finish_and_clear();
    let closed = opened.fs.close();
    drop(background);
    let found = found.map_err(|e| failure(&e))?;
    closed.map_err(|e| failure(&e))?;
    let facts = json!({
        "directories": found.directories,
        "files": found.files,
        "bytes": found.bytes,
        "to_be_freed": found.nameless,
        "wrong": found.wrong,
    });
    output::facts(json, &facts, &output::lines(&facts))?;
    match found.wrong.len() {
        0 => Ok(()),
        count => Err(Failure::new(exit::WRONG, format!("{count} things are wrong"))
            .with_remedy("restore what is damaged from a backup")),
    }
}

/// A file system that is signed off however this ends: nobody is to wait for one that is gone.
struct Opened {
    fs: PrivateFs,
    blocks: Arc<Oblivious>,
}

impl Opened {
    fn new(blocks: Arc<Oblivious>, key: &Key, options: &Options) -> Outcome<Self> {
        let clock: Arc<dyn Clock> = Arc::new(System);
        let fs = PrivateFs::open(Arc::clone(&blocks) as _, key, clock, options);
        Ok(Self { fs: fs.map_err(|e| failure(&e))?, blocks })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Nothing, if it was closed.
        let _ = self.fs.close();
        self.blocks.close();
    }
}

/// Whether others may use the store at the same time.
fn is_shared(at: &At) -> bool {
    matches!(at.address, Way::Engine(_)) || at.client.shared_anchor.is_some()
}

/// How long the store may take to answer.
fn patience(at: &At) -> Duration {
    Duration::from_secs(at.timeout.into())
}

/// The store, to be asked by so many clients at once, and its key.
fn open(at: &At, clients: u16, rate: Option<u32>, latency: u64) -> Outcome<(Arc<Oblivious>, Key)> {
    let access = if at.take_over { Access::TakeOver } else { Access::Write };
    let options = StoreOptions {
        access,
        rate,
        patience: Patience { query: patience(at), ..Patience::default() },
        at_once: NonZeroUsize::new(clients.into()),
        delay: (latency > 0).then(|| Delay::of(Duration::from_millis(latency))),
        roots: at.client.server.tls_root.clone(),
    };
    let (way, anchor) = (at.address.clone(), oram::anchor_of(&at.client)?);
    let own = oram::key_of(&at.client)?;
    let again = own.clone();
    let open = move || Store::open(way.clone(), &again, &anchor, &options);
    let blocks = Oblivious::open(open).map_err(|e| failure(&e))?;
    Ok((Arc::new(blocks), own))
}

/// A failure with a file system.
fn failure(error: &Error) -> Failure {
    if let Some(store) = error.store() {
        return oram::failure(store);
    }
    let text = error.to_string();
    match error.kind() {
        Kind::Parameters => Failure::usage(text)
            .with_remedy("`tacita oram init --help` tells which stores there are"),
        Kind::Exists => Failure::usage(text)
            .with_remedy("mount it, or make another store with `tacita oram init`"),
        Kind::NoSpace => Failure::new(exit::NO_SPACE, text)
            .with_remedy("delete files, or make a store with more blocks"),
        Kind::Busy | Kind::Fenced => Failure::new(exit::BUSY, text)
            .with_remedy("mount it again when fewer have it, or the others are closed"),
        Kind::Damaged => Failure::new(exit::WRONG, text).with_remedy(
            "`tacita privatefs check` tells more; restore what is damaged from a backup",
        ),
        Kind::NotFormatted => Failure::new(exit::DEVICE, text)
            .with_remedy("check the address; `tacita privatefs format` makes a file system"),
        Kind::Version => {
            Failure::new(exit::DEVICE, text).with_remedy("use the version of tacita that made it")
        }
        _ => Failure::new(exit::DEVICE, text)
            .with_remedy("see to the server; what was synced is there when it is mounted again"),
    }
}
