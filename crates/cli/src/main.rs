//! `tacita`: one command, a subcommand a system. What it promises to scripts: docs/cli.md.

#![forbid(unsafe_code)]

mod arguments;
mod dnefs;
mod exit;
mod fist;
mod hifs;
mod manual;
mod new_folder;
mod oram;
mod output;
mod passwords;
mod pddm;
mod privatefs;
mod purge;
mod status;
mod tour;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use exit::Outcome;

fn main() -> ExitCode {
    tacita_daemon::voice::start();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors; a closed pipe is nobody's business.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::DONE });
        }
    };
    if !tacita_secret::ENCRYPTS {
        eprintln!("tacita: this program was built for measuring: DNEFS encrypts nothing");
    }
    match run(&arguments) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(failure) => {
            eprintln!("tacita: {}", failure.text());
            ExitCode::from(failure.code)
        }
    }
}

fn run(arguments: &Arguments) -> Outcome<()> {
    match &arguments.command {
        Command::Tour(tour) => tour::run(tour),
        Command::Umount { dir } => {
            // A folder of a device that is hidden perhaps is closed, not unmounted: what the kernel
            // says of who uses it would tell.
            if let Some(closed) = pddm::close_folder(dir) {
                return closed;
            }
            let mut tell = |text: &str| eprintln!("tacita: {text}");
            Ok(tacita_vfs::fuse::unmount_telling(dir, &mut tell).map_err(|e| exit::of_mount(&e))?)
        }
        Command::Sync { target } => status::sync(target),
        Command::Status { target, log, json } => status::run(target, *log, *json),
        Command::Hifs(command) => hifs::run(command),
        Command::Purge(command) => purge::run(command),
        Command::Pddm(command) => pddm::run(command),
        Command::Dnefs(command) => dnefs::run(command),
        Command::Oram(command) => oram::run(command),
        Command::Privatefs(command) => privatefs::run(command),
        Command::Fist(command) => fist::run(command),
        Command::Manual { dir } => manual::write(dir),
    }
}
