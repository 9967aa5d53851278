//! `tacita fist`, as it is typed.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn tacita(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Small sources of the instrumenter's own tests.
fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fist/tests")
}

fn instrument(sample: &str, extension: &str, out: &Path, more: &[&str]) -> Output {
    let source = samples().join("pitfalls").join(sample);
    let headers = samples().join("kernel");
    let mut arguments = vec!["fist", "instrument", text(&source), extension, "--out", text(out)];
    arguments.extend(["--headers", text(&headers)]);
    arguments.extend(more);
    tacita(&arguments)
}

#[test]
fn vectors_are_shown_with_their_handlers() {
    let source = samples().join("pitfalls/conditions.c");
    let done = tacita(&["fist", "vectors", text(&source), "--json"]);
    assert_eq!(done.status.code(), Some(0));
    let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(facts["vectors"][0]["name"], "sample_file_operations");
    assert_eq!(facts["vectors"][0]["type"], "file_operations");
    assert_eq!(facts["vectors"][0]["entries"][3]["owner"], "kernel");
    assert_eq!(facts["returns"], 3);
    assert_eq!(facts["not_understood_count"], 0);
    let done = tacita(&["fist", "vectors", text(&source)]);
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.contains("llseek") && said.contains("generic_llseek"), "{said}");
}

#[test]
fn a_new_file_system_and_its_patch_are_written() {
    let work = tempfile::tempdir().unwrap();
    let (out, patch) = (work.path().join("out"), work.path().join("a.diff"));
    let done = instrument("returns.c", "trace", &out, &["--json", "--diff", text(&patch)]);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(facts["returns_covered"], 7);
    assert_eq!(facts["functions_edited"], 2);
    for file in ["returns.c", "fist.h", "fist_names.h", "Makefile"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let patch = fs::read_to_string(patch).unwrap();
    assert!(patch.starts_with("--- ") && patch.contains("\n+++ b/returns.c\n"), "{patch}");
    let again = instrument("returns.c", "trace", &out, &[]);
    assert_eq!(again.status.code(), Some(2), "the folder is there already");
    // What is said of building is for a shell anywhere.
    let headers = samples().join("kernel");
    fs::copy(samples().join("pitfalls/returns.c"), work.path().join("returns.c")).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(["fist", "instrument", "returns.c", "trace", "--out", "it's new", "--json"])
        .args(["--headers", text(&headers)])
        .current_dir(work.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
    let shown =
        format!("for word in {}; do echo \"$word\"; done", facts["build"].as_str().unwrap());
    let shown = Command::new("sh").args(["-c", &shown]).current_dir("/").output().unwrap();
    let folder = work.path().canonicalize().unwrap().join("it's new");
    let words = String::from_utf8(shown.stdout).unwrap();
    assert!(words.lines().any(|word| word == format!("M={}", text(&folder))), "{words}");
}

/// What is made is put neither in place of what it is made from nor within it, and not at all if the patch
/// has no place.
#[test]
fn sources_stay_as_they_are() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name);
    let source = at("source");
    fs::create_dir(&source).unwrap();
    fs::copy(samples().join("pitfalls/returns.c"), source.join("returns.c")).unwrap();
    fs::write(at("own.fist"), tacita_fist::shipped("trace").unwrap()).unwrap();
    let headers = samples().join("kernel");
    let make = |out: &Path, patch: &Path, extension: &str| {
        let arguments = ["fist", "instrument", text(&source), extension, "--out", text(out)];
        let more = ["--headers", text(&headers), "--diff", text(patch)];
        let done = tacita(&[&arguments[..], &more].concat());
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (own, patch) = (at("own.fist"), at("patch"));
    for (out, diff, code) in [
        (source.join("out"), &patch, 2),
        (source.join("new/out"), &patch, 2),
        (at("out"), &at("out"), 2),
        (at("out"), &own, 2),
        (at("out"), &source.join("returns.c"), 2),
        (at("out"), &at("none/patch"), 4),
    ] {
        let (ended, said) = make(&out, diff, text(&own));
        assert_eq!(ended, code, "{said}");
        assert!(!out.exists() && !patch.exists());
    }
    let endless = make(&at("out"), &patch, "/dev/zero");
    assert_eq!(endless.0, 2, "{}", endless.1);
    assert_eq!(fs::read_dir(&source).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(&own).unwrap(), tacita_fist::shipped("trace").unwrap());
    assert_eq!(make(&at("out"), &patch, text(&own)).0, 0);
}

#[test]
fn what_is_refused_is_shown_with_its_place_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let out = work.path().join("out");
    let extension = work.path().join("bad\none.fist");
    fs::write(&extension, "%%\n%op:unlnk:precall { }\n").unwrap();
    let done = instrument("returns.c", text(&extension), &out, &[]);
    assert_eq!(done.status.code(), Some(2));
    let said = String::from_utf8(done.stderr).unwrap();
    let cause = "bad\\u{a}one.fist:2:1: there is no operation unlnk; is unlink meant?";
    assert!(said.contains(cause), "{said}");
    assert!(said.contains("\n    %op:unlnk:precall { }\n    ^^^"), "{said}");
    assert!(!out.exists());

    let done = instrument("returns.c", "no-such-extension", &out, &[]);
    assert_eq!(done.status.code(), Some(4));
    assert!(String::from_utf8(done.stderr).unwrap().contains("trace, purge, readonly"));

    // What has the name of one of the program's and cannot be read is not taken for that.
    std::os::unix::fs::symlink("trace", work.path().join("trace")).unwrap();
    let source = samples().join("pitfalls/returns.c");
    let words = ["fist", "instrument", text(&source), "trace", "--out", text(&out), "--headers"];
    let done = Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(words)
        .arg(samples().join("kernel"))
        .current_dir(work.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(4), "{done:?}");
    fs::remove_file(work.path().join("trace")).unwrap();

    let source = work.path().join("a.c");
    fs::copy(samples().join("pitfalls/returns.c"), &source).unwrap();
    let done = tacita(&["fist", "instrument", text(&source), "trace", "--out", text(&out)]);
    assert_eq!(done.status.code(), Some(7), "there are no headers around it");
    assert!(String::from_utf8(done.stderr).unwrap().contains("--headers"));

    let left: Vec<_> = fs::read_dir(work.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
