//! `tacita purge status`.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use tacita_block::size;

use crate::exit::{Failure, Outcome};
use crate::output::{self, shown_name};
use crate::status::{ask, daemon_of};

pub(super) fn run(dir: &Path, finish: bool, json: bool) -> Outcome<()> {
    let daemon = || daemon_of(dir);
    let facts = || -> Outcome<Value> {
        let mut status = ask(daemon()?, "status", Value::Null)?;
        if status["system"] != "purge" {
            return Err(Failure::usage(format!("{}: not a purge mount", shown_name(dir)))
                .with_remedy("`findmnt -t fuse.tacita-purge` lists the mounts of purge"));
        }
        Ok(status["facts"].take())
    };
    facts()?;
    let finished = if finish { ask(daemon()?, "finish", Value::Null).map(drop) } else { Ok(()) };
    let facts = facts()?;
    let heard = output::facts(json, &facts, &text(&facts));
    finished?;
    heard
}

fn text(status: &Value) -> String {
    let number = |key: &str| status[key].as_u64().unwrap_or(0);
    let size = |key: &str| size::show(number(key));
    let mut text = String::new();
    let manner = if status["asynchronous"] == true { "in the background" } else { "at once" };
    let _ = writeln!(
        text,
        "{}, method {}, {manner}",
        status["file_system"].as_str().unwrap_or("?"),
        status["method"].as_str().unwrap_or("?"),
    );
    let _ = writeln!(
        text,
        "purged: {} files, {} folders, {} ranges, {} attributes",
        number("files"),
        number("folders"),
        number("ranges"),
        number("attributes")
    );
    let _ = writeln!(
        text,
        "bytes: {} deleted, {} overwritten, {} never stored",
        size("bytes_deleted"),
        size("bytes_overwritten"),
        size("bytes_in_memory")
    );
    let _ = writeln!(
        text,
        "verdicts: {} verified in place, {} in place, {} never stored, {} unproven, {} not in \
         place, {} kept",
        number("verified"),
        number("in_place"),
        number("never_stored"),
        number("unproven"),
        number("not_in_place"),
        number("kept")
    );
    if number("long_links") > 0 {
        let _ = writeln!(text, "targets of long symbolic links left: {}", number("long_links"));
    }
    let _ = writeln!(
        text,
        "pending: {} queued, {} in use or held; names and journal: {}; {} epochs",
        number("queued"),
        number("in_use_or_held"),
        if status["idle"] == true { "clear" } else { "at the end of the epoch" },
        number("epochs")
    );
    if let Some(keeper) = status["keeps_copies"].as_str() {
        let _ = writeln!(text, "{keeper}");
    }
    let last = status["last"].as_array().map(Vec::as_slice).unwrap_or_default();
    for verdict in last.iter().rev().take(10).rev() {
        let word = verdict["content"].as_str().unwrap_or("?");
        let why = verdict["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        let _ = writeln!(text, "  inode {}: {word}{why}", verdict["inode"]);
    }
    text
}
