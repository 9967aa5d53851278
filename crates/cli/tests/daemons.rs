//! Daemons of every system, as they are asked from outside and heard without a terminal.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tacita_testkit::strace::{Watched, cannot_trace};
use tacita_testkit::{MountGuard, Watchdog, copy_program, skip_without, skip_without_fuse};

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

    fn for_root(test: &str) -> Option<Self> {
        if rustix::process::geteuid().is_root() {
            return Self::new(test);
        }
        eprintln!("SKIPPED: {test}: not root");
        None
    }

    fn mounted_hifs(&self) -> std::path::PathBuf {
        let image = self.files.path().join("image");
        expect(0, &["hifs", "format", text(&image), "--size", "16M"]);
        expect(0, &["hifs", "mount", text(&image), text(self.guard.path())]);
        image
    }
}

/// What serves at a place; asked to end when dropped, if it is still there.
struct Serving<'a>(&'a [&'a str], String);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        tacita(&[self.0, &[&self.1]].concat());
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

/// Whoever asks a mount whose daemon was killed hears that, and how to go on, also beside one that says nothing.
#[test]
fn a_mount_whose_daemon_has_died_is_told() {
    use rustix::process::{Pid, Signal, kill_process};
    let test = "a_mount_whose_daemon_has_died_is_told";
    let Some(bench) = Bench::new(test) else { return };
    let (other, silent) = (MountGuard::new().unwrap(), bench.files.path().join("other"));
    expect(0, &["hifs", "format", text(&silent), "--size", "4M"]);
    expect(0, &["hifs", "mount", text(&silent), text(other.path())]);
    let pid_of = |image: &Path| {
        let pid = i32::try_from(status(image)["pid"].as_i64().unwrap()).unwrap();
        Pid::from_raw(pid).unwrap()
    };
    let silent = pid_of(&silent);
    // Of a mount that was looked at the kernel goes on showing what it has seen.
    for was_looked_at in [false, true] {
        if was_looked_at && !tells_of_mounts(silent) {
            eprintln!(
                "SKIPPED: {test}, when it was looked at: the kernel does not say who serves it"
            );
            continue;
        }
        let pid = pid_of(&bench.mounted_hifs());
        if was_looked_at {
            fs::metadata(bench.guard.path()).unwrap();
        }
        kill_process(silent, Signal::STOP).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let start = Instant::now();
        while Path::new(&format!("/proc/{}/fd", pid.as_raw_nonzero())).read_dir().is_ok() {
            assert!(start.elapsed() < PATIENCE, "it is still served");
            std::thread::sleep(Duration::from_millis(10));
        }
        if !was_looked_at {
            let said = expect(2, &["status", text(bench.guard.path())]);
            let told = ["daemon has died", "`tacita umount DIR`"];
            assert!(told.iter().all(|told| said.contains(told)), "{said}");
        }
        expect(4, &["umount", text(bench.guard.path())]);
        kill_process(silent, Signal::CONT).unwrap();
        fs::remove_file(bench.files.path().join("image")).unwrap();
    }
    expect(0, &["umount", text(other.path())]);
}

/// Whether the kernel says which mounts a process serves.
fn tells_of_mounts(pid: rustix::process::Pid) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fdinfo", pid.as_raw_nonzero())).unwrap();
    open.flatten().any(|entry| {
        fs::read_to_string(entry.path()).is_ok_and(|told| told.contains("fuse_connection"))
    })
}

/// What all daemons say, those of other tests among them.
fn listed() -> (Vec<Value>, String) {
    let answer: Value = serde_json::from_str(&expect(0, &["status", "--json"])).unwrap();
    (answer["daemons"].as_array().unwrap().clone(), expect(0, &["status"]))
}

