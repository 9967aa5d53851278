//! `tacita oram`, as it is typed.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod caught;
mod disk;
mod leaving;
mod limits;

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tacita_testkit::kill_daemon;
use tacita_testkit::s3_server::{BUCKET, KEY_ID, S3Server, SECRET};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    command.args(arguments).stdin(Stdio::null());
    // Whoever runs the tests may have a bucket.
    let own = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("AWS_"));
    for name in own {
        command.env_remove(name);
    }
    command.env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null").env("AWS_CONFIG_FILE", "/dev/null");
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command
}

fn tacita(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// A server in the foreground, killed if a test fails.
struct Served {
    process: Child,
    stderr: BufReader<ChildStderr>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Served {
    fn start(store: &str, listen: &str) -> Self {
        let arguments = [
            "oram",
            "serve",
            store,
            "--listen",
            listen,
            "--metrics",
            "127.0.0.1:0",
            "--foreground",
        ];
        let mut process = command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        Self { process, stderr }
    }

    fn said(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn stop(mut self) {
        let pid = Pid::from_raw(self.process.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0), "{}", self.said());
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_server_serves_and_tells_of_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (store, socket) = (folder.path().join("store"), folder.path().join("socket"));
    for _ in 0..2 {
        let mut served = Served::start(text(&store), &format!("unix:{}", text(&socket)));
        let line = served.said();
        assert!(line.ends_with(&format!("is served at unix:{}", text(&socket))), "{line}");
        let line = served.said();
        let at = line.split_once("http://").unwrap().1.strip_suffix("/metrics").unwrap();
        // A greeting of another protocol is no harm, and is counted.
        UnixStream::connect(&socket).unwrap().write_all(&[9; 40]).unwrap();
        let mut metrics = TcpStream::connect(at).unwrap();
        metrics.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut told = String::new();
        metrics.read_to_string(&mut told).unwrap();
        assert!(told.contains("# TYPE tacita_oram_queries_total counter"), "{told}");
        for target in [&socket, &store] {
            let output = tacita(&["status", "--json", text(target)]);
            let status: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(status["system"], "oram");
            assert_eq!(status["facts"]["queries"], 0, "{status}");
        }
        let second = tacita(&[
            "oram",
            "serve",
            text(&store),
            "--listen",
            &format!("unix:{}", text(&socket)),
        ]);
        assert_eq!(second.status.code(), Some(5), "{second:?}");
        served.stop();
        assert!(!socket.exists());
    }
}

/// What cannot be is refused, and panics nowhere.
#[test]
fn absurd_numbers_are_refused() {
    let large =
        ["--blocks", "2147483648", "--block-size", "64K", "--growth", "2", "--period", "16"];
    let at = ["unix:/nonexistent", "--key", "/nonexistent", "--nbd", "/nonexistent/socket"];
    let bench = ["unix:/nonexistent", "--key", "/nonexistent", "--latency", "18446744073709551615"];
    let rate = [&["oram", "export"], &at[..], &["--rate", "2000000000"]].concat();
    let plan = [&["oram", "plan"], &large[..]].concat();
    for (line, named) in [
        (plan, "cannot be built"),
        (rate, "1..=100000"),
        ([&["oram", "bench"], &bench[..]].concat(), "0..=1000"),
    ] {
        let output = tacita(&line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(named), "{said}");
    }
}

/// A scheme that there is not is refused, and the one that there is is named.
#[test]
fn a_scheme_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (store, key) = (folder.path().join("store"), folder.path().join("key"));
    let init = ["oram", "init", text(&store), "--key", text(&key), "--blocks", "600"];
    for command in [&init[..], &["oram", "plan", "--blocks", "600"]] {
        let output = tacita(&[command, &["--scheme", "ring"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("'ring'") && said.contains("[possible values: pd]"), "{said}");
        assert!(!store.exists() && !key.exists(), "{said}");
    }
    assert!(tacita(&[&init[..], &["--scheme", "pd"]].concat()).status.success());
}

#[test]
fn what_cannot_be_served_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let store = folder.path().join("store");
    let (file, store) = (text(&file), text(&store));
    let port = "127.0.0.1:0";
    let long = format!("unix:{}", "long/".repeat(50));
    for (code, arguments) in [
        (2, vec!["oram", "serve", store, "--listen", &long]),
        (2, vec!["oram", "serve", store]),
        (2, vec!["oram", "serve", store, "--listen", "nowhere"]),
        (2, vec!["oram", "serve", "s3://no", "--listen", port]),
        (2, vec!["oram", "serve", "s3://bucket", "--listen", port]),
        (2, vec!["oram", "serve", store, "--listen", port, "--metrics", "0.0.0.0:0"]),
        (4, vec!["oram", "serve", file, "--listen", port]),
        (4, vec!["oram", "serve", "redis://127.0.0.1:1/#a", "--listen", port]),
    ] {
        let output = tacita(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(!said.is_empty() && !said.contains("panicked"), "{said}");
    }
}

/// A path that something else than a socket has is no place to listen at: a slip of the hand takes no file away.
#[test]
fn what_is_no_socket_stays() {
    let bench = Bench::new();
    bench.serve();
    let thesis = bench.path("thesis");
    std::fs::write(&thesis, "years of work").unwrap();
    let listen = format!("unix:{thesis}");
    for line in [
        format!("serve {} --listen {listen}", bench.path("other")),
        format!("engine SERVER --key KEY --listen {listen}"),
        format!("trace SERVER --listen {listen}"),
    ] {
        let said = String::from_utf8(bench.ends(&line, 2).stderr).unwrap();
        assert!(said.contains("no socket") && said.contains("\n  "), "{line}: {said}");
        assert_eq!(std::fs::read_to_string(&thesis).unwrap(), "years of work", "{line}");
    }
}

/// Who listens there may be what is looked for: it is not the store's server that is missing.
#[test]
fn an_address_that_is_taken_is_busy() {
    let bench = Bench::new();
    bench.serve();
    let socket = format!("unix:{}", bench.path("taken"));
    let _taken = UnixListener::bind(bench.path("taken")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    for listen in [socket, port.local_addr().unwrap().to_string()] {
        for line in [
            format!("serve {} --listen {listen}", bench.path("other")),
            format!("engine SERVER --key KEY --listen {listen}"),
            format!("trace SERVER --listen {listen}"),
        ] {
            let said = String::from_utf8(bench.ends(&line, 5).stderr).unwrap();
            assert!(said.contains("listen there already"), "{line}: {said}");
        }
    }
}

/// What a second server remembers of the log grows old: clients that come to it would be shown a store of
/// before, and would clear away what the others need.
#[test]
fn a_store_has_one_server() {
    let bench = Bench::new();
    bench.serve();
    let second = format!("unix:{}", bench.path("second"));
    let output = tacita(&["oram", "serve", &bench.path("store"), "--listen", &second]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("another server") && said.contains("oram close"), "{said}");
    assert!(!Path::new(&bench.path("second")).exists());
    bench.ends("close STORE", 0);
    bench.serve();
}

#[test]
fn a_server_says_that_its_storage_fails() {
    let bench = Bench::new();
    let address = format!("unix:{}", bench.path("server"));
    let mut served = Served::start(&bench.path("store"), &address);
    assert!(served.said().contains("is served at") && served.said().contains("counts"));
    // As of a disk that fails: what is there cannot be read.
    let manifests = bench.path("store/manifest");
    run("mv", &[&manifests, &bench.path("elsewhere")]);
    std::fs::write(&manifests, b"").unwrap();
    for _ in 0..2 {
        bench.ends("check SERVER --key KEY", 4);
    }
    let said = served.said();
    assert!(said.starts_with("tacita: storage fails: ") && said.contains("store"), "{said}");
    let status = tacita(&["status", "--json", &bench.path("server")]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert!(status["facts"]["storage_failures"].as_u64().unwrap() >= 2, "{status}");
    // As clients name it, too.
    assert_eq!(tacita(&["status", &address]).status.code(), Some(0));
    served.stop();
}

/// A store in a folder of its own, its key, and whatever serves or exports it; all ended with it.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// A store of 600 blocks, with a log so short that all levels are soon there.
    fn new() -> Self {
        Self::of(600, 16)
    }

    fn of(blocks: u64, period: u64) -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        let init = format!("init STORE --key KEY --blocks {blocks} --period {period} --json");
        let made = bench.oram(&init);
        assert_eq!(made.status.code(), Some(0), "{made:?}");
        let facts: Value = serde_json::from_slice(&made.stdout).unwrap();
        assert_eq!((&facts["blocks"], &facts["new_key"]), (&blocks.into(), &true.into()));
        bench
    }

    fn path(&self, name: &str) -> String {
        text(&self.folder.path().join(name)).to_owned()
    }

    /// Runs `tacita oram`, where STORE, KEY, SERVER (an address), DISK (a socket) stand for those of this
    /// bench.
    fn oram(&self, line: &str) -> Output {
        let mut arguments = vec!["oram".to_owned()];
        arguments.extend(line.split(' ').map(|word| match word {
            "STORE" => self.path("store"),
            "KEY" => self.path("key"),
            "SERVER" => format!("unix:{}", self.path("server")),
            "DISK" => self.path("disk"),
            other => other.to_owned(),
        }));
        tacita(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[track_caller]
    fn ends(&self, line: &str, code: i32) -> Output {
        let output = self.oram(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        output
    }

    #[track_caller]
    fn serve(&self) {
        self.ends("serve STORE --listen SERVER", 0);
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///oram?socket={}", self.path("disk"))
    }

    /// Kills the process that serves at `name`, and waits until it is gone.
    fn kill(&self, name: &str) {
        kill_daemon(&tacita(&["status", "--json", &self.path(name)]).stdout);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for name in ["disk", "disk-2", "engine", "server"] {
            let _ = tacita(&["oram", "close", &self.path(name)]);
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// Bytes that are nowhere alike.
fn content(len: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    (0..len).map(|_| byte()).collect()
}

/// An address that is taken is another matter than one that is not to be had.
#[test]
fn addresses_that_cannot_be_listened_at_have_a_remedy() {
    let bench = Bench::new();
    bench.serve();
    let missing = bench.path("nowhere/socket");
    let refused = |line: &str, code| {
        let said = bench.ends(line, code).stderr;
        String::from_utf8_lossy(&said).into_owned()
    };
    // TEST-NET-1 is nobody's.
    let store = bench.path("store-2");
    for address in [format!("unix:{missing}"), "192.0.2.1:7000".to_owned()] {
        let said = refused(&format!("serve {store} --listen {address}"), 2);
        assert!(said.contains(&address) && said.contains("address of this machine"), "{said}");
        let said = refused(&format!("engine SERVER --key KEY --listen {address}"), 2);
        assert!(said.contains(&address) && said.contains("address of this machine"), "{said}");
    }
    // The remedy is told once, and is no part of the cause.
    let said = refused(&format!("serve {store} --listen unix:{missing}"), 2);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].ends_with("(os error 2)"), "{said}");
    assert!(refused(&format!("serve {store} --listen SERVER"), 5).contains("another server"));
    let said = refused(&format!("export SERVER --key KEY --nbd {missing}"), 2);
    assert!(said.contains("nowhere/socket") && said.contains("a folder that is there"), "{said}");
    let said = refused(&format!("export SERVER --key KEY --nbd {}", bench.path("server")), 5);
    assert!(said.contains("`tacita status SOCKET`"), "{said}");
    bench.ends("export SERVER --key KEY --nbd DISK", 0);
    bench.ends("close DISK", 0);
    assert!(refused("close DISK", 2).contains("not served"));
}

/// A full disk below a store, or below its key, is no other failure of what they are kept in.
#[test]
fn a_full_disk_is_told() {
    let (bench, full) = (Bench::new(), tempfile::tempdir().unwrap());
    let mount = ["-t", "tmpfs", "-o", "size=1M", "none", text(full.path())];
    let mounted = Command::new("mount").args(mount).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a_full_disk_is_told: no tmpfs can be mounted here");
        return;
    }
    let filled = std::fs::write(full.path().join("filler"), vec![7; 2 << 20]);
    let (store, key) = (text(&full.path().join("store")).to_owned(), full.path().join("key"));
    let refused = |line: String| {
        let output = bench.oram(&line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said.contains("No space left") && said.contains("make room there"))
    };
    let below_store = refused(format!("init {store} --key KEY --blocks 600"));
    let line = format!("init {} --key {} --blocks 600", bench.path("store-3"), text(&key));
    let below_key = refused(line);
    let is_left = key.exists();
    run("umount", &[text(full.path())]);
    assert!(filled.is_err(), "it is not full");
    assert_eq!((below_store, below_key), ((Some(6), true), (Some(6), true)));
    assert!(!is_left, "a key without content");
}

/// Where no store can be made, no key is left behind, and one that was there stays.
#[test]
fn a_failed_init_leaves_no_key() {
    let bench = Bench::new();
    let (plain, key) = (bench.path("plain"), bench.path("key-2"));
    std::fs::write(&plain, b"").unwrap();
    for store in [plain.clone(), format!("{plain}/below"), "unix:/nowhere#name".to_owned()] {
        bench.ends(&format!("init {store} --key {key} --blocks 600"), 4);
        assert!(!Path::new(&key).exists(), "{store}");
        bench.ends(&format!("init {store} --key KEY --blocks 600"), 4);
        assert!(Path::new(&bench.path("key")).exists(), "{store}");
    }
}

/// As when another command makes it meanwhile.
#[test]
fn a_key_that_has_come_meanwhile_stays() {
    let bench = Bench::new();
    let key = bench.path("key-2");
    std::os::unix::fs::symlink("nowhere", &key).unwrap();
    let said = bench.ends(&format!("init {} --key {key} --blocks 600", bench.path("new")), 2);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("as it was") && said.contains("begin again"), "{said}");
    assert!(Path::new(&key).is_symlink() && !Path::new(&bench.path("new")).exists());
}

#[test]
fn a_disk_on_a_server_keeps_what_is_written() {
    let test = "a_disk_on_a_server_keeps_what_is_written";
    if tacita_testkit::skip_without(test, &["nbdcopy"]) {
        return;
    }
    let bench = Bench::new();
    bench.ends("init STORE --key KEY --blocks 600", 5);
    bench.serve();
    bench.ends("export SERVER --key KEY --nbd DISK", 0);
    let (there, back) = (bench.path("there"), bench.path("back"));
    let written = content(500 * 4096, 3);
    std::fs::write(&there, &written).unwrap();
    run("nbdcopy", &[&there, &bench.uri()]);
    run("nbdcopy", &[&bench.uri(), &back]);
    let read = std::fs::read(&back).unwrap();
    assert!(read.len() == 600 * 4096 && read[..written.len()] == written);
    assert!(read[written.len()..].iter().all(|byte| *byte == 0));

    // Whoever looks disturbs nobody; who would write has to wait or to take over.
    let status = bench.ends("status SERVER --key KEY --json", 0);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert!(status["queries"].as_u64().unwrap() >= 1100, "{status}");
    bench.ends("check SERVER --key KEY", 0);
    let anchor = bench.path("anchor-2");
    let second =
        format!("export SERVER --key KEY --anchor {anchor} --nbd {}", bench.path("disk-2"));
    bench.ends(&second, 5);
    run("nbdcopy", &[&bench.uri(), &back]);
    bench.ends(&format!("{second} --rate 0"), 2);
    bench.ends(&format!("{second} --take-over"), 0);
    bench.ends(&format!("close {}", bench.path("disk-2")), 0);
    bench.ends("close DISK", 0);
    let checked = bench.ends("check SERVER --key KEY --json", 0);
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert!(checked["items"].as_u64().unwrap() > 600 && checked["damage"] == serde_json::json!([]));
    let status = bench.ends("status SERVER --key KEY --json", 0);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert!(status["queries"].as_u64().unwrap() >= 1100, "{status}");
    bench.ends("bench SERVER --key KEY --queries 50 --clients 5", 0);
    for absurd in ["--clients 0", "--clients 257", "--clients 40000", "--queries 0"] {
        bench.ends(&format!("bench SERVER --key KEY {absurd}"), 2);
    }

    // The server is killed, and nothing that was answered is lost.
    bench.kill("server");
    bench.serve();
    bench.ends("export SERVER --key KEY --nbd DISK", 0);
    run("nbdcopy", &[&bench.uri(), &back]);
    assert!(std::fs::read(&back).unwrap()[..written.len()] == written);
    // So is whoever exports it.
    let changed = content(500 * 4096, 4);
    std::fs::write(&there, &changed).unwrap();
    run("nbdcopy", &[&there, &bench.uri()]);
    bench.kill("disk");
    bench.ends("export SERVER --key KEY --nbd DISK", 0);
    run("nbdcopy", &[&bench.uri(), &back]);
    assert!(std::fs::read(&back).unwrap()[..changed.len()] == changed);
}

#[test]
fn many_ask_through_one_engine() {
    let test = "many_ask_through_one_engine";
    if tacita_testkit::skip_without(test, &["nbdcopy"]) {
        return;
    }
    let bench = Bench::new();
    bench.serve();
    let engine = format!("unix:{}", bench.path("engine"));
    bench.ends(&format!("engine SERVER --key KEY --listen {engine}"), 0);
    let (there, back) = (bench.path("there"), bench.path("back"));
    let written = content(200 * 4096, 5);
    std::fs::write(&there, &written).unwrap();
    bench.ends(&format!("export engine:{engine} --key KEY --nbd DISK"), 0);
    let second = format!("export engine:{engine} --key KEY --nbd {}", bench.path("disk-2"));
    bench.ends(&second, 0);
    run("nbdcopy", &[&there, &bench.uri()]);
    let other = format!("nbd+unix:///oram?socket={}", bench.path("disk-2"));
    run("nbdcopy", &[&other, &back]);
    assert!(std::fs::read(&back).unwrap()[..written.len()] == written);
    let status = bench.ends(&format!("status engine:{engine} --key KEY --json"), 0);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert!(status["queries"].as_u64().unwrap() >= 800, "{status}");
    bench.ends(&format!("bench engine:{engine} --key KEY --queries 50"), 0);

    // The engine is killed in the middle of what it is asked; another one goes on.
    let changed = content(200 * 4096, 6);
    std::fs::write(&there, &changed).unwrap();
    let mut copying = Command::new("nbdcopy").args([&there, &bench.uri()]).spawn().unwrap();
    bench.kill("engine");
    bench.ends(&format!("engine SERVER --key KEY --listen {engine}"), 0);
    assert!(copying.wait().unwrap().success());
    run("nbdcopy", &[&other, &back]);
    assert!(std::fs::read(&back).unwrap()[..changed.len()] == changed);

    // Who has no key does not enter, and what is the engine's own is not a user's to say.
    let stranger = bench.path("stranger");
    std::fs::write(&stranger, format!("tacita-oram-key-1 {}\n", "ab".repeat(32))).unwrap();
    bench.ends(&format!("status engine:{engine} --key {stranger}"), 3);
    bench.ends(&format!("{second} --rate 5"), 2);
    bench.ends(&format!("check engine:{engine} --key KEY"), 2);
    bench.ends(&format!("close {}", bench.path("engine")), 0);
    assert!(!std::path::Path::new(&bench.path("engine")).exists());
}

#[test]
fn several_clients_write_at_once_by_a_shared_anchor() {
    let test = "several_clients_write_at_once_by_a_shared_anchor";
    if tacita_testkit::skip_without(test, &["nbdcopy"]) {
        return;
    }
    let bench = Bench::new();
    bench.serve();
    let shared = format!("--shared-anchor {}", bench.path("together"));
    let second = bench.path("disk-2");
    bench.ends(&format!("export SERVER --key KEY {shared} --nbd DISK"), 0);
    bench.ends(&format!("export SERVER --key KEY {shared} --nbd {second}"), 0);
    let (there, back) = (bench.path("there"), bench.path("back"));
    let written = content(300 * 4096, 7);
    std::fs::write(&there, &written).unwrap();
    let other = format!("nbd+unix:///oram?socket={second}");
    run("nbdcopy", &[&there, &bench.uri()]);
    run("nbdcopy", &[&other, &back]);
    assert!(std::fs::read(&back).unwrap()[..written.len()] == written);

    // Who does not share it is refused, and so is a wish that cannot be.
    let alone = format!("export SERVER --key KEY --nbd {}", bench.path("disk-3"));
    bench.ends(&alone, 5);
    bench.ends(&format!("{alone} --shared-anchor memory:"), 2);
    bench.ends(&format!("{alone} {shared} --anchor {}", bench.path("own")), 2);

    // Whoever builds is killed in the middle of a copy; the other one goes on, and the store is whole.
    let changed = content(300 * 4096, 8);
    std::fs::write(&there, &changed).unwrap();
    let mut copying = Command::new("nbdcopy").args([&there, &other]).spawn().unwrap();
    bench.kill("disk");
    assert!(copying.wait().unwrap().success());
    bench.ends(&format!("export SERVER --key KEY {shared} --nbd DISK"), 0);
    run("nbdcopy", &[&bench.uri(), &back]);
    assert!(std::fs::read(&back).unwrap()[..changed.len()] == changed);
    bench.ends("close DISK", 0);
    bench.ends(&format!("close {second}"), 0);
    bench.ends(&format!("check SERVER --key KEY {shared}"), 0);

    // The server is set back: no member believes it.
    bench.ends(&format!("bench SERVER --key KEY {shared} --queries 20"), 0);
    bench.kill("server");
    let (store, copy) = (bench.path("store"), bench.path("copy"));
    run("cp", &["-a", &store, &copy]);
    bench.serve();
    bench.ends(&format!("bench SERVER --key KEY {shared} --queries 20"), 0);
    bench.kill("server");
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::rename(&copy, &store).unwrap();
    bench.serve();
    bench.ends(&format!("status SERVER --key KEY {shared}"), 1);
    bench.ends(&format!("export SERVER --key KEY {shared} --nbd DISK"), 1);
}

#[test]
fn a_store_that_was_set_back_or_altered_is_not_believed() {
    let test = "a_store_that_was_set_back_or_altered_is_not_believed";
    if tacita_testkit::skip_without(test, &["nbdcopy"]) {
        return;
    }
    let bench = Bench::new();
    let there = bench.path("there");
    let write = |seed| {
        std::fs::write(&there, content(300 * 4096, seed)).unwrap();
        bench.serve();
        bench.ends("export SERVER --key KEY --nbd DISK", 0);
        run("nbdcopy", &[&there, &bench.uri()]);
        bench.ends("close DISK", 0);
        bench.ends("close STORE", 0);
    };
    write(1);
    run("cp", &["-a", &bench.path("store"), &bench.path("older")]);
    write(2);
    run("mv", &[&bench.path("store"), &bench.path("newer")]);
    run("mv", &[&bench.path("older"), &bench.path("store")]);
    bench.serve();
    let refused = bench.ends("export SERVER --key KEY --nbd DISK", 1);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("set back") && said.contains("restore"), "{said}");
    bench.ends("close STORE", 0);

    run("rm", &["-r", &bench.path("store")]);
    run("mv", &[&bench.path("newer"), &bench.path("store")]);
    bench.serve();
    let warns = |done: Output| {
        String::from_utf8_lossy(&done.stderr).contains("can be read by others: chmod 600 it")
    };
    assert!(!warns(bench.ends("check SERVER --key KEY", 0)));
    let other = bench.path("other");
    std::fs::write(&other, format!("tacita-oram-key-1 {}\n", "ab".repeat(32))).unwrap();
    std::fs::set_permissions(&other, Permissions::from_mode(0o640)).unwrap();
    assert!(warns(bench.ends(&format!("check SERVER --key {other}"), 3)));
    bench.ends("close STORE", 0);
    // One byte of an item of each object.
    let find = format!("find {} -name 'items-*'", bench.path("store"));
    let found = Command::new("sh").args(["-c", &find]).output().unwrap();
    for object in String::from_utf8(found.stdout).unwrap().lines() {
        let mut bytes = std::fs::read(object).unwrap();
        let last = bytes.len() - 5;
        bytes[last] ^= 1;
        std::fs::write(object, bytes).unwrap();
    }
    bench.serve();
    bench.ends("check SERVER --key KEY", 1);
}

/// The same store in a bucket, whose server is killed meanwhile.
#[test]
fn a_bucket_keeps_a_store() {
    let test = "a_bucket_keeps_a_store";
    if tacita_testkit::skip_without(test, &["nbdcopy"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(mut buckets) = S3Server::start(test, &folder.path().join("buckets")) else { return };
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    let endpoint = format!("http://{}", buckets.address());
    let server = format!("unix:{}", path("server"));
    let ends = |line: &str, secret: &str, code: i32| {
        let mut arguments = vec!["oram".to_owned()];
        arguments.extend(line.split(' ').map(|word| match word {
            "STORE" => format!("s3://{BUCKET}/a/store"),
            "SERVER" => server.clone(),
            "KEY" => path("key"),
            "DISK" => path("disk"),
            other => other.to_owned(),
        }));
        let mut command = command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", secret);
        command.env("AWS_ENDPOINT_URL", &endpoint).env("AWS_REGION", "us-east-1");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains(SECRET) && !said.contains(KEY_ID), "{said}");
        said
    };
    ends("init STORE --key KEY --blocks 600 --period 16", SECRET, 0);
    ends("init STORE --key KEY --blocks 600 --period 16", SECRET, 5);
    if buckets.is_strict() {
        let said = ends("serve STORE --listen SERVER", "wrong", 4);
        assert!(said.contains("AWS_SECRET_ACCESS_KEY"), "{said}");
    }
    let said = ends("serve s3://no-such-bucket --listen SERVER", SECRET, 4);
    assert!(said.contains("no such bucket"), "{said}");
    let said = ends("serve STORE --listen SERVER", SECRET, 0);
    assert!(said.contains("s3://bucket/a/store is served at"), "{said}");
    ends("export SERVER --key KEY --nbd DISK", SECRET, 0);
    let (there, back) = (path("there"), path("back"));
    let written = content(200 * 4096, 5);
    std::fs::write(&there, &written).unwrap();
    let uri = format!("nbd+unix:///oram?socket={}", path("disk"));
    // Few at once: moto answers them one after the other, and a request waits for all before it.
    let few = ["--connections=1", "--requests=4", "--request-size=16384"];
    let copy = |from: &str, to: &str| run("nbdcopy", &[&few[..], &[from, to]].concat());
    copy(&there, &uri);
    if buckets.is_durable() {
        buckets.kill();
        buckets.begin();
    }
    copy(&uri, &back);
    assert!(std::fs::read(&back).unwrap()[..written.len()] == written);
    ends("close DISK", SECRET, 0);
    ends("check SERVER --key KEY", SECRET, 0);
    ends(&format!("close {}", path("server")), SECRET, 0);
}

/// The same by a profile of the files that other programs have; what is wrong with them is told.
#[test]
fn a_bucket_by_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    std::fs::create_dir(path(".aws")).unwrap();
    let write = |name: &str, content: &str| {
        std::fs::write(path(name), content).unwrap();
        run("chmod", &["600", &path(name)]);
    };
    let (server, store) = (format!("unix:{}", path("server")), format!("s3://{BUCKET}/a/store"));
    let ends = |line: &str, profile: &str, code: i32| {
        let words = line.split(' ').map(|word| match word {
            "STORE" => store.clone(),
            "SERVER" => server.clone(),
            "KEY" => path("key"),
            other => other.to_owned(),
        });
        let arguments: Vec<_> = ["oram".to_owned()].into_iter().chain(words).collect();
        let mut command = command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.env_remove("AWS_SHARED_CREDENTIALS_FILE").env_remove("AWS_CONFIG_FILE");
        let output =
            command.env("HOME", folder.path()).env("AWS_PROFILE", profile).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(!said.contains(SECRET) && !said.contains(KEY_ID), "{said}");
        said
    };
    let keys = format!("aws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n");
    write(".aws/credentials", &format!("[mine]\n{keys}[half]\naws_secret_access_key = {SECRET}\n"));
    for (profile, words) in [
        ("half", [".aws/credentials", "aws_access_key_id"]),
        ("nobody", ["AWS_PROFILE", "[profile NAME]"]),
    ] {
        let said = ends("serve STORE --listen SERVER", profile, 2);
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    write(".aws/config", &format!("[profile mine]\nregion {SECRET}\n"));
    let said = ends("serve STORE --listen SERVER", "mine", 2);
    assert!(said.contains(".aws/config: line 2"), "{said}");
    let test = "a_bucket_by_a_profile";
    let Some(buckets) = S3Server::start(test, &folder.path().join("buckets")) else { return };
    let endpoint = format!("http://{}", buckets.address());
    write(
        ".aws/config",
        &format!("[profile mine]\nregion = us-east-1\nendpoint_url = {endpoint}\n"),
    );
    assert_eq!(
        ends("init STORE --key KEY --blocks 600 --period 16", "mine", 0).find("chmod"),
        None
    );
    run("chmod", &["644", &path(".aws/credentials")]);
    let said = ends("serve STORE --listen SERVER", "mine", 0);
    assert!(said.contains("can be read by others: chmod 600"), "{said}");
    ends("check SERVER --key KEY", "mine", 0);
    ends(&format!("close {}", path("server")), "mine", 0);
}

/// A recorder in the place of SERVER, at the socket `name`, killed if a test fails.
struct Recorded(Child);

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Recorded {
    fn start(bench: &Bench, name: &str, more: &[&str]) -> Self {
        let (server, listen) = (bench.path("server"), bench.path(name));
        let (server, listen) = (format!("unix:{server}"), format!("unix:{listen}"));
        let arguments = [&["oram", "trace", &server, "--listen", &listen][..], more].concat();
        let mut command = command(&arguments);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("is recorded at unix:"), "{said}");
        Self(process)
    }

    /// Ends it; what it told at last.
    fn end(mut self) -> Value {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let mut told = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0), "{told}");
        serde_json::from_str(&told).unwrap()
    }
}

#[test]
fn what_the_server_sees_is_recorded_drawn_and_compared() {
    let bench = Bench::new();
    bench.serve();
    let (trace, svg) = (bench.path("trace"), bench.path("trace.svg"));
    let recorded = Recorded::start(&bench, "recorder", &["--out", &trace, "--svg", &svg, "--json"]);
    let through =
        format!("bench unix:{} --key KEY --queries 150 --clients 1", bench.path("recorder"));
    bench.ends(&through, 0);
    assert!(!Path::new(&trace).exists(), "it is there when it is whole");
    let told = recorded.end();
    assert_eq!((&told["queries"], &told["undecoded_bytes"]), (&150.into(), &0.into()), "{told}");
    assert_eq!(told["labels_again"], 0, "{told}");
    assert!(told["labels"].as_u64().unwrap() > 150, "{told}");
    assert!(told["connections"].as_u64().unwrap() >= 3, "{told}");
    assert!(!Path::new(&bench.path("recorder")).exists());
    assert!(std::fs::read_to_string(&svg).unwrap().contains("150 queries"));

    // What was recorded tells the same when it is read, and is like itself.
    let again = bench.ends(&format!("trace --from {trace} --json"), 0);
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout).unwrap(), told);
    std::fs::remove_file(&svg).unwrap();
    let equal = bench.ends(&format!("trace --from {trace} --from {trace} --svg {svg}"), 0);
    let said = String::from_utf8(equal.stdout).unwrap();
    assert!(said.contains("shape              equal\norder              equal\n"), "{said}");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("one shape"));

    // One frame less is another shape; another label is not.
    let text = std::fs::read_to_string(&trace).unwrap();
    let (other, odd) = (bench.path("other"), bench.path("odd"));
    let last = text.trim_end().rfind('\n').unwrap();
    std::fs::write(&other, &text[..=last]).unwrap();
    let differs = bench.ends(&format!("trace --from {trace} --from {other} --json"), 1);
    let differs: Value = serde_json::from_slice(&differs.stdout).unwrap();
    assert_eq!(differs["same_shape"], false);
    assert!(differs["difference"].as_str().unwrap().contains("of them and"), "{differs}");
    let relabelled: Vec<String> = text.lines().map(relabelled).collect();
    std::fs::write(&other, relabelled.join("\n") + "\n").unwrap();
    assert_ne!(std::fs::read_to_string(&other).unwrap(), text);
    bench.ends(&format!("trace --from {trace} --from {other}"), 0);
    std::fs::write(&odd, "tacita oram trace 2\n").unwrap();
    bench.ends(&format!("trace --from {odd}"), 4);
    bench.ends(&format!("trace --from {}", bench.path("absent")), 4);
    bench.ends(&format!("trace --from {odd} --from {odd} --from {odd}"), 2);
    for usage in
        ["trace", "trace SERVER", "trace SERVER --from x", "trace --listen SERVER --from x"]
    {
        bench.ends(usage, 2);
    }
    bench
        .ends(&format!("trace unix:{} --listen unix:{}", bench.path("nobody"), bench.path("x")), 4);
}

