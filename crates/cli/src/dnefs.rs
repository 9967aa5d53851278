//! `tacita dnefs ...`.

mod audit;
mod create;
mod facts;
mod map;
mod mount;
mod plan;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tacita_dnefs::read_superblock;
use tacita_flash::{Behaviour, Emulator};
use tacita_secret::Password;

use crate::arguments::Dnefs as Command;
use crate::exit::{self, Outcome};
use crate::{output, passwords, status};

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Format { .. } => create::format(command),
        Command::Mount { .. } => mount::run(command),
        Command::Purge { dir, json } => purge(dir, *json),
        Command::Check { volume, from, json } => facts::check(volume, from, *json),
        Command::Info { volume, json } => facts::info(volume, *json),
        Command::Map { volume, from, svg, json } => map::run(volume, from, svg.as_deref(), *json),
        Command::Plan { .. } => plan::run(command),
        Command::Passwd { volume, from, new_password_file, remove } => {
            create::passwd(volume, from, new_password_file.as_deref(), *remove)
        }
        Command::Erase { volume, force } => create::erase(volume, *force),
        Command::Dump { volume, out } => facts::dump(volume, out),
        Command::Audit { before, after, password_file, json } => {
            audit::run(before, after, password_file, *json)
        }
    }
}

/// Opens a volume's chip, locked.
fn open(path: &Path) -> Outcome<Arc<Emulator>> {
    let chip = Emulator::open(path, Behaviour::default()).map_err(|e| exit::of_flash(path, &e))?;
    Ok(Arc::new(chip))
}

/// The password of a volume, if it needs one.
fn password(path: &Path, chip: &Emulator, from: &passwords::From) -> Outcome<Option<Password>> {
    let superblock = read_superblock(chip).map_err(|e| exit::of_dnefs(path, &e))?;
    if superblock.protection == tacita_dnefs::Protection::Clear {
        return Ok(None);
    }
    from.read("password").map(Some)
}

fn purge(dir: &Path, json: bool) -> Outcome<()> {
    let daemon = status::daemon_of(dir, exit::USAGE)?;
    let report = status::ask(daemon, "purge", Value::Null)?;
    output::facts(json, &report, &output::lines(&report))
}