#[test]
fn all_daemons_are_listed() {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(bench) = Bench::new("all_daemons_are_listed") else { return };
    let image = bench.mounted_hifs().canonicalize().unwrap();
    let (password, device) = (bench.files.path().join("password"), bench.files.path().join("dev"));
    let socket = bench.files.path().join("socket");
    fs::write(&password, "a password").unwrap();
    let given = ["--password-file", text(&password)];
    expect(0, &[&["pddm", "init", text(&device), "--size", "64M"][..], &given].concat());
    let close = ["pddm", "close", "--drop"];
    let _serving = Serving(&close, text(&socket).to_owned());
    expect(0, &[&["pddm", "open", text(&device), "--nbd", text(&socket)][..], &given].concat());
    let (mounted, served) = (status(bench.guard.path()), status(&socket));
    let here = |daemons: &[Value]| -> Vec<Value> {
        let both = [&mounted["pid"], &served["pid"]];
        daemons.iter().filter(|status| both.contains(&&status["pid"])).cloned().collect()
    };
    let (daemons, said) = listed();
    let found = here(&daemons);
    assert_eq!(found.len(), 2, "each once: {daemons:?}");
    for alone in [&mounted, &served] {
        let same = found.iter().find(|status| status["pid"] == alone["pid"]).unwrap();
        assert_eq!((&same["at"], &same["source"]), (&alone["at"], &alone["source"]));
    }
    assert!(daemons.is_sorted_by_key(|status| status["since"].as_u64()), "the oldest first");
    let at = fs::canonicalize(bench.guard.path()).unwrap();
    assert!(
        said.contains(&format!("hifs on {}, of {}: ", at.display(), image.display())),
        "{said}"
    );
    assert!(said.contains("pddm on "), "{said}");
    // One that has been stopped is not waited for, and not passed over.
    let pid = Pid::from_raw(i32::try_from(mounted["pid"].as_i64().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let answer: Value = serde_json::from_str(&expect(0, &["status", "--json"])).unwrap();
    let said = expect(0, &["status"]);
    kill_process(pid, Signal::CONT).unwrap();
    assert!(answer["stopped"].as_array().unwrap().contains(&mounted["pid"]), "{answer}");
    assert!(said.contains(&format!("`kill -CONT {}`", mounted["pid"])), "{said}");
    expect(0, &["umount", text(bench.guard.path())]);
    expect(0, &[&close[..], &[text(&socket)]].concat());
    assert!(here(&listed().0).is_empty());
    // A level is one daemon's.
    expect(2, &["status", "--log", "info"]);
}

#[test]
fn a_daemon_is_found_from_another_mount_namespace() {
    let test = "a_daemon_is_found_from_another_mount_namespace";
    let Some(bench) = Bench::for_root(test) else { return };
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

/// Runs a command among the bench's files where no daemon can be recorded. Returns what it says of that.
fn kept_nowhere(bench: &Bench, arguments: &[&str]) -> String {
    // The program and the files may lie in what is covered.
    let script = r#"exec 9< "$0" && mount -t tmpfs -o ro none /run && mount --bind "$1" /mnt &&
        mount -t tmpfs -o ro none /tmp && cd /mnt && shift && exec /proc/self/fd/9 "$@""#;
    let said = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_tacita"), text(bench.files.path())])
        .args(arguments)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(7), "{told}");
    assert!(told.contains("/tmp/tacita-0: Read-only file system"), "{told}");
    told
}

/// What is read-only where a daemon keeps what tells of it is none of the places that were given.
#[test]
fn a_daemon_that_can_be_kept_nowhere_says_where() {
    let test = "a_daemon_that_can_be_kept_nowhere_says_where";
    let Some(bench) = Bench::for_root(test) else { return };
    let image = bench.files.path().join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    fs::create_dir(bench.files.path().join("dir")).unwrap();
    let told = kept_nowhere(&bench, &["hifs", "mount", "image", "dir"]);
    assert!(told.contains("let one of them be made"), "{told}");
}

/// Where it listens already, too.
#[test]
fn a_server_that_can_be_kept_nowhere_leaves_nothing() {
    let test = "a_server_that_can_be_kept_nowhere_leaves_nothing";
    let Some(bench) = Bench::for_root(test) else { return };
    kept_nowhere(&bench, &["oram", "serve", "above/store", "--listen", "unix:socket"]);
    let left: Vec<_> = fs::read_dir(bench.files.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// As between a container and the machine around it.
#[test]
fn neither_needs_to_see_the_process_of_the_other() {
    let test = "neither_needs_to_see_the_process_of_the_other";
    let Some(bench) = Bench::for_root(test) else { return };
    let elsewhere = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).args(arguments).stdin(Stdio::null());
        command
    };
    let image = bench.mounted_hifs();
    let (program, dir) = (env!("CARGO_BIN_EXE_tacita"), bench.guard.path());
    let said = elsewhere(&[program, "status", "--json", text(dir)]).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    expect(0, &["umount", text(dir)]);

    let script = r#""$0" hifs mount "$1" "$2" && echo mounted && exec sleep 600"#;
    let mut served = elsewhere(&["sh", "-c", script, program, text(&image), text(dir)]);
    let mut served = served.stdout(Stdio::piped()).spawn().unwrap();
    let mut mounted = [0; 7];
    served.stdout.take().unwrap().read_exact(&mut mounted).unwrap();
    assert_eq!(status(dir)["system"], "hifs");
    expect(0, &["sync", text(dir)]);
    expect(0, &["umount", text(dir)]);
    served.kill().unwrap();
    served.wait().unwrap();
}

/// What other users have mounted even root may not look into: who has is in the mount table.
#[test]
fn root_asks_daemons_of_other_users() {
    let test = "root_asks_daemons_of_other_users";
    let Some(bench) = Bench::new(test) else { return };
    if !rustix::process::geteuid().is_root() || skip_without(test, &["fusermount3"]) {
        eprintln!("SKIPPED: {test}: not root, or no fusermount3");
        return;
    }
    if fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o006 != 0o006 {
        eprintln!("SKIPPED: {test}: /dev/fuse is not open to other users");
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
    let answer = status(dir);
    assert_eq!(answer["system"], "hifs");
    assert!(listed().0.iter().any(|status| status["pid"] == answer["pid"]));
    expect(0, &["sync", text(dir)]);
    for options in ["ro", "rw"] {
        expect(0, &["remount", "-o", options, text(dir)]);
    }
    expect(0, &["umount", text(dir)]);
    let mounted = theirs(&["hifs", "mount", text(&image), text(dir), "-o", "ro"]).unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    let refused = expect(2, &["remount", "-o", "rw", text(dir)]);
    assert!(refused.contains("opened for reading alone"), "{refused}");
    expect(0, &["umount", text(dir)]);
    let volume = folder.join("volume");
    let made = theirs(&["dnefs", "format", text(&volume), "--size", "16M"]).unwrap();
    assert!(made.status.success(), "{made:?}");
    // Whose the file is says nothing of whose the daemon is.
    chown(&volume, Some(0), Some(0)).unwrap();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o666)).unwrap();
    let mounted = theirs(&["dnefs", "mount", text(&volume), text(dir)]).unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    assert_eq!(status(&volume), status(dir));
    assert!(expect(0, &["info", text(dir)]).starts_with("dnefs on "));
    assert!(expect(1, &["dnefs", "receipt", text(dir)]).contains("no purge yet"));
    expect(0, &["dnefs", "purge", text(dir)]);
    expect(0, &["dnefs", "receipt", text(dir)]);
    expect(0, &["umount", text(dir)]);
}

/// What a daemon was started with it does not keep: a file that its password came from would keep a
/// stick busy, a lock be held.
#[test]
fn what_it_was_started_with_is_closed() {
    let Some(bench) = Bench::new("what_it_was_started_with_is_closed") else { return };
    let (password, device) = (bench.files.path().join("password"), bench.files.path().join("dev"));
    fs::write(&password, "of the public volume\n").unwrap();
    let words =
        ["pddm", "init", text(&device), "--size", "16M", "--password-file", text(&password)];
    expect(0, &words);
    let script = r#"exec "$0" pddm open "$1" --fuse "$2" --password-fd 7 7< "$3" 8< "$3""#;
    let (program, folder) = (env!("CARGO_BIN_EXE_tacita"), text(bench.guard.path()));
    let opened = Command::new("sh")
        .args(["-c", script, program, text(&device), folder, text(&password)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(opened.status.success(), "{opened:?}");
    let pid = status(bench.guard.path())["pid"].as_u64().unwrap();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let files = files.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let kept: Vec<_> = files.filter(|file| *file == password).collect();
    assert_eq!(kept, Vec::<std::path::PathBuf>::new());
    expect(0, &["pddm", "close", "--drop", folder]);
}

/// A path through a descriptor leads nowhere when that is closed, and what was made there is still taken away.
#[test]
fn a_socket_in_a_folder_by_descriptor_goes_with_its_daemon() {
    let test = "a_socket_in_a_folder_by_descriptor_goes_with_its_daemon";
    let Some(bench) = Bench::new(test) else { return };
    let at = |name: &str| text(&bench.files.path().join(name)).to_owned();
    let (password, device, store, key) = (at("password"), at("device"), at("store"), at("key"));
    fs::write(&password, "of the public volume\n").unwrap();
    let with = ["--password-file", &password];
    expect(0, &[&["pddm", "init", &device, "--size", "16M"][..], &with].concat());
    expect(0, &["oram", "init", &store, "--key", &key, "--blocks", "256"]);
    fs::create_dir(at("sockets")).unwrap();
    let (plain, there) = (format!("unix:{}", at("plain")), "/proc/self/fd/7/socket");
    let server = Serving(&["oram", "close"], at("plain"));
    expect(0, &["oram", "serve", &store, "--listen", &plain]);
    let address = format!("unix:{there}");
    let export = ["oram", "export", &plain, "--key", &key, "--nbd", there];
    let engine = ["oram", "engine", &plain, "--key", &key, "--listen", &address];
    let open = [&["pddm", "open", &device, "--nbd", there][..], &with].concat();
    let other = at("other");
    expect(0, &["oram", "init", &other, "--key", &key, "--blocks", "256"]);
    let serve = ["oram", "serve", &other, "--listen", &address];
    for (words, close) in [
        (&open[..], &["pddm", "close", "--drop"][..]),
        (&export, &["oram", "close"]),
        (&engine, &["oram", "close"]),
        (&serve, &["oram", "close"]),
    ] {
        let serving = Serving(close, at("sockets/socket"));
        let script = r#"exec 7< "$0"; exec "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", script, &at("sockets"), env!("CARGO_BIN_EXE_tacita")]).args(words);
        let opened = command.stdin(Stdio::null()).output().unwrap();
        assert!(opened.status.success(), "{words:?}: {opened:?}");
        let socket = &serving.1;
        assert!(Path::new(socket).exists(), "{words:?}");
        expect(0, &[close, &[socket]].concat());
        assert!(!Path::new(socket).exists(), "{words:?}");
    }
    expect(0, &["oram", "close", &server.1]);
}

/// Another user's mount is not in use: it is not theirs to end.
#[test]
fn the_mount_of_another_user_is_not_ended() {
    let Some(bench) = Bench::for_root("the_mount_of_another_user_is_not_ended") else { return };
    let image = bench.files.path().join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "16M"]);
    let folder = text(bench.guard.path());
    expect(0, &["hifs", "mount", text(&image), folder, "-o", "allow_other"]);
    for open in [bench.files.path(), bench.guard.path().parent().unwrap()] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let program = bench.files.path().join("tacita");
    copy_program(env!("CARGO_BIN_EXE_tacita"), &program);
    let refused = Command::new(program).args(["umount", folder]).uid(OTHER).gid(OTHER).output();
    let refused = refused.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(7), "{said}");
    assert!(said.contains("another user"), "{said}");
    expect(0, &["umount", folder]);
}

