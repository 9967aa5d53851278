//! Every command that answers in JSON answers as docs/spec/json.schema.json says: `ask.sh` asks, with real
//! mounts and servers, and `judge.py` compares. What a command fails with is compared, too.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tacita_testkit::{Watchdog, skip_without, skip_without_fuse};

const TIME_MAX: Duration = Duration::from_mins(20);
const TACITA: &str = env!("CARGO_BIN_EXE_tacita");
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/answers");
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/json.schema.json");
const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Commands whose manual has `--json`.
fn commands_with_json(folder: &Path) -> BTreeSet<String> {
    let made = Command::new(TACITA).arg("manual").arg(folder).output().unwrap();
    assert!(made.status.success());
    let pages = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|section| section == "1"));
    let answering = pages.filter(|page| fs::read_to_string(page).unwrap().contains(r"\-\-json"));
    let name = |page: &Path| page.file_stem().unwrap().to_str().unwrap().replace('-', " ");
    answering.map(|page| name(&page).trim_start_matches("tacita ").to_owned()).collect()
}

fn judged(answers: &Path) -> Output {
    let mut judge = Command::new("/usr/bin/python3");
    judge.arg(format!("{HERE}/judge.py")).arg(SCHEMA).stdin(File::open(answers).unwrap());
    judge.output().unwrap()
}

/// Whether Python has what the judge needs.
fn skip_without_judge(test: &str) -> bool {
    let asked = Command::new("/usr/bin/python3").args(["-c", "import jsonschema"]).output();
    let is_there = asked.is_ok_and(|asked| asked.status.success());
    if !is_there {
        eprintln!("SKIPPED: {test}: python3-jsonschema is not installed");
    }
    !is_there
}

#[test]
fn answers_are_as_their_schema_says() {
    let test = "answers_are_as_their_schema_says";
    if skip_without_fuse(test) || skip_without_judge(test) {
        return;
    }
    if skip_without(test, &["mkfs.ext4", "mount", "unshare"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can mount a loop device");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (folder, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let answers = kept.path().join("answers");
    // Processes and mounts of its own, so that nothing is left of them.
    let mut asking = Command::new("unshare");
    asking.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"]);
    asking.arg(format!("{HERE}/ask.sh")).args([TACITA, CRATES]).current_dir(folder.path());
    let asked = asking.stdin(Stdio::null()).stdout(File::create(&answers).unwrap()).output();
    let asked = asked.unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));

    let judged = judged(&answers);
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    let judged = String::from_utf8(judged.stdout).unwrap();
    let mut wanted = commands_with_json(&kept.path().join("manual"));
    wanted.insert("failure".to_owned());
    assert_eq!(judged.lines().map(str::to_owned).collect::<BTreeSet<_>>(), wanted);
}

#[test]
fn what_a_schema_does_not_say_is_found() {
    if skip_without_judge("what_a_schema_does_not_say_is_found") {
        return;
    }
    let right = r#"{"error": {"cause": "c", "code": 2, "remedy": null}, "schema": 1}"#;
    let folder = tempfile::tempdir().unwrap();
    for (answer, is_right) in [
        (right.to_owned(), true),
        (right.replace(r#""code": 2"#, r#""code": 3"#), false),
        (right.replace(r#""code": 2"#, r#""code": "2""#), false),
        (right.replace(r#""remedy": null"#, r#""more": 1, "remedy": null"#), false),
        (right.replace(r#", "remedy": null"#, ""), false),
        (right.replace(r#""schema": 1"#, r#""schema": 2"#), false),
        ("nothing".to_owned(), false),
        (String::new(), false),
    ] {
        let answers = folder.path().join("answers");
        fs::write(&answers, format!("{answer}\n@@ failure 2\n")).unwrap();
        assert_eq!(judged(&answers).status.success(), is_right, "{answer}");
    }
}
