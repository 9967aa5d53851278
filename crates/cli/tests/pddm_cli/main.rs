//! Plausibly deniable devices as people use them: passwords, sockets, folders, file systems.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod bench;
mod closing;
mod commands;
mod failing;
mod protected;
mod times;
mod typed;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::{Bench, expect, run, tacita};
use tacita_testkit::{MountGuard, skip_without, skip_without_fuse};

#[test]
fn absurd_requests_are_usage_errors() {
    let bench = Bench::new("absurd_requests_are_usage_errors");
    let (device, public) = (bench.path("device"), bench.path("public"));
    let init = |more: &[&str]| {
        let mut arguments = vec!["pddm", "init", &device, "--password-file", &public];
        arguments.extend(more);
        tacita(&arguments)
    };
    for more in [
        &[][..],
        &["--size", "1M"],
        &["--size", "64M", "--ratio", "20"],
        &["--size", "64M", "--ratio", "0:11"],
        &["--size", "64M", "--ratio", "60:60"],
        &["--size", "64M", "--classes", "0"],
        &["--size", "64M", "--classes", "16"],
        &["--size", "64M", "--spare", "2"],
        &["--size", "64M", "--heartbeat", "-1"],
        &["--size", "64M", "--heartbeat", "0.0001"],
        &["--size", "64M", "--heartbeat", "1ns"],
        &["--size", "64M", "--heartbeat", "25h"],
        &["--size", "64M", "--hidden-password-file", &public],
        &["--size", "64M", "--hidden-password-file", "/nowhere"],
    ] {
        expect(2, &init(more));
        assert!(!Path::new(&device).exists(), "{more:?}");
    }
    expect(0, &init(&["--size", "64M"]));
    let said = expect(2, &init(&["--size", "64M"]));
    assert!(said.contains("--force"), "{said}");
    expect(0, &init(&["--force"]));
    let short = bench.path("short");
    std::fs::write(&short, [7; 83]).unwrap();
    let there = ["pddm", "init", &short, "--password-file", &public, "--size", "64M"];
    let said = expect(2, &tacita(&there));
    assert!(said.contains("short has 83 bytes"), "{said}");
    // Without a terminal, and without an endpoint.
    expect(2, &tacita(&["pddm", "open", &device, "--nbd", &bench.path("s")]));
    expect(2, &tacita(&["pddm", "open", &device, "--password-file", &public]));
    expect(4, &tacita(&["pddm", "check", "/nowhere", "--password-file", &public]));
    expect(2, &tacita(&["pddm", "status", &bench.path("s")]));
    expect(4, &tacita(&["pddm", "sweep", "/nowhere", "--password-file", &public]));
    expect(2, &tacita(&["pddm", "close", "--drop", "--sweep", &bench.path("s")]));
    // That nothing is served there comes before what is to be done with what waits there.
    for how in [None, Some("--drop"), Some("--sweep")] {
        let socket = bench.path("s");
        let words = ["pddm", "close", &socket].into_iter().chain(how);
        let said = expect(2, &tacita(&words.collect::<Vec<_>>()));
        assert!(said.contains("not served"), "{how:?}: {said}");
    }
}

/// A folder by a path that leads through itself, and a socket whose name is no text.
#[test]
fn endpoints_by_any_path() {
    let test = "endpoints_by_any_path";
    if skip_without_fuse(test) {
        return;
    }
    let (bench, guard) = (Bench::new(test), MountGuard::new().unwrap());
    bench.init("12M", &[], &["--heartbeat", "0"]);
    let dir = guard.path().to_str().unwrap();
    fs::create_dir(guard.path().join("below")).unwrap();
    expect(0, &bench.open("public", &["--fuse", &format!("{dir}/below/..")]));
    assert!(guard.path().join("public").exists());
    expect(0, &tacita(&["pddm", "close", "--drop", dir]));
    let with = |words: &[&str], more: &[u8]| {
        let name = [bench.path("s").as_bytes(), b"\xff"].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
        command.args(words).arg(OsString::from_vec([more, &name].concat()));
        expect(0, &command.stdin(std::process::Stdio::null()).output().unwrap())
    };
    let (device, public) = (bench.path("device"), bench.path("public"));
    with(&["pddm", "open", &device, "--password-file", &public, "--nbd"], b"");
    assert!(with(&["status"], b"unix:").contains("pddm"));
    with(&["pddm", "close", "--drop"], b"unix:");
}

