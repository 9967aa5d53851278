//! Options that are needed rarely.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tacita_block::{Access, BlockDevice, FileDevice};
use tacita_pddm::{Level, Unlock, examine};
use tacita_secret::Password;
use tacita_testkit::strace::cannot_trace;
use tacita_testkit::system;
use tacita_testkit::{MountGuard, Terminal, skip_without, skip_without_fuse};

use crate::bench::{Bench, expect, run, tacita};

fn written(bench: &Bench, more: &[&str]) -> u64 {
    let (device, public) = (bench.path("device"), bench.path("public"));
    let check = ["pddm", "check", &device, "--json", "--password-file", &public];
    let output = tacita(&[&check[..], more].concat());
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    facts["written"].as_u64().unwrap()
}

/// A damaged page of the public map is written again by `check --repair`, and by nothing less.
#[test]
fn a_damaged_page_is_repaired() {
    let test = "a_damaged_page_is_repaired";
    if skip_without(test, &["qemu-io"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &[], &["--heartbeat", "0"]);
    let socket = bench.path("socket");
    let uri = format!("nbd+unix:///public?socket={socket}");
    expect(0, &bench.open("public", &["--nbd", &socket]));
    // Enough for every page to have its turn.
    let writes = ["-c", "write -P 7 0 4M", "-c", "write -P 8 0 4M", "-c", "flush"];
    run("qemu-io", &[&["-f", "raw"][..], &writes, &[&uri]].concat());
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    let path = bench.path("device");
    let device = FileDevice::open(&path, Access::ReadOnly, 4096).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let password = Password::new(b"the public password".to_vec());
    let view = examine::examine(&device, Unlock::Password(&password)).unwrap();
    drop(device);
    // The newest copy of the first page, and its block of the device.
    let page = view.geometry.volume_blocks(Level::PUBLIC);
    let slots = view.geometry.slots_per_unit(Level::PUBLIC) as usize;
    let copies = view.units.iter().zip(0..).filter_map(|(unit, number)| {
        let unit = unit.as_ref()?;
        let slot = unit.ids[..slots].iter().rposition(|id| *id == page)?;
        Some((unit.seq, number, slot as u64))
    });
    let (_, unit, slot): (u64, u64, u64) = copies.max().unwrap();
    let at = ((unit + 1) * u64::from(view.geometry.unit_blocks()) + 1 + slot) * 4096;
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x55; 64], at).unwrap();
    drop(file);
    let before = written(&bench, &[]);
    assert_eq!(before, written(&bench, &[]), "to look is not to write");
    let told =
        tacita(&["pddm", "check", &path, "--repair", "--password-file", &bench.path("public")]);
    assert!(expect(2, &told).contains("--public-only"));
    let after = written(&bench, &["--repair", "--public-only"]);
    assert!(after > before, "{after}");
    assert_eq!(after, written(&bench, &["--repair"]), "nothing is left to repair");
}

/// A device is in use by whatever name it is opened: its file's, or that of a loop device on it.
#[test]
fn a_loop_device_is_the_file_behind_it() {
    let test = "a_loop_device_is_the_file_behind_it";
    let bench = Bench::new(test);
    bench.init("16M", &[], &[]);
    let file = bench.path("device");
    let Ok(looped) = system("losetup", &["--find", "--show", &file]) else {
        eprintln!("SKIPPED: {test}: no loop device here");
        return;
    };
    let (socket, other, password) =
        (bench.path("socket"), bench.path("other"), bench.path("public"));
    let open = |device: &str, socket: &str| {
        tacita(&["pddm", "open", device, "--nbd", socket, "--password-file", &password])
    };
    let seen = [(&file, &looped), (&looped, &file)].map(|(first, second)| {
        let opened = open(first, &socket).status.code();
        let refused = open(second, &other);
        let checked = tacita(&["pddm", "check", second, "--password-file", &password]);
        for socket in [&socket, &other] {
            let _ = tacita(&["pddm", "close", "--drop", socket]);
        }
        let said = String::from_utf8(refused.stderr).unwrap();
        (opened, refused.status.code(), checked.status.code(), said.contains(&file))
    });
    let _ = system("losetup", &["--detach", &looped]);
    assert_eq!(seen, [(Some(0), Some(5), Some(5), true); 2]);
}

