//! The examples of documents run as they are printed: all commands of one in their order, in one shell,
//! and what they print is what stands there.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tacita_testkit::{Watchdog, skip_without, skip_without_fuse};

const TIME_MAX: Duration = Duration::from_mins(20);
/// What the shell prints behind each command, before its exit code.
const MARK: &str = "@@ ended with ";
/// Any lines, or any part of a line.
const ANYTHING: &str = "...";

/// A command, and the lines that it is said to print.
struct Example<'a> {
    command: &'a str,
    prints: Vec<&'a str>,
}

/// The examples in fences: what begins with a dollar is a command.
fn examples(text: &str) -> Vec<Example<'_>> {
    let mut examples: Vec<Example> = Vec::new();
    for fenced in text.split("\n```\n").skip(1).step_by(2) {
        let mut is_example = false;
        for line in fenced.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                is_example = true;
                examples.push(Example { command, prints: Vec::new() });
            } else if is_example {
                examples.last_mut().unwrap().prints.push(line);
            }
        }
    }
    examples
}

fn line_fits(wanted: &str, printed: &str) -> bool {
    match wanted.split_once(ANYTHING) {
        None => wanted == printed,
        Some((before, after)) => printed.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| line_fits(after, rest)))
        }),
    }
}

fn fits(wanted: &[&str], printed: &[&str]) -> bool {
    match (wanted, printed) {
        ([], []) => true,
        ([ANYTHING, rest @ ..], _) => {
            (0..=printed.len()).any(|count| fits(rest, &printed[count..]))
        }
        ([line, wanted @ ..], [first, printed @ ..]) => {
            line_fits(line, first) && fits(wanted, printed)
        }
        _ => false,
    }
}

/// Runs the examples of a document, of which there are more than `more_than`.
fn run(test: &str, document: &str, programs: &[&str], more_than: usize) {
    if skip_without_fuse(test) || skip_without(test, &[&["unshare"], programs].concat()) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: the examples are for root");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let content = fs::read_to_string(file).unwrap();
    let examples = examples(&content);
    assert!(examples.len() > more_than, "{} examples", examples.len());
    let mut script = String::from("exec 2>&1\numask 022\n");
    for example in &examples {
        let _ = writeln!(script, "{}\necho \"{MARK}$?\"", example.command);
    }
    // Processes and mounts of its own, so that nothing is left of them.
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_tacita")).parent().unwrap();
    let path = format!("{}:{}:/usr/sbin:/sbin", program.display(), std::env::var("PATH").unwrap());
    let alone = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"];
    let mut shell = Command::new("unshare");
    shell.args(alone).arg(&script).current_dir(folder.path()).env("PATH", path);
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines = printed.lines();
    for Example { command, prints } in examples {
        let mut said = Vec::new();
        let code = loop {
            let line = lines.next().unwrap_or_else(|| panic!("`{command}` did not end: {printed}"));
            match line.strip_prefix(MARK) {
                Some(code) => break code,
                None => said.push(line),
            }
        };
        assert_eq!(code, "0", "`{command}` said {said:#?}");
        assert!(fits(&prints, &said), "`{command}` is to print {prints:#?}, and printed {said:#?}");
    }
}

#[test]
fn the_examples_of_the_readme_run() {
    run("the_examples_of_the_readme_run", "README.md", &["mkfs.ext4"], 50);
}

#[test]
fn the_examples_about_databases_run() {
    run("the_examples_about_databases_run", "docs/databases.md", &["sqlite3"], 15);
}

#[test]
fn what_is_printed_is_compared() {
    for (wanted, printed, fit) in [
        (&["a"][..], &["a"][..], true),
        (&["a"], &["a", "b"], false),
        (&["a", "b"], &["a"], false),
        (&["a ... c"], &["a b c"], true),
        (&["a ... c"], &["a b"], false),
        (&["...", "c"], &["a", "b", "c"], true),
        (&["a", "..."], &["a"], true),
        (&["a", "...", "c"], &["a", "c", "d"], false),
        (&[], &["a"], false),
    ] {
        assert_eq!(fits(wanted, printed), fit, "{wanted:?} and {printed:?}");
    }
    let text = "a\n```\n$ one # why\n1\n2\n$ two\n```\nb\n```\nfour\n```\nc";
    let found = examples(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].command, &found[0].prints[..]), ("one # why", &["1", "2"][..]));
    assert!(found[1].prints.is_empty());
}
