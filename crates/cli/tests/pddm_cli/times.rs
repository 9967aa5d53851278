//! Times that the file of a device has.

use std::fs;
use std::time::{Duration, SystemTime};

use tacita_testkit::{MountGuard, skip_without_fuse};

use crate::bench::{Bench, expect, tacita};

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
    let bench = Bench::new(test);
    let begin = SystemTime::now();
    bench.init("16M", &["hidden", "second", "wrong"], &["--classes", "3", "--heartbeat", "0"]);
    let (device, folder) = (bench.path("device"), bench.folder.path());
    let found = fs::metadata(device).unwrap();
    let Ok(born) = found.created() else {
        eprintln!("SKIPPED: {test}: the file system of the temporary folder notes no births");
        return;
    };
    let took = born.duration_since(begin).unwrap();
    for end in [found.modified(), fs::metadata(folder).unwrap().modified()] {
        let age = end.unwrap().duration_since(born).unwrap();
        assert!(age < took / 2, "{age:?} of it, after {took:?}");
    }
}