/// What is mounted over a mount is not taken for it, and not taken away: it is said to be there.
#[test]
fn what_is_mounted_over_it_is_told() {
    let Some(bench) = Bench::for_root("what_is_mounted_over_it_is_told") else { return };
    let image = bench.files.path().join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "16M"]);
    let folder = text(bench.guard.path());
    expect(0, &["hifs", "mount", text(&image), folder]);
    let over = Command::new("mount").args(["-t", "tmpfs", "none", folder]).status();
    assert!(over.unwrap().success());
    let refused = expect(5, &["umount", folder]);
    assert!(Command::new("umount").arg(folder).status().unwrap().success());
    assert!(refused.contains("another file system is mounted over it (tmpfs)"), "{refused}");
    expect(0, &["umount", folder]);
}

/// A mount that is bound to another folder, too, goes on there: it is said where.
#[test]
fn a_mount_that_is_bound_elsewhere_is_told() {
    let Some(bench) = Bench::for_root("a_mount_that_is_bound_elsewhere_is_told") else { return };
    let image = bench.files.path().join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "16M"]);
    let folder = text(bench.guard.path());
    expect(0, &["hifs", "mount", text(&image), folder]);
    let other = MountGuard::new().unwrap();
    let bound = Command::new("mount").args(["--bind", folder, text(other.path())]).status();
    assert!(bound.unwrap().success());
    fs::write(bench.guard.join("file"), "kept").unwrap();
    let refused = expect(5, &["umount", folder]);
    let told = format!("it is mounted on {}, too; everything written", text(other.path()));
    assert!(refused.contains(&told), "{refused}");
    assert_eq!(fs::read(other.join("file")).unwrap(), b"kept");
    let again = expect(5, &["umount", folder]);
    assert!(again.contains(&format!("it is mounted on {} now", text(other.path()))), "{again}");
    expect(0, &["umount", text(other.path())]);
}

