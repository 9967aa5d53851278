//! `tacita pddm ...`.

mod control;
mod create;
mod serve;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tacita_block::{Access, BlockDevice, FileDevice};
use tacita_pddm::{CLASSES_MAX, Entropy, Kind, Level, Unlock, change_password, examine};

use crate::arguments::Pddm as Command;
use crate::exit::{self, Failure, Outcome};
use crate::{output, passwords};

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Init { .. } => create::run(command),
        Command::Open { .. } => serve::run(command),
        Command::Close { front } => control::close(front),
        Command::Status { front, json } => control::status(front, *json),
        Command::Passwd { device, password, volume, new_password_file } => {
            passwd(device, password, volume.as_deref(), new_password_file.as_deref())
        }
        Command::Check { device, password, json } => check(device, password, *json),
    }
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
        Failure::usage(format!("{name}: no volume is called so"))
            .with_remedy(format!("public, hidden, hidden2 and so on to hidden{CLASSES_MAX}"))
    })
}

fn open_device(path: &Path, access: Access) -> Outcome<Arc<dyn BlockDevice>> {
    let device = FileDevice::open(path, access, 4096).map_err(|e| exit::of_device(path, &e))?;
    Ok(Arc::new(device))
}

/// A failure with a device; `path` names it.
fn failure(path: &Path, error: &tacita_pddm::Error) -> Failure {
    if let Some(device) = error.device() {
        return exit::of_device(path, device);
    }
    let path = path.display();
    match error.kind() {
        Kind::Geometry => Failure::usage(format!("{path}: {error}")),
        // Not a word more: which of the three it is must not be told.
        Kind::NoVolume => Failure::new(exit::NO_VOLUME, format!("{path}: {error}"))
            .with_remedy("try again, or give another device"),
        Kind::TooShort => Failure::new(exit::DEVICE, format!("{path}: {error}"))
            .with_remedy("give the whole device that it was made on"),
        _ => Failure::new(exit::DEVICE, format!("{path}: {error}")),
    }
}

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
    let (old, new) = (Unlock::Password(&old), Unlock::Password(&new));
    change_password(&device, old, volume, new, Entropy::default()).map_err(|e| failure(path, &e))
}

fn check(path: &Path, password: &passwords::From, json: bool) -> Outcome<()> {
    let device = open_device(path, Access::ReadOnly)?;
    let password = password.read("Password")?;
    let bar = output::progress("checking", device.geometry().len_bytes());
    let with = Unlock::Password(&password);
    let view = examine::examine(&device, with, &mut |bytes| bar.set_position(bytes))
        .map_err(|e| failure(path, &e))?;
    bar.finish_and_clear();
    let damaged = view.damaged();
    let unit_blocks = u64::from(view.geometry.unit_blocks());
    let place = |unit: &u32| (u64::from(*unit) + 1) * unit_blocks * 4096;
    let value = json!({
        "whole": damaged.is_empty(),
        "units": view.geometry.units(),
        "written": view.next,
        "damaged": damaged.iter().map(|unit| json!({ "unit": unit, "offset": place(unit) })).collect::<Vec<_>>(),
    });
    let mut text = String::new();
    for unit in &damaged {
        let _ =
            writeln!(text, "{}: unit {unit} at byte {} is damaged", path.display(), place(unit));
    }
    if damaged.is_empty() {
        text = format!("{}: whole: {} units written so far\n", path.display(), view.next);
    }
    output::facts(json, &value, &text)?;
    if damaged.is_empty() {
        return Ok(());
    }
    let text = format!("{}: {} damaged units", path.display(), damaged.len());
    Err(Failure::new(exit::WRONG, text)
        .with_remedy("blocks in them cannot be read until they are written again; all others can"))
}