/// The socket is gone with its folder, or that has got another name: the path that `status` shows still finds
/// who serves there.
#[test]
fn a_socket_whose_folder_is_gone_is_found() {
    let bench = Bench::new("a_socket_whose_folder_is_gone_is_found");
    bench.init("12M", &[], &["--heartbeat", "0"]);
    let (folder, socket) = (bench.path("folder"), bench.path("folder/s"));
    for is_renamed in [false, true] {
        fs::create_dir(&folder).unwrap();
        expect(0, &bench.open("public", &["--nbd", &socket]));
        if is_renamed {
            fs::rename(&folder, bench.path("elsewhere")).unwrap();
        } else {
            fs::remove_dir_all(&folder).unwrap();
        }
        for words in [&["status"][..], &["pddm", "status"], &["pddm", "close", "--drop"]] {
            expect(0, &tacita(&[words, &[&socket]].concat()));
        }
        let said = expect(2, &tacita(&["pddm", "close", "--drop", &socket]));
        assert!(said.contains("not served"), "{said}");
    }
}

/// What is said and shown while a hidden volume is open, and while none is, or none is there.
#[test]
fn nothing_that_is_said_tells() {
    let mut seen = Vec::new();
    for (hidden, password) in
        [(&[][..], "public"), (&["hidden"], "public"), (&["hidden"], "hidden")]
    {
        let bench = Bench::new("nothing_that_is_said_tells");
        bench.init("64M", hidden, &[]);
        let socket = bench.path("socket");
        // A warning that is missing in a log whenever a hidden volume was open would tell.
        assert_eq!(expect(0, &bench.open(password, &["--nbd", &socket])), "");
        let status = expect(0, &tacita(&["pddm", "status", &socket, "--json"]));
        let processes = run("sh", &["-c", "cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' ' '"]);
        assert!(!processes.contains("the hidden password"));
        expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
        assert!(!Path::new(&socket).exists());
        let wrong = expect(3, &bench.open("wrong", &["--nbd", &socket]));
        let check =
            ["pddm", "check", &bench.path("device"), "--password-file", &bench.path("public")];
        let checked = expect(0, &tacita(&check));
        let name = bench.path("");
        let said =
            [status, wrong, checked].map(|text| text.replace(name.trim_end_matches('/'), ""));
        seen.push(said);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[1], seen[2]);
}

#[test]
fn one_daemon_at_a_time() {
    let bench = Bench::new("one_daemon_at_a_time");
    bench.init("64M", &["hidden"], &[]);
    let (socket, other) = (bench.path("socket"), bench.path("other"));
    expect(0, &bench.open("hidden", &["--nbd", &socket]));
    expect(5, &bench.open("hidden", &["--nbd", &other]));
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    // Signals end it cleanly, too.
    let (device, password) = (bench.path("device"), bench.path("hidden"));
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args([
            "pddm",
            "open",
            &device,
            "--nbd",
            &socket,
            "--foreground",
            "--password-file",
            &password,
        ])
        .spawn()
        .unwrap();
    while tacita(&["pddm", "status", &socket]).status.code() != Some(0) {
        std::thread::sleep(Duration::from_millis(50));
    }
    run("kill", &[&daemon.id().to_string()]);
    assert!(daemon.wait().unwrap().success());
    expect(0, &bench.open("hidden", &["--nbd", &socket]));
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
}