/// A folder above a mount gets another name: the mount ends in order by that, and by a signal.
#[test]
fn a_mount_in_a_renamed_folder_ends_in_order() {
    let Some(bench) = Bench::for_root("a_mount_in_a_renamed_folder_ends_in_order") else { return };
    let image = bench.files.path().join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "64M"]);
    let [before, after] = ["before", "after"].map(|name| bench.files.path().join(name));
    fs::create_dir_all(before.join("mount")).unwrap();
    let mounted = after.join("mount");
    for by_signal in [false, true] {
        expect(0, &["hifs", "mount", text(&image), text(&before.join("mount"))]);
        fs::rename(&before, &after).unwrap();
        fs::write(mounted.join("file"), vec![7; 24 << 20]).unwrap();
        // Where it was another folder may be.
        fs::create_dir_all(before.join("mount")).unwrap();
        let elsewhere = expect(5, &["umount", text(&before.join("mount"))]);
        assert!(elsewhere.contains(&format!("mounted on {} now", text(&mounted))), "{elsewhere}");
        fs::remove_dir_all(&before).unwrap();
        if by_signal {
            let pid = status(&mounted)["pid"].to_string();
            assert!(Command::new("kill").arg(&pid).status().unwrap().success());
            let begin = Instant::now();
            while Path::new("/proc").join(&pid).exists() {
                assert!(begin.elapsed() < PATIENCE, "it does not end");
                std::thread::sleep(Duration::from_millis(50));
            }
        } else {
            expect(0, &["umount", text(&mounted)]);
        }
        // Nobody has it any more.
        expect(0, &["hifs", "check", text(&image)]);
        fs::rename(&after, &before).unwrap();
    }
}

