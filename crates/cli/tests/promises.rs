//! What the commands promise however they end: a command that makes a file is finished or has
//! made none, durable is what is said to be, and nobody waits for ever.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tacita_testkit::history::Rng;
use tacita_testkit::{MountGuard, Watchdog, search, skip_without, skip_without_fuse};

/// What is waited for comes sooner or not at all.
const PATIENCE: Duration = Duration::from_mins(2);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn tacita(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn expect(code: i32, arguments: &[&str]) -> String {
    let output = tacita(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    if code == 0 { String::from_utf8(output.stdout).unwrap() } else { said }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A folder with a few hundred files.
fn some_files(folder: &Path) {
    let mut rng = Rng::new(1);
    for n in 0..300u64 {
        let dir = folder.join(format!("{}", n % 7));
        fs::create_dir_all(&dir).unwrap();
        let len = usize::try_from(rng.below(20_000)).unwrap();
        fs::write(dir.join(format!("{n}")), rng.bytes(len)).unwrap();
    }
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    // It may be done already.
    let _ = kill_process(pid, signal);
}

/// How often each command is interrupted.
const KILLS: usize = 16;

/// Every command that makes a file, interrupted at random points: the file is there and right, or
/// it is not there.
#[test]
fn interrupted_commands_leave_all_or_nothing() {
    let _watchdog = Watchdog::start("interrupted", Duration::from_mins(20));
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    some_files(&folder);
    let source = dir.path().join("source.img");
    expect(0, &["hifs", "pack", path(&folder), path(&source), "--size", "32M", "--seed", "00"]);
    let whole = fs::read(&source).unwrap();
    let made = dir.path().join("made");
    let (image, picture, out) = (made.join("image"), made.join("picture"), made.join("out"));
    let password = dir.path().join("password");
    fs::write(&password, "a password\n").unwrap();
    let commands: [&[&str]; 5] = [
        &["hifs", "format", path(&image), "--size", "32M"],
        &["hifs", "pack", path(&folder), path(&image), "--size", "32M", "--seed", "00"],
        &["hifs", "unpack", path(&source), path(&out)],
        &["hifs", "map", path(&source), "--svg", path(&picture)],
        &["pddm", "init", path(&image), "--size", "64M", "--password-file", path(&password)],
    ];
    let mut rng = Rng::new(u64::from(std::process::id()));
    let (mut finished, mut absent) = (0, 0);
    for arguments in commands {
        fs::create_dir(&made).unwrap();
        let begin = Instant::now();
        assert!(command(arguments).stdout(Stdio::null()).status().unwrap().success());
        let whole_time = begin.elapsed();
        fs::remove_dir_all(&made).unwrap();
        // The last one is left alone, so that there always is one that has finished.
        for n in 0..=KILLS {
            fs::create_dir(&made).unwrap();
            let mut child =
                command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let thousandths = u32::try_from(rng.below(1200)).unwrap();
            let signal = [Signal::INT, Signal::TERM, Signal::KILL][n % 3];
            if n < KILLS {
                std::thread::sleep(whole_time * thousandths / 1000);
                send(&child, signal);
            }
            let status = child.wait().unwrap();
            let what = format!("{arguments:?}, {signal:?}");
            let left: Vec<String> =
                names(&made).into_iter().filter(|name| !name.starts_with('.')).collect();
            if signal != Signal::KILL {
                assert_eq!(left, names(&made), "{what}: something hidden is left");
            }
            if left.is_empty() {
                assert!(!status.success(), "{what}");
                absent += 1;
            } else {
                finished += 1;
                match arguments[1] {
                    "init" => {
                        let check = ["pddm", "check", path(&image)];
                        let password = ["--password-file", path(&password)];
                        expect(0, &[&check[..], &password[..]].concat());
                    }
                    "format" => drop(expect(0, &["hifs", "check", path(&image)])),
                    "pack" => assert!(fs::read(&image).unwrap() == whole, "{what}"),
                    "unpack" => {
                        let again = dir.path().join("again.img");
                        let seed = ["--size", "32M", "--seed", "00", "--force"];
                        let pack = ["hifs", "pack", path(&out), path(&again)];
                        expect(0, &[&pack[..], &seed[..]].concat());
                        assert!(fs::read(&again).unwrap() == whole, "{what}");
                    }
                    _ => assert!(fs::read_to_string(&picture).unwrap().contains("</svg>")),
                }
            }
            fs::remove_dir_all(&made).unwrap();
        }
    }
    assert!(finished > 0 && absent > 0, "{finished} finished, {absent} absent");
}

/// A small file system of its own, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(test: &str, size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("SKIPPED: {test}: cannot mount a tmpfs");
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_leaves_nothing() {
    let Some(disk) = SmallDisk::new("a_full_disk_leaves_nothing", "2m") else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    some_files(&folder);
    let source = dir.path().join("source.img");
    expect(0, &["hifs", "pack", path(&folder), path(&source), "--size", "32M"]);
    let at = |name: &str| disk.0.path().join(name);
    let (image, picture, out) = (at("image"), at("picture"), at("out"));
    expect(6, &["hifs", "format", path(&image), "--size", "32M"]);
    expect(6, &["hifs", "pack", path(&folder), path(&image), "--size", "32M"]);
    expect(6, &["hifs", "unpack", path(&source), path(&out)]);
    assert_eq!(names(disk.0.path()), [""; 0]);
    fs::write(at("ballast"), vec![1; 4 << 20]).unwrap_err();
    expect(6, &["hifs", "map", path(&source), "--svg", path(&picture)]);
    let password = dir.path().join("password");
    fs::write(&password, "a password\n").unwrap();
    let init = ["pddm", "init", path(&image), "--size", "64M"];
    expect(6, &[&init[..], &["--password-file", path(&password)]].concat());
    assert_eq!(names(disk.0.path()), ["ballast"]);
    // What an image is made of cannot fill it half: too small an image is none.
    let small = dir.path().join("small.img");
    expect(6, &["hifs", "pack", path(&folder), path(&small), "--size", "2M"]);
    assert!(!small.exists());
    // What was there before stays.
    expect(6, &["hifs", "pack", path(&folder), path(&source), "--size", "2M", "--force"]);
    expect(0, &["hifs", "check", path(&source)]);
}

#[test]
fn pipes_and_folders_are_no_images() {
    let _watchdog = Watchdog::start("pipes", PATIENCE);
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for place in [pipe.as_path(), dir.path()] {
        for command in ["check", "info"] {
            expect(4, &["hifs", command, path(place)]);
        }
        expect(2, &["hifs", "format", path(place), "--size", "8M"]);
        assert_ne!(
            tacita(&["hifs", "format", path(place), "--size", "8M", "--force"]).status.code(),
            Some(0)
        );
    }
}

/// Two packs of one folder are equal, and times come back as they were.
#[test]
fn packs_keep_times() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    some_files(&folder);
    fs::hard_link(folder.join("1/1"), folder.join("another name")).unwrap();
    for times in ["none", "user", "full"] {
        let mut images: Vec<PathBuf> = Vec::new();
        for n in 0..2 {
            let image = dir.path().join(format!("{times} {n}"));
            let shape = ["--size", "32M", "--seed", "00", "--times", times];
            expect(0, &[&["hifs", "pack", path(&folder), path(&image)][..], &shape].concat());
            images.push(image);
            // Reading changes access times.
            let read = Command::new("cat").arg(folder.join("1/1")).output().unwrap();
            assert!(read.status.success());
        }
        assert!(fs::read(&images[0]).unwrap() == fs::read(&images[1]).unwrap(), "{times}");
        if times == "none" {
            continue;
        }
        let out = dir.path().join(format!("out {times}"));
        expect(0, &["hifs", "unpack", path(&images[0]), path(&out)]);
        for name in ["1/1", "2", "another name"] {
            let (a, b) = (folder.join(name), out.join(name));
            let (a, b) = (fs::metadata(a).unwrap(), fs::metadata(b).unwrap());
            assert_eq!((a.mtime(), a.mtime_nsec()), (b.mtime(), b.mtime_nsec()), "{times}, {name}");
        }
    }
}

#[test]
fn attributes_are_carried_or_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, image, out) =
        (dir.path().join("folder"), dir.path().join("image"), dir.path().join("out"));
    fs::create_dir(&folder).unwrap();
    let file = folder.join("file");
    fs::write(&file, "x").unwrap();
    let set = |name: &str, value: &str| {
        let args: [&OsStr; 5] =
            ["-n".as_ref(), name.as_ref(), "-v".as_ref(), value.as_ref(), file.as_os_str()];
        Command::new("setfattr").args(args).output().is_ok_and(|output| output.status.success())
    };
    if !(set("user.a", "1") && set("trusted.b", "2") && set("security.c", "3")) {
        eprintln!("SKIPPED: attributes_are_carried_or_counted: not root, or no attributes here");
        return;
    }
    let packed = expect(0, &["hifs", "pack", path(&folder), path(&image), "--json"]);
    let packed: serde_json::Value = serde_json::from_str(&packed).unwrap();
    assert_eq!(packed["attributes_left_out"], 0);
    expect(0, &["hifs", "unpack", path(&image), path(&out)]);
    let shown = Command::new("getfattr")
        .args(["--absolute-names", "-d", "-m", "-"])
        .arg(out.join("file"))
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for line in ["user.a=\"1\"", "trusted.b=\"2\"", "security.c=\"3\""] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

/// Waits until a condition holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A mounted image whose daemon can be killed.
struct Mounted {
    image: PathBuf,
    guard: MountGuard,
    daemon: Child,
    _images: tempfile::TempDir,
}

impl Mounted {
    fn new(extra: &[&str]) -> Self {
        let images = tempfile::tempdir().unwrap();
        let image = images.path().join("image");
        expect(0, &["hifs", "format", path(&image), "--size", "32M"]);
        let guard = MountGuard::new().unwrap();
        let mount = ["hifs", "mount", path(&image), path(guard.path()), "--foreground"];
        let daemon = command(&[&mount[..], extra].concat()).spawn().unwrap();
        let mounted = Self { image, guard, daemon, _images: images };
        until("the mount", || mounted.is_mounted());
        mounted
    }

    fn dir(&self) -> &Path {
        self.guard.path()
    }

    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().any(|row| row.contains(path(self.dir())))
    }

    /// Kills the daemon and returns what the image holds.
    fn killed(mut self) -> Vec<String> {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        tacita(&["umount", path(self.dir())]);
        let dir = tempfile::tempdir().unwrap();
        // Mounting recovers.
        expect(0, &["hifs", "mount", path(&self.image), path(dir.path())]);
        let names = names(dir.path());
        expect(0, &["umount", path(dir.path())]);
        expect(0, &["hifs", "check", path(&self.image)]);
        names
    }
}

