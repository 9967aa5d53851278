//! `tacita oram ...`.

mod bench;
mod engine;
mod export;
mod facts;
mod serve;
pub(crate) mod trace;

use std::path::{Path, PathBuf};

use serde_json::json;
use tacita_daemon::control::path_to_json;
use tacita_oram::build::must_build;
use tacita_oram::geometry::Geometry;
use tacita_oram::key_file::{self, KeyFile};
use tacita_oram::server::Place;
use tacita_oram::{AnchorAt, Error, Kind, OpenPlace, Options, Store, Way};
use tacita_secret::{Key, Password};

use crate::arguments::{Oram as Command, OramClient, Shapes};
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};
use crate::passwords::{self, From};

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Init { .. } => init(command),
        Command::Passwd { key, from, change } => passwd(key, from, change),
        Command::Serve { store, reach, foreground } => serve::run(store, reach, *foreground),
        Command::Export { .. } => export::run(command),
        Command::Engine { .. } => engine::run(command),
        Command::Close { target } => serve::close(target),
        Command::Check { address, client, json } => facts::check(address, client, *json),
        Command::Status { address, client, json } => facts::status(address, client, *json),
        Command::Plan { shapes, json } => facts::plan(shapes, *json),
        Command::Bench { .. } => bench::run(command),
        Command::Trace(trace) => trace::run(trace),
    }
}

fn init(command: &Command) -> Outcome<()> {
    let Command::Init { store, key, seal, from, shapes, json } = command else {
        unreachable!("called for init");
    };
    let geometry = geometry_of(shapes)?;
    if *store == Place::Memory {
        return Err(Failure::usage("a store in memory ends with whoever makes it")
            .with_remedy("name a folder, Redis or a bucket"));
    }
    let is_new = !key.try_exists().map_err(|e| output::of_file(key, e))?;
    let (own, new) = if is_new {
        let is_sealed = *seal || from.is_given();
        let password =
            is_sealed.then(|| passwords::not_empty(from.read_new("new password")?)).transpose()?;
        let (own, new) = key_file::create(key, password.as_ref()).map_err(|e| failure(&e))?;
        (own, Some(new))
    } else {
        (open_key(key, from)?, None)
    };
    if let Err((error, is_none)) = make(store, &own, geometry) {
        if is_new && is_none {
            let _ = std::fs::remove_file(key);
        }
        if error.kind() == Kind::Busy {
            let failure = Failure::new(exit::BUSY, shown_name(format!("{store}: {error}")));
            return Err(failure.with_remedy("name another place for the new one"));
        }
        return Err(failure(&error));
    }
    drop(new);
    let facts = json!({
        "key": path_to_json(key),
        "new_key": is_new,
        "blocks": geometry.capacity(),
        "block_bytes": geometry.block_len(),
        "levels": geometry.levels(),
    });
    output::done(*json, &facts, &output::lines(&facts))
}

/// Makes a store. If it fails, also tells whether there surely is none: a key that opens nothing is of no use
/// to anybody.
fn make(store: &Place, key: &Key, geometry: Geometry) -> Result<(), (Error, bool)> {
    let place = OpenPlace::open(store).map_err(|error| (error, true))?;
    place.init(key, geometry).map_err(|error| {
        let is_none = place.take_back() || error.kind() != Kind::Storage;
        (error, is_none)
    })
}

fn passwd(key: &Path, from: &From, change: &passwords::Change) -> Outcome<()> {
    let old = password_of(&read_key(key)?, from)?;
    let new = change.read()?;
    key_file::set_password(key, old.as_ref(), new.as_ref()).map_err(|e| failure(&e))
}

fn read_key(path: &Path) -> Outcome<KeyFile> {
    KeyFile::read(path).map_err(|e| match e.kind() {
        Kind::Busy => {
            failure(&e).with_remedy("wait until the `tacita oram init` that makes it has ended")
        }
        // Another file would be refused, too.
        Kind::Storage if path.is_file() => failure(&e),
        _ => failure(&e).with_remedy("give --key the file that `tacita oram init` has made"),
    })
}

fn password_of(file: &KeyFile, from: &From) -> Outcome<Option<Password>> {
    file.is_sealed().then(|| from.read("password of the key")).transpose()
}

fn open_key(path: &Path, from: &From) -> Outcome<Key> {
    let file = read_key(path)?;
    if !file.is_sealed() {
        crate::keys::warn_of_readers(path);
    }
    let password = password_of(&file, from)?;
    file.open(password.as_ref()).map_err(|e| failure(&e))
}

