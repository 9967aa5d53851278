//! A volume is destroyed, and what it lies on fails meanwhile: whoever has asked is told what is left of it, and
//! what to do.

use std::fs;
use std::process::Command;

use tacita_testkit::strace::{Watched, cannot_trace};
use tacita_testkit::{MountGuard, skip_without_fuse};

use crate::bench::{Bench, Mounted, fail, status_of, succeed};

/// Runs the program with a call that fails from the so-manieth on; its exit code, and what it says.
fn failing(call: &str, from: u32, arguments: &[&str]) -> (Option<i32>, String) {
    with_failures(call, &format!("error=EIO:when={from}+"), arguments)
}

fn with_failures(call: &str, which: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let inject = format!("inject={call}:{which}");
    let trace = format!("trace={call}");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
    let output = command.arg(env!("CARGO_BIN_EXE_tacita")).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_erase_that_fails_says_what_is_left_and_what_to_do() {
    let test = "an_erase_that_fails_says_what_is_left_and_what_to_do";
    if cannot_trace(test) {
        return;
    }
    let bench = Bench::new(test);
    let (mut left, mut gone) = (0, 0);
    for call in ["fdatasync", "pwrite64"] {
        for from in 1.. {
            let volume = bench.format(&["--size", "8M", "--force"]);
            let erase = ["dnefs", "erase", &volume, "--force"];
            let (code, said) = failing(call, from, &erase);
            if code == Some(0) {
                break;
            }
            assert!(code == Some(4) && said.contains("and erase it again"), "{said}");
            if said.contains("it is not erased, and opens as before") {
                left += 1;
                succeed(&["dnefs", "info", &volume]);
            } else {
                assert!(said.contains("may be back after a crash of the machine"), "{said}");
                gone += 1;
                fail(4, &["dnefs", "info", &volume]);
            }
            succeed(&erase);
            fail(4, &["dnefs", "info", &volume]);
        }
    }
    assert!(left > 1 && gone > 1, "{left}, {gone}");
}

/// A signal is no failure of a block.
#[test]
fn an_erase_that_is_interrupted_is_made_again() {
    let test = "an_erase_that_is_interrupted_is_made_again";
    if cannot_trace(test) {
        return;
    }
    let bench = Bench::new(test);
    let volume = bench.format(&["--size", "8M"]);
    let erase = ["dnefs", "erase", &volume, "--force"];
    let (code, said) = with_failures("fallocate", "error=EINTR:when=1..9+2", &erase);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_keeps_a_volume_from_becoming_ephemeral_is_told_with_what_is_left() {
    let test = "what_keeps_a_volume_from_becoming_ephemeral_is_told_with_what_is_left";
    if cannot_trace(test) || skip_without_fuse(test) {
        return;
    }
    let bench = Bench::new(test);
    let guard = MountGuard::new().unwrap();
    let dir = guard.path().to_str().unwrap();
    let (mut left, mut begun) = (0, 0);
    for from in 1..12 {
        let volume = bench.format(&["--size", "8M", "--force"]);
        let mount = ["dnefs", "mount", &volume, dir, "--ephemeral", "--force"];
        let (code, said) = failing("pwrite64", from, &mount);
        assert_eq!(code, Some(4), "{from}: {said}");
        if said.contains("what it holds is not destroyed, and opens as before") {
            left += 1;
            succeed(&["dnefs", "mount", &volume, dir, "-o", "ro"]);
        } else {
            assert!(said.contains("but that is not erased yet"), "{said}");
            assert!(said.contains("mount it with --ephemeral, which erases that"), "{said}");
            begun += 1;
            succeed(&["dnefs", "mount", &volume, dir, "--ephemeral"]);
        }
        succeed(&["umount", dir]);
    }
    assert!(left > 1 && begun > 1, "{left}, {begun}");
}

/// Of an ephemeral mount nothing can be decrypted afterwards, whatever could not be written at its end.
#[test]
fn an_ephemeral_mount_that_cannot_write_at_its_end_leaves_nothing() {
    let test = "an_ephemeral_mount_that_cannot_write_at_its_end_leaves_nothing";
    if cannot_trace(test) {
        return;
    }
    let options = ["--ephemeral", "--force", "--purge-every", "0"];
    let Some(Mounted { bench: _bench, volume, guard, dir }) = Bench::mounted(test, &[], &options)
    else {
        return;
    };
    fs::write(guard.join("file"), "scratch".repeat(9000)).unwrap();
    let daemon = status_of(&dir)["pid"].to_string();
    let failing = Watched::attach(&daemon, "fdatasync", "error=EIO");
    let said = fail(4, &["umount", &dir]);
    drop(failing);
    assert!(said.contains("nothing that was in it can be decrypted"), "{said}");
    assert!(!said.contains("may still be decrypted") && !said.contains("is there"), "{said}");
    succeed(&["dnefs", "mount", &volume, &dir, "--ephemeral"]);
    assert!(!guard.join("file").exists());
    succeed(&["umount", &dir]);
}
