//! What a daemon says of a server that is caught, and of what could never be put out.

use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tacita_testkit::skip_without;

use crate::{Bench, Served, command, tacita};

/// Whatever programs hear of it.
#[test]
fn an_export_says_why_nothing_goes_any_more() {
    let test = "an_export_says_why_nothing_goes_any_more";
    if skip_without(test, &["nbdcopy"]) {
        return;
    }
    let bench = Bench::new();
    bench.serve();
    bench.ends("bench SERVER --key KEY --queries 60", 0);
    bench.ends("export SERVER --key KEY --nbd DISK", 0);
    let failure = || {
        let status = tacita(&["status", "--json", &bench.path("disk")]);
        serde_json::from_slice::<Value>(&status.stdout).unwrap()["facts"]["failure"].clone()
    };
    assert_eq!(failure(), Value::Null);
    alter_filters(Path::new(&bench.path("store/generation")));
    let copy = Command::new("nbdcopy").args([&bench.uri(), "null:"]).stdin(Stdio::null()).output();
    assert!(!copy.unwrap().status.success(), "it was believed");
    let said = failure().to_string();
    assert!(said.contains("not what was sealed"), "{said}");
    bench.ends("close DISK", 0);
    bench.ends("check SERVER --key KEY", 1);
}

/// It says so, and leaves nothing where the anchor should be.
#[test]
fn a_check_without_an_anchor_says_that_it_has_compared_nothing() {
    let bench = Bench::new();
    bench.serve();
    for (option, name) in [("--anchor", "own"), ("--shared-anchor", "shared")] {
        let anchor = format!("{option} {}", bench.path(name));
        let check = || {
            let done = bench.ends(&format!("check SERVER --key KEY {anchor} --json"), 0);
            let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
            let said = String::from_utf8(done.stderr).unwrap();
            (facts["compared_with_anchor"].clone(), said.contains("compared with nothing"))
        };
        assert_eq!(check(), (false.into(), true), "{anchor}");
        assert!(!Path::new(&bench.path(name)).exists(), "{anchor}");
        bench.ends(&format!("bench SERVER --key KEY {anchor} --queries 5"), 0);
        assert_eq!(check(), (true.into(), false), "{anchor}");
    }
}

/// As a server that lies.
fn alter_filters(generations: &Path) {
    for generation in fs::read_dir(generations).unwrap() {
        let filter = generation.unwrap().path().join("filter-00000000");
        // Of one that is being built there may be none yet.
        let Ok(before) = fs::read(&filter) else { continue };
        fs::write(&filter, before.iter().map(|byte| !byte).collect::<Vec<_>>()).unwrap();
    }
}

/// Nobody records for hours what is lost in the end.
#[test]
fn what_cannot_be_drawn_is_told_before_it_is_recorded() {
    let bench = Bench::new();
    bench.serve();
    let (server, here) = (format!("unix:{}", bench.path("server")), bench.path("here"));
    let listen = format!("unix:{here}");
    for (drawing, word, code) in
        [("nowhere/drawing.svg", "nowhere/drawing.svg", 4), ("key", "key of an oblivious store", 2)]
    {
        let drawing = bench.path(drawing);
        let words = ["oram", "trace", &server, "--listen", &listen, "--svg", &drawing];
        let mut process = command(&words).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        // Ended also where it records.
        let mut refused = Served { process, stderr };
        let said = refused.said();
        assert!(said.contains(word) && !said.contains("is recorded"), "{said}");
        assert_eq!(refused.process.wait().unwrap().code(), Some(code));
    }
}