/// What fails in the background is heard, and no name with it.
#[test]
fn a_failure_in_the_background_is_told() {
    let test = "a_failure_in_the_background_is_told";
    let Some(bench) = Bench::for_root(test) else { return };
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
    expect(6, &["umount", text(bench.guard.path())]);
    assert!(Command::new("umount").arg(small.path()).status().unwrap().success());
}

/// Nobody unmounts, or who did has gone: the system's log hears why a daemon has ended.
#[test]
fn the_end_of_a_daemon_that_fails_is_in_the_log() {
    let test = "the_end_of_a_daemon_that_fails_is_in_the_log";
    if cannot_trace(test) {
        return;
    }
    let Some(bench) = Bench::new(test) else { return };
    bench.mounted_hifs();
    let sent = bench.files.path().join("sent");
    let daemon = status(bench.guard.path())["pid"].to_string();
    let recorded = Watched::record(&daemon, "sendto", &sent);
    // From here on the daemon writes no more than the record of its end.
    let limited =
        Command::new("prlimit").args(["--fsize=4096", "--pid", &daemon]).status().unwrap();
    assert!(limited.success());
    let _ = fs::write(bench.guard.join("file"), vec![7; 1 << 20]);
    expect(4, &["umount", text(bench.guard.path())]);
    recorded.wait();
    let sent = fs::read_to_string(sent).unwrap();
    let mut said = sent.lines().filter(|line| line.contains("/dev/log"));
    let end = said.next_back().unwrap_or_else(|| panic!("nothing is logged: {sent}"));
    assert!(end.contains("ended with exit code 4: "), "{end}");
    assert!(end.contains("File too large") && end.contains("what the last sync"), "{end}");
    // Neither which image it was nor where in it: logs last.
    assert!(!end.contains("at byte") && !end.contains(text(bench.files.path())), "{end}");
}

#[test]
fn a_level_is_set_while_it_runs() {
    let Some(bench) = Bench::new("a_level_is_set_while_it_runs") else { return };
    bench.mounted_hifs();
    let dir = text(bench.guard.path());
    expect(2, &["status", "--log", "loud", dir]);
    expect(0, &["status", "--log", "debug", dir]);
}

/// Nobody reads what is said, or can: exit codes are what they are, and what is served goes on.
#[test]
fn words_that_nobody_hears_end_nothing() {
    let Some(bench) = Bench::new("words_that_nobody_hears_end_nothing") else { return };
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let unheard = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
        command.args(arguments).stdin(Stdio::null()).stderr(full());
        command.output().unwrap().status.code()
    };
    assert_eq!(unheard(&["hifs", "info", "/nowhere"]), Some(4));
    for asked in [&["--help"][..], &["hifs", "mount", "--help"], &["--version"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
        let output = command.args(asked).stdin(Stdio::null()).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(6), "{asked:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("standard output: No space left"), "{asked:?}: {said}");
    }
    // What was to be made is there, and that is said.
    let image = bench.files.path().join("unheard");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    command.args(["hifs", "format", text(&image), "--size", "4M"]).stdin(Stdio::null());
    let output = command.stdout(full()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("has been done, and cannot be told: standard output"), "{said}");
    expect(0, &["hifs", "check", text(&image)]);
    assert_eq!(unheard(&["hifs", "info", "/nowhere", "--json"]), Some(4));
    assert_eq!(unheard(&["umount", text(bench.files.path())]), Some(2));
    // It tells where it serves.
    let [store, key, socket] = ["store", "key", "s"].map(|name| bench.files.path().join(name));
    expect(0, &["oram", "init", text(&store), "--key", text(&key), "--blocks", "4096"]);
    let at = format!("unix:{}", text(&socket));
    assert_eq!(unheard(&["oram", "serve", text(&store), "--listen", &at]), Some(0));
    expect(0, &["oram", "close", text(&store)]);
}