#[test]
fn passwords_change() {
    let bench = Bench::new("passwords_change");
    bench.init("64M", &["hidden", "second"], &["--classes", "3"]);
    let (device, old, new) = (bench.path("device"), bench.path("hidden"), bench.path("wrong"));
    let passwd = ["pddm", "passwd", &device, "--password-file", &old, "--new-password-file", &new];
    expect(0, &tacita(&passwd));
    let changed = |with: &str, name: &str| {
        let (with, new) = (bench.path(with), bench.path("hidden"));
        let with = ["--password-file", &with, "--volume", name];
        let new = ["--new-password-file", &new];
        tacita(&[&["pddm", "passwd", &device][..], &with, &new].concat())
    };
    fs::write(bench.path("empty"), "\n").unwrap();
    let refused = |new: &str, name: &str| {
        let (with, new) = (bench.path("second"), bench.path(new));
        let with = ["--password-file", &with, "--volume", name];
        let said = tacita(
            &[&["pddm", "passwd", &device][..], &with, &["--new-password-file", &new]].concat(),
        );
        expect(2, &said)
    };
    for name in ["public", "hidden", "hidden2"] {
        for new in ["public", "wrong", "second"] {
            assert!(refused(new, name).contains("already opens a volume"), "{name}, {new}");
        }
        assert!(refused("empty", name).contains("empty"));
    }
    expect(2, &changed("second", "hidden99"));
    expect(3, &changed("wrong", "hidden2"));
    if skip_without_fuse("passwords_change") {
        return;
    }
    let guard = MountGuard::new().unwrap();
    let dir = guard.path().to_str().unwrap();
    let opens = |password: &str, volumes: usize| {
        expect(0, &bench.open(password, &["--fuse", dir]));
        assert_eq!(fs::read_dir(dir).unwrap().count(), volumes, "{password}");
        expect(0, &tacita(&["pddm", "close", "--drop", dir]));
    };
    for (password, volumes) in [("wrong", 2), ("second", 3), ("public", 1)] {
        opens(password, volumes);
    }
    // One below, by the password of the highest, which stays.
    expect(0, &changed("second", "hidden"));
    opens("second", 3);
    opens("hidden", 2);
}

/// Mounted file systems, for a test to unmount whatever happens.
struct Loops(Vec<PathBuf>);

impl Loops {
    fn mount(&mut self, image: &str, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        run("mount", &["-o", "loop", image, dir.to_str().unwrap()]);
        self.0.push(dir.to_owned());
    }

    fn umount(&mut self, dir: &Path) {
        run("umount", &[dir.to_str().unwrap()]);
        self.0.retain(|mounted| mounted != dir);
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for dir in &self.0 {
            let _ = Command::new("umount").arg("-l").arg(dir).status();
        }
    }
}

/// Every file below a folder with its content.
fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                found.push((name, fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// ext4 on the public volume, another file system on the hidden one, filled side by side, unmounted
/// and found again.
#[test]
#[allow(clippy::too_many_lines, reason = "a story from beginning to end")]
fn file_systems_on_both_volumes() {
    let test = "file_systems_on_both_volumes";
    if skip_without_fuse(test) || skip_without(test, &["mkfs.ext4"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: loop devices need root");
        return;
    }
    for hidden in ["ext4", "xfs", "hifs"] {
        if hidden == "xfs" && skip_without(test, &["mkfs.xfs"]) {
            continue;
        }
        let bench = Bench::new(test);
        // xfs wants 300 MiB.
        bench.init("1536M", &["hidden"], &["--heartbeat", "0.1"]);
        let mut loops = Loops(Vec::new());
        let guard = MountGuard::new().unwrap();
        let dir = guard.path().to_str().unwrap();
        let files = |name: &str| guard.join(name).to_str().unwrap().to_owned();
        let (cover, secret) = (bench.folder.path().join("a"), bench.folder.path().join("b"));
        expect(0, &bench.open("hidden", &["--fuse", dir]));
        run("mkfs.ext4", &["-q", "-F", &files("public")]);
        loops.mount(&files("public"), &cover);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let sources = source.to_str().unwrap();
        let hifs_place = MountGuard::new().unwrap();
        // Public traffic carries the hidden blocks.
        let noise = vec![0x5a; 4 << 20];
        let carry = |n: u32| {
            fs::write(cover.join(format!("film-{n}")), &noise).unwrap();
            run("sync", &["-f", cover.to_str().unwrap()]);
        };
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    carry(n % 20);
                }
            });
            let _stop = StopAtEnd(&stop);
            match hidden {
                "hifs" => {
                    let device = run("losetup", &["--find", "--show", &files("hidden")]);
                    let device = device.trim();
                    expect(0, &tacita(&["hifs", "format", device, "--size", "32M", "--force"]));
                    let place = hifs_place.path().to_str().unwrap();
                    expect(0, &tacita(&["hifs", "mount", device, place]));
                    run("cp", &["-r", sources, place]);
                    expect(0, &tacita(&["umount", place]));
                    expect(0, &tacita(&["hifs", "check", device]));
                    run("losetup", &["-d", device]);
                }
                kind => {
                    let make = if kind == "ext4" { ["-q", "-F"] } else { ["-q", "-f"] };
                    let image = files("hidden");
                    run(&format!("mkfs.{kind}"), &[make[0], make[1], &image]);
                    loops.mount(&image, &secret);
                    run("cp", &["-r", sources, secret.to_str().unwrap()]);
                    loops.umount(&secret);
                }
            }
            // What still waited would be dropped.
            let waits = || {
                let said = expect(0, &tacita(&["pddm", "status", "--hidden", "--json", dir]));
                let facts: serde_json::Value = serde_json::from_str(&said).unwrap();
                facts["volumes"][0]["waiting_blocks"] != 0
            };
            while waits() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        loops.umount(&cover);
        expect(0, &tacita(&["pddm", "close", "--drop", dir]));

        expect(0, &bench.open("hidden", &["--fuse", dir, "--read-only"]));
        run("e2fsck", &["-fn", &files("public")]);
        match hidden {
            "ext4" => drop(run("e2fsck", &["-fn", &files("hidden")])),
            "xfs" => drop(run("xfs_repair", &["-n", &files("hidden")])),
            _ => {}
        }
        if hidden != "hifs" {
            fs::create_dir_all(&secret).unwrap();
            let options = if hidden == "xfs" { "loop,ro,norecovery" } else { "loop,ro" };
            run("mount", &["-o", options, &files("hidden"), secret.to_str().unwrap()]);
            loops.0.push(secret.clone());
            assert_eq!(tree(&secret.join("src")), tree(&source), "{hidden}");
            loops.umount(&secret);
        }
        expect(0, &tacita(&["pddm", "close", "--drop", dir]));
        let check =
            ["pddm", "check", &bench.path("device"), "--password-file", &bench.path("public")];
        expect(0, &tacita(&check));
    }
}

