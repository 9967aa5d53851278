//! `tacita purge ...`.

mod mount;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use tacita_clock::Cancellation;
use tacita_daemon::Interrupts;
use tacita_purge::{Kind, Removal, RemovalOptions, Suitability, Watcher};

use crate::arguments::Purge as Command;
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};

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
    crate::status::all_looked_at(paths)?;
    let bar = output::progress("overwriting", 0);
    let told = bar.clone();
    let watcher = Watcher::new(move |done, of| {
        told.set_length(of);
        told.set_position(done);
    });
    let (stop, signal) = stop_on_signal()?;
    let mut removal = Removal::new(RemovalOptions { watcher, stop, ..options });
    for path in paths {
        removal.purge(path);
    }
    bar.finish_and_clear();
    let verdicts = removal.finish();
    let told = verdicts.iter().try_for_each(|verdict| {
        let line = if json {
            output::json(&verdict.json()).to_string()
        } else {
            output::shown(&verdict.text()).into_owned()
        };
        output::print(&format!("{line}\n"))
    });
    let broken = verdicts.iter().filter(|verdict| !verdict.holds()).count();
    let cause = format!("{broken} of {} not purged as asked", verdicts.len());
    if removal.is_cut_short() {
        // Who has gone with the terminal hears no verdicts.
        let code = exit::of_signal(signal.load(Ordering::Acquire));
        return Err(Failure::new(code, format!("interrupted; {cause}"))
            .with_remedy("each verdict says what is left; the same command again goes on"));
    }
    if broken == 0 {
        return told.map_err(output::but_done);
    }
    Err(match removal.failure() {
        Some(kind) => of_refusal(kind, removal.refusal(), cause),
        None => Failure::new(exit::WRONG, cause).with_remedy("each verdict says what may be left"),
    })
}

/// What a signal ends the run by, and the number of the signal then. A second one ends the process at
/// once: who signals twice means it.
fn stop_on_signal() -> Outcome<(Cancellation, Arc<AtomicI32>)> {
    let mut interrupts = Interrupts::watch_unless_ignored()?;
    let (stop, signal) = (Cancellation::default(), Arc::new(AtomicI32::new(0)));
    let (stopped, number) = (stop.clone(), Arc::clone(&signal));
    std::thread::Builder::new().name("tacita-signals".to_owned()).spawn(move || {
        if let Some(first) = interrupts.wait_for_number() {
            number.store(first, Ordering::Release);
            stopped.cancel();
        }
        if let Some(second) = interrupts.wait_for_number() {
            std::process::exit(exit::of_signal(second).into());
        }
    })?;
    Ok((stop, signal))
}

fn probe(path: &Path, json: bool) -> Outcome<()> {
    crate::status::looked_at(path)?;
    let found = Suitability::of(path).map_err(|e| of_purge(&e))?;
    output::facts(json, &found.json(), &found.text())?;
    match found.reason() {
        None => Ok(()),
        Some(reason) => {
            Err(Failure::new(exit::NOT_HERE, format!("{}: {reason}", shown_name(path)))
                .with_remedy(ELSEWHERE))
        }
    }
}

fn of_purge(error: &tacita_purge::Error) -> Failure {
    of_refusal(error.kind(), error.errno(), shown_name(error.to_string()))
}

/// A failure of that kind, for which the system has given this reason.
fn of_refusal(kind: Kind, errno: Option<Errno>, cause: String) -> Failure {
    let failure = of_kind(kind, cause);
    // What the other kinds say is nearer to the cause.
    let refusal = errno.filter(|_| kind == Kind::Io).map(std::io::Error::from);
    let Some(refusal) = refusal else { return failure };
    let code = tacita_daemon::code_for(&refusal).unwrap_or(failure.code);
    let remedy = tacita_daemon::remedy_for(&refusal).map(str::to_owned).or(failure.remedy);
    Failure { code, remedy, cause: failure.cause }
}

fn of_kind(kind: Kind, cause: String) -> Failure {
    let (code, remedy) = match kind {
        Kind::Invalid => (exit::USAGE, "see `tacita purge --help`"),
        Kind::NotFound => (exit::USAGE, "check the path, and that what holds it is mounted"),
        Kind::Unsuitable => (exit::NOT_HERE, ELSEWHERE),
        Kind::NotPermitted => (exit::NOT_HERE, tacita_daemon::remedy_where_refused()),
        Kind::ReadOnly => (exit::NOT_HERE, "`mount -o remount,rw` makes it writable"),
        Kind::InUse => (
            exit::BUSY,
            "end the programs that use it (`fuser -v PATH` names them); `tacita umount DIR` ends a \
             mount",
        ),
        Kind::NoSpace => {
            (exit::NO_SPACE, "free a few blocks: what is purged needs room for names and records")
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
