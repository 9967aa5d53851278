//! What is given wrong: each refusal has the exit code of docs/cli.md, names a cause, and what can be done.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tacita_testkit::loop_disk::LoopDisk;

/// A folder with things of all kinds, and the program run in it.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        fs::create_dir(bench.0.path().join("folder")).unwrap();
        let noise: Vec<u8> = (0..50_000_u32).map(|n| (n * n / 7 % 251).to_le_bytes()[0]).collect();
        for (name, content) in [
            ("empty", &b""[..]),
            ("noise", &noise),
            ("pw", b"one\n"),
            ("pw2", b"two\n"),
            ("blank", b"\n"),
        ] {
            fs::write(bench.0.path().join(name), content).unwrap();
        }
        // It stays when its owner has gone.
        drop(UnixListener::bind(bench.0.path().join("socket")).unwrap());
        let (here, fifo) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
        fs::create_dir_all(bench.0.path().join("headers/include/linux")).unwrap();
        for pipe in ["pipe", "headers/include/linux/fs.h"] {
            let pipe = bench.0.path().join(pipe);
            rustix::fs::mknodat(here, pipe, fifo, 0o600.into(), 0).unwrap();
        }
        for line in [
            "hifs format image --size 2M",
            "dnefs format volume --size 8M --password-file pw",
            "oram init store --key key --blocks 256",
        ] {
            assert_eq!(bench.run(line).0, Some(0), "{line}");
        }
        bench
    }

    /// The exit code, and what was said.
    fn run(&self, line: &str) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
        command.args(line.split(' ')).current_dir(self.0.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn refused(&self, code: i32, line: &str) -> String {
        let (ended, said) = self.run(line);
        assert_eq!(ended, Some(code), "tacita {line}: {said}");
        let lines: Vec<&str> = said.lines().collect();
        // What a device has to say of itself may come before.
        let cause = lines.iter().rposition(|line| line.starts_with("tacita: "));
        let remedy = cause.and_then(|at| lines.get(at + 1));
        assert!(remedy.is_some_and(|line| line.starts_with("  ")), "tacita {line}: {said}");
        assert!(!said.contains("panicked"), "tacita {line}: {said}");
        said
    }
}

