//! A device that fails under an open session: its owner hears of it, alike in both worlds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use serde_json::Value;
use tacita_testkit::{MountGuard, skip_without, skip_without_fuse};

use crate::bench::{Bench, expect, run, tacita};

/// Exit success of a client's request.
fn served(socket: &str, name: &str, request: &str) -> bool {
    let uri = format!("nbd+unix:///{name}?socket={socket}");
    let mut client = Command::new("qemu-io");
    client.args(["-f", "raw", "-c", request, "-c", "flush", &uri]);
    client.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    client.status().unwrap().success()
}

/// When nothing can be written any more, `status` says so and why. Requests that fail on a hidden
/// volume are told to whoever made them, and to nobody else.
#[test]
fn a_device_that_cannot_be_written_is_told_of() {
    let test = "a_device_that_cannot_be_written_is_told_of";
    if skip_without(test, &["qemu-io", "prlimit"]) {
        return;
    }
    let seen = [false, true].map(|hides| {
        let bench = Bench::new(test);
        let (own, hidden) = if hides { ("hidden", &["hidden"][..]) } else { ("public", &[][..]) };
        bench.init("16M", hidden, &["--heartbeat", "0"]);
        let socket = bench.path("socket");
        expect(0, &bench.open(own, &["--nbd", &socket]));
        assert!(served(&socket, "public", "write -P 7 0 1M"));
        let status = || -> Value {
            let said = tacita(&["status", &socket, "--json"]);
            serde_json::from_slice(&said.stdout).unwrap()
        };
        assert_eq!(status()["messages"], serde_json::json!([]));
        // From here on no file of the daemon's can be written.
        let daemon = status()["pid"].to_string();
        run("prlimit", &["--fsize=0", "--pid", &daemon]);
        assert!(!served(&socket, "public", "write -P 8 0 1M"));
        let before = status()["messages"].clone();
        if hides {
            assert!(!served(&socket, "hidden", "write -P 9 0 1M"));
        }
        assert_eq!(status()["messages"], before, "of hidden volumes nothing is said");
        let messages = before.as_array().unwrap().iter();
        // Whether the write fails or the flush is a matter of time.
        let (requests, told): (Vec<String>, Vec<String>) = messages
            .map(|message| message["text"].as_str().unwrap().to_owned())
            .partition(|text| text.starts_with("NBD "));
        assert!(!requests.is_empty(), "{before}");
        assert!(told[0].contains("nothing is written any more (File too large"), "{before}");
        let closed = tacita(&["pddm", "close", "--drop", &socket]);
        (told, expect(4, &closed).replace(&bench.path(""), ""))
    });
    assert_eq!(seen[0], seen[1]);
}

/// A folder whose end fails: whoever ends it hears of it once, by whichever command; alike in both worlds.
#[test]
fn a_folder_whose_end_fails_is_told_who_ends_it() {
    let test = "a_folder_whose_end_fails_is_told_who_ends_it";
    if skip_without_fuse(test) || skip_without(test, &["prlimit"]) {
        return;
    }
    let seen = [false, true].map(|hides| {
        ["tacita umount", "tacita pddm close --drop", "umount"].map(|end| {
            let bench = Bench::new(test);
            let (own, hidden) =
                if hides { ("hidden", &["hidden"][..]) } else { ("public", &[][..]) };
            bench.init("16M", hidden, &["--heartbeat", "0"]);
            let guard = MountGuard::new().unwrap();
            let dir = guard.path().to_str().unwrap();
            expect(0, &bench.open(own, &["--fuse", dir]));
            let status = tacita(&["status", dir, "--json"]);
            let status: Value = serde_json::from_slice(&status.stdout).unwrap();
            run("prlimit", &["--fsize=4096", "--pid", &status["pid"].to_string()]);
            let public = File::options().write(true).open(guard.join("public")).unwrap();
            public.write_all_at(&[7; 8192], 0).unwrap();
            drop(public);
            let ended = if let Some((_, words)) = end.split_once(' ') {
                tacita(&[&words.split(' ').collect::<Vec<_>>()[..], &[dir]].concat())
            } else {
                run("umount", &[dir]);
                tacita(&["umount", dir])
            };
            let told = expect(4, &ended).replace(dir, "").replace(&bench.path(""), "");
            assert!(told.contains("File too large") && told.contains("\n  "), "{end}: {told}");
            let again = expect(2, &tacita(&["umount", dir]));
            assert!(again.contains("nothing is mounted"), "{end}, and again: {again}");
            told
        })
    });
    assert_eq!(seen[0], seen[1]);
}

/// When all units are whole again, what they had held is lost, and that is what is told.
#[test]
fn what_is_lost_is_counted() {
    let test = "what_is_lost_is_counted";
    if skip_without(test, &["qemu-io"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &[], &["--heartbeat", "0"]);
    let (device, socket, public) =
        (bench.path("device"), bench.path("socket"), bench.path("public"));
    expect(0, &bench.open("public", &["--nbd", &socket]));
    assert!(served(&socket, "public", "write -P 7 0 4M"));
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    let file = File::options().write(true).open(&device).unwrap();
    file.write_all_at(&vec![0x55; 1 << 20], 2 << 20).unwrap();
    let check = ["pddm", "check", &device, "--password-file", &public];
    let said = expect(1, &tacita(&check));
    assert!(said.contains(": 8 damaged units"), "{said}");
    let sweep = ["pddm", "sweep", &device, "--public-only", "--password-file", &public];
    expect(1, &tacita(&sweep));
    let said = expect(1, &tacita(&check));
    assert!(said.contains(" lost blocks"), "{said}");
    assert!(!said.contains("damaged units\n"), "{said}");
}
