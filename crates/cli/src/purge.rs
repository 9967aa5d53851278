//! `tacita purge ...`.

mod mount;
mod status;

use std::path::{Path, PathBuf};

use tacita_purge::{Kind, Removal, RemovalOptions, Suitability};

use crate::arguments::Purge as Command;
use crate::exit::{self, Failure, Outcome};
use crate::output;

/// What can be done where overwriting does not help.
const ELSEWHERE: &str = "encrypt what is stored there and destroy the keys; `tacita dnefs` is to do \
                         that for flash. --anyway overwrites all the same, and its verdicts say so";

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Mount(arguments) => mount::run(arguments),
        Command::File { paths, method, recursive, anyway, json } => {
            let options =
                RemovalOptions { method: method.clone(), recursive: *recursive, anyway: *anyway };
            file(paths, options, *json)
        }
        Command::Suits { path, json } => suits(path, *json),
        Command::Status { dir, finish, json } => status::run(dir, *finish, *json),
    }
}

fn file(paths: &[PathBuf], options: RemovalOptions, json: bool) -> Outcome<()> {
    let mut removal = Removal::new(options);
    for path in paths {
        removal.purge(path).map_err(|e| of_purge(&e))?;
    }
    let verdicts = removal.finish().map_err(|e| of_purge(&e))?;
    for verdict in &verdicts {
        let line = if json { verdict.json().to_string() } else { verdict.text() };
        output::print(&format!("{line}\n"))?;
    }
    let broken = verdicts.iter().filter(|verdict| !verdict.holds()).count();
    if broken == 0 {
        return Ok(());
    }
    let cause = format!("{broken} of {} not purged as asked", verdicts.len());
    Err(match removal.failure() {
        Some(kind) => of_kind(kind, cause),
        None => Failure::new(exit::WRONG, cause),
    })
}

fn suits(path: &Path, json: bool) -> Outcome<()> {
    let found = Suitability::of(path).map_err(|e| of_purge(&e))?;
    output::facts(json, &found.json(), &found.text())?;
    match found.reason() {
        None => Ok(()),
        Some(reason) => Err(Failure::new(exit::NOT_HERE, format!("{}: {reason}", path.display()))
            .with_remedy(ELSEWHERE)),
    }
}

fn of_purge(error: &tacita_purge::Error) -> Failure {
    of_kind(error.kind(), error.to_string())
}

fn of_kind(kind: Kind, cause: String) -> Failure {
    match kind {
        Kind::Invalid | Kind::NotFound => Failure::usage(cause),
        Kind::Unsuitable => Failure::new(exit::NOT_HERE, cause).with_remedy(ELSEWHERE),
        Kind::NotPermitted => Failure::new(exit::NOT_HERE, cause)
            .with_remedy("run it as a user who may write there, or as root"),
        Kind::InUse => Failure::new(exit::BUSY, cause)
            .with_remedy("end the programs that use it; `tacita umount DIR` ends a mount"),
        Kind::NoSpace => Failure::new(exit::NO_SPACE, cause),
        Kind::Unpurgeable => Failure::new(exit::WRONG, cause),
        _ => Failure::new(exit::DEVICE, cause),
    }
}
