//! What second readers of formats say: a line of JSON for each path, and a file for each content.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tacita_vfs::FileType;

use crate::history::{Seen, Tree};

/// By their numbers, from 1.
const KINDS: [FileType; 7] = [
    FileType::File,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
];

/// Bytes written as hexadecimal digits.
///
/// # Panics
/// If they are not.
pub fn from_hex(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits")).collect()
}

/// What a reader has printed and extracted to `folder`, as programs see it; besides, the lines by
/// their paths.
///
/// # Panics
/// If it has failed, or printed something else.
pub fn tree_of(output: &Output, folder: &Path) -> (Tree, BTreeMap<Vec<u8>, Value>) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the second reader says: {said}");
    let printed = std::str::from_utf8(&output.stdout).expect("it prints JSON");
    let mut lines = BTreeMap::new();
    for line in printed.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        lines.insert(from_hex(text(&line["path"])), line);
    }
    let tree = lines.iter().map(|(path, line)| (path.clone(), seen(line, folder))).collect();
    (tree, lines)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().expect("a number")).expect("a short one")
}

fn seen(line: &Value, folder: &Path) -> Seen {
    let kind = KINDS[number(&line["kind"]) as usize - 1];
    let content = match kind {
        FileType::File | FileType::Symlink => {
            std::fs::read(folder.join(text(&line["id"]))).expect("what was extracted")
        }
        _ => Vec::new(),
    };
    let attributes = line["attributes"].as_object().expect("names and values").iter();
    let attribute = |(name, value): (&String, &Value)| {
        (OsString::from_vec(from_hex(name)), from_hex(text(value)))
    };
    Seen {
        kind,
        perm: u16::try_from(number(&line["mode"])).expect("bits of a mode"),
        owner: (number(&line["uid"]), number(&line["gid"])),
        rdev: number(&line["rdev"]),
        content,
        xattrs: attributes.map(attribute).collect(),
        same_as: from_hex(text(&line["same_as"])),
    }
}