/// A service manager that waits until a daemon serves is told when it does (`Type=notify`).
#[test]
fn who_starts_it_in_the_foreground_is_told_when_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let _watchdog = Watchdog::start("who_starts_it_in_the_foreground", TIME_MAX);
    let [store, key, socket, told] =
        ["store", "key", "socket", "told"].map(|name| folder.path().join(name));
    expect(0, &["oram", "init", text(&store), "--key", text(&key), "--blocks", "4096"]);
    let listens = UnixDatagram::bind(&told).unwrap();
    listens.set_read_timeout(Some(PATIENCE)).unwrap();
    let serve = |store: &Path| {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tacita"));
        let at = format!("unix:{}", text(&socket));
        serve.args(["oram", "serve", text(store), "--foreground", "--listen", &at]);
        serve.env("NOTIFY_SOCKET", &told).stdin(Stdio::null()).stderr(Stdio::null());
        serve.spawn().unwrap()
    };
    let mut server = serve(&store);
    let mut heard = [0; 64];
    let len = listens.recv(&mut heard).unwrap();
    assert_eq!(&heard[..len], b"READY=1");
    let status = ["oram", "status", &format!("unix:{}", text(&socket)), "--key", text(&key)];
    expect(0, &status);
    // Of what does not come to serve nothing is heard.
    assert_eq!(serve(&store).wait().unwrap().code(), Some(5));
    listens.set_nonblocking(true).unwrap();
    listens.recv(&mut heard).unwrap_err();
    expect(0, &["oram", "close", text(&store)]);
    assert!(server.wait().unwrap().success());
}

/// What a program that is ended by a fault leaves behind in its folder, where nothing forbids core dumps.
fn left_by_fault(folder: &Path, program: &[&str]) -> usize {
    use rustix::process::{Pid, Signal, kill_process};
    let (input, _kept) = std::io::pipe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\""]).args(program);
    command.current_dir(folder).stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
    let mut faulty = command.spawn().unwrap();
    let pid = Pid::from_child(&faulty);
    // Both sleep when they have begun and wait.
    let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let begun = Instant::now();
    let is_asleep = || {
        let stat = fs::read_to_string(&stat).unwrap();
        !stat.contains("(sh)") && stat.contains(") S ")
    };
    while !is_asleep() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(pid, Signal::ABORT).unwrap();
    faulty.wait().unwrap();
    fs::read_dir(folder).unwrap().count()
}

/// What is in memory goes to no core dump, from a daemon or a question for a password.
#[test]
fn a_fault_leaves_no_memory_behind() {
    let test = "a_fault_leaves_no_memory_behind";
    let Some(bench) = Bench::new(test) else { return };
    let folders = ["control", "asking", "serving"].map(|name| bench.files.path().join(name));
    for folder in &folders {
        fs::create_dir(folder).unwrap();
    }
    let [control, asking, serving] = &folders;
    let program = env!("CARGO_BIN_EXE_tacita");
    let image = bench.mounted_hifs();
    let pid = status(bench.guard.path())["pid"].clone();
    let of_daemon = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let (limits, filter) = (of_daemon("limits"), of_daemon("coredump_filter"));
    expect(0, &["umount", text(bench.guard.path())]);
    let limit = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let words: Vec<&str> = limit.split_whitespace().collect();
    // Where it was 0 for good it cannot be more.
    assert!(words[4..6] == ["1", "1"] || filter == "00000000\n", "{limit}");
    if left_by_fault(control, &["sleep", "600"]) == 0 {
        return eprintln!("SKIPPED: {test}: core dumps go elsewhere on this machine, or nowhere");
    }
    let new = bench.files.path().join("new");
    let ask = ["pddm", "init", text(&new), "--size", "64M", "--password-fd", "0"];
    assert_eq!(left_by_fault(asking, &[&[program][..], &ask].concat()), 0);
    let serve = ["hifs", "mount", "--foreground", text(&image), text(bench.guard.path())];
    assert_eq!(left_by_fault(serving, &[&[program][..], &serve].concat()), 0);
}

/// The limit on the length of files ends no daemon, and what cannot be written is told.
#[test]
fn a_limit_on_files_is_an_error_and_no_end() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let Some(bench) = Bench::new("a_limit_on_files_is_an_error_and_no_end") else { return };
    let image = bench.files.path().join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "16M"]);
    let other = bench.files.path().join("other");
    let mut format = Command::new("sh");
    format.args(["-c", "ulimit -f 200; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tacita")]);
    let done = format.args(["hifs", "format", text(&other), "--size", "16M"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(4), "{said}");
    assert!(said.contains("File too large") && !other.exists(), "{said}");
    // What it says of it in the foreground cannot be said, either.
    let unheard = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut mount = Command::new(env!("CARGO_BIN_EXE_tacita"));
    mount.args(["hifs", "mount", text(&image), text(bench.guard.path()), "--foreground"]);
    let mut daemon = mount.stdin(Stdio::null()).stderr(unheard).spawn().unwrap();
    let began = Instant::now();
    while !tacita(&["status", text(bench.guard.path())]).status.success() {
        assert!(began.elapsed() < PATIENCE, "it never mounts");
        std::thread::sleep(Duration::from_millis(10));
    }
    // From the beginning it would not mount.
    let limit = Rlimit { current: Some(100 << 10), maximum: Some(100 << 10) };
    prlimit(Some(Pid::from_child(&daemon)), Resource::Fsize, limit).unwrap();
    let file = bench.guard.join("file");
    let written = fs::write(&file, vec![7; 4 << 20]);
    let synced = expect(4, &["sync", text(bench.guard.path())]);
    assert!(synced.contains("File too large") && synced.contains("`ulimit -f`"), "{synced}");
    assert!(status(bench.guard.path())["pid"] == daemon.id(), "{written:?}");
    let said = expect(4, &["umount", text(bench.guard.path())]);
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(daemon.wait().unwrap().code(), Some(4));
}

