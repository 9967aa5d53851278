//! Under limits of the system: what is not to be had is told before anything is begun that could not be taken back.

use std::path::Path;
use std::process::{Command, Output};

use tacita_testkit::skip_without;
use tacita_testkit::strace::cannot_trace;

use crate::bench::{Bench, succeed};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tacita");

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said)).concat()
}

/// The descriptor for the folder of a new file is had before the file has its name.
#[test]
fn a_dump_is_there_exactly_if_it_is_said_to_be() {
    let test = "a_dump_is_there_exactly_if_it_is_said_to_be";
    if skip_without(test, &["prlimit"]) {
        return;
    }
    let bench = Bench::new(test);
    let volume = bench.text("volume");
    succeed(&["dnefs", "format", &volume, "--size", "16M"]);
    let is_enough = |limit: u32| {
        let out = bench.text(&format!("out-{limit}"));
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limit}")).args([PROGRAM, "dnefs", "dump", &volume, &out]);
        let output = limited.output().unwrap();
        assert_eq!(output.status.success(), Path::new(&out).exists(), "{limit}: {}", said(&output));
        output.status.success()
    };
    assert!((4..=20).filter(|limit| is_enough(*limit)).count() > 1);
}

/// There was nothing in a new file that could be left in it.
#[test]
fn a_block_of_a_new_volume_that_goes_bad_is_nobodys_loss() {
    let test = "a_block_of_a_new_volume_that_goes_bad_is_nobodys_loss";
    if cannot_trace(test) {
        return;
    }
    let bench = Bench::new(test);
    let volume = bench.text("volume");
    let mut traced = Command::new("strace");
    traced.args(["-f", "-o", "/dev/null", "-e", "trace=fallocate"]);
    traced.args(["-e", "inject=fallocate:error=EIO:when=1", PROGRAM]);
    let output = traced.args(["dnefs", "format", &volume, "--size", "16M"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    succeed(&["dnefs", "check", &volume]);
}