/// The program under a limit, as prlimit(1) takes it.
fn limited(limit: &str, arguments: &[&str]) -> Output {
    let mut limited = Command::new("prlimit");
    limited.args([limit, env!("CARGO_BIN_EXE_tacita")]).args(arguments);
    limited.stdin(Stdio::null()).output().unwrap()
}

/// Why no socket can be served there, and what can be done; a socket that is wrong is nothing of the device's.
#[test]
fn a_socket_that_cannot_be_served_at_has_a_remedy() {
    let test = "a_socket_that_cannot_be_served_at_has_a_remedy";
    let bench = Bench::new(test);
    bench.init("16M", &[], &["--heartbeat", "0"]);
    let (device, public) = (bench.path("device"), bench.path("public"));
    let missing = bench.path("nowhere/socket");
    let said = expect(2, &bench.open("public", &["--nbd", &missing]));
    assert!(said.contains("nowhere/socket") && said.contains("a folder that is there"), "{said}");
    if skip_without(test, &["prlimit"]) {
        return;
    }
    let open = ["pddm", "open", &device, "--password-file", &public, "--nbd"];
    let said = expect(7, &limited("--nofile=8", &[&open[..], &[&bench.path("socket")]].concat()));
    assert!(said.contains("Too many open files") && said.contains("ulimit -n"), "{said}");
}

