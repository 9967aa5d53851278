//! `tacita purge ...`.

mod mount;
mod status;

use std::path::{Path, PathBuf};

use tacita_purge::{Kind, Removal, RemovalOptions, Suitability, Watcher};

use crate::arguments::Purge as Command;
use crate::exit::{self, Failure, Outcome};
use crate::output;

/// What can be done where overwriting does not help.
const ELSEWHERE: &str = "encrypt what is stored there and destroy the keys; --anyway overwrites all \
                         the same, and its verdicts say so";

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Mount(arguments) => mount::run(arguments),
        Command::File { paths, method, recursive, anyway, json } => {
            let (method, recursive, anyway) = (method.clone(), *recursive, *anyway);
            let options = RemovalOptions { method, recursive, anyway, ..Default::default() };
            file(paths, options, *json)
        }
        Command::Probe { path, json } => probe(path, *json),
        Command::Status { dir, finish, json } => status::run(dir, *finish, *json),
    }
}

fn file(paths: &[PathBuf], options: RemovalOptions, json: bool) -> Outcome<()> {
    let bar = output::progress("overwriting", 0);
    let told = bar.clone();
    let watcher = Watcher::new(move |done, of| {
        told.set_length(of);
        told.set_position(done);
    });
    let mut removal = Removal::new(RemovalOptions { watcher, ..options });
    let purged = paths.iter().try_for_each(|path| removal.purge(path));
    bar.finish_and_clear();
    let verdicts = purged.and_then(|()| removal.finish()).map_err(|e| of_purge(&e))?;
    for verdict in &verdicts {
        let line = if json {
            output::json(&verdict.json()).to_string()
        } else {
            output::shown(&verdict.text()).into_owned()
        };
        output::print(&format!("{line}\n"))?;
    }
    let broken = verdicts.iter().filter(|verdict| !verdict.holds()).count();
    if broken == 0 {
        return Ok(());
    }
    let cause = format!("{broken} of {} not purged as asked", verdicts.len());
    Err(match removal.failure() {
        Some(kind) => of_kind(kind, cause),
        None => Failure::new(exit::WRONG, cause).with_remedy("each verdict says what may be left"),
    })
}

fn probe(path: &Path, json: bool) -> Outcome<()> {
    crate::status::looked_at(path)?;
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
    let (code, remedy) = match kind {
        Kind::Invalid => (exit::USAGE, "see `tacita purge --help`"),
        Kind::NotFound => (exit::USAGE, "check the path, and that what holds it is mounted"),
        Kind::Unsuitable => (exit::NOT_HERE, ELSEWHERE),
        Kind::NotPermitted => {
            (exit::NOT_HERE, "run it as root, or as a user who may read and write there")
        }
        Kind::ReadOnly => (exit::NOT_HERE, "`mount -o remount,rw` makes it writable"),
        Kind::InUse => (
            exit::BUSY,
            "end the programs that use it (`fuser -v PATH` names them); `tacita umount DIR` ends a \
             mount",
        ),
        Kind::NoSpace => {
            (exit::NO_SPACE, "free a few blocks: a mount needs room for a folder and a file")
        }
        Kind::Unpurgeable => (exit::WRONG, "the verdict names the obstacle"),
        _ => (
            exit::DEVICE,
            "the kernel's log (`dmesg`) says more; what waits in the spool is purged by the next \
             mount",
        ),
    };
    Failure::new(code, cause).with_remedy(remedy)
}
