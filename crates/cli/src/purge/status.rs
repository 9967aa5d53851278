//! `tacita purge status`.

use std::fmt::Write;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use serde_json::Value;
use tacita_purge::{FINISH_ATTRIBUTE, STATUS_ATTRIBUTE};

use crate::exit::{self, Failure, Outcome};
use crate::output;
use crate::sizes;

/// The kernel hands on no more of an attribute.
const STATUS_LEN_MAX: usize = 64 << 10;

pub(super) fn run(dir: &Path, finish: bool, json: bool) -> Outcome<()> {
    let refuse = |errno: Errno| match errno {
        Errno::NOENT => Failure::usage(format!("{}: no such folder", dir.display())),
        Errno::NODATA | Errno::OPNOTSUPP => {
            Failure::usage(format!("{}: not the root of a purge mount", dir.display()))
                .with_remedy("`findmnt -t fuse.purge` lists those that there are")
        }
        errno => {
            let cause = format!("{}: {}", dir.display(), std::io::Error::from(errno));
            Failure::new(exit::DEVICE, cause).with_remedy(
                "what could not be purged waits in the spool; the next mount tries again, and the \
                 kernel's log (`dmesg`) says more",
            )
        }
    };
    let mut bytes = vec![0_u8; STATUS_LEN_MAX];
    let mut read = || -> Result<Value, Errno> {
        let len = getxattr(dir, STATUS_ATTRIBUTE, &mut bytes[..])?;
        serde_json::from_slice(&bytes[..len]).map_err(|_| Errno::IO)
    };
    read().map_err(refuse)?;
    let finished =
        if finish { setxattr(dir, FINISH_ATTRIBUTE, b"1", XattrFlags::empty()) } else { Ok(()) };
    let status = read().map_err(refuse)?;
    output::facts(json, &status, &text(&status))?;
    finished.map_err(refuse)
}

fn text(status: &Value) -> String {
    let number = |key: &str| status[key].as_u64().unwrap_or(0);
    let size = |key: &str| sizes::show(number(key));
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
        "purged: {} files, {} folders, {} cuts, {} attributes",
        number("files"),
        number("folders"),
        number("cuts"),
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
    if status["flash"] == true {
        text += "the device does not rotate: flash may keep old copies\n";
    }
    let last = status["last"].as_array().map(Vec::as_slice).unwrap_or_default();
    for verdict in last.iter().rev().take(10).rev() {
        let word = verdict["content"].as_str().unwrap_or("?");
        let why = verdict["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        let _ = writeln!(text, "  inode {}: {word}{why}", verdict["inode"]);
    }
    text
}
