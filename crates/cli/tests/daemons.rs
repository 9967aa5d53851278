//! Daemons of every system, as they are asked from outside and heard without a terminal.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tacita_testkit::{MountGuard, Watchdog, skip_without, skip_without_fuse};

static TURN: Mutex<()> = Mutex::new(());
const TIME_MAX: Duration = Duration::from_mins(5);
/// What is waited for comes sooner or not at all.
const PATIENCE: Duration = Duration::from_mins(2);

fn tacita(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn expect(code: i32, arguments: &[&str]) -> String {
    let output = tacita(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    if code == 0 { String::from_utf8(output.stdout).unwrap() } else { said }
}

/// A user for whom nothing is special.
const OTHER: u32 = 65534;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn status(target: &Path) -> Value {
    serde_json::from_str(&expect(0, &["status", "--json", text(target)])).unwrap()
}

/// A folder for files, and a place to mount. One at a time: another mount namespace holds all mounts
/// that there are when it is made, those of other tests, too.
struct Bench {
    guard: MountGuard,
    files: tempfile::TempDir,
    _watchdog: Watchdog,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(test: &str) -> Option<Self> {
        if skip_without_fuse(test) {
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, files) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
        Some(Self { guard, files, _watchdog: Watchdog::start(test, TIME_MAX), _turn: turn })
    }

    fn mounted_hifs(&self) -> std::path::PathBuf {
        let image = self.files.path().join("image");
        expect(0, &["hifs", "format", text(&image), "--size", "16M"]);
        expect(0, &["hifs", "mount", text(&image), text(self.guard.path())]);
        image
    }
}

#[test]
fn a_daemon_is_asked_by_its_folder_and_by_its_image() {
    let Some(bench) = Bench::new("a_daemon_is_asked_by_its_folder_and_by_its_image") else {
        return;
    };
    let image = bench.mounted_hifs();
    let by_folder = status(bench.guard.path());
    assert_eq!(by_folder, status(&image));
    assert_eq!(by_folder["system"], "hifs");
    assert_eq!(by_folder["source"].as_str(), image.canonicalize().unwrap().to_str());
    let free = by_folder["facts"]["blocks_free"].as_u64().unwrap();
    fs::write(bench.guard.join("file"), vec![7; 1 << 20]).unwrap();
    expect(0, &["sync", text(bench.guard.path())]);
    let later = status(bench.guard.path());
    assert!(later["facts"]["blocks_free"].as_u64().unwrap() < free, "{later}");
    let told = expect(0, &["status", text(bench.guard.path())]);
    assert!(told.contains("hifs on") && told.contains("no messages"), "{told}");
    expect(2, &["purge", "status", text(bench.guard.path())]);
    expect(0, &["umount", text(bench.guard.path())]);
    let said = expect(2, &["status", text(bench.guard.path())]);
    assert!(said.contains("not served"), "{said}");
    expect(2, &["status", "/nowhere/at/all"]);
}

#[test]
fn a_daemon_is_found_from_another_mount_namespace() {
    let test = "a_daemon_is_found_from_another_mount_namespace";
    let Some(bench) = Bench::new(test) else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: not root");
        return;
    }
    bench.mounted_hifs();
    let other = bench.files.path().join("other");
    fs::create_dir(&other).unwrap();
    let pid = status(bench.guard.path())["pid"].clone();
    // By another path, and then without the folder that the socket lies in.
    let script = r#"mount --bind "$1" "$2" && "$0" status --json "$2" && mount -t tmpfs none /run &&
        "$0" status --json "$2""#;
    let said = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_tacita")])
        .args([bench.guard.path(), &other])
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    let answers = serde_json::Deserializer::from_slice(&said.stdout).into_iter::<Value>();
    let pids: Vec<Value> = answers.map(|answer| answer.unwrap()["pid"].clone()).collect();
    assert_eq!(pids, [pid.clone(), pid]);
}

/// What fails in the background is heard, and no name with it.
/// What other users have mounted even root may not look into: who has is in the mount table.
#[test]
fn root_asks_daemons_of_other_users() {
    let test = "root_asks_daemons_of_other_users";
    let Some(bench) = Bench::new(test) else { return };
    if !rustix::process::geteuid().is_root() || skip_without(test, &["fusermount3"]) {
        eprintln!("SKIPPED: {test}: not root, or no fusermount3");
        return;
    }
    let (folder, dir) = (bench.files.path(), bench.guard.path());
    for open in [folder, dir.parent().unwrap()] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for theirs in [folder, dir] {
        chown(theirs, Some(OTHER), Some(OTHER)).unwrap();
    }
    let image = folder.join("image");
    let theirs = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
        command.uid(OTHER).gid(OTHER).args(arguments).stdin(Stdio::null()).output()
    };
    let Ok(made) = theirs(&["hifs", "format", text(&image), "--size", "16M"]) else {
        eprintln!("SKIPPED: {test}: others cannot run the program where it lies");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let mounted = theirs(&["hifs", "mount", text(&image), text(dir)]).unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    assert!(fs::metadata(dir).is_err(), "else this shows nothing");
    assert_eq!(status(dir)["system"], "hifs");
    expect(0, &["sync", text(dir)]);
    expect(0, &["umount", text(dir)]);
}

#[test]
fn a_failure_in_the_background_is_told() {
    let test = "a_failure_in_the_background_is_told";
    let Some(bench) = Bench::new(test) else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: not root");
        return;
    }
    let small = MountGuard::new().unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=20M", "none"]).arg(small.path());
    assert!(mount.status().unwrap().success());
    let image = small.join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "16M"]);
    // What is zero in the image gives its room away, and somebody else takes it.
    let dug = Command::new("fallocate").arg("--dig-holes").arg(&image).status().unwrap();
    assert!(dug.success());
    assert!(fs::write(small.join("filler"), vec![1; 20 << 20]).is_err(), "it is full");
    expect(0, &["hifs", "mount", text(&image), text(bench.guard.path())]);
    let _ = fs::write(bench.guard.join("name-of-a-file"), vec![7; 12 << 20]);
    let begin = Instant::now();
    let messages = loop {
        let messages = status(bench.guard.path())["messages"].to_string();
        if messages.contains("not everything is on the medium") {
            break messages;
        }
        assert!(begin.elapsed() < PATIENCE, "{messages}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(!messages.contains("name-of-a-file"), "{messages}");
    assert!(expect(0, &["status", text(bench.guard.path())]).contains("error: not everything"));
    // What cannot be written is lost, and said to be.
    expect(4, &["umount", text(bench.guard.path())]);
    assert!(Command::new("umount").arg(small.path()).status().unwrap().success());
}

#[test]
fn a_level_is_set_while_it_runs() {
    let Some(bench) = Bench::new("a_level_is_set_while_it_runs") else { return };
    bench.mounted_hifs();
    let dir = text(bench.guard.path());
    expect(2, &["status", "--log", "loud", dir]);
    expect(0, &["status", "--log", "debug", dir]);
}