/// What describes all arguments takes more stack than whoever limits it so much leaves.
#[test]
fn a_limit_on_the_stack_keeps_nothing_from_being_done() {
    let Some(bench) = Bench::new("a_limit_on_the_stack_keeps_nothing_from_being_done") else {
        return;
    };
    let image = bench.files.path().join("image");
    let limited = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -s 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tacita")]);
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    limited(&["hifs", "format", text(&image), "--size", "4M"]);
    limited(&["hifs", "mount", text(&image), text(bench.guard.path())]);
    fs::write(bench.guard.join("file"), "content").unwrap();
    limited(&["umount", text(bench.guard.path())]);
    limited(&["hifs", "check", text(&image)]);
}

/// Connects to where a stopped daemon is asked until nobody else can.
fn fill_queue_of(daemon: rustix::process::Pid) {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let open = fs::read_dir(format!("/proc/{}/fd", daemon.as_raw_nonzero())).unwrap();
    let open = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let open: Vec<String> = open.map(|path| path.to_string_lossy().into_owned()).collect();
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let socket = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (inode, path) = (fields.get(6)?, fields.get(7)?);
        (path.ends_with(".control") && open.contains(&format!("socket:[{inode}]"))).then_some(*path)
    });
    let address = SocketAddrUnix::new(socket.unwrap()).unwrap();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        // What has been queued stays there when it is closed.
        let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        match connect(&client, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN) => return,
            Err(e) => panic!("{e}"),
        }
    }
}

/// A daemon that does not run cannot answer: that is said at once, and not waited for.
#[test]
fn a_daemon_that_was_stopped_is_told() {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(bench) = Bench::new("a_daemon_that_was_stopped_is_told") else { return };
    bench.mounted_hifs();
    let number = status(bench.guard.path())["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(number).unwrap()).unwrap();
    fs::write(bench.guard.join("file"), "kept").unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let goes_on = format!("kill -CONT {number}");
    for command in [
        &["status"][..],
        &["sync"],
        &["umount"],
        &["info"],
        &["check"],
        &["doctor"],
        &["purge", "probe"],
    ] {
        let said = expect(5, &[command, &[text(bench.guard.path())]].concat());
        assert!(said.contains(&goes_on), "{command:?}: {said}");
    }
    // Nor is what lies in its mount waited for.
    let within = bench.guard.join("file");
    let commands =
        [&["purge", "file"][..], &["purge", "probe"], &["doctor"], &["info"], &["check"]];
    for command in commands {
        let mut asked = Command::new("timeout");
        asked.arg("60").arg(env!("CARGO_BIN_EXE_tacita")).args(command).arg(&within);
        let output = asked.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{command:?}: {said}");
        assert!(said.contains(&goes_on), "{command:?}: {said}");
    }
    // It has this open, as all have, and does not serve it.
    let said = expect(2, &["status", "/dev/null"]);
    assert!(said.contains("not served"), "{said}");
    // By its image, too, which can be seen from outside.
    let image = bench.files.path().join("image");
    assert!(expect(5, &["status", text(&image)]).contains(&goes_on));
    let said = expect(5, &["remount", "-o", "ro", text(bench.guard.path())]);
    let told = ["read-only now, but not synced", &format!("process {number}"), "`kill -CONT`"];
    assert!(told.iter().all(|told| said.contains(told)), "{said}");
    // Nor when so many wait for it that it can take no more.
    fill_queue_of(pid);
    for command in [&["status"][..], &["sync"], &["umount"]] {
        let said = expect(5, &[command, &[text(bench.guard.path())]].concat());
        assert!(said.contains(&goes_on), "{command:?}: {said}");
    }
    assert!(expect(5, &["status", text(&image)]).contains(&goes_on));
    kill_process(pid, Signal::CONT).unwrap();
    // It has all of them to turn away first.
    let mut ends = std::iter::repeat_with(|| tacita(&["umount", text(bench.guard.path())]));
    let is_busy = |end: &Output| String::from_utf8_lossy(&end.stderr).contains("try again");
    let end = ends.find(|end| !is_busy(end)).unwrap();
    assert_eq!(end.status.code(), Some(0), "{end:?}");
    let out = bench.files.path().join("out");
    expect(0, &["hifs", "unpack", text(&image), text(&out)]);
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "kept");
}