/// The key of a client; whoever is there is asked for its password, if it has one.
pub(crate) fn key_of(client: &OramClient) -> Outcome<Key> {
    open_key(&client.key, &client.from)
}

fn geometry_of(shapes: &Shapes) -> Outcome<Geometry> {
    let block_len = u32::try_from(shapes.block_size).unwrap_or(u32::MAX);
    let geometry = Geometry::new(block_len, shapes.period, shapes.growth, shapes.blocks);
    let geometry = geometry.and_then(|geometry| must_build(&geometry).map(|()| geometry));
    geometry.map_err(|e| failure(&e))
}

fn open(way: &Way, client: &OramClient, options: &Options) -> Outcome<Store> {
    open_with(way, client, &key_of(client)?, options)
}

fn open_with(way: &Way, client: &OramClient, key: &Key, options: &Options) -> Outcome<Store> {
    let options = Options { roots: client.server.tls_root.clone(), ..options.clone() };
    Store::open(way.clone(), key, &anchor_of(client)?, &options).map_err(|e| failure(&e))
}

pub(crate) fn anchor_of(client: &OramClient) -> Outcome<AnchorAt> {
    if let Some(place) = &client.shared_anchor {
        if *place == Place::Memory {
            return Err(Failure::usage("a shared anchor in memory is nobody else's")
                .with_remedy("name a folder, Redis or a bucket"));
        }
        return Ok(AnchorAt::Shared(place.clone()));
    }
    let beside_key = || {
        let mut name = client.key.clone().into_os_string();
        name.push(".anchor");
        PathBuf::from(name)
    };
    Ok(AnchorAt::File(client.anchor.clone().unwrap_or_else(beside_key)))
}

/// A failure with a store.
pub(crate) fn failure(error: &Error) -> Failure {
    let text = shown_name(error.to_string());
    match error.kind() {
        Kind::Parameters => Failure::usage(text)
            .with_remedy("`--help` of the command, and docs/cli.md, tell what is possible"),
        Kind::NotAStore => Failure::new(exit::DEVICE, text).with_remedy(
            "check the address, and that tacita is as new as the store; `tacita oram init` makes one",
        ),
        Kind::WrongKey => Failure::new(exit::NO_VOLUME, text)
            .with_remedy("give the key of this store, and the password of the key"),
        Kind::Memory => Failure::no_memory(text),
        Kind::RolledBack => Failure::new(exit::WRONG, text).with_remedy(
            "restore the store's newest state; what was written since is not on the server",
        ),
        Kind::Hostile => Failure::new(exit::WRONG, text).with_remedy(
            "nothing was believed; `tacita oram check` tells more, if the store can be opened",
        ),
        Kind::NoSpace => Failure::new(exit::NO_SPACE, text)
            .with_remedy("free blocks, or make a store with more of them"),
        Kind::Busy => Failure::new(exit::BUSY, text)
            .with_remedy("one client writes at a time: close the other one, or --take-over from one that is gone; several write with \
                 --shared-anchor, or through `tacita oram engine`"),
        Kind::Unreachable => Failure::new(exit::DEVICE, text)
            .with_remedy("is it there? `tacita oram serve STORE --listen ADDRESS` serves a store"),
        Kind::Taken => Failure::new(exit::BUSY, text)
            .with_remedy("does another server listen there already? end it, or name another address"),
        Kind::Untrusted => Failure::new(exit::DEVICE, text).with_remedy(
            "--tls-root names whom to believe; if it is the server's certificate that is wrong, its owner gives `tacita \
             oram serve` another one",
        ),
        Kind::Address => Failure::usage(text).with_remedy(
            "name an address of this machine and a port that you may have, or a socket in a folder that \
             is there and that you may write",
        ),
        Kind::Exists => Failure::usage(format!("{text}, and is as it was"))
            .with_remedy("name another file, or begin again: it may have come since"),
        Kind::Anchor => Failure::new(exit::DEVICE, text).with_remedy(
            "put back a copy of it that is as new as the store; if there is none, and you take the store as the \
             server shows it, move it away (docs/backup.md)",
        ),
        Kind::Storage => exit::refused(exit::DEVICE, text, error)
            .or_remedy("see to what it is kept in: that it is there, and may be read and written"),
        Kind::Protocol => Failure::new(exit::DEVICE, text).with_remedy(
            "is it a server of stores that answers at this address, of the same version? open it again; its log, or \
             `tacita status` of it, may say more",
        ),
        _ => Failure::new(exit::DEVICE, text)
            .with_remedy("open it again; the server's log, or `tacita status` of it, may say more"),
    }
}
