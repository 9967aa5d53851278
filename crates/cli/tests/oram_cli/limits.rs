//! Under limits of the system: what is not to be had is told, with what can be done, and is taken again when it
//! is there.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tacita_clock::{Clock, System};
use tacita_testkit::skip_without;

use crate::{Bench, tacita};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tacita");

/// Users that this process has been.
static USERS: AtomicU32 = AtomicU32::new(0);

/// A user who has no other process, and whom no limit has been lifted for.
struct User {
    uid: u32,
    folder: tempfile::TempDir,
}

impl User {
    /// `None` where nobody can be another user, or others may not run what is tested.
    fn new(test: &str) -> Option<Self> {
        if skip_without(test, &["prlimit", "setpriv", "timeout"]) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: {test}: only root can be another user");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let number = USERS.fetch_add(1, Ordering::Relaxed);
        let uid = 2_000_000 + 16 * std::process::id() + number;
        std::os::unix::fs::chown(folder.path(), Some(uid), Some(uid)).unwrap();
        let user = Self { uid, folder };
        if !user.runs(&[PROGRAM, "--version"]).status.success() {
            eprintln!("SKIPPED: {test}: others may not run what is tested");
            return None;
        }
        Some(user)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// A command that ends, in whichever way.
    fn runs(&self, arguments: &[&str]) -> Output {
        let (uid, gid) = (format!("--reuid={}", self.uid), format!("--regid={}", self.uid));
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", "setpriv", &uid, &gid, "--clear-groups"]);
        command.args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn limited(&self, limit: u32, arguments: &[&str]) -> Output {
        self.runs(&[&["prlimit", &format!("--nproc={limit}"), PROGRAM], arguments].concat())
    }

    /// A limit under which a command does its work; under lower ones it says so, and leaves nothing.
    fn takes(&self, arguments: &[&str], left: &str) -> u32 {
        // Whoever has ended counts until somebody has asked how.
        let enough = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32, 64].into_iter().find(|&limit| {
            let output = self.limited(limit, arguments);
            if output.status.success() {
                return true;
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(4), "{limit}: {said}");
            assert!(said.contains("`ulimit -u`") && !said.contains("panicked"), "{limit}: {said}");
            assert!(!Path::new(left).exists(), "{limit}");
            false
        });
        enough.unwrap()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        for name in ["disk", "server"] {
            let _ = tacita(&["oram", "close", &self.path(name)]);
        }
        let _ = std::fs::remove_dir_all(format!("/tmp/tacita-{}", self.uid));
    }
}

/// The library that runs stores panics where it gets no thread, or waits for ever.
#[test]
fn threads_that_are_not_to_be_had_are_told() {
    let Some(user) = User::new("threads_that_are_not_to_be_had_are_told") else { return };
    let (store, key, socket) = (user.path("store"), user.path("key"), user.path("server"));
    let at = format!("unix:{socket}");
    let init = ["oram", "init", &store, "--key", &key, "--blocks", "600", "--period", "16"];
    assert!(user.takes(&init, &key) > 1);
    assert!(user.takes(&["oram", "serve", &store, "--listen", &at], &socket) > 4);
    assert!(user.takes(&["oram", "check", &at, "--key", &key], "/nowhere") > 1);
}

/// A server that got no thread once serves on: nothing of it has ended.
#[test]
fn a_server_that_had_no_thread_for_a_while_serves_on() {
    let test = "a_server_that_had_no_thread_for_a_while_serves_on";
    if skip_without(test, &["qemu-io"]) {
        return;
    }
    let Some(user) = User::new(test) else { return };
    let (store, key, socket) = (user.path("store"), user.path("key"), user.path("server"));
    let (at, disk) = (format!("unix:{socket}"), user.path("disk"));
    let init = ["oram", "init", &store, "--key", &key, "--blocks", "600", "--period", "16"];
    for line in [&init[..], &["oram", "serve", &store, "--listen", &at]] {
        let output = user.runs(&[&[PROGRAM][..], line].concat());
        assert!(output.status.success(), "{output:?}");
    }
    let exported = tacita(&["oram", "export", &at, "--key", &key, "--nbd", &disk]);
    assert!(exported.status.success(), "{exported:?}");
    let write = |pattern: u8| {
        let write = format!("write -P {pattern} 0 64k");
        let uri = format!("nbd+unix:///oram?socket={disk}");
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "30", "qemu-io", "-f", "raw", "-c", &write, &uri]);
        command.output().unwrap().status.success()
    };
    assert!(write(1));
    let status = tacita(&["status", &socket, "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let process = status["pid"].to_string();
    // Threads that have nothing to do go after ten seconds, unless they are kept.
    System.wait(Duration::from_secs(12));
    assert!(user.runs(&["prlimit", "--nproc=1:", "--pid", &process]).status.success());
    let is_written = write(2);
    assert!(user.runs(&["prlimit", "--nproc=100:", "--pid", &process]).status.success());
    assert!(
        is_written && write(3),
        "{}",
        String::from_utf8_lossy(&tacita(&["status", &socket]).stdout)
    );
}

/// Where there are too few descriptors to begin with, too.
#[test]
fn descriptors_that_are_not_to_be_had_are_told() {
    if skip_without("descriptors_that_are_not_to_be_had_are_told", &["prlimit"]) {
        return;
    }
    let bench = Bench::new();
    let (store, key, new) = (bench.path("store"), bench.path("key-2"), bench.path("new"));
    let at = format!("unix:{}", bench.path("server"));
    for line in [
        &["oram", "init", &new, "--key", &key, "--blocks", "600"][..],
        &["oram", "serve", &store, "--listen", &at],
    ] {
        let mut limited = Command::new("prlimit");
        let output = limited.args(["--nofile=6", PROGRAM]).args(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains("`ulimit -n`"), "{said}");
        assert!(!Path::new(&key).exists() && !Path::new(&new).exists());
    }
}

/// Nor is an hour to be waited for what cannot come; and a new store is there, or nothing of it.
#[test]
fn descriptors_that_are_too_few_for_a_store_are_told_at_once() {
    if skip_without("descriptors_that_are_too_few_for_a_store_are_told_at_once", &["prlimit"]) {
        return;
    }
    let bench = Bench::new();
    bench.serve();
    let (store, key) = (bench.path("new"), bench.path("key-2"));
    let at = format!("unix:{}", bench.path("server"));
    let own = bench.path("key");
    let init = ["oram", "init", &store, "--key", &key, "--blocks", "600"];
    let ask = ["oram", "bench", &at, "--key", &own, "--queries", "4"];
    let mut is_enough = [false; 2];
    for limit in 6..=24 {
        for (line, is_enough) in [&init[..], &ask].iter().zip(&mut is_enough) {
            let mut limited = Command::new("prlimit");
            let limit = format!("--nofile={limit}");
            let output = limited.args([&limit, PROGRAM]).args(*line).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            *is_enough = output.status.success();
            if !output.status.success() {
                assert_eq!(output.status.code(), Some(7), "{limit}: {line:?}: {said}");
                assert!(said.contains("`ulimit -n`"), "{limit}: {line:?}: {said}");
            }
        }
        let is_there = [&store, &key].map(|path| Path::new(path).exists());
        assert_eq!(is_there, [is_enough[0]; 2], "{limit}");
        if is_enough[0] {
            std::fs::remove_dir_all(&store).unwrap();
            std::fs::remove_file(&key).unwrap();
        }
    }
    assert_eq!(is_enough, [true; 2]);
}

/// Of what goes into the background nothing stays that somebody could take for it: no socket, and no folder.
#[test]
fn descriptors_that_are_too_few_for_a_daemon_leave_nothing_of_it() {
    let test = "descriptors_that_are_too_few_for_a_daemon_leave_nothing_of_it";
    if skip_without(test, &["prlimit"]) {
        return;
    }
    let bench = Bench::new();
    bench.serve();
    let paths = ["key", "server", "disk", "engine", "new", "server-2"].map(|name| bench.path(name));
    let [key, server, disk, engine, new, socket] = &paths;
    let [at, engine_at, new_at] = [server, engine, socket].map(|path| format!("unix:{path}"));
    for (line, left) in [
        (&["oram", "export", &at, "--key", key, "--nbd", disk][..], &[disk][..]),
        (&["oram", "engine", &at, "--key", key, "--listen", &engine_at], &[engine]),
        (&["oram", "serve", new, "--listen", &new_at], &[socket, new]),
    ] {
        let is_enough = |limit: &u32| {
            let mut limited = Command::new("prlimit");
            let output = limited.arg(format!("--nofile={limit}")).arg(PROGRAM).args(line).output();
            let output = output.unwrap();
            if output.status.success() {
                return true;
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(7), "{limit}: {line:?}: {said}");
            assert!(said.contains("`ulimit -n`"), "{limit}: {line:?}: {said}");
            assert!(!said.contains("served at"), "{limit}: {line:?}: {said}");
            let there: Vec<_> = left.iter().filter(|path| Path::new(path).exists()).collect();
            assert!(there.is_empty(), "{limit}: {line:?}: {there:?}");
            false
        };
        assert!((6..=64).any(|limit| is_enough(&limit)), "{line:?}");
        let closed = tacita(&["oram", "close", left[0]]);
        assert!(closed.status.success(), "{closed:?}");
    }
    // Not even the key can be opened; that it is no key is not what is said.
    let mut limited = Command::new("prlimit");
    let line = ["--nofile=6", PROGRAM, "oram", "engine", &at, "--key", key, "--listen", &engine_at];
    let output = limited.args(line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("`ulimit -n`") && !said.contains("--key"), "{said}");
}

/// What a client has seen of a store cannot be remembered then.
#[test]
fn a_limit_of_the_length_of_files_is_told() {
    if skip_without("a_limit_of_the_length_of_files_is_told", &["prlimit"]) {
        return;
    }
    let bench = Bench::new();
    bench.serve();
    let (at, key) = (format!("unix:{}", bench.path("server")), bench.path("key"));
    let mut limited = Command::new("prlimit");
    let line = ["--fsize=0", PROGRAM, "oram", "bench", &at, "--key", &key, "--queries", "4"];
    let output = limited.args(line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("`ulimit -f`"), "{said}");
}