struct StopAtEnd<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The programs that speak NBD, on both volumes.
#[test]
fn nbd_clients() {
    let test = "nbd_clients";
    if skip_without(test, &["nbdcopy", "qemu-img"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("96M", &["hidden"], &["--heartbeat", "0.05"]);
    let socket = bench.path("socket");
    expect(0, &bench.open("hidden", &["--nbd", &socket]));
    for (name, blocks) in [("public", 5000), ("hidden", 900)] {
        let uri = format!("nbd+unix:///{name}?socket={socket}");
        let image = bench.path(&format!("{name}.img"));
        let content: Vec<u8> = (0..blocks * 4096u32).map(|i| (i / 512 % 251) as u8 + 1).collect();
        let size: usize = run("nbdinfo", &["--size", &uri]).trim().parse().unwrap();
        let mut whole = content.clone();
        whole.resize(size, 0);
        fs::write(&image, &whole).unwrap();
        run("nbdcopy", &["--flush", &image, &uri]);
        let same = ["compare", "-f", "raw", "-F", "raw", &image, &uri];
        run("qemu-img", &same);
        let back = bench.path("back.img");
        run("nbdcopy", &[&uri, &back]);
        assert!(fs::read(&back).unwrap() == whole, "{name}");
        let verify = [
            "-f",
            "raw",
            "-c",
            "write -P 0x77 8192 65536",
            "-c",
            "flush",
            "-c",
            "read -P 0x77 8192 65536",
            &uri,
        ];
        let said = run("qemu-io", &verify);
        assert!(!said.contains("verification failed"), "{said}");
    }
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
}

/// What waits on a hidden volume gets to the device by a sweep, or goes with the session: as its owner
/// says, who is told how much it was.
#[test]
fn what_waits_is_swept_or_dropped() {
    let test = "what_waits_is_swept_or_dropped";
    if skip_without(test, &["qemu-io"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("64M", &["hidden"], &["--heartbeat", "0"]);
    let socket = bench.path("socket");
    let uri = format!("nbd+unix:///hidden?socket={socket}");
    let io = |command: &str| run("qemu-io", &["-f", "raw", "-c", command, &uri]);
    let waiting = || {
        let said = expect(0, &tacita(&["pddm", "status", "--hidden", "--json", &socket]));
        let facts: serde_json::Value = serde_json::from_str(&said).unwrap();
        facts["volumes"][0]["waiting_blocks"].as_u64().unwrap()
    };
    expect(0, &bench.open("hidden", &["--nbd", &socket]));
    io("write -P 0x11 0 400k");
    assert_eq!(waiting(), 100);
    expect(2, &tacita(&["pddm", "close", &socket]));
    let said = expect(0, &tacita(&["pddm", "close", "--sweep", "--json", &socket]));
    assert!(said.contains("\"dropped\": []"), "{said}");
    expect(0, &bench.open("hidden", &["--nbd", &socket]));
    assert!(!io("read -P 0x11 0 400k").contains("verification failed"));
    io("write -P 0x22 0 40k");
    let said = expect(0, &tacita(&["pddm", "close", "--drop", "--json", &socket]));
    assert!(said.contains("\"blocks\": 10"), "{said}");
    expect(0, &bench.open("hidden", &["--nbd", &socket]));
    assert!(!io("read -P 0x11 0 400k").contains("verification failed"), "as it was");
    // A sweep where it is open.
    io("write -P 0x33 0 400k");
    expect(0, &tacita(&["pddm", "sweep", &socket]));
    assert_eq!(waiting(), 0);
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    let device = bench.path("device");
    let check = ["pddm", "check", &device, "--password-file", &bench.path("hidden")];
    expect(0, &tacita(&check));
}

/// Where only the public volume is open a sweep asks for a word more, and says why: in both worlds.
#[test]
fn a_sweep_needs_a_word_where_only_the_public_volume_is_open() {
    let mut seen = Vec::new();
    for hidden in [&[][..], &["hidden"]] {
        let bench = Bench::new("a_sweep_needs_a_word_where_only_the_public_volume_is_open");
        bench.init("16M", hidden, &[]);
        let (device, public) = (bench.path("device"), bench.path("public"));
        let socket = bench.path("socket");
        let sweep = |more: &[&str]| {
            let with = ["pddm", "sweep", &device, "--password-file", &public];
            tacita(&[&with[..], more].concat())
        };
        let refused = expect(2, &sweep(&[]));
        assert!(refused.contains("destroys what hidden volumes hold, if there are any"));
        expect(0, &sweep(&["--public-only"]));
        expect(0, &bench.open("public", &["--nbd", &socket]));
        let told = expect(2, &tacita(&["pddm", "sweep", &socket]));
        expect(0, &tacita(&["pddm", "sweep", &socket, "--public-only"]));
        expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
        seen.push([refused, told]);
    }
    assert_eq!(seen[0], seen[1]);
}

/// Hidden flushes that wait for public writes occupy nothing that those need.
#[test]
fn public_requests_do_not_wait_for_hidden_ones() {
    let test = "public_requests_do_not_wait_for_hidden_ones";
    if skip_without_fuse(test) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("64M", &["hidden"], &["--heartbeat", "0"]);
    let guard = MountGuard::new().unwrap();
    let dir = guard.path().to_str().unwrap();
    // One processor makes one thread that serves requests. The kernel sends one flush of a file at a
    // time, so that many of them would not need more.
    let allowed = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let first: String = allowed.trim().chars().take_while(char::is_ascii_digit).collect();
    let (device, password) = (bench.path("device"), bench.path("hidden"));
    let open = Command::new("taskset")
        .args(["-c", &first, env!("CARGO_BIN_EXE_tacita"), "pddm", "open", &device, "--fuse", dir])
        .args(["--password-file", &password, "--hidden-flush", "durable"])
        .output()
        .unwrap();
    expect(0, &open);
    let change = |name: &str, at: u64| {
        let file = fs::OpenOptions::new().write(true).open(guard.join(name)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], at * 4096).unwrap();
        file
    };
    let count = 4;
    let (ended, returned) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for at in 0..count {
            let (ended, change) = (ended.clone(), &change);
            scope.spawn(move || {
                // Returns when a public flush has carried it.
                change("hidden", at).sync_all().unwrap();
                ended.send(()).unwrap();
            });
        }
        let mut left = count;
        for at in 0.. {
            std::thread::sleep(Duration::from_millis(300));
            change("public", at % 100).sync_all().unwrap();
            left -= returned.try_iter().count() as u64;
            if left == 0 {
                break;
            }
        }
    });
    expect(0, &tacita(&["pddm", "close", "--drop", dir]));
}