/// What a daemon serves may lie where nobody answers: who looks for another one does not wait for that.
#[test]
fn who_looks_for_a_daemon_does_not_look_at_what_others_serve() {
    use rustix::process::{Pid, Signal, kill_process};
    let test = "who_looks_for_a_daemon_does_not_look_at_what_others_serve";
    let Some(bench) = Bench::new(test) else { return };
    bench.mounted_hifs();
    let (within, inner) = (MountGuard::new().unwrap(), bench.guard.join("inner"));
    expect(0, &["hifs", "format", text(&inner), "--size", "4M"]);
    expect(0, &["hifs", "mount", text(&inner), text(within.path())]);
    let number = status(bench.guard.path())["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(number).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let said = expect(2, &["status", text(bench.files.path())]);
    assert!(said.contains("not served"), "{said}");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(status(&inner), status(within.path()));
    expect(0, &["umount", text(within.path())]);
    expect(0, &["umount", text(bench.guard.path())]);
}

/// Without /proc nothing goes into the background, and why is told.
#[test]
fn a_daemon_needs_to_see_processes_and_says_so() {
    let test = "a_daemon_needs_to_see_processes_and_says_so";
    let Some(bench) = Bench::for_root(test) else { return };
    let image = bench.files.path().join("image");
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    let script = r#"mount -t tmpfs none /proc && exec "$0" "$@""#;
    let said = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_tacita"), "hifs", "mount"])
        .args([text(&image), text(bench.guard.path())])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(7), "{told}");
    assert!(told.contains("/proc is not mounted") && told.contains("mount -t proc"), "{told}");
}

/// Who is told that a mount is ready has one: what its threads need and cannot have is told at once.
#[test]
fn a_mount_that_lacks_memory_or_descriptors_is_refused() {
    let test = "a_mount_that_lacks_memory_or_descriptors_is_refused";
    let Some(bench) = Bench::new(test) else { return };
    let at = |name: &str| text(&bench.files.path().join(name)).to_owned();
    let (image, volume, password) = (at("image"), at("volume"), at("password"));
    fs::write(&password, "none\n").unwrap();
    let with = ["--password-file", &password];
    expect(0, &["hifs", "format", &image, "--size", "16M"]);
    expect(0, &[&["dnefs", "format", &volume, "--size", "16M"][..], &with].concat());
    let dir = text(bench.guard.path());
    let hifs = vec!["hifs", "mount", &image, dir];
    let lower = at("lower");
    fs::create_dir(&lower).unwrap();
    let purge = vec!["purge", "mount", &lower, dir, "--anyway"];
    let dnefs = [&["dnefs", "mount", &volume, dir][..], &with].concat();
    let descriptors =
        (4..=24).flat_map(|count| [&hifs, &dnefs, &purge].map(|mount| (mount, 'n', count)));
    // In KiB: from where the program is loaded and little more.
    let memory = (64_000..=512_000)
        .step_by(12_000)
        .flat_map(|space| [&hifs, &purge].map(|mount| (mount, 'v', space)));
    let file = bench.guard.path().join("file");
    let content = vec![7; 1 << 20];
    let (mut refused, mut ready) = (Vec::new(), Vec::new());
    for (mount, limit, value) in descriptors.chain(memory) {
        let script = format!("ulimit -{limit} {value}; exec \"$0\" \"$@\"");
        let mut limited = Command::new("sh");
        limited.args(["-c", &script, env!("CARGO_BIN_EXE_tacita")]).args(mount);
        let output = limited.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let which = format!("{} with `ulimit -{limit} {value}`: {said}", mount[0]);
        if output.status.success() {
            if limit == 'v' {
                fs::write(&file, &content).expect(&which);
                expect(0, &["sync", dir]);
                assert!(fs::read(&file).expect(&which) == content, "{which}");
                fs::remove_file(&file).expect(&which);
            }
            assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "{which}");
            expect(0, &["umount", dir]);
            ready.push((mount[0], limit));
            continue;
        }
        assert_eq!(output.status.code(), Some(7), "{which}");
        assert!(said.contains(&format!("`ulimit -{limit}`")), "{which}");
        assert_eq!(said.matches("ulimit").count(), 1, "once: {which}");
        assert!(expect(2, &["umount", dir]).contains("nothing is mounted"), "{which}");
        refused.push((mount[0], limit));
    }
    for seen in [("hifs", 'n'), ("dnefs", 'n'), ("purge", 'n')] {
        assert!(refused.contains(&seen) && ready.contains(&seen), "{seen:?}");
    }
    // How much memory a mount takes is the machine's to say: the number of its processors.
    for seen in [("hifs", 'v'), ("purge", 'v')] {
        assert!(refused.contains(&seen), "{seen:?}");
    }
}
