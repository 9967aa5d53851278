//! The program is the game: worlds without a hidden volume, with an idle and with busy ones see the
//! same public history, by every command. Whoever has the public password and copies of the device, a
//! second reader of its format, and what public commands say, cannot tell them apart.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tacita_testkit::Watchdog;
use tacita_testkit::history::Rng;

const TIME_MAX: Duration = Duration::from_mins(8);
const READER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../pddm/tests/second_reader/read_device.py");

/// What is hidden in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hidden {
    Nothing,
    /// So many volumes, open and never used.
    Idle(usize),
    /// So many, written and flushed at the same time as the public one.
    Busy(usize),
}

impl Hidden {
    const fn volumes(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Idle(count) | Self::Busy(count) => count,
        }
    }
}

struct World {
    hidden: Hidden,
    folder: tempfile::TempDir,
    /// Exit codes and words of public commands.
    said: Vec<String>,
    /// Copies of the device.
    copies: Vec<String>,
}

/// A device that is served, and hidden clients at work.
struct Open {
    daemon: Child,
    clients: Vec<Child>,
}

impl World {
    fn new(hidden: Hidden) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["public", "hidden", "hidden2", "new"] {
            fs::write(folder.path().join(name), format!("the {name} password\n")).unwrap();
        }
        Self { hidden, folder, said: Vec::new(), copies: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The password that its owner uses.
    fn own(&self) -> String {
        self.path(["public", "hidden", "hidden2"][self.hidden.volumes()])
    }

    fn run(arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tacita"))
            .arg("pddm")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// A public command: what it says is what the adversary sees.
    fn public(&mut self, arguments: &[&str]) {
        let output = Self::run(arguments);
        let folder = self.path("");
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(folder.trim_end_matches('/'), "FOLDER")
        };
        let (code, out, err) = (output.status.code(), text(&output.stdout), text(&output.stderr));
        self.said.push(format!("{} {code:?}\n{out}{err}", arguments[0]));
    }

    fn init(&mut self) {
        let (device, public) = (self.path("device"), self.path("public"));
        let hidden: Vec<String> =
            ["hidden", "hidden2"][..self.hidden.volumes()].iter().map(|n| self.path(n)).collect();
        let mut arguments = vec!["init", &device, "--size", "12M", "--classes", "2"];
        arguments.extend(["--heartbeat", "0", "--password-file", &public]);
        for file in &hidden {
            arguments.extend(["--hidden-password-file", file]);
        }
        self.public(&arguments);
    }

    fn open(&self, password: &str, more: &[&str]) -> Open {
        let (device, socket) = (self.path("device"), self.path("socket"));
        let daemon = Command::new(env!("CARGO_BIN_EXE_tacita"))
            .args(["pddm", "open", &device, "--nbd", &socket, "--foreground"])
            .args(["--password-file", password])
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while Self::run(&["status", &socket]).status.code() != Some(0) {
            std::thread::sleep(Duration::from_millis(20));
        }
        Open { daemon, clients: Vec::new() }
    }

    fn client(&self, export: &str, commands: &[String]) -> Child {
        let uri = format!("nbd+unix:///{export}?socket={}", self.path("socket"));
        let mut client = Command::new("qemu-io");
        client.args(["-f", "raw"]);
        for command in commands {
            client.args(["-c", command]);
        }
        client.arg(uri).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        client.spawn().unwrap()
    }

    /// Public traffic, and at the same time hidden traffic where there is any.
    fn traffic(&self, open: &mut Open, seed: u64) {
        if let Hidden::Busy(count) = self.hidden {
            for export in &["hidden", "hidden2"][..count] {
                let mut rng = Rng::new(seed ^ 0x5eed);
                let write = |rng: &mut Rng| {
                    let (at, len) = (rng.below(100) * 4, 4 + rng.below(15) * 4);
                    format!("write -P {} {at}k {len}k", 1 + rng.below(200))
                };
                let mut commands: Vec<String> = (0..6).map(|_| write(&mut rng)).collect();
                commands.insert(3, "flush".to_owned());
                commands.push("discard 40k 64k".to_owned());
                commands.push("flush".to_owned());
                open.clients.push(self.client(export, &commands));
            }
        }
        let mut rng = Rng::new(seed);
        let mut commands = Vec::new();
        for _ in 0..8 {
            let (at, len) = (rng.below(500) * 4, 4 + rng.below(60) * 4);
            commands.push(match rng.below(6) {
                0 => "flush".to_owned(),
                1 => format!("discard {at}k {len}k"),
                _ => format!("write -P {} {at}k {len}k", 1 + rng.below(200)),
            });
        }
        commands.push("flush".to_owned());
        assert!(self.client("public", &commands).wait().unwrap().success());
    }

    /// Ends a session as its owner says.
    fn close(&mut self, mut open: Open, how: &str) {
        let socket = self.path("socket");
        self.public(&["close", how, &socket]);
        assert!(open.daemon.wait().unwrap().success());
        open.clients.iter_mut().for_each(|client| _ = client.wait());
    }

    fn kill(mut open: Open) {
        open.daemon.kill().unwrap();
        open.daemon.wait().unwrap();
        open.clients.iter_mut().for_each(|client| _ = client.wait());
    }

    fn copy(&mut self) {
        let to = self.path(&format!("copy{}", self.copies.len()));
        fs::copy(self.path("device"), &to).unwrap();
        self.copies.push(to);
    }

    /// The whole story.
    fn live(&mut self, seed: u64) {
        let (device, socket, public) =
            (self.path("device"), self.path("socket"), self.path("public"));
        let (own, new) = (self.own(), self.path("new"));
        self.init();
        self.public(&["check", &device, "--password-file", &public]);
        for round in 0..3 {
            let mut open = self.open(&own, &[]);
            self.traffic(&mut open, seed * 100 + round);
            self.public(&["status", &socket, "--json"]);
            // No flag, no terminal: nothing is done.
            self.public(&["close", &socket]);
            self.close(open, if round == 1 { "--sweep" } else { "--drop" });
        }
        self.copy();
        for (old, new) in [(&own, &new), (&new, &own)] {
            let with = ["--password-file", old, "--new-password-file", new];
            self.public(&[&["passwd", &device][..], &with].concat());
        }
        // Killed, with hidden requests under way.
        let mut open = self.open(&own, &["--hidden-flush", "durable"]);
        self.traffic(&mut open, seed * 100 + 50);
        Self::kill(open);
        self.public(&["check", &device, "--password-file", &public, "--json"]);
        // A while with the public password.
        let open = self.open(&public, &["--public-only"]);
        assert!(
            self.client("public", &["write -P 9 0 8k".into(), "flush".into()])
                .wait()
                .unwrap()
                .success()
        );
        self.public(&["status", &socket]);
        self.public(&["sweep", &socket]);
        self.close(open, "--drop");
        self.copy();
        let mut open = self.open(&own, &[]);
        self.traffic(&mut open, seed * 100 + 60);
        self.public(&["sweep", &socket, "--public-only"]);
        self.close(open, "--drop");
        self.public(&["sweep", &device, "--password-file", &own, "--public-only"]);
        self.public(&["check", &device, "--password-file", &public]);
        self.copy();
    }
}

/// Whether two copies are the same to whoever has the public password; says what is not.
fn compare(a: &str, b: &str, password: &str, macs: &str) -> Result<(), String> {
    let output = Command::new("/usr/bin/python3")
        .env("TACITA_MACS", macs)
        .args([READER, "compare", a, b, password])
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
}

fn cannot(test: &str) -> bool {
    let modules = ["-c", "import argon2, cryptography"];
    let python = Command::new("/usr/bin/python3").args(modules).output();
    let reads = python.is_ok_and(|output| output.status.success());
    let writes = Command::new("qemu-io").arg("--version").output().is_ok();
    if !reads || !writes || !Path::new(READER).exists() {
        eprintln!("SKIPPED: {test}: needs python3-argon2, python3-cryptography and qemu-io");
        return true;
    }
    false
}

#[test]
fn no_command_tells_the_worlds_apart() {
    let test = "no_command_tells_the_worlds_apart";
    if cannot(test) {
        return;
    }
    let seeds: Option<u64> = std::env::var("TACITA_WORLDS").ok().and_then(|n| n.parse().ok());
    let kinds = match seeds {
        None => &[Hidden::Nothing, Hidden::Busy(1)][..],
        Some(_) => {
            &[Hidden::Nothing, Hidden::Idle(1), Hidden::Busy(1), Hidden::Idle(2), Hidden::Busy(2)]
        }
    };
    let macs = if seeds.is_some() { "4" } else { "16" };
    for seed in 0..seeds.unwrap_or(1) {
        let _watchdog = Watchdog::start(test, TIME_MAX);
        let worlds: Vec<World> = std::thread::scope(|scope| {
            let live = |kind: Hidden| {
                let mut world = World::new(kind);
                world.live(seed);
                world
            };
            let threads: Vec<_> =
                kinds.iter().map(|kind| scope.spawn(move || live(*kind))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (first, others) = worlds.split_first().unwrap();
        for other in others {
            for (a, b) in first.said.iter().zip(&other.said) {
                assert_eq!(a, b, "seed {seed}: {:?}", other.hidden);
            }
            for (n, (a, b)) in first.copies.iter().zip(&other.copies).enumerate() {
                let found = compare(a, b, &first.path("public"), macs);
                assert_eq!(found, Ok(()), "seed {seed}: {:?}, copy {n}", other.hidden);
            }
        }
        // The judge sees what there is to see.
        let (a, b) = (&first.copies[0], &first.copies[1]);
        compare(a, b, &first.path("public"), "1000").unwrap_err();
    }
}
