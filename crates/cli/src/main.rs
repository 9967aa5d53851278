//! `tacita`: one command, a subcommand a system. What it promises to scripts: docs/cli.md.

#![forbid(unsafe_code)]
// It ends the process when whoever reads has gone: see `output::say`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod arguments;
mod dnefs;
mod doctor;
mod exit;
mod faults;
mod fist;
mod helper;
mod hifs;
mod keys;
mod manual;
mod new_folder;
mod oram;
mod output;
mod passwords;
mod pddm;
mod privatefs;
mod purge;
mod recognise;
mod status;
mod tour;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use exit::{Failure, Outcome};

fn main() -> ExitCode {
    tacita_daemon::voice::start();
    if let Err(error) = tacita_daemon::outlive_file_size_limit() {
        log::warn!("{error}");
    }
    // Known before the arguments are, since what is wrong with them is said so, too.
    let json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    let Some(words) = helper::words(std::env::args_os().collect()) else {
        return ExitCode::from(exit::DONE);
    };
    let new_word = new_word(&words);
    let arguments = match parsed(words) {
        Ok(arguments) => arguments,
        Err(error) => return ExitCode::from(refused(&error, json)),
    };
    if let Some(new) = new_word.filter(|_| !json) {
        output::say(&format!(
            "tacita: this is called `tacita {new}` now; the old word still works"
        ));
    }
    if !tacita_secret::ENCRYPTS {
        output::say("tacita: this program was built for measuring: DNEFS encrypts nothing");
    }
    match run(arguments) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(failure) => {
            output::failure(json, &failure);
            ExitCode::from(failure.code)
        }
    }
}

/// The stack on which arguments are read: all that every command can take is described there, whatever the limit
/// (`ulimit -s`) leaves to the process.
const PARSER_STACK_LEN_BYTES: usize = 4 << 20;

/// Arguments, and why they were not taken.
fn parsed(words: Vec<OsString>) -> Result<Arguments, clap::Error> {
    let is_short = rustix::process::getrlimit(rustix::process::Resource::Stack)
        .current
        .is_some_and(|limit| limit < PARSER_STACK_LEN_BYTES as u64);
    let parse = move || Arguments::try_parse_from(&words).map_err(|error| shown(error, &words));
    if !is_short {
        return parse();
    }
    // It has ended before anything is done, as a process has to be of one thread that goes into the background.
    let parser = std::thread::Builder::new().stack_size(PARSER_STACK_LEN_BYTES).spawn(parse);
    match parser.map(std::thread::JoinHandle::join) {
        Ok(Ok(arguments)) => arguments,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => Err(clap::Error::raw(
            clap::error::ErrorKind::Io,
            format!(
                "no thread for the arguments: {error}; raise the limit of the stack (`ulimit -s`)\n"
            ),
        )),
    }
}

/// The same of words that are shown as all names are: what is wrong with them names them as they are.
fn shown(error: clap::Error, words: &[OsString]) -> clap::Error {
    let words = words.iter().map(output::shown_name);
    Arguments::try_parse_from(words).err().filter(|_| error.use_stderr()).unwrap_or(error)
}

/// What a command is called now that was typed by its old name.
fn new_word(words: &[OsString]) -> Option<&'static str> {
    const OLD: [([&str; 2], &str); 1] = [(["purge", "suits"], "purge probe")];
    OLD.iter()
        .find(|(old, _)| words.get(1..).is_some_and(|w| w.starts_with(&old.map(OsString::from))))
        .map(|(_, new)| *new)
}

/// Prints why arguments were not taken, and tells the exit code.
fn refused(error: &clap::Error, json: bool) -> u8 {
    // Help and version are no errors.
    if json && error.use_stderr() {
        let text = error.to_string();
        let text = text.trim_end().trim_start_matches("error: ");
        output::failure(true, &Failure::usage(text));
        return exit::USAGE;
    }
    match error.print() {
        _ if error.use_stderr() => exit::USAGE,
        // A closed pipe is nobody's business.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let failure = output::unheard(error);
            output::failure(json, &failure);
            failure.code
        }
        _ => exit::DONE,
    }
}

fn run(arguments: Arguments) -> Outcome<()> {
    // That one tells what others would leave.
    if !matches!(arguments.command, Command::Doctor { .. }) {
        tacita_daemon::leave_no_core_dumps();
    }
    match arguments.command {
        Command::Tour(tour) => tour::run(&tour),
        Command::Umount { lazy: true, dir } => {
            Ok(tacita_vfs::fuse::detach(&dir).map_err(|e| exit::of_mounted(&e))?)
        }
        Command::Umount { dir, .. } => {
            // A folder of a device that is hidden perhaps is closed, not unmounted: what the kernel
            // says of who uses it would tell.
            if let Some(closed) = pddm::close_folder(&dir) {
                return closed;
            }
            let mut tell = |text: &str| output::say(&format!("tacita: {text}"));
            Ok(tacita_vfs::fuse::unmount_telling(&dir, &mut tell)
                .map_err(|e| exit::of_mounted(&e))?)
        }
        Command::Remount { options, dir } => {
            Ok(tacita_vfs::fuse::remount(&dir, &options).map_err(|e| exit::of_remount(&e))?)
        }
        Command::Sync { target } => status::sync(&target),
        Command::Status { target: Some(target), log, json } => status::run(&target, log, json),
        Command::Status { target: None, json, .. } => status::all(json),
        Command::Check { file, from, json } => recognise::check(file, from, json),
        Command::Info { file, json } => recognise::info(file, json),
        Command::Doctor { target, json } => doctor::run(&target, json),
        Command::Hifs(command) => hifs::run(&command),
        Command::Purge(command) => purge::run(&command),
        Command::Pddm(command) => pddm::run(&command),
        Command::Dnefs(command) => dnefs::run(&command),
        Command::Oram(command) => oram::run(&command),
        Command::Privatefs(command) => privatefs::run(&command),
        Command::Fist(command) => fist::run(&command),
        Command::Manual { dir } => manual::write(&dir),
    }
}
