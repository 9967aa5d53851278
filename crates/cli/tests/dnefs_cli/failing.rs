//! What a volume lies on fails while it is mounted: that is told once, with what can be done.

use std::fs;
use std::io::Write;
use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::bench::{Bench, Mounted, fail, kill, status_of, succeed};

/// The one message of a mount that has this in it.
pub(crate) fn told_once(dir: &str, what: &str) -> String {
    let status = status_of(dir);
    let messages = status["messages"].as_array().unwrap();
    assert!(messages.len() < 8, "every request is told: {messages:?}");
    let found: Vec<_> =
        messages.iter().filter(|m| m["text"].as_str().unwrap().contains(what)).collect();
    assert!(found.len() == 1 && found[0]["count"] == 1, "{what}: {messages:?}");
    assert_eq!(found[0]["level"], "error");
    found[0]["text"].as_str().unwrap().to_owned()
}

fn write(path: &Path) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(&vec![7; 100_000])?;
    file.sync_all()
}

/// A limit on the length of files stops all that is written, as a failing disk does.
#[test]
fn what_cannot_be_written_is_told_once() {
    let test = "what_cannot_be_written_is_told_once";
    let mounted = Bench::mounted(test, &[], &["--purge-every", "1"]);
    let Some(Mounted { bench: _bench, volume, guard, dir }) = mounted else { return };
    write(&guard.join("synced")).unwrap();
    let daemon = status_of(&dir)["pid"].as_i64().unwrap();
    let daemon = Pid::from_raw(daemon.try_into().unwrap());
    let none = Rlimit { current: Some(4096), maximum: None };
    prlimit(daemon, Resource::Fsize, none).unwrap();
    for number in 0..20 {
        write(&guard.join(format!("{number}"))).unwrap_err();
    }
    fs::remove_file(guard.join("synced")).unwrap_err();
    // The timers of syncs and purges fail, too.
    std::thread::sleep(std::time::Duration::from_secs(7));
    let said = told_once(&dir, "File too large");
    assert!(said.contains("stopped all writing") && said.contains("mount again"), "{said}");
    let shown = succeed(&["status", &dir]);
    assert!(!shown.contains("no messages") && shown.contains("File too large"), "{shown}");
    fail(4, &["umount", &dir]);
    succeed(&["dnefs", "mount", &volume, &dir]);
    assert!(fs::read(guard.join("synced")).unwrap() == vec![7; 100_000]);
    succeed(&["umount", &dir]);
    succeed(&["dnefs", "check", &volume]);
}

#[test]
fn what_cannot_be_read_is_told_once() {
    let test = "what_cannot_be_read_is_told_once";
    let mounted = Bench::mounted(test, &[], &[]);
    let Some(Mounted { bench: _bench, volume, guard, dir }) = mounted else { return };
    for number in 0..20 {
        write(&guard.join(format!("{number}"))).unwrap();
    }
    succeed(&["umount", &dir]);
    succeed(&["dnefs", "mount", &volume, &dir]);
    fs::File::options().write(true).open(&volume).unwrap().set_len(4096).unwrap();
    for number in 0..20 {
        fs::read(guard.join(format!("{number}"))).unwrap_err();
    }
    let said = told_once(&dir, "cannot be read");
    assert!(said.contains("tacita dnefs check"), "{said}");
    kill(&dir);
}