/// Whichever thread it is that the system does not have, it is told so, with what can be done. A daemon that
/// has just those that it needs can be asked and closed.
#[test]
fn a_device_for_which_there_are_no_threads_is_not_opened_and_why_is_told() {
    let test = "a_device_for_which_there_are_no_threads_is_not_opened_and_why_is_told";
    if skip_without(test, &["prlimit", "setpriv"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can be another user");
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &[], &[]);
    let (device, password, socket) = (bench.path("device"), bench.path("public"), bench.path("s"));
    // One who has no other process, and whom no limit has been lifted for.
    let user = 1_000_000 + std::process::id();
    for path in [&bench.path(""), &device, &password] {
        std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
    }
    let (user_id, group_id) = (format!("--reuid={user}"), format!("--regid={user}"));
    let by_user = |arguments: &[&str]| {
        let mut by_user = Command::new("setpriv");
        by_user.args([&user_id, &group_id, "--clear-groups"]).args(arguments);
        by_user.stdin(Stdio::null()).output().unwrap()
    };
    let program = env!("CARGO_BIN_EXE_tacita");
    if !by_user(&[program, "--version"]).status.success() {
        eprintln!("SKIPPED: {test}: others may not run what is tested");
        return;
    }
    let open = [program, "pddm", "open", &device, "--password-file", &password, "--nbd", &socket];
    let enough = (1..64).find(|limit| {
        let opened = by_user(&[&["prlimit", &format!("--nproc={limit}")], &open[..]].concat());
        if opened.status.success() {
            return true;
        }
        let said = expect(4, &opened);
        assert!(said.contains("`ulimit -u`") && !said.contains("panicked"), "{limit}: {said}");
        false
    });
    // No other thread from now on, and whoever asks is answered.
    let status = tacita(&["status", &socket, "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let daemon = status["pid"].to_string();
    expect(0, &by_user(&["prlimit", "--nproc=1", "--pid", &daemon]));
    expect(0, &tacita(&["status", &socket]));
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    let _ = fs::remove_dir_all(format!("/tmp/tacita-{user}"));
    assert!(enough.unwrap() > 5, "{enough:?}");
}

/// A daemon whose keys the system does not let it lock says so, whatever is open, and no other does.
#[test]
fn keys_that_may_be_swapped_out_are_told_of() {
    let test = "keys_that_may_be_swapped_out_are_told_of";
    if skip_without(test, &["prlimit", "setpriv"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can do without the capability");
        return;
    }
    let seen = [false, true].map(|hides| {
        let bench = Bench::new(test);
        let (own, hidden) = if hides { ("hidden", &["hidden"][..]) } else { ("public", &[][..]) };
        bench.init("16M", hidden, &["--heartbeat", "0"]);
        let (device, password, socket) = (bench.path("device"), bench.path(own), bench.path("s"));
        let open = ["pddm", "open", &device, "--password-file", &password, "--nbd", &socket];
        // Whoever has that capability knows no limit of locked memory.
        let limit = ["--bounding-set", "-ipc_lock", "prlimit", "--memlock=65536"];
        [false, true].map(|is_limited| {
            let mut limited = Command::new("setpriv");
            limited.args(limit).arg(env!("CARGO_BIN_EXE_tacita")).args(open).stdin(Stdio::null());
            expect(0, &if is_limited { limited.output().unwrap() } else { tacita(&open) });
            let status = tacita(&["status", &socket, "--json"]);
            let status: Value = serde_json::from_slice(&status.stdout).unwrap();
            expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
            status["messages"].to_string()
        })
    });
    for [locked, unlocked] in &seen {
        assert_eq!(locked, "[]");
        assert!(unlocked.contains("keys may be swapped out"), "{unlocked}");
    }
    let texts = seen.each_ref().map(|[_, unlocked]| unlocked.matches("\"text\"").count());
    assert_eq!(texts, [1; 2], "{seen:?}");
}

/// What a device holds is not in memory, all of it at once, while it is looked at: there is room for a
/// password, and less than for the device.
#[test]
fn a_check_takes_little_memory() {
    let test = "a_check_takes_little_memory";
    if skip_without(test, &["prlimit"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("512M", &["hidden"], &["--heartbeat", "0"]);
    let (device, hidden) = (bench.path("device"), bench.path("hidden"));
    let on = |command| ["pddm", command, &device, "--password-file", &hidden];
    expect(0, &tacita(&on("sweep")));
    let said = expect(0, &limited("--as=419430400", &on("check")));
    assert!(said.contains("intact"), "{said}");
}

/// One message for all sizes beyond what a device can use, and a remedy where a file cannot be so long.
#[test]
fn too_large_sizes_name_the_limit() {
    let bench = Bench::new("too_large_sizes_name_the_limit");
    let (device, public) = (bench.path("device"), bench.path("public"));
    let init = ["pddm", "init", &device, "--password-file", &public, "--size"];
    let beyond = ["17592186044417", "17T", "8388608T", "16777216T", "99999999999999999999999T"];
    for size in beyond {
        for command in [&init[..], &["pddm", "plan", "--size"]] {
            let said = expect(2, &tacita(&[command, &[size]].concat()));
            assert!(said.contains("'--size <SIZE>': too large: 16.0 TiB at most"), "{said}");
        }
        assert!(!fs::exists(&device).unwrap(), "{size}");
    }
    expect(0, &tacita(&["pddm", "plan", "--size", "16T"]));
    if skip_without("too_large_sizes_name_the_limit", &["prlimit"]) {
        return;
    }
    let said = expect(4, &limited("--fsize=8388608", &[&init[..], &["16M"]].concat()));
    assert!(said.contains("File too large") && said.contains("give a smaller size"), "{said}");
    assert!(!fs::exists(&device).unwrap());
}

/// What anybody can see of a device is told whatever the password is of, and of nothing: the same.
#[test]
fn a_device_that_was_cut_short_says_so_to_every_password() {
    let mut seen = Vec::new();
    for hidden in [&[][..], &["hidden"]] {
        let bench = Bench::new("a_device_that_was_cut_short_says_so_to_every_password");
        bench.init("16M", hidden, &["--heartbeat", "0"]);
        let device = bench.path("device");
        let file = fs::OpenOptions::new().write(true).open(&device).unwrap();
        file.set_len(12 << 20).unwrap();
        for password in ["public", "hidden", "wrong"] {
            let (password, new) = (bench.path(password), bench.path("second"));
            let on = |command: &str, more: &[&str]| {
                let arguments = ["pddm", command, &device, "--password-file", &password];
                expect(4, &tacita(&[&arguments[..], more].concat())).replace(&bench.path(""), "")
            };
            seen.push([
                on("open", &["--nbd", &bench.path("socket")]),
                on("passwd", &["--new-password-file", &new]),
                on("check", &[]),
                on("sweep", &["--public-only"]),
            ]);
        }
    }
    for said in &seen[0] {
        let wanted = ["shorter than its superblock says: 3072 blocks of 4096", "the whole device"];
        assert!(wanted.iter().all(|part| said.contains(part)), "{said}");
    }
    assert!(seen.iter().all(|said| *said == seen[0]), "{seen:?}");
}

/// A lost copy of the superblock is named, and written again by a sweep and by `check --repair`,
/// whatever is hidden.
#[test]
fn a_lost_superblock_is_named_and_written_again() {
    let mut seen = Vec::new();
    for (hidden, password) in
        [(&[][..], "public"), (&["hidden"], "public"), (&["hidden"], "hidden")]
    {
        let bench = Bench::new("a_lost_superblock_is_named_and_written_again");
        bench.init("16M", hidden, &["--heartbeat", "0"]);
        let (path, password) = (bench.path("device"), bench.path(password));
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let block = |at: u64| {
            let mut block = [0; 4096];
            file.read_exact_at(&mut block, at).unwrap();
            block
        };
        let last = file.metadata().unwrap().len() - 4096;
        let good = block(0);
        assert!(good == block(last));
        // As the page about backups says.
        let kept = (0..=last).step_by(4096).filter(|at| block(*at) == good).count();
        let page = include_str!("../../../../docs/backup.md");
        assert!(kept == 2 && page.contains("The superblock is kept twice, at both ends"), "{kept}");
        let check = ["pddm", "check", &path, "--password-file", &password];
        for (at, mend) in [(0, "sweep"), (last, "check")] {
            file.write_all_at(&[0x55; 4096], at).unwrap();
            let said = expect(1, &tacita(&check));
            assert!(said.contains(&format!("superblock at byte {at} is damaged")), "{said}");
            let output = tacita(&[&check[..], &["--json"]].concat());
            let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(facts["superblocks"], serde_json::json!([at]));
            assert_eq!(
                (&facts["whole"], &facts["damaged"]),
                (&false.into(), &serde_json::json!([]))
            );
            assert!(block(at) != good, "to look is not to write");
            seen.push(said.replace(&path, ""));
            let mended = match mend {
                "sweep" => {
                    let sweep = ["pddm", "sweep", &path, "--password-file", &password];
                    // With the public password alone it has to be said that it destroys the others.
                    let only: &[&str] =
                        if password == bench.path("public") { &["--public-only"] } else { &[] };
                    tacita(&[&sweep[..], only].concat())
                }
                _ => tacita(&[&check[..], &["--repair"]].concat()),
            };
            expect(0, &mended);
            assert!(block(0) == good && block(last) == good);
        }
    }
    assert_eq!(seen[..2], seen[2..4]);
    assert_eq!(seen[..2], seen[4..]);
}

/// A password of both the public and a hidden volume opens the hidden one, too, where its last cells
/// are old, if it is looked for.
#[test]
fn an_old_cell_is_found_by_a_search() {
    let test = "an_old_cell_is_found_by_a_search";
    if skip_without(test, &["qemu-io"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &["hidden"], &["--heartbeat", "0"]);
    let (device, public, hidden) =
        (bench.path("device"), bench.path("public"), bench.path("hidden"));
    // Whoever has the public password alone cannot be told that it is another's.
    let passwd = ["pddm", "passwd", &device, "--password-file", &public];
    expect(0, &tacita(&[&passwd[..], &["--new-password-file", &hidden]].concat()));
    let socket = bench.path("socket");
    let uri = format!("nbd+unix:///public?socket={socket}");
    expect(0, &bench.open("hidden", &["--nbd", &socket, "--public-only"]));
    run("qemu-io", &["-f", "raw", "-c", "write -P 7 0 2M", "-c", "flush", &uri]);
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    for (more, opens) in [(&[][..], false), (&["--search"], true)] {
        let endpoint = ["--nbd", &socket, "--read-only"];
        expect(0, &bench.open("hidden", &[&endpoint[..], more].concat()));
        let said = expect(0, &tacita(&["pddm", "status", "--hidden", &socket]));
        assert_eq!(said.contains("waiting_blocks"), opens, "{said}");
        expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    }
}

/// What waits gets to the device when a folder is closed so.
#[test]
fn a_folder_is_closed_with_a_sweep() {
    let test = "a_folder_is_closed_with_a_sweep";
    if skip_without_fuse(test) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &["hidden"], &["--heartbeat", "0"]);
    let guard = MountGuard::new().unwrap();
    let dir = guard.path().to_str().unwrap();
    let content = vec![0x5c; 100 * 4096];
    for (byte, how, kept) in [(0x5c, "--sweep", 0x5c), (0x6d, "--drop", 0x5c)] {
        expect(0, &bench.open("hidden", &["--fuse", dir]));
        let mut file = fs::OpenOptions::new().write(true).open(guard.join("hidden")).unwrap();
        file.write_all(&vec![byte; content.len()]).unwrap();
        drop(file);
        expect(0, &tacita(&["pddm", "close", how, dir]));
        expect(0, &bench.open("hidden", &["--fuse", dir, "--read-only"]));
        let back = fs::read(guard.join("hidden")).unwrap();
        assert!(back[..content.len()].iter().all(|byte| *byte == kept), "{how}");
        expect(0, &tacita(&["pddm", "close", "--drop", dir]));
    }
}

/// A sweep is no faster than it is told to be.
#[test]
fn a_sweep_keeps_to_its_rate() {
    let bench = Bench::new("a_sweep_keeps_to_its_rate");
    bench.init("8M", &[], &["--heartbeat", "0"]);
    let (device, public) = (bench.path("device"), bench.path("public"));
    let sweep = ["pddm", "sweep", &device, "--public-only", "--password-file", &public];
    let begun = Instant::now();
    expect(0, &tacita(&[&sweep[..], &["--rate", "4M"]].concat()));
    // Seven MiB of units at least.
    assert!(begun.elapsed() >= Duration::from_millis(1500));
}

/// However slow it is told to be, it ends when it is to: it waits for its rate most of the time.
#[test]
fn a_slow_sweep_can_be_ended() {
    let bench = Bench::new("a_slow_sweep_can_be_ended");
    bench.init("8M", &[], &["--heartbeat", "0"]);
    let (device, public) = (bench.path("device"), bench.path("public"));
    let before = fs::read(&device).unwrap();
    let sweep = Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(["pddm", "sweep", &device, "--public-only", "--password-file", &public])
        .args(["--rate", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while fs::read(&device).unwrap() == before {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").arg(sweep.id().to_string()).status().unwrap().success());
    let said = expect(1, &sweep.wait_with_output().unwrap());
    assert!(said.contains("interrupted; nothing is lost"), "{said}");
}

/// Who sweeps an open device hears that it was closed, and not that its daemon has ended.
#[test]
fn a_sweep_that_a_close_ends_is_told() {
    let bench = Bench::new("a_sweep_that_a_close_ends_is_told");
    bench.init("8M", &[], &["--heartbeat", "0"]);
    let [device, public, socket] = ["device", "public", "socket"].map(|name| bench.path(name));
    let open = ["pddm", "open", &device, "--nbd", &socket, "--password-file", &public];
    expect(0, &tacita(&open));
    let before = fs::read(&device).unwrap();
    let sweep = Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(["pddm", "sweep", &socket, "--public-only", "--rate", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while fs::read(&device).unwrap() == before {
        std::thread::sleep(Duration::from_millis(20));
    }
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    let said = expect(5, &sweep.wait_with_output().unwrap());
    assert!(said.contains("closed before the sweep was done"), "{said}");
}

/// What is overwritten by force may be bad sectors: nothing of it is read.
#[test]
fn init_by_force_reads_nothing() {
    let test = "init_by_force_reads_nothing";
    if cannot_trace(test) {
        return;
    }
    let bench = Bench::new(test);
    let (device, password) = (bench.path("device"), bench.path("public"));
    fs::write(&device, vec![7; 16 << 20]).unwrap();
    let init =
        [env!("CARGO_BIN_EXE_tacita"), "pddm", "init", &device, "--password-file", &password];
    let unreadable = |more: &[&str]| {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null", "-P", &device, "-e", "inject=pread64:error=EIO"]);
        strace.args(init).args(more).stdin(Stdio::null()).output().unwrap()
    };
    let said = expect(4, &unreadable(&[]));
    assert!(said.contains("Input/output error"), "{said}");
    expect(0, &unreadable(&["--force"]));
    expect(0, &tacita(&["pddm", "check", &device, "--password-file", &password]));
}

/// What whoever writes has to know, and cannot be read, is not written over; a sweep gives it up, and says so.
#[test]
fn a_sweep_says_what_it_gives_up() {
    let test = "a_sweep_says_what_it_gives_up";
    if cannot_trace(test) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &[], &["--heartbeat", "0"]);
    let (device, password) = (bench.path("device"), bench.path("public"));
    let whole = fs::read(&device).unwrap();
    let traced = |traced: &[&str], words: &[&str]| {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-P", &device]).args(traced).arg(env!("CARGO_BIN_EXE_tacita"));
        strace.args(["pddm"]).args(words).args([&device, "--password-file", &password]);
        strace.stdin(Stdio::null()).output().unwrap()
    };
    // Where the header of the first unit is read last, which a replay begins with.
    let trace = bench.path("trace");
    expect(0, &traced(&["-o", &trace, "-e", "trace=pread64"], &["check"]));
    let trace = fs::read_to_string(trace).unwrap();
    let reads: Vec<&str> = trace.lines().filter(|line| line.contains("pread64(")).collect();
    let is_of_header = |line: &&str| line.contains(", 4096, 131072) = 4096");
    let read = reads.iter().rposition(is_of_header).expect("it is read") + 1;
    // That block alone, and with it all others of the unit, which are tried then.
    let of = |last: usize| format!("inject=pread64:error=EIO:when={read}..{last}");
    let injects = [of(read), of(read + 31)];
    let fails = injects.each_ref().map(|inject| ["-o", "/dev/null", "-e", inject]);
    for fails in &fails {
        let said = expect(4, &traced(fails, &["check", "--repair", "--public-only"]));
        let wanted = "unit 0 at byte 131072 cannot be read; nothing has been changed";
        assert!(said.contains(wanted), "{said}");
        assert!(fs::read(&device).unwrap() == whole, "{said}");
    }
    let said = expect(1, &traced(&fails[1], &["sweep", "--public-only"]));
    assert!(said.contains("unit 0 at byte 131072 cannot be read: what it held is lost"), "{said}");
    expect(0, &tacita(&["pddm", "check", &device, "--password-file", &password]));
}

/// On a terminal `close` says what waits and asks.
#[test]
fn a_terminal_is_asked() {
    let test = "a_terminal_is_asked";
    if skip_without(test, &["qemu-io", "script"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &["hidden"], &["--heartbeat", "0"]);
    let socket = bench.path("socket");
    let uri = format!("nbd+unix:///hidden?socket={socket}");
    let ask = |answer: &str| {
        let close = format!("{} pddm close {socket}", env!("CARGO_BIN_EXE_tacita"));
        let mut terminal = Terminal::run(&close);
        terminal.until("stay open? ");
        if answer == "s\n" {
            // Its owner may think it over for longer than a daemon waits for whoever connects.
            std::thread::sleep(Duration::from_secs(3));
        }
        assert!(terminal.type_in(answer));
        let (ended, said) = terminal.end();
        assert!(ended.success(), "{said}");
        assert!(said.contains("hidden: 10 blocks are queued"), "{said}");
        assert!(said.contains("[s]weep it onto the device, [d]rop it, or stay open?"), "{said}");
        said
    };
    let io = |command: &str| run("qemu-io", &["-f", "raw", "-c", command, &uri]);
    for (answer, closes, kept) in [("\n", false, 0), ("s\n", true, 7), ("d\n", true, 7)] {
        expect(0, &bench.open("hidden", &["--nbd", &socket]));
        io(if kept == 0 || answer == "s\n" { "write -P 7 0 40k" } else { "write -P 9 0 40k" });
        let said = ask(answer);
        assert_eq!(said.contains("10 blocks were dropped"), answer == "d\n", "{said}");
        assert_eq!(tacita(&["pddm", "status", &socket]).status.code() != Some(0), closes);
        if !closes {
            expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
        }
        expect(0, &bench.open("hidden", &["--nbd", &socket]));
        let said = io(&format!("read -P {kept} 0 40k"));
        assert!(!said.contains("verification failed"), "{answer}: {said}");
        expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    }
}

/// Whoever opens only the public volume on a terminal is warned, whatever there is.
#[test]
fn a_terminal_is_warned() {
    let test = "a_terminal_is_warned";
    if skip_without(test, &["script"]) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &["hidden"], &["--heartbeat", "0"]);
    let (socket, device) = (bench.path("socket"), bench.path("device"));
    for (more, password, is_warned) in [
        ("", "public", true),
        (" --public-only", "hidden", true),
        (" --read-only", "public", false),
        ("", "hidden", false),
    ] {
        let (tacita_at, password) = (env!("CARGO_BIN_EXE_tacita"), bench.path(password));
        let with = format!("--nbd {socket} --password-file {password}{more}");
        let (ended, said) = Terminal::run(&format!("{tacita_at} pddm open {device} {with}")).end();
        assert!(ended.success(), "{said}");
        let warned = said.contains("destroys what hidden volumes hold, if there are any");
        assert_eq!(warned, is_warned, "{with}: {said}");
        expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    }
}

/// What is planned for a device is what it has room for.
#[test]
fn a_device_has_the_room_that_was_planned() {
    let bench = Bench::new("a_device_has_the_room_that_was_planned");
    let facts = |words: &[&str]| -> serde_json::Value {
        serde_json::from_str(&expect(0, &tacita(words))).unwrap()
    };
    let plan = ["pddm", "plan", "--size", "32M", "--json"];
    let all = facts(&plan)["shapes"].as_array().unwrap().clone();
    assert_eq!(all.len(), 5);
    let device = bench.path("device");
    let init = ["pddm", "init", &device, "--size", "32M", "--json"];
    let password = ["--password-file", &bench.path("public")];
    for planned in all {
        let shape = ["--profile", planned["profile"].as_str().unwrap()];
        let made = facts(&[&init[..], &shape, &password].concat());
        assert_eq!(made["room"], planned["room"], "{shape:?}");
        assert_eq!(facts(&[&plan[..], &shape].concat())["shapes"][0], planned);
        fs::remove_file(&device).unwrap();
    }
    // What is given besides counts more than a profile.
    let shape = ["--profile", "fast", "--ratio", "10:5", "--classes", "2"];
    let planned = facts(&[&plan[..], &shape].concat())["shapes"][0].clone();
    assert_eq!((&planned["ratio"], &planned["public_spare"]), (&"10:5".into(), &0.5.into()));
    assert_eq!(facts(&[&init[..], &shape, &password].concat())["room"], planned["room"]);
    for wrong in [["--size", "1M"], ["--spare", "2"], ["--ratio", "1"], ["--profile", "none"]] {
        expect(2, &tacita(&[&["pddm", "plan"][..], &wrong].concat()));
    }
}
