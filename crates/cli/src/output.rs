//! Facts to stdout, as text or JSON; progress to stderr, and only to a terminal.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use tacita_block::{FileDevice, NewFile};
pub(crate) use tacita_daemon::voice::{say, say_when_serving, shown, shown_name};

use crate::exit::{self, Failure, Outcome};
use crate::recognise::{self, Made};

/// Prints text to stdout. A reader that has gone is no error.
pub(crate) fn print(text: &str) -> Outcome<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unheard(error)),
        _ => Ok(()),
    }
}

/// Why stdout did not take what was said.
pub(crate) fn unheard(error: std::io::Error) -> Failure {
    of_file(Path::new("standard output"), error)
}

/// The version of what is said in JSON: it grows when a field changes its meaning or goes, and stays
/// when one is added.
const SCHEMA: u32 = 1;

/// A value with the version, as text; of a list each part has it.
pub(crate) fn json(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields = fields.clone();
            fields.insert("schema".to_owned(), SCHEMA.into());
            Value::Object(fields)
        }
        Value::Array(parts) => parts.iter().map(json).collect(),
        _ => value.clone(),
    }
}

/// Prints facts in the form asked for.
pub(crate) fn facts(as_json: bool, value: &Value, text: &str) -> Outcome<()> {
    if as_json { print(&format!("{:#}\n", json(value))) } else { print(&shown(text)) }
}

/// Prints facts of something that has been done, and is done also where they cannot be told.
pub(crate) fn done(as_json: bool, value: &Value, text: &str) -> Outcome<()> {
    facts(as_json, value, text).map_err(but_done)
}

/// What is said where standard output does not take what was done.
pub(crate) fn but_done(unheard: Failure) -> Failure {
    let cause = format!("what was asked for has been done, and cannot be told: {}", unheard.cause);
    Failure { cause, ..unheard }
}

/// Tells on stderr why a command has failed, in the form asked for.
pub(crate) fn failure(as_json: bool, failure: &Failure) {
    let failure = &Failure { cause: naming_given(&failure.cause), ..failure.clone() };
    if as_json {
        let Failure { code, cause, remedy } = failure;
        let error = json!({ "code": code, "cause": cause, "remedy": remedy });
        say(&format!("{:#}", json(&json!({ "error": error }))));
    } else {
        say(&format!("tacita: {}", failure.text()));
    }
}

/// Text that names words of the command line as all names are shown: errors from beneath have lost bytes that are not
/// UTF-8.
fn naming_given(text: &str) -> String {
    let words = std::env::args_os().filter(|word| word.to_str().is_none());
    words.fold(text.to_owned(), |text, word| {
        text.replace(&shown_name(&*word.to_string_lossy()), &shown_name(&word))
    })
}

