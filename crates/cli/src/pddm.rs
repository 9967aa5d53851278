//! `tacita pddm ...`.

mod check;
mod close;
mod control;
mod create;
mod plan;
mod serve;
mod serving;
mod shape;
mod sweep;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tacita_block::{Access, BlockDevice, FileDevice};
use tacita_daemon::control::Client;
use tacita_pddm::{
    CLASSES_MAX, Entropy, Kind, Level, Session, Unlock, change_password, check_new_password,
    examine,
};

use crate::arguments::Pddm as Command;
use crate::exit::{self, Failure, Outcome};
use crate::output::shown_name;
use crate::{output, passwords, status};

pub(crate) use serving::PUBLIC;

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Init { .. } => create::run(command),
        Command::Plan { size, shape, json } => plan::run(*size, shape, *json),
        Command::Open { .. } => serve::run(command),
        Command::Close { endpoint, rest, json } => close::run(endpoint, *rest, *json),
        Command::Status { endpoint, hidden, json } => control::status(endpoint, *hidden, *json),
        Command::Sweep { .. } => sweep::run(command),
        Command::Passwd { device, password, volume, new_password_file } => {
            passwd(device, password, volume.as_deref(), new_password_file.as_deref())
        }
        Command::Check { .. } => check::run(command),
    }
}

/// Whether a superblock or a copy of it is there.
pub(crate) fn has_superblock(path: &Path) -> bool {
    open_device(path, Access::ReadOnly).is_ok_and(|device| match examine::geometry(&*device) {
        Ok(found) => found.is_some(),
        Err(error) => error.kind() == tacita_pddm::Kind::Version,
    })
}

/// What a device says without a password.
pub(crate) fn info(path: &Path, json: bool) -> Outcome<()> {
    let device = open_device(path, Access::ReadOnly)?;
    let geometry = examine::geometry(&*device).map_err(|e| failure(path, &e))?;
    let damaged = || {
        Failure::new(exit::DEVICE, format!("{}: no superblock is left", shown_name(path)))
            .with_remedy("restore it from a backup")
    };
    let facts = control::shapes(&geometry.ok_or_else(damaged)?);
    output::facts(json, &facts, &output::lines(&facts))
}

/// `tacita umount` of a folder is `close --drop`; `None` where no device is open. While the daemon
/// cannot say what it serves nothing is done.
pub(crate) fn close_folder(dir: &Path) -> Option<Outcome<()>> {
    let daemon = match Client::find(dir) {
        Err(e) if e.kind() == tacita_daemon::Kind::NoAnswer => return Some(Err(e.into())),
        found => found.ok()?,
    };
    if daemon.is_killed() {
        // What it served is dead, whatever that was: its mount can be taken away, and it may wait for that.
        return None;
    }
    match status::ask(daemon, "status", Value::Null) {
        Ok(status) if status["system"] == "pddm" => {}
        Err(failure) if failure.code == exit::BUSY => return Some(Err(failure)),
        _ => return None,
    }
    Some(close::end(Client::find(dir).ok()?, close::Wish::Drop, false))
}

/// What a volume is called.
fn name_of(level: Level) -> String {
    match level.index() {
        0 => "public".to_owned(),
        1 => "hidden".to_owned(),
        number => format!("hidden{number}"),
    }
}

/// The level that is called so.
fn level_of(name: &str) -> Outcome<Level> {
    let number = match name {
        "public" => return Ok(Level::PUBLIC),
        "hidden" => Some(1),
        _ => name.strip_prefix("hidden").and_then(|number| number.parse().ok()),
    };
    number.filter(|n| (1..=CLASSES_MAX).contains(n)).map(Level::hidden).ok_or_else(|| {
        Failure::usage(format!("{name}: there is no such volume"))
            .with_remedy(format!("public, hidden, hidden2 and so on to hidden{CLASSES_MAX}"))
    })
}

fn open_device(path: &Path, access: Access) -> Outcome<Arc<dyn BlockDevice>> {
    let device = FileDevice::open(path, access, 4096).map_err(|e| exit::of_device(path, &e))?;
    Ok(Arc::new(device))
}

/// The same where a device that can only be read has a use: `reading` says which.
fn open_device_or(path: &Path, access: Access, reading: &str) -> Outcome<Arc<dyn BlockDevice>> {
    open_device(path, access).map_err(|failure| exit::or_reading(failure, reading))
}

/// A failure with a device; `path` names it.
fn failure(path: &Path, error: &tacita_pddm::Error) -> Failure {
    if let Some(device) = error.device() {
        return exit::of_device(path, device);
    }
    let path = shown_name(path);
    match error.kind() {
        Kind::Geometry => Failure::usage(format!("{path}: {error}")).with_remedy(POSSIBLE),
        // Not a word more: which of the three it is must not be told.
        Kind::NoVolume => Failure::new(exit::NO_VOLUME, format!("{path}: {error}"))
            .with_remedy("try again, or give another device"),
        Kind::Password => Failure::usage(format!("{path}: {error}"))
            .with_remedy("every volume needs a password of its own; choose another"),
        Kind::Memory => Failure::no_memory(format!("{path}: {error}")),
        Kind::NoThread => Failure {
            cause: format!("{path}: {error}"),
            ..std::io::Error::from(rustix::io::Errno::AGAIN).into()
        },
        Kind::Unread => Failure::new(exit::DEVICE, format!("{path}: {error}")).with_remedy(UNREAD),
        Kind::Version => Failure::new(exit::DEVICE, format!("{path}: {error}"))
            .with_remedy("use the version of tacita that made it"),
        Kind::TooShort => Failure::new(exit::DEVICE, format!("{path}: {error}"))
            .with_remedy("give the whole device that it was made on"),
        _ => Failure::new(exit::DEVICE, format!("{path}: {error}")).with_remedy(AGAIN),
    }
}

/// What can be done about shapes that no device can have.
const POSSIBLE: &str = "`tacita pddm plan --help` tells what is possible";
/// What can be done where it fails at places that whoever writes has to know.
const UNREAD: &str = "try again; `open --read-only` shows what can be read; `sweep` gives up what cannot, and \
                      writes all else anew";
/// What can be done where the device fails.
const AGAIN: &str = "see to the device, close it, and open it again";

fn passwd(
    path: &Path,
    password: &passwords::From,
    volume: Option<&str>,
    new: Option<&Path>,
) -> Outcome<()> {
    let volume = volume.map(level_of).transpose()?;
    let device = open_device(path, Access::ReadWrite)?;
    let old = password.read("Password")?;
    let new = match new {
        Some(file) => passwords::first_line(file)?,
        None => passwords::ask_twice("New password")?,
    };
    check_new_password(&new).map_err(|e| failure(path, &e))?;
    let (old, new) = (Unlock::Password(&old), Unlock::Password(&new));
    change_password(&device, old, volume, new, Entropy::default()).map_err(|e| failure(path, &e))
}

/// Refuses to write where only the public volume is open, unless that is what is wanted: the same is
/// said whether there is a hidden one.
fn only_if_wanted(session: &Session, public_only: bool) -> Outcome<()> {
    if public_only || session.volumes().len() > 1 {
        return Ok(());
    }
    Err(Failure::usage(PUBLIC_ONLY_REFUSED).with_remedy(PUBLIC_ONLY_REMEDY))
}

const PUBLIC_ONLY_REFUSED: &str = "only the public volume is open: rewriting the whole log \
                                   destroys what hidden volumes hold, if there are any";
const PUBLIC_ONLY_REMEDY: &str = "give the password of a hidden volume, or --public-only";