/// `su`, `sudo` and containers hand on what another user has opened, and services sockets: neither can be opened anew.
#[test]
fn a_password_is_read_from_what_was_opened_for_it() {
    let bench = Bench::new();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"one\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    command.args(["dnefs", "check", "volume", "--password-fd", "0"]).stdin(OwnedFd::from(theirs));
    let output = command.current_dir(bench.0.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = bench.refused(2, "dnefs check volume --password-fd 1000000");
    assert!(said.contains("descriptor 1000000: Bad file descriptor"), "{said}");
}

/// Limits of addresses at which a password's memory is just to be had: what is needed besides is refused with a
/// message, if there is not enough, and no end by a signal.
#[test]
fn a_password_where_memory_is_short() {
    let bench = Bench::new();
    let under = |kib: u64| {
        let script = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tacita")]);
        command.args(["dnefs", "check", "volume", "--password-file", "pw"]);
        let output = command.current_dir(bench.0.path()).stdin(Stdio::null()).output().unwrap();
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let lacks = |kib| under(kib).1.contains("memory are needed for a password");
    // At the first limit it is lacking, at the second one there.
    let (mut lacking, mut enough) = (256 << 10, 1 << 20);
    assert!(lacks(lacking) && !lacks(enough));
    while enough - lacking > 64 {
        let middle = u64::midpoint(lacking, enough);
        if lacks(middle) {
            lacking = middle;
        } else {
            enough = middle;
        }
    }
    for kib in (enough..enough + 1600).step_by(160) {
        let (status, said) = under(kib);
        assert!(matches!(status.code(), Some(0 | 7)), "{kib}: {status}: {said}");
    }
}

/// What is of no use for anything.
const PLACES: [&str; 8] = [
    "missing",
    "missing/below",
    "empty/below",
    "/dev/zero",
    "/dev/null",
    "folder",
    "socket",
    "pipe",
];

/// What can be read of nothing else than what it is for.
const READ: [&str; 19] = [
    "check @",
    "info @",
    "hifs check @",
    "hifs info @",
    "hifs map @",
    "hifs unpack @ out",
    "hifs mount @ folder -o ro",
    "dnefs check @",
    "dnefs info @",
    "dnefs map @",
    "dnefs dump @ out",
    "dnefs passwd @ --new-password-file pw2",
    "dnefs erase @ --force",
    "dnefs mount @ folder",
    "pddm open @ --nbd nbd --password-file pw",
    "pddm passwd @ --password-file pw --new-password-file pw2",
    "oram trace --from @",
    "pddm sweep @ --password-file pw --public-only",
    "pddm check @ --password-file pw",
];

#[test]
fn what_is_not_what_it_should_be() {
    let bench = Bench::new();
    for line in READ {
        for place in PLACES {
            // Where something can be served, a daemon is looked for.
            let is_asked = line.starts_with("pddm sweep") && ["folder", "socket"].contains(&place);
            let code = if is_asked { 2 } else { 4 };
            if line.starts_with("oram trace") && place == "pipe" {
                // Somebody may write to it.
                continue;
            }
            let said = bench.refused(code, &line.replace('@', place));
            if ["socket", "pipe"].contains(&place) && !is_asked {
                let is_told = said.contains(&format!("{place}: this is "));
                assert!(is_told && !said.contains("dmesg"), "{line} {place}: {said}");
            }
        }
        for place in ["empty", "noise"] {
            // Whatever can be read is tried with the password.
            let is_unlocked = line.starts_with("pddm") && line.contains("--password-file");
            let code = if is_unlocked { 3 } else { 4 };
            bench.refused(code, &line.replace('@', place));
        }
    }
    for line in [
        "oram status 127.0.0.1:1 --key @",
        "oram export 127.0.0.1:1 --key @ --nbd nbd",
        "privatefs format 127.0.0.1:1 --key @",
        "privatefs mount 127.0.0.1:1 folder --key @",
    ] {
        for (code, place) in [(4, "missing"), (4, "folder"), (3, "noise"), (3, "/dev/zero")] {
            bench.refused(code, &line.replace('@', place));
        }
    }
    // Nobody serves any of them.
    for place in PLACES.into_iter().chain(["empty", "noise"]) {
        for line in ["status", "sync", "pddm status", "pddm close --drop", "oram close"] {
            bench.refused(2, &format!("{line} {place}"));
        }
    }
    for place in ["missing", "empty/below", "folder"] {
        bench.refused(2, &format!("umount {place}"));
        bench.refused(2, &format!("purge file {place}"));
    }
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../fist/tests/pitfalls/returns.c");
    for (code, line) in [
        (4, "fist vectors missing"),
        (4, "fist instrument missing trace --out out"),
        (2, "fist vectors /dev/zero"),
        (2, "fist vectors pipe"),
        (2, "fist instrument pipe trace --out out"),
        (2, "fist instrument folder pipe --out out"),
        (7, &format!("fist instrument {sample} trace --out out --headers headers")),
        (4, "dnefs audit --before /dev/zero --after noise"),
        (1, "dnefs audit --before noise --after noise"),
    ] {
        bench.refused(code, line);
    }
}

#[test]
fn places_where_nothing_can_be_made() {
    let bench = Bench::new();
    for (code, line) in [
        (4, "hifs format @ --size 2M"),
        (4, "hifs map image --svg @"),
        (2, "hifs mount image @"),
        (4, "dnefs format @ --size 8M"),
        (4, "pddm init @ --size 12M --password-file pw"),
        (4, "oram init @ --key key --blocks 256"),
        (4, "oram init other --key @ --blocks 256"),
        (4, "oram serve @ --listen unix:here"),
        (2, "oram serve store --listen unix:@"),
        (4, "manual @"),
        (4, "tour fist --keep @"),
        (4, "tour fist --html @"),
    ] {
        bench.refused(code, &line.replace('@', "noise/below"));
    }
    // What nothing can be called is known before the work, and told as it is.
    std::os::unix::fs::symlink("loop", bench.0.path().join("loop")).unwrap();
    let too_long = "n".repeat(256);
    for (place, why) in [
        ("loop", "Too many levels of symbolic links"),
        ("noise/", "Not a directory"),
        (too_long.as_str(), "File name too long"),
    ] {
        for line in [
            "dnefs format @ --size 8M --force",
            "pddm init @ --size 12M --password-file pw",
            "oram init other --key @ --blocks 256",
            "tour fist --html @",
        ] {
            let line = line.replace('@', place);
            bench.refused(4, &line);
            let said = bench.run(&line).1;
            assert!(said.contains(why) && said.contains("check the path"), "{line}: {said}");
        }
    }
}

/// Names lead nowhere from a folder that was removed while a shell was in it.
#[test]
fn a_folder_that_is_gone_is_said_to_be() {
    let bench = Bench::new();
    for line in [
        "hifs format image --size 2M",
        "dnefs format volume --size 8M",
        "dnefs check volume",
        "oram init store --key key --blocks 256",
        "pddm init device --size 12M --password-file @/pw",
    ] {
        let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        let line = line.replace('@', bench.0.path().to_str().unwrap());
        command.args(["-c", script, env!("CARGO_BIN_EXE_tacita")]).args(line.split(' '));
        let output = command.current_dir(bench.0.path()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "tacita {line}: {said}");
        assert!(said.contains("called in is gone"), "tacita {line}: {said}");
    }
}

/// A disk of two megabytes that is full but for a few kilobytes, gone when dropped.
struct FullDisk(PathBuf);

impl FullDisk {
    fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=2M", "tmpfs"];
        let mounted = Command::new("mount").args(options).arg(&at).stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(at))
    }

    /// Leaves no room.
    fn fill(&self) {
        fs::write(self.0.join("filler"), vec![1; 4 << 20]).unwrap_err();
    }

    /// Leaves so much room.
    fn leave(&self, len: u64) {
        self.fill();
        let filler = fs::File::options().write(true).open(self.0.join("filler")).unwrap();
        filler.set_len(filler.metadata().unwrap().len() - len).unwrap();
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_disk_without_room() {
    let bench = Bench::new();
    let Some(disk) = FullDisk::mount(bench.0.path().join("disk")) else {
        eprintln!("SKIPPED: a_disk_without_room: no mount of a tmpfs");
        return;
    };
    fs::copy(bench.0.path().join("key"), disk.0.join("key")).unwrap();
    disk.fill();
    let names = || {
        let found = fs::read_dir(&disk.0).unwrap();
        let mut names: Vec<_> = found.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (before, fist) = (names(), concat!(env!("CARGO_MANIFEST_DIR"), "/../fist/tests"));
    let instrument =
        format!("fist instrument {fist}/pitfalls/returns.c trace --headers {fist}/kernel");
    for line in [
        "hifs format disk/new --size 2M",
        "hifs pack folder disk/new --size 2M",
        "hifs map image --svg disk/new",
        "dnefs format disk/new --size 8M",
        "dnefs dump volume disk/new",
        "pddm init disk/new --size 12M --password-file pw",
        "oram init disk/new --key new --blocks 256",
        "oram init other --key disk/new --blocks 256",
        "manual disk/new",
        "oram passwd disk/key --new-password-file pw",
        "tour fist --html disk/new",
        &format!("{instrument} --out disk/new"),
        &format!("{instrument} --out new --diff disk/new"),
    ] {
        let said = bench.refused(6, line);
        assert_eq!(said.lines().count(), 2, "{line}: {said}");
        assert_eq!(names(), before, "{line}");
    }
    // What is made beside the patch is not there without it, nor the key of a store that is none.
    assert!(!bench.0.path().join("new").exists());
    // There is room for the first part alone.
    disk.leave(4096);
    let said = bench.refused(6, "oram init disk/new/store --key new --blocks 256");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(names(), before);
    assert!(!bench.0.path().join("new").exists());
    disk.leave(32768);
    bench.refused(6, "manual disk/new");
    let pages = fs::read_dir(disk.0.join("new")).unwrap();
    let lens: Vec<u64> = pages.map(|page| page.unwrap().metadata().unwrap().len()).collect();
    assert!(!lens.is_empty() && !lens.contains(&0), "{lens:?}");
}

/// The device is a sparse file, and there is no room for all of it: whoever comes after the first hears why,
/// too.
#[test]
fn an_open_device_without_room() {
    let bench = Bench::new();
    let Some(disk) = FullDisk::mount(bench.0.path().join("disk")) else {
        eprintln!("SKIPPED: an_open_device_without_room: no mount of a tmpfs");
        return;
    };
    assert_eq!(bench.run("pddm init disk/device --size 12M --password-file pw").0, Some(0));
    disk.fill();
    for line in [
        "pddm init disk/new --size 12M --password-file pw",
        "pddm passwd disk/device --password-file pw --new-password-file pw2",
        "pddm sweep disk/device --password-file pw --public-only",
    ] {
        let said = bench.refused(6, line);
        assert_eq!(said.lines().count(), 2, "{line}: {said}");
    }
    let open = "pddm open disk/device --nbd nbd --password-file pw";
    assert_eq!(bench.run(open).0, Some(0));
    for line in [
        "pddm sweep nbd --public-only",
        "pddm sweep nbd --public-only",
        "sync nbd",
        "pddm close --sweep nbd",
    ] {
        bench.refused(6, line);
    }
    assert_eq!(bench.run(&format!("{open} --read-only")).0, Some(0));
    bench.refused(4, "pddm sweep nbd --public-only");
    assert!(bench.run("pddm sweep nbd --public-only").1.contains("without `--read-only`"));
    assert_eq!(bench.run("pddm close --drop nbd").0, Some(0));
}

#[test]
fn words_and_numbers_that_make_no_sense() {
    let bench = Bench::new();
    for (code, line) in [
        (3, "dnefs check volume --password-file pw2"),
        (2, "dnefs check volume --password-file missing"),
        (2, "dnefs format new --size 1K"),
        (2, "dnefs format new --size 8M --node-size 1000"),
        (2, "dnefs format new --size 8M --key 24"),
        (2, "dnefs plan --size 0"),
        (2, "dnefs plan --node-size 1000"),
        (2, "dnefs plan --key 24"),
        (2, "hifs format new"),
        (2, "hifs format new --size 1K"),
        (2, "hifs format new --size 8192T"),
        (2, "hifs format new --size 2M --bucket 8G"),
        (2, "hifs format new --size 2M --seed xyz"),
        (2, "hifs mount image folder -o nonsense"),
        (2, "hifs mount image folder -o umask=77777"),
        (2, "pddm init new --size 4096 --password-file pw"),
        (2, "pddm init new --size 12M --password-file blank"),
        (2, "pddm init new --size 12M --password-file pw --hidden-password-file pw"),
        (2, "pddm plan --size 0"),
        (2, "oram plan --blocks 0"),
        (2, "oram init memory: --key new --blocks 256"),
        (2, "oram serve store --listen tls:127.0.0.1:0"),
        (2, "oram serve store --listen unix:here --tls-key key --tls-certificate key"),
        (2, "oram check 127.0.0.1:1 --key key --shared-anchor memory:"),
        (2, "oram check 127.0.0.1:1 --key key --tls-root missing"),
        (2, "oram trace --from noise --from noise --from noise"),
    ] {
        bench.refused(code, line);
    }
}

/// What is on a mounted disk in a file would go with the mount, for nobody would find the file again.
#[test]
fn what_is_put_out_leaves_a_mounted_disk_alone() {
    let test = "what_is_put_out_leaves_a_mounted_disk_alone";
    let bench = Bench::new();
    let (file, at) = (bench.0.path().join("disk"), bench.0.path().join("mounted"));
    fs::File::create(&file).unwrap().set_len(8 << 20).unwrap();
    let disk = match LoopDisk::new(&file, at, &[], "noatime") {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("SKIPPED: {test}: no ext4 on a loop device here: {why}");
            return;
        }
    };
    std::os::unix::fs::symlink("disk", bench.0.path().join("link")).unwrap();
    let inode = |path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(&file);
    for out in ["disk", "link"] {
        for line in ["dnefs dump volume", "hifs map image --svg"] {
            let said = bench.refused(5, &format!("{line} {out}"));
            assert!(said.contains("is in use as") && said.contains(disk.device()), "{said}");
        }
    }
    assert_eq!(inode(&file), before);
    // As every other file, when nobody uses it.
    disk.unmount();
    let (ended, said) = bench.run("hifs map image --svg disk");
    assert_eq!(ended, Some(0), "{said}");
    assert_ne!(inode(&file), before);
}

/// A file that the kernel swaps to, until it is dropped.
struct Swap(PathBuf);

impl Swap {
    /// `None` where there is none to be had.
    fn on(path: PathBuf) -> Option<Self> {
        let system = |program: &str| {
            let mut command = Command::new(program);
            let output = command.arg(&path).stdin(Stdio::null()).output();
            output.is_ok_and(|output| output.status.success())
        };
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        (system("mkswap") && system("swapon")).then(|| Self(path))
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        assert!(Command::new("swapoff").arg(&self.0).status().unwrap().success());
    }
}

/// The kernel lets nobody write to it, nor take its name: that is told before anything is done, by its cause.
#[test]
fn what_the_kernel_swaps_to_is_in_use() {
    let bench = Bench::new();
    let Some(swap) = Swap::on(bench.0.path().join("swap")) else {
        eprintln!("SKIPPED: what_the_kernel_swaps_to_is_in_use: no swap files here");
        return;
    };
    let before = fs::read(&swap.0).unwrap();
    for line in [
        "hifs format swap --size 2M --force",
        "hifs pack folder swap --force",
        "hifs mount swap folder",
        "hifs map image --svg swap",
        "dnefs format swap --size 8M --force --password-file pw",
        "dnefs dump volume swap",
        "pddm init swap --force --password-file pw",
        "pddm sweep swap --password-file pw",
    ] {
        let said = bench.refused(5, line);
        assert!(said.contains("swap is in use") && said.contains("swapoff"), "{line}: {said}");
    }
    assert!(fs::read(&swap.0).unwrap() == before);
}
