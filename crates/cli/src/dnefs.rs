//! `tacita dnefs ...`.

mod audit;
mod chip;
mod create;
mod facts;
mod map;
mod mount;
mod plan;
mod receipts;

use std::path::Path;

use tacita_dnefs::read_superblock;
use tacita_flash::Volume;
use tacita_secret::Password;

use crate::arguments::Dnefs as Command;
use crate::exit::{self, Outcome};
use crate::passwords;

pub(crate) use chip::is_device;

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Format { .. } => create::format(command),
        Command::Mount { .. } => mount::run(command),
        Command::Purge { dir, json } => receipts::purge(dir, *json),
        Command::Receipt { target, from, all, json } => {
            receipts::receipt(target, from, *all, *json)
        }
        Command::Check { volume, from, json } => facts::check(volume, from, *json),
        Command::Info { volume, json } => facts::info(volume, *json),
        Command::Map { volume, from, svg, json } => map::run(volume, from, svg.as_deref(), *json),
        Command::Plan { .. } => plan::run(command),
        Command::Passwd { volume, from, change } => create::passwd(volume, from, change),
        Command::Erase { volume, force } => create::erase(volume, *force),
        Command::Dump { volume, out } => facts::dump(volume, out),
        Command::Audit { before, after, memory, password_file, json } => {
            audit::run(before, after, memory.as_deref(), password_file, *json)
        }
    }
}

/// The password of a volume, if it needs one.
fn password(path: &Path, volume: &dyn Volume, from: &passwords::From) -> Outcome<Option<Password>> {
    let superblock = read_superblock(volume).map_err(|e| exit::of_dnefs(path, &e))?;
    if superblock.protection != tacita_dnefs::Protection::Password {
        return Ok(None);
    }
    from.read("password").map(Some)
}