/// What a program calls, and how.
type Promise = (&'static str, fn(&Mounted));

fn written_with(mounted: &Mounted, flags: rustix::fs::OFlags) {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).custom_flags(flags.bits().cast_signed());
    let mut file = options.open(mounted.dir().join("file")).unwrap();
    std::io::Write::write_all(&mut file, b"x").unwrap();
}

/// Every call that promises durability keeps it through a kill, in both modes.
#[test]
fn what_counts_as_durable_survives_a_kill() {
    if skip_without_fuse("what_counts_as_durable_survives_a_kill") {
        return;
    }
    let _watchdog = Watchdog::start("durable", Duration::from_mins(20));
    let promises: [Promise; 6] = [
        ("O_SYNC", |mounted| written_with(mounted, rustix::fs::OFlags::SYNC)),
        ("O_DSYNC", |mounted| written_with(mounted, rustix::fs::OFlags::DSYNC)),
        ("fsync of the file", |mounted| {
            let file = fs::File::create(mounted.dir().join("file")).unwrap();
            file.sync_all().unwrap();
        }),
        ("fdatasync of the file", |mounted| {
            let file = fs::File::create(mounted.dir().join("file")).unwrap();
            file.sync_data().unwrap();
        }),
        ("fsync of the folder", |mounted| {
            fs::write(mounted.dir().join("file"), "x").unwrap();
            fs::File::open(mounted.dir()).unwrap().sync_all().unwrap();
        }),
        ("tacita sync", |mounted| {
            fs::write(mounted.dir().join("file"), "x").unwrap();
            expect(0, &["sync", path(mounted.dir())]);
        }),
    ];
    for mode in ["strict", "durable"] {
        for (what, promise) in promises {
            // Nothing else commits.
            let mounted = Mounted::new(&["--sync", mode, "--commit-every", "0"]);
            promise(&mounted);
            assert_eq!(mounted.killed(), ["file"], "{what}, {mode}");
        }
    }
}