/// Facts as lines of a name and a value, a line for each part of an array.
pub(crate) fn lines(facts: &Value) -> String {
    let mut text = String::new();
    for (name, value) in facts.as_object().into_iter().flatten() {
        for part in value.as_array().unwrap_or(&vec![value.clone()]) {
            // A path that is not UTF-8 is shown as well as it can be.
            let part = part
                .as_str()
                .or_else(|| part["shown"].as_str())
                .map_or_else(|| part.to_string(), shown_name);
            let _ = writeln!(text, "{:18} {part}", name.replace('_', " "));
        }
    }
    text
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('?');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A file for what a command puts out, which is there when it is published, unless another has come
/// meanwhile. It takes no name from an image, a volume, a key or anything else that was made to be kept,
/// not even by force, nor from what a loop device shows that is mounted: `again` is what the same command
/// has put out before, if that is known by how it begins.
pub(crate) fn beginning(path: &Path, again: Option<Made>) -> Outcome<NewFile> {
    let name = shown_name(path);
    if path.exists() && !path.is_file() {
        return Err(
            Failure::usage(format!("{name}: not a regular file")).with_remedy("name a new file")
        );
    }
    // It takes no other name than that of the file that is looked at.
    tacita_block::remove_left(path);
    let new = NewFile::create(path).map_err(|e| of_file(path, e))?;
    new.refuse_held().map_err(|e| exit::of_device(path, &e))?;
    match recognise::made_at(path).filter(|made| Some(*made) != again) {
        Some(made) => Err(Failure::usage(format!("{name}: this is {}", made.article()))
            .with_remedy("name a new file, or remove this one if nobody needs it")),
        None => Ok(new),
    }
}

/// Writes a file, which is there when it is whole.
pub(crate) fn new_file(path: &Path, text: &str) -> Outcome<()> {
    written(path, beginning(path, None)?, text)
}

/// Writes a file that was begun before.
pub(crate) fn written(path: &Path, new: NewFile, text: &str) -> Outcome<()> {
    fill(path, &new, text)?;
    name(path, new)
}

/// Writes what will be in a file that was begun before.
pub(crate) fn fill(path: &Path, new: &NewFile, text: &str) -> Outcome<()> {
    let write = || -> std::io::Result<()> {
        new.file().write_all(text.as_bytes())?;
        new.file().set_permissions(Permissions::from_mode(0o644))?;
        // What has no room is heard of here, and not when it gets its name.
        new.file().sync_all()
    };
    write().map_err(|e| of_file(path, e))
}

/// Gives a file that was filled its name.
pub(crate) fn name(path: &Path, new: NewFile) -> Outcome<()> {
    // It may have been mounted since.
    new.refuse_held().map_err(|e| exit::of_device(path, &e))?;
    new.publish().map_err(|e| of_file(path, e))
}

/// Gives a new image its name, and overwrites what it replaces.
pub(crate) fn publish(image: &FileDevice) -> tacita_block::Result<()> {
    let bar = progress("overwriting what it replaces", 0);
    let published = image.publish(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    published
}

/// A failure with a file.
pub(crate) fn of_file(path: &Path, error: std::io::Error) -> Failure {
    if error.kind() == ErrorKind::AlreadyExists {
        let text =
            format!("{}: it has come since this command began, and is as it was", shown_name(path));
        return Failure::usage(text).with_remedy("name another file, or begin again");
    }
    if error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
        && let Some(odd) = exit::odd_at(path)
    {
        return Failure::new(exit::DEVICE, format!("{}: this is {odd}", shown_name(path)))
            .with_remedy("name a file");
    }
    let remedy = match error.kind() {
        ErrorKind::InvalidInput => "name a file",
        _ => exit::MEDIUM,
    };
    let failure = Failure::from(error);
    Failure { cause: format!("{}: {}", shown_name(path), failure.cause), ..failure }
        .or_remedy(remedy)
}

/// All that a file holds, or a pipe brings.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a device that has no end, which would fill the memory.
pub(crate) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if path.metadata()?.file_type().is_char_device() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "a device that has no end"));
    }
    std::fs::read(path)
}

/// Something that moves while it is at work, nobody knows for how long.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let spinner = spinner.with_message(what.to_owned());
    styled(&spinner, "   {spinner} {msg}, {elapsed}");
    // What is done before the thread that moves it has begun was at work, too.
    spinner.tick();
    spinner.enable_steady_tick(SPINNER_STEP);
    spinner
}

/// A progress bar over bytes.
pub(crate) fn progress(what: &str, total_bytes: u64) -> ProgressBar {
    bar(what, total_bytes, "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
}

/// A progress bar over what is counted, whose number is told later.
pub(crate) fn counter(what: &str) -> ProgressBar {
    bar(what, 0, "{msg} {bar:30} {pos}/{len} {eta}")
}

/// How often something moves.
const SPINNER_STEP: Duration = Duration::from_millis(100);

/// Columns that a bar takes, with its numbers and without its words.
const BAR_COLUMNS: usize = 30 + 42;

fn bar(what: &str, of: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr());
    let columns = tcgetwinsize(std::io::stderr()).map_or(usize::MAX, |size| size.ws_col.into());
    // A line that is longer than the terminal's would be drawn anew below itself.
    let fits = columns == 0 || what.len() + BAR_COLUMNS <= columns;
    let template = if fits { template } else { "{percent:>3}% {wide_msg}" };
    styled(&bar, template);
    bar.with_message(what.to_owned())
}

/// How it looks, which it has to know before anything is drawn: otherwise that is a bar over the whole line.
fn styled(bar: &ProgressBar, template: &str) {
    let Ok(style) = ProgressStyle::with_template(template) else { return };
    let is_ascii = !names_utf8(|variable| std::env::var(variable).ok());
    bar.set_style(if is_ascii { style.progress_chars("#>.").tick_chars("|/-\\ ") } else { style });
}

/// Whether the locale that is set says that the terminal shows more than ASCII.
fn names_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_what_a_terminal_shows() {
        let of = |set: &[(&str, &str)]| {
            names_utf8(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert!(of(&[("LANG", "de_DE.UTF-8")]) && of(&[("LANG", "C"), ("LC_CTYPE", "C.utf8")]));
        assert!(of(&[("LC_ALL", ""), ("LANG", "C.UTF-8@posix")]));
        assert!(!of(&[]) && !of(&[("LANG", "C")]) && !of(&[("LANG", "de_DE.ISO-8859-1")]));
        assert!(!of(&[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")]));
    }
}