/// The line of a trace with another label, if it has one.
fn relabelled(line: &str) -> String {
    let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
    if let Some((generation, label)) = fields.get(6).and_then(|item| item.rsplit_once('-')) {
        let label: String = label.chars().rev().collect();
        fields[6] = format!("{generation}-{label}");
    }
    fields.join(",")
}

/// A store that is served by TLS, with a certificate that the server has made for itself.
#[test]
fn a_store_is_used_by_tls() {
    let test = "a_store_is_used_by_tls";
    if tacita_testkit::skip_without(test, &["nbdcopy", "openssl"]) {
        return;
    }
    let bench = Bench::new();
    let (pem, key, other) = (bench.path("pem"), bench.path("tls-key"), bench.path("other"));
    for (pem, key) in [(&pem, &key), (&other, &bench.path("other-key"))] {
        let words =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -days 9";
        let words: Vec<_> = words.split(' ').chain(["-out", pem, "-keyout", key]).collect();
        run("openssl", &words);
    }
    let listen = "serve STORE --listen tls:127.0.0.1:0";
    bench.ends(listen, 2);
    bench.ends(&format!("{listen} --tls-certificate {pem}"), 2);
    bench.ends(&format!("serve STORE --listen SERVER --tls-certificate {pem} --tls-key {key}"), 2);
    let refused = bench.ends(&format!("{listen} --tls-certificate {other} --tls-key {key}"), 2);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not the key of"), "{refused:?}");
    let served =
        bench.ends(&format!("{listen} --listen SERVER --tls-certificate {pem} --tls-key {key}"), 0);
    let said = String::from_utf8(served.stderr).unwrap();
    let at = said.lines().find_map(|line| line.split_once("is served at tls:")).unwrap().1;

    for (line, code, word) in [
        (format!("check tls:{at} --key KEY"), 4, "--tls-root"),
        (format!("check tls:{at} --key KEY --tls-root {other}"), 4, "--tls-root"),
        (format!("check {at} --key KEY"), 4, "tls:HOST:PORT"),
        (format!("check {at} --key KEY --tls-root {pem}"), 2, "tls:HOST:PORT alone"),
        (format!("check tls:{at} --key KEY --tls-root {key}"), 2, "no certificate"),
    ] {
        let refused = bench.ends(&line, code);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains(word), "{line}: {said}");
    }
    bench.ends(&format!("export tls:{at} --key KEY --tls-root {pem} --nbd DISK"), 0);
    let (there, back) = (bench.path("there"), bench.path("back"));
    let written = content(200 * 4096, 6);
    std::fs::write(&there, &written).unwrap();
    run("nbdcopy", &[&there, &bench.uri()]);
    run("nbdcopy", &[&bench.uri(), &back]);
    assert!(std::fs::read(&back).unwrap()[..written.len()] == written);
    bench.ends("close DISK", 0);
    bench.ends(&format!("bench tls:{at} --key KEY --tls-root {pem} --queries 50"), 0);
    bench.ends(&format!("check tls:{at} --key KEY --tls-root {pem}"), 0);
}
