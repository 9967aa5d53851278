//! Facts to stdout, as text or JSON; progress to stderr, and only to a terminal.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tacita_block::NewFile;

use crate::exit::{Failure, Outcome};

/// Prints text to stdout. A reader that has gone is no error.
pub(crate) fn print(text: &str) -> Outcome<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints facts in the form asked for.
pub(crate) fn facts(json: bool, value: &serde_json::Value, text: &str) -> Outcome<()> {
    if json { print(&format!("{value:#}\n")) } else { print(text) }
}

/// Facts as lines of a name and a value, a line for each part of an array.
pub(crate) fn lines(facts: &serde_json::Value) -> String {
    let mut text = String::new();
    for (name, value) in facts.as_object().into_iter().flatten() {
        for part in value.as_array().unwrap_or(&vec![value.clone()]) {
            let part = part.as_str().map_or_else(|| part.to_string(), str::to_owned);
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

/// Writes a picture, which is there when it is whole.
pub(crate) fn picture(path: &Path, svg: &str) -> Outcome<()> {
    let write = || -> std::io::Result<()> {
        let new = NewFile::create(path)?;
        new.file().write_all(svg.as_bytes())?;
        new.file().set_permissions(Permissions::from_mode(0o644))?;
        new.publish()
    };
    write().map_err(|e| {
        let Failure { code, cause, .. } = Failure::from(e);
        Failure::new(code, format!("{}: {cause}", path.display()))
    })
}

/// A progress bar over bytes.
pub(crate) fn progress(what: &str, total_bytes: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::stderr());
    let template = "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_message(what.to_owned())
}
