//! `tacita oram ...`.

mod bench;
mod engine;
mod export;
mod facts;
mod serve;
pub(crate) mod trace;

use std::path::PathBuf;

use serde_json::json;
use tacita_daemon::control::path_to_json;
use tacita_oram::geometry::Geometry;
use tacita_oram::server::Place;
use tacita_oram::{AnchorAt, Error, Kind, Options, Store, Way, key_file};

use crate::arguments::{Oram as Command, OramClient, Shapes};
use crate::exit::{self, Failure, Outcome};
use crate::output;

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Init { store, key, shapes, json } => init(store, key, shapes, *json),
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

fn init(store: &Place, key: &PathBuf, shapes: &Shapes, json: bool) -> Outcome<()> {
    let geometry = geometry_of(shapes)?;
    if *store == Place::Memory {
        return Err(Failure::usage("a store in memory ends with whoever makes it"));
    }
    let is_new = !key.exists();
    let opened = if is_new { key_file::create(key) } else { key_file::read(key) };
    let made = opened.and_then(|key| Store::init(store, &key, geometry));
    if let Err(error) = made {
        // A key that opens nothing is of no use to anybody. After a failure of the storage the store may be
        // there all the same.
        if is_new && error.kind() != Kind::Storage {
            let _ = std::fs::remove_file(key);
        }
        return Err(failure(&error));
    }
    let facts = json!({
        "key": path_to_json(key),
        "new_key": is_new,
        "blocks": geometry.capacity(),
        "block_bytes": geometry.block_len(),
        "levels": geometry.levels(),
    });
    output::facts(json, &facts, &output::lines(&facts))
}

fn geometry_of(shapes: &Shapes) -> Outcome<Geometry> {
    let block_len = u32::try_from(shapes.block_size).unwrap_or(u32::MAX);
    Geometry::new(block_len, shapes.period, shapes.growth, shapes.blocks)
        .map_err(|e| Failure::usage(e.to_string()))
}

fn open(way: &Way, client: &OramClient, options: &Options) -> Outcome<Store> {
    let key = key_file::read(&client.key).map_err(|e| failure(&e))?;
    let options = Options { roots: client.server.tls_root.clone(), ..options.clone() };
    Store::open(way.clone(), &key, &anchor_of(client)?, &options).map_err(|e| failure(&e))
}

pub(crate) fn anchor_of(client: &OramClient) -> Outcome<AnchorAt> {
    if let Some(place) = &client.shared_anchor {
        if *place == Place::Memory {
            let nobody =
                "a shared anchor in memory is nobody else's: name a folder, Redis or a bucket";
            return Err(Failure::usage(nobody.to_owned()));
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
    let text = error.to_string();
    match error.kind() {
        Kind::Parameters => Failure::usage(text),
        Kind::NotAStore => Failure::new(exit::DEVICE, text)
            .with_remedy("check the address; `tacita oram init` makes a store"),
        Kind::WrongKey => Failure::new(exit::NO_VOLUME, text),
        Kind::RolledBack => Failure::new(exit::WRONG, text).with_remedy(
            "restore the store's newest state; what was written since is not on the server",
        ),
        Kind::Hostile => Failure::new(exit::WRONG, text).with_remedy(
            "nothing was believed; `tacita oram check` tells more, if the store can be opened",
        ),
        Kind::NoSpace => Failure::new(exit::NO_SPACE, text),
        Kind::Busy => Failure::new(exit::BUSY, text)
            .with_remedy("one client writes at a time: close the other one, or --take-over from one that is gone; several write with \
                 --shared-anchor, or through `tacita oram engine`"),
        Kind::Unreachable => Failure::new(exit::DEVICE, text)
            .with_remedy("is it there? `tacita oram serve STORE --listen ADDRESS` serves a store"),
        _ => Failure::new(exit::DEVICE, text),
    }
}