/// Changes a file through a mapping, the whole of it, says so, and keeps both open.
const MAPPER: &str = "import mmap, sys\nfile = open(sys.argv[1], 'r+b')\n\
                      mapping = mmap.mmap(file.fileno(), 0)\nmapping[:] = b'kept' * (len(mapping) // 4)\n\
                      print('changed', flush=True)\nsys.stdin.read()\n";

/// Of so much the kernel has handed over little when it has begun to.
const MAPPED_LEN: usize = 4 << 20;

fn mapped(file: &Path) -> Child {
    let mut mapper = Command::new("python3");
    mapper.args(["-c", MAPPER, path(file)]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut mapper = mapper.spawn().unwrap();
    let mut said = [0; 8];
    std::io::Read::read_exact(mapper.stdout.as_mut().unwrap(), &mut said).unwrap();
    mapper
}

/// Of what a program has changed through a mapping only the kernel knows before it is asked.
#[test]
fn what_is_mapped_survives_a_kill_after_a_sync() {
    let test = "what_is_mapped_survives_a_kill_after_a_sync";
    if skip_without_fuse(test) || skip_without(test, &["python3"]) {
        return;
    }
    let _watchdog = Watchdog::start("mapped", Duration::from_mins(20));
    let (folder, guard) = (tempfile::tempdir().unwrap(), MountGuard::new().unwrap());
    let [image, device, password] =
        ["image", "device", "password"].map(|name| folder.path().join(name));
    fs::write(&password, "a password\n").unwrap();
    expect(0, &["hifs", "format", path(&image), "--size", "32M"]);
    let given = ["--password-file", path(&password)];
    expect(0, &[&["pddm", "init", path(&device), "--size", "12M"], &given[..]].concat());
    let dir = path(guard.path());
    let hifs = ["hifs", "mount", path(&image), dir, "--commit-every", "0"];
    let pddm = [&["pddm", "open", path(&device), "--fuse", dir], &given[..]].concat();
    // By the folder, and by what is mounted there.
    let hifs = [dir, path(&image)].map(|named| (&hifs[..], "file", named));
    let pddm = [dir, path(&device)].map(|named| (&pddm[..], "public", named));
    for (mount, name, named) in hifs.into_iter().chain(pddm) {
        expect(0, mount);
        let file = guard.join(name);
        let written = fs::OpenOptions::new().create(true).write(true).truncate(false).open(&file);
        let written = written.unwrap();
        std::os::unix::fs::FileExt::write_all_at(&written, &vec![7; MAPPED_LEN], 0).unwrap();
        written.sync_all().unwrap();
        let mut mapper = mapped(&file);
        expect(0, &["sync", named]);
        let status = expect(0, &["status", dir, "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let daemon = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
        kill_process(Pid::from_raw(daemon).unwrap(), Signal::KILL).unwrap();
        mapper.kill().unwrap();
        mapper.wait().unwrap();
        tacita(&["umount", dir]);
        expect(0, mount);
        let mut kept = vec![0; MAPPED_LEN];
        let file = fs::File::open(&file).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut kept, 0).unwrap();
        assert!(kept == b"kept".repeat(MAPPED_LEN / 4), "{mount:?} {named}");
        drop(file);
        expect(0, &["umount", dir]);
    }
}

/// A program that changes a hole through a mapping hears nothing of a full image: whoever syncs does.
#[test]
fn what_is_mapped_and_finds_no_room_is_told() {
    let test = "what_is_mapped_and_finds_no_room_is_told";
    if skip_without_fuse(test) || skip_without(test, &["python3"]) {
        return;
    }
    let _watchdog = Watchdog::start("mapped without room", Duration::from_mins(20));
    let (folder, guard) = (tempfile::tempdir().unwrap(), MountGuard::new().unwrap());
    let (image, file) = (folder.path().join("image"), guard.join("file"));
    expect(0, &["hifs", "format", path(&image), "--size", "8M"]);
    expect(0, &["hifs", "mount", path(&image), path(guard.path())]);
    fs::File::create(&file).unwrap().set_len(MAPPED_LEN as u64).unwrap();
    expect(0, &["sync", path(guard.path())]);
    let mut filler = fs::File::create(guard.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &vec![7; 1 << 16]).is_ok() {}
    let mut mapper = mapped(&file);
    let said = expect(6, &["sync", path(guard.path())]);
    assert!(said.contains("changed in mappings") && said.contains("make room there"), "{said}");
    mapper.kill().unwrap();
    mapper.wait().unwrap();
    drop(filler);
    expect(0, &["umount", path(guard.path())]);
}

/// When programs are quiet everything is committed by itself.
#[test]
fn quiet_programs_are_committed() {
    if skip_without_fuse("quiet_programs_are_committed") {
        return;
    }
    let _watchdog = Watchdog::start("quiet", Duration::from_mins(20));
    let mounted = Mounted::new(&["--commit-every", "0"]);
    let name = b"a name that is looked for";
    fs::write(mounted.dir().join(std::str::from_utf8(name).unwrap()), "x").unwrap();
    until("the commit", || {
        let image = fs::read(&mounted.image).unwrap();
        search::holds(&image, name)
    });
    assert_eq!(mounted.killed(), [std::str::from_utf8(name).unwrap()]);
}

/// A mount that another mount namespace holds: unmounting answers, names the holder, loses nothing,
/// and the image is free when the holder is gone.
#[test]
fn a_mount_held_elsewhere_is_told() {
    let test = "a_mount_held_elsewhere_is_told";
    if skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, Duration::from_mins(20));
    let mut mounted = Mounted::new(&["--commit-every", "0"]);
    let holder = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut holder) = holder else {
        eprintln!("SKIPPED: {test}: no unshare");
        return;
    };
    let mut ready = [0; 6];
    let stdout = holder.stdout.as_mut().unwrap();
    if std::io::Read::read_exact(stdout, &mut ready).is_err() {
        eprintln!("SKIPPED: {test}: no mount namespaces here");
        return;
    }
    fs::write(mounted.dir().join("file"), "x").unwrap();
    for _ in 0..2 {
        let said = expect(5, &["umount", path(mounted.dir())]);
        let (pid, dir) = (holder.id().to_string(), path(mounted.dir()));
        assert!(said.contains(&pid) && said.contains("sleep") && said.contains(dir), "{said}");
        assert!(said.contains("on the medium"), "{said}");
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    until("the end of the daemon", || mounted.daemon.try_wait().unwrap().is_some());
    expect(0, &["hifs", "check", path(&mounted.image)]);
    assert!(search::holds(&fs::read(&mounted.image).unwrap(), "file"));
    let said = expect(2, &["sync", path(mounted.dir())]);
    assert!(said.contains(path(mounted.dir())), "{said}");
}

/// Programs that work at the same time, in folders of their own and in one together, leave the
/// image that `pack` makes of what they have left.
#[test]
fn several_programs_leave_what_pack_makes() {
    const PROGRAM: &str = r#"
        set -e
        me=$1
        mkdir "own$me"
        for n in $(seq 40); do
            head -c $((n * 700 + 1)) /dev/urandom > "own$me/$n"
            cp "own$me/$n" "shared/$me-$n"
            [ $((n % 3)) != 0 ] || mv "shared/$me-$n" "shared/moved-$me-$n"
            [ $((n % 4)) != 0 ] || ln "own$me/$n" "shared/link-$me-$n"
            [ $((n % 5)) != 0 ] || rm "own$me/$n"
            [ $((n % 7)) != 0 ] || sync -d "own$me/1" "shared"
            truncate -s $((n * 100)) "own$me/1"
        done
    "#;
    let test = "several_programs_leave_what_pack_makes";
    if skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, Duration::from_mins(20));
    let dir = tempfile::tempdir().unwrap();
    let (image, packed) = (dir.path().join("image"), dir.path().join("packed"));
    expect(0, &["hifs", "format", path(&image), "--size", "32M", "--seed", "00"]);
    let guard = MountGuard::new().unwrap();
    expect(0, &["hifs", "mount", path(&image), path(guard.path())]);
    fs::create_dir(guard.path().join("shared")).unwrap();
    let programs: Vec<Child> = (0..4)
        .map(|n| {
            Command::new("sh")
                .args(["-c", PROGRAM, "program", &n.to_string()])
                .current_dir(guard.path())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    let shape = ["--size", "32M", "--seed", "00"];
    expect(0, &[&["hifs", "pack", path(guard.path()), path(&packed)][..], &shape].concat());
    expect(0, &["umount", path(guard.path())]);
    assert!(fs::read(&image).unwrap() == fs::read(&packed).unwrap());
}

/// Where a password cannot have its memory, this is said, in JSON too, and nothing is made.
#[test]
fn a_password_without_memory_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| path(&folder.path().join(name)).to_owned();
    let (device, volume, store, key) = (at("device"), at("volume"), at("store"), at("key"));
    let (password, sealed) = (at("password"), at("sealed"));
    fs::write(&password, "a password\n").unwrap();
    let with = ["--password-file", &password];
    expect(0, &[&["pddm", "init", &device, "--size", "16M"][..], &with].concat());
    let seal = ["oram", "init", &at("made"), "--blocks", "600", "--key", &sealed];
    expect(0, &[&seal[..], &with].concat());
    let before = names(folder.path());
    for asked in [
        &["pddm", "check", &device, "--json"][..],
        &["pddm", "init", &at("new"), "--size", "16M", "--json"],
        &["dnefs", "format", &volume, "--size", "16M", "--json"],
        &["oram", "init", &store, "--blocks", "600", "--key", &key, "--json"],
        &["oram", "init", &store, "--blocks", "600", "--key", &sealed, "--json"],
    ] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -v 200000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tacita")]);
        let output = limited.args(asked).args(with).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{asked:?}: {said}");
        assert!(said.contains("256 MiB of memory") && said.contains("ulimit"), "{said}");
        let failure: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(failure["error"]["code"], 7);
        assert_eq!(names(folder.path()), before, "{asked:?}");
    }
}
