//! What is left of a session on the machine: times of the device's file, and what the system's cache holds of it.

use std::fs;
use std::time::{Duration, SystemTime};

use tacita_testkit::{MountGuard, skip_without, skip_without_fuse};

use crate::bench::{Bench, expect, run, tacita};

/// Whoever looks at the file afterwards does not see when it was looked into.
#[test]
fn reading_leaves_no_time_of_access() {
    let test = "reading_leaves_no_time_of_access";
    if skip_without_fuse(test) {
        return;
    }
    let (bench, guard) = (Bench::new(test), MountGuard::new().unwrap());
    bench.init("16M", &["hidden"], &["--heartbeat", "0"]);
    let (device, password) = (bench.path("device"), bench.path("hidden"));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
    let times = fs::FileTimes::new().set_accessed(long_ago);
    fs::File::options().write(true).open(&device).unwrap().set_times(times).unwrap();
    let check = |after: &str| {
        let accessed = fs::metadata(&device).unwrap().accessed().unwrap();
        assert_eq!(accessed, long_ago, "{after}");
    };
    expect(0, &tacita(&["info", &device]));
    check("info");
    expect(0, &tacita(&["pddm", "check", &device, "--password-file", &password]));
    check("check");
    let dir = guard.path().to_str().unwrap();
    expect(0, &bench.open("hidden", &["--fuse", dir]));
    check("open");
    assert!(fs::read(guard.path().join("hidden")).unwrap().iter().all(|byte| *byte == 0));
    check("reading");
    expect(0, &tacita(&["pddm", "close", "--drop", dir]));
    check("close");
    drop(fs::read(&device).unwrap());
    if fs::metadata(&device).unwrap().accessed().unwrap() == long_ago {
        eprintln!("SKIPPED: {test}: the file system of the temporary folder notes no accesses");
    }
}

/// A new device's file is born when all passwords have taken their time: how old it is when it is finished, or has got
/// its name, tells nobody how many there are.
#[test]
fn a_new_device_does_not_tell_how_many_passwords_it_took() {
    let test = "a_new_device_does_not_tell_how_many_passwords_it_took";
    // A medium may be busy with something else for once; passwords would take their time each time.
    let is_young = (0..5).any(|_| {
        let bench = Bench::new(test);
        let begin = SystemTime::now();
        let parameters = ["--classes", "3", "--heartbeat", "0"];
        bench.init("16M", &["hidden", "second", "wrong"], &parameters);
        let (device, folder) = (bench.path("device"), bench.folder.path());
        let found = fs::metadata(device).unwrap();
        let Ok(born) = found.created() else {
            eprintln!("SKIPPED: {test}: the file system of the temporary folder notes no births");
            return true;
        };
        let took = born.duration_since(begin).unwrap();
        let ends = [found.modified(), fs::metadata(folder).unwrap().modified()];
        ends.into_iter().all(|end| end.unwrap().duration_since(born).unwrap() < took / 2)
    });
    assert!(is_young, "it is as old as its passwords took");
}

/// Which blocks of the device are in the cache would tell which were read, and so that a hidden volume was open.
#[test]
fn a_session_leaves_nothing_in_the_cache() {
    let test = "a_session_leaves_nothing_in_the_cache";
    if skip_without(test, &["qemu-io", "fincore", "dd"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &["hidden"], &["--heartbeat", "0"]);
    let (device, socket) = (bench.path("device"), bench.path("socket"));
    let (hidden, public) = (bench.path("hidden"), bench.path("public"));
    let cached = || run("fincore", &["--noheadings", "--output", "PAGES", &device]);
    let uri = |name: &str| format!("nbd+unix:///{name}?socket={socket}");
    let io = |name: &str, command: &str| run("qemu-io", &["-f", "raw", "-c", command, &uri(name)]);
    expect(0, &bench.open("hidden", &["--nbd", &socket]));
    io("hidden", "write -P 7 0 1M");
    io("public", "write -P 8 0 4M");
    io("public", "flush");
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    let after = cached();
    run("dd", &[&format!("if={device}"), "iflag=nocache", "count=0", "status=none"]);
    if cached().trim() != "0" {
        eprintln!("SKIPPED: {test}: the temporary folder lies in the cache alone");
        return;
    }
    assert_eq!(after.trim(), "0", "after writing");
    expect(0, &bench.open("hidden", &["--nbd", &socket]));
    io("hidden", "read -P 7 0 1M");
    assert_ne!(cached().trim(), "0", "it is read by the cache");
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    assert_eq!(cached().trim(), "0", "after reading");
    let check = ["pddm", "check", &device, "--password-file"];
    for (code, password) in [(0, &hidden), (0, &public), (3, &socket)] {
        std::fs::write(&socket, "another password\n").unwrap();
        expect(code, &tacita(&[&check[..], &[password]].concat()));
        assert_eq!(cached().trim(), "0", "after a check");
    }
    let passwd = ["pddm", "passwd", &device, "--password-file", &hidden, "--new-password-file"];
    expect(2, &tacita(&[&passwd[..], &[&public]].concat()));
    assert_eq!(cached().trim(), "0", "after a change that is refused");
}
