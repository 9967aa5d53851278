//! The hifs commands behave as docs/cli.md says: exit codes, what goes where, and what is left.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod folders;
mod places;
mod salvage;
mod unreadable;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, linkat, mkdirat, openat, readlinkat, statat,
    symlinkat,
};
use tacita_testkit::{MountGuard, Watchdog, copy_program, skip_without_fuse};

const TIME_MAX: Duration = Duration::from_mins(20);
/// A user other than root, who owns nothing.
const NOBODY: u32 = 65_534;

fn tacita(arguments: &[&OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn hifs<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let all: Vec<&OsStr> =
        [OsStr::new("hifs")].into_iter().chain(arguments.iter().map(AsRef::as_ref)).collect();
    tacita(&all)
}

/// The command ends with this code; a failure is told on stderr alone, in a few lines.
fn expect(code: i32, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "stderr: {said}\nstdout: {printed}");
    if code == 0 {
        assert!(said.is_empty(), "done, and yet it says: {said}");
        return printed;
    }
    assert!(!said.is_empty() && !said.contains("panicked"), "{said}");
    // A check prints what it has found.
    assert!(printed.is_empty() || code == 1, "{printed}");
    said
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn format(dir: &Path, name: &str, size: &str) -> PathBuf {
    let image = dir.join(name);
    expect(0, &hifs(&["format", path(&image), "--size", size, "--seed", "00ff"]));
    image
}

#[test]
fn help_everywhere() {
    for command in [
        &[][..],
        &["tour"],
        &["umount"],
        &["hifs"],
        &["hifs", "format"],
        &["hifs", "mount"],
        &["hifs", "check"],
        &["hifs", "info"],
        &["hifs", "map"],
        &["hifs", "pack"],
        &["hifs", "unpack"],
    ] {
        let mut arguments: Vec<&OsStr> = command.iter().map(OsStr::new).collect();
        arguments.push(OsStr::new("--help"));
        assert!(expect(0, &tacita(&arguments)).contains("Usage:"), "{command:?}");
    }
}

#[test]
fn absurd_requests_are_usage_errors() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("i.img");
    let image_text = path(&image);
    for more in [
        &["--size", "4K"][..],
        &["--size", "0"],
        &["--size", "99999999T"],
        &["--size", "100000T"],
        &["--size", "ten"],
        &["--size", "-1M"],
        &["--size", "16M", "--bucket", "5000"],
        &["--size", "16M", "--bucket", "2M"],
        &["--size", "16M", "--bucket", "8G"],
        &["--size", "16M", "--groups", "0"],
        &["--size", "16M", "--groups", "4096"],
        &["--size", "16M", "--groups", "99999999999"],
        &["--size", "16M", "--layout", "e"],
        &["--size", "16M", "--seed", "xyz"],
        &["--size", "16M", "--seed", ""],
        &["--size", "16M", "--times", "some"],
        &["--size", "16M", "--ids", "none"],
        &["--size", "16M", "--unknown"],
        &[],
    ] {
        expect(2, &hifs(&[&["format", image_text], more].concat()));
        assert!(!image.exists(), "{more:?} left a file");
    }
    expect(2, &hifs(&["format"]));
    expect(2, &hifs(&["nonsense"]));
    expect(2, &tacita(&[]));
}

#[test]
fn what_is_no_image() {
    let dir = tempfile::tempdir().unwrap();
    let (missing, text) = (dir.path().join("missing"), dir.path().join("text"));
    fs::write(&text, "this is no image\n".repeat(100_000)).unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    let out = dir.path().join("out");
    for image in [&missing, &text, &dir.path().join("empty"), &dir.path().to_owned()] {
        for command in ["check", "info", "map"] {
            let said = expect(4, &hifs(&[command, path(image)]));
            assert!(said.contains(path(image)), "{said}");
        }
        expect(4, &hifs(&["unpack", path(image), path(&out)]));
        assert!(!out.exists());
        expect(4, &hifs(&["mount", path(image), path(dir.path())]));
    }
}

#[test]
fn format_keeps_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("data");
    fs::write(&image, "letters").unwrap();
    let said = expect(2, &hifs(&["format", path(&image), "--size", "2M"]));
    assert!(said.contains("--force"), "{said}");
    assert_eq!(fs::read(&image).unwrap(), b"letters");
    let printed = expect(0, &hifs(&["format", path(&image), "--size", "2M", "--force"]));
    assert!(printed.contains("layout d"), "{printed}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 2 << 20);
    expect(2, &hifs(&["format", path(&image), "--size", "2M"]));
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    expect(2, &hifs(&["pack", path(&folder), path(&image), "--size", "2M"]));
    // Nothing is made where nothing can be.
    expect(4, &hifs(&["format", path(&dir.path().join("no/such/i.img")), "--size", "2M"]));
}

/// Stops a command when it holds what will be `image` and has no name yet. Where it is through before it stands
/// still, all is made as it was before, and it is tried again.
fn stopped_before_publishing(image: &Path, arguments: &[&str]) -> Child {
    let before = fs::read(image).ok();
    let tried = (0..100).find_map(|_| {
        stopped_in_time(image, arguments).or_else(|| {
            match &before {
                Some(before) => fs::write(image, before).unwrap(),
                None => fs::remove_file(image).unwrap(),
            }
            None
        })
    });
    tried.expect("it holds something without a name before it has made the image")
}

/// `None` if it has ended.
fn stopped_in_time(image: &Path, arguments: &[&str]) -> Option<Child> {
    let published = || fs::metadata(image).ok().map(|metadata| metadata.ino());
    let before = published();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tacita"))
        .arg("hifs")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let [files, stat] = ["fd", "stat"].map(|name| format!("/proc/{}/{name}", child.id()));
    let is_unnamed = |target: &Path| {
        let name = target.file_name().unwrap_or_default().as_bytes();
        target.parent() == image.parent()
            && (name.ends_with(b" (deleted)") || name.starts_with(b"."))
    };
    let holds_unnamed = || {
        let targets = fs::read_dir(&files).into_iter().flatten().flatten();
        targets.flat_map(|file| fs::read_link(file.path())).any(|target| is_unnamed(&target))
    };
    // Its state is behind its name.
    let stands = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
    while child.try_wait().unwrap().is_none() {
        if !holds_unnamed() {
            continue;
        }
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while !stands() && child.try_wait().unwrap().is_none() {}
        if published() == before {
            return Some(child);
        }
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    }
    assert!(child.wait().unwrap().success());
    None
}

fn ended(child: Child) -> Output {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_image_that_came_meanwhile_stays() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let (image, folder) = (dir.join("i.img"), dir.join("folder"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), vec![7; 100_000]).unwrap();
    for arguments in [
        &["pack", path(&folder), path(&image), "--size", "64M"][..],
        &["format", path(&image), "--size", "64M"],
    ] {
        let slow = stopped_before_publishing(&image, arguments);
        format(&dir, "i.img", "2M");
        let before = fs::read(&image).unwrap();
        let said = expect(2, &ended(slow));
        assert!(said.contains("--force"), "{said}");
        assert!(fs::read(&image).unwrap() == before, "{arguments:?} has replaced it");
        fs::remove_file(&image).unwrap();
        // With --force too, while somebody uses it.
        let slow = stopped_before_publishing(&image, &[arguments, &["--force"]].concat());
        format(&dir, "i.img", "2M");
        let used = fs::File::open(&image).unwrap();
        rustix::fs::flock(&used, FlockOperation::NonBlockingLockExclusive).unwrap();
        expect(5, &ended(slow));
        drop(used);
        assert_eq!(fs::metadata(&image).unwrap().len(), 2 << 20);
        let slow = stopped_before_publishing(&image, &[arguments, &["--force"]].concat());
        fs::remove_file(&image).unwrap();
        format(&dir, "i.img", "2M");
        expect(0, &ended(slow));
        assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
        fs::remove_file(&image).unwrap();
        let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["folder"], "nothing is left behind");
    }
}

#[test]
fn what_force_replaces_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (image, folder) = (dir.path().join("i.img"), dir.path().join("folder"));
    let secret = b"Jane Roe, room 7: what nobody may know.\n";
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), secret.repeat(10_000)).unwrap();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for again in [
        &["format", path(&image), "--size", "2M", "--force"][..],
        &["pack", path(&empty), path(&image), "--force"],
    ] {
        expect(0, &hifs(&["pack", path(&folder), path(&image), "--force"]));
        // Stands for the blocks that go back to the file system.
        let mut held = fs::File::open(&image).unwrap();
        expect(0, &hifs(again));
        assert_eq!(held.metadata().unwrap().nlink(), 0);
        let mut left = Vec::new();
        held.read_to_end(&mut left).unwrap();
        assert!(left.len() >= 16 << 20 && left.iter().all(|byte| *byte == 0), "{again:?}");
        expect(0, &hifs(&["check", path(&image)]));
    }
}

/// A superblock, a journal and all that follows are as before: the journal's first byte is not zero.
#[test]
fn an_interrupted_image_is_not_called_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let image = format(dir.path(), "i.img", "2M");
    let whole = fs::read(&image).unwrap();
    let mut bytes = whole.clone();
    bytes[4096] = 1;
    fs::write(&image, &bytes).unwrap();
    let out = dir.path().join("out");
    for command in
        [&["info", path(&image)][..], &["map", path(&image)], &["unpack", path(&image), path(&out)]]
    {
        let said = expect(4, &hifs(command));
        assert!(said.contains("interrupted") && said.contains("mount it once"), "{said}");
        assert!(!said.contains("backup"), "{said}");
    }
    expect(1, &hifs(&["check", path(&image)]));
    assert!(fs::read(&image).unwrap() == bytes);
    // A damaged superblock is mounted read-only, which finishes nothing.
    bytes[70] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let said = expect(4, &hifs(&["info", path(&image)]));
    assert!(said.contains("backup") && said.contains("block 0"), "{said}");
    bytes[70] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let Some(bench) = Bench::new("an_interrupted_image_is_not_called_damaged") else { return };
    let said = expect(4, &hifs(&["mount", path(&image), bench.dir(), "-o", "ro"]));
    assert!(said.contains("mount it once"), "{said}");
    assert_eq!(hifs(&["mount", path(&image), bench.dir()]).status.code(), Some(0));
    expect(0, &bench.umount());
    assert!(fs::read(&image).unwrap() == whole);
    expect(0, &hifs(&["info", path(&image)]));
}

#[test]
fn a_check_looks_behind_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let image = format(dir.path(), "i.img", "2M");
    let whole = fs::read(&image).unwrap();
    for len in [1, 511, 4095, 4096, 5000] {
        fs::write(&image, [&whole[..], &vec![0; len]].concat()).unwrap();
        expect(0, &hifs(&["check", path(&image)]));
        let mut rest = vec![0; len];
        rest[len - 1] = 7;
        fs::write(&image, [&whole[..], &rest].concat()).unwrap();
        let output = hifs(&["check", path(&image)]);
        expect(1, &output);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains("behind the image"), "{len} bytes: {printed}");
    }
}

#[test]
fn names_in_maps_are_only_shown() {
    let dir = tempfile::tempdir().unwrap();
    let (image, folder) = (dir.path().join("i.img"), dir.path().join("folder"));
    fs::create_dir(&folder).unwrap();
    let name = OsString::from_vec(b"\x1b[31mred <\x01\xff".to_vec());
    fs::write(folder.join(&name), vec![7; 20_000]).unwrap();
    expect(0, &hifs(&["pack", path(&folder), path(&image)]));
    let text = expect(0, &hifs(&["map", path(&image)]));
    let shown = r"/\u{1b}[31mred <\u{1}\xff";
    assert!(text.contains(shown), "{text:?}");
    let svg = dir.path().join("map.svg");
    expect(0, &hifs(&["map", path(&image), "--svg", path(&svg)]));
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains(&shown.replace('<', "&lt;")), "{drawn:?}");
    assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'), "{drawn:?}");
    let json = expect(0, &hifs(&["map", path(&image), "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let groups = json.as_array().unwrap();
    let cells = groups.iter().flat_map(|group| group["buckets_used"].as_array().unwrap());
    let owners: Vec<_> = cells.map(|cell| cell["owner"]["bytes"].as_str()).collect();
    let hex = "2f1b5b33316d726564203c01ff";
    assert_eq!(owners, [Some(hex), Some(hex)]);
}

/// What a user unpacks runs as this user: for nobody else, though the image says so.
#[test]
fn set_user_id_is_lent_by_its_owner_only() {
    let test = "set_user_id_is_lent_by_its_owner_only";
    let dir = tempfile::tempdir().unwrap();
    let (image, folder) = (dir.path().join("i.img"), dir.path().join("folder"));
    let out = dir.path().join("out");
    fs::create_dir_all(folder.join("within")).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
    let set_mode = |path: PathBuf, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["tool", "own"] {
        fs::write(folder.join(name), name).unwrap();
        set_mode(folder.join(name), 0o6755);
    }
    set_mode(folder.join("within"), 0o2755);
    expect(0, &hifs(&["pack", path(&folder), path(&image)]));
    expect(0, &hifs(&["unpack", path(&image), path(&out)]));
    // Given by whoever may give it.
    assert_eq!(mode(out.join("tool")), 0o6755);
    assert_eq!(mode(out.join("within")), 0o2755);
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can be somebody else");
        return;
    }
    std::os::unix::fs::chown(folder.join("own"), Some(NOBODY), Some(NOBODY)).unwrap();
    set_mode(folder.join("own"), 0o6755);
    expect(0, &hifs(&["pack", path(&folder), path(&image), "--force"]));
    set_mode(image.clone(), 0o644);
    set_mode(dir.path().to_owned(), 0o755);
    let (program, place) = (dir.path().join("tacita"), dir.path().join("place"));
    // Where it has been built others need not come.
    copy_program(env!("CARGO_BIN_EXE_tacita"), &program);
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
    let out = place.join("out");
    let mut unpack = Command::new(&program);
    unpack.args(["hifs", "unpack", path(&image), path(&out)]).stdin(Stdio::null());
    expect(0, &unpack.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap());
    assert_eq!(fs::metadata(out.join("tool")).unwrap().uid(), NOBODY);
    assert_eq!(mode(out.join("tool")), 0o755);
    assert_eq!(mode(out.join("within")), 0o755);
    assert_eq!(mode(out.join("own")), 0o6755);
}

#[test]
fn profiles_choose_the_shape() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&str, &[&str], u64, u64); 4] = [
        ("db", &[], 64 << 10, 8),
        ("web", &[], 16 << 10, 24),
        ("small", &[], 4 << 10, 4),
        ("web", &["--bucket", "8K", "--groups", "5"], 8 << 10, 5),
    ];
    for (n, (profile, more, bucket, groups)) in cases.into_iter().enumerate() {
        let image = dir.path().join(format!("{n}"));
        let arguments = ["format", path(&image), "--size", "64M", "--profile", profile, "--json"];
        let made = expect(0, &hifs(&[&arguments[..], more].concat()));
        let made: serde_json::Value = serde_json::from_str(&made).unwrap();
        assert_eq!((&made["bucket"], &made["groups"]), (&bucket.into(), &groups.into()), "{n}");
    }
    let image = dir.path().join("too small");
    let said = expect(2, &hifs(&["format", path(&image), "--size", "2M", "--profile", "db"]));
    assert!(said.contains("--size"), "{said}");
    assert!(!image.exists());
}

#[test]
fn facts_as_text_and_json() {
    let dir = tempfile::tempdir().unwrap();
    for layout in ["a", "b", "c", "d", "D"] {
        let image = dir.path().join(layout);
        let image = path(&image);
        let json = |arguments: &[&str]| -> serde_json::Value {
            serde_json::from_str(&expect(0, &hifs(arguments))).unwrap()
        };
        let made = json(&[
            "format", image, "--size", "4M", "--layout", layout, "--ids", "random", "--times",
            "full", "--bucket", "8K", "--groups", "3", "--json",
        ]);
        assert_eq!(made["layout"], layout.to_lowercase());
        let info = json(&["info", image, "--json"]);
        assert_eq!((&info["groups"], &info["bucket"]), (&3.into(), &8192.into()));
        assert_eq!((&info["ids"], &info["times"]), (&"random".into(), &"full".into()));
        assert_eq!(info["files"], 0);
        assert_eq!(json(&["check", image, "--json"])["canonical"], true);
        json(&["map", image, "--json"]);
        assert!(expect(0, &hifs(&["info", image])).contains("extents a file"));
        expect(0, &hifs(&["map", image]));
        let svg = dir.path().join("map.svg");
        expect(0, &hifs(&["map", image, "--svg", path(&svg)]));
        assert!(fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    }
}

#[test]
fn a_damaged_copy() {
    let dir = tempfile::tempdir().unwrap();
    let image = format(dir.path(), "i.img", "2M");
    expect(0, &hifs(&["check", path(&image)]));
    let whole = fs::read(&image).unwrap();
    let copy = dir.path().join("copy.img");
    let out = dir.path().join("out");
    let mut found = [0; 3];
    for at in (0..whole.len()).step_by(16 << 10) {
        let mut bytes = whole.clone();
        bytes[at + 5] ^= 0x40;
        fs::write(&copy, &bytes).unwrap();
        let output = hifs(&["check", path(&copy)]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let json = hifs(&["check", path(&copy), "--json"]);
        assert_eq!(json.status.code(), Some(1), "byte {at}");
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["canonical"], false);
        expect(1, &output);
        assert!(printed.contains("block") || printed.contains("journal"), "byte {at}: {printed}");
        let code = hifs(&["unpack", path(&copy), path(&out)]).status.code().unwrap();
        assert!(code == 0 || code == 4, "byte {at}: {code}");
        found[usize::from(code == 4)] += 1;
        if code == 0 {
            fs::remove_dir_all(&out).unwrap();
        }
        assert!(fs::read(&copy).unwrap() == bytes, "a check has changed the image");
    }
    assert!(found[0] > 0);
    fs::write(&copy, &whole[..1 << 20]).unwrap();
    expect(1, &hifs(&["check", path(&copy)]));
    expect(4, &hifs(&["info", path(&copy)]));
}

/// A folder with everything that files can be.
fn make_everything(folder: &Path) {
    fs::create_dir_all(folder.join("deep/er/\u{fc}n\u{ef}code \u{2603}")).unwrap();
    fs::write(folder.join("deep/short"), b"abc").unwrap();
    fs::write(
        folder.join("deep/long"),
        (0..70_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>(),
    )
    .unwrap();
    fs::write(folder.join("empty"), b"").unwrap();
    fs::write(folder.join(OsStr::from_bytes(b"not \xff\xfe utf-8")), b"bytes").unwrap();
    let cyrillic = "\u{43d}\u{43e}\u{432}\u{44b}\u{439}";
    fs::write(folder.join("deep/er/\u{fc}n\u{ef}code \u{2603}").join(cyrillic), b"text").unwrap();
    fs::write(folder.join("-o"), b"a name like an option").unwrap();
    fs::hard_link(folder.join("deep/long"), folder.join("a hard link")).unwrap();
    std::os::unix::fs::symlink("../nowhere \n", folder.join("deep/symlink")).unwrap();
    std::os::unix::fs::symlink("x".repeat(3000), folder.join("long symlink")).unwrap();
    let holes = fs::File::create(folder.join("holes")).unwrap();
    holes.set_len(6 << 20).unwrap();
    holes.write_all_at(b"in the middle", 3 << 20).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o620),
        0,
    )
    .unwrap();
    drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap());
    if rustix::process::geteuid().is_root() {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("device"),
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::from_raw_mode(0o600),
            rustix::fs::makedev(300, 70_000),
        )
        .unwrap();
        std::os::unix::fs::lchown(folder.join("empty"), Some(1234), Some(4321)).unwrap();
    }
    for (name, mode) in [("deep", 0o700), ("deep/short", 0o4751), ("holes", 0o444)] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let none = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(folder.join("empty"), "user.note", &[0, 255, 7], none).is_err() {
        eprintln!("SKIPPED: attributes: the file system of the temporary folder has none");
    }
}

/// What `ls` and `cat` show of a folder, by path.
fn listing(folder: &Path) -> BTreeMap<OsString, String> {
    let mut found = BTreeMap::new();
    let mut stack = vec![folder.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                stack.push(path.clone());
                0
            } else if meta.is_file() {
                tag(&fs::read(&path).unwrap())
            } else if meta.is_symlink() {
                tag(&fs::read_link(&path).unwrap().into_os_string().into_vec())
            } else {
                0
            };
            let mut value = [0; 64];
            let note = rustix::fs::lgetxattr(&path, "user.note", &mut value[..]).unwrap_or(0);
            let size = if meta.is_dir() { 0 } else { meta.len() };
            let mode = meta.mode();
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            let text = format!(
                "{mode:o} {}:{} {links} {size} {:x} {content:x} {:?}",
                meta.uid(),
                meta.gid(),
                meta.rdev(),
                &value[..note]
            );
            found.insert(name.into_os_string(), text);
        }
    }
    found
}

fn tag(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn pack_and_unpack_carry_everything() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("the f\u{f6}lder");
    fs::create_dir(&folder).unwrap();
    make_everything(&folder);
    let want = listing(&folder);
    assert!(want.len() > 15);
    let mut images = Vec::new();
    for name in ["\u{e4}.img", "b.img"] {
        let image = dir.path().join(name);
        let seed = ["--seed", "00", "--size", "24M"];
        let packed = expect(
            0,
            &hifs(&[&["pack", path(&folder), path(&image), "--json"][..], &seed].concat()),
        );
        let packed: serde_json::Value = serde_json::from_str(&packed).unwrap();
        assert!(packed["nodes"].as_u64().unwrap() > 10);
        expect(0, &hifs(&["check", path(&image)]));
        images.push(fs::read(&image).unwrap());
        let out = dir.path().join(format!("{name} out"));
        expect(0, &hifs(&["unpack", path(&image), path(&out)]));
        assert_eq!(listing(&out), want);
        let stored = fs::metadata(out.join("holes")).unwrap().blocks() * 512;
        assert!(stored < 5 << 20, "the hole takes {stored} bytes");
        // Only into an empty folder.
        expect(2, &hifs(&["unpack", path(&image), path(&out)]));
    }
    assert!(images[0] == images[1], "the same folder makes the same image");
    // What does not fit is told, and how to make it fit.
    let image = dir.path().join("small.img");
    let said =
        expect(6, &hifs(&["pack", path(&folder), path(&image), "--size", "1M", "--groups", "1"]));
    assert!(said.contains("--size"), "{said}");
    expect(2, &hifs(&["pack", path(&dir.path().join("missing")), path(&image)]));
    // Names outside of UTF-8 in arguments.
    let odd = dir.path().join(OsStr::from_bytes(b"image \xff"));
    let arguments: [&OsStr; 4] =
        ["pack".as_ref(), folder.as_ref(), odd.as_ref(), "--json".as_ref()];
    expect(0, &hifs(&arguments));
    expect(0, &hifs(&["info".as_ref(), odd.as_os_str()]));
}

/// An image is made as long as what is stored needs, not as long as files seem: and so is the time.
#[test]
fn pack_makes_room_for_what_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let pack = |folder: &Path, more: &[&str]| {
        let image = dir.path().join("i.img");
        expect(0, &hifs(&[&["pack", path(folder), path(&image), "--force"], more].concat()));
        expect(0, &hifs(&["check", path(&image)]));
        (fs::metadata(&image).unwrap().len(), image)
    };
    let folder = dir.path().join("holes");
    fs::create_dir(&folder).unwrap();
    let sparse = fs::File::create(folder.join("sparse")).unwrap();
    for n in 0..16 {
        sparse.write_all_at(&[7; 4096], n << 20).unwrap();
    }
    sparse.set_len(64 << 20).unwrap();
    let (len, image) = pack(&folder, &[]);
    assert_eq!(len, 16 << 20, "64 MiB of holes are not counted");
    // However full it is, holes need no room: 16 buckets and a page are all that is taken.
    pack(&folder, &["--size", "1M"]);
    let out = dir.path().join("out");
    expect(0, &hifs(&["unpack", path(&image), path(&out)]));
    let unpacked = fs::metadata(out.join("sparse")).unwrap();
    // And a block in which the file system keeps where they are.
    let most = 16 * (16 << 10) + 4096;
    assert!(unpacked.blocks() * 512 <= most, "{} blocks", unpacked.blocks());
    assert!(fs::read(out.join("sparse")).unwrap() == fs::read(folder.join("sparse")).unwrap());

    // One content under many names is stored once.
    let folder = dir.path().join("links");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("0"), vec![5; 1 << 20]).unwrap();
    for n in 1..40 {
        fs::hard_link(folder.join("0"), folder.join(n.to_string())).unwrap();
    }
    assert_eq!(pack(&folder, &[]).0, 16 << 20);

    // A file takes a whole bucket, however long these are.
    let folder = dir.path().join("small");
    fs::create_dir(&folder).unwrap();
    for n in 0..600 {
        fs::write(folder.join(n.to_string()), [9; 300]).unwrap();
    }
    for more in [&["--profile", "db"][..], &["--bucket", "256K"], &["--profile", "small"]] {
        pack(&folder, more);
    }
}

/// What a link leads to is packed, with its permissions: those of links allow everything.
#[test]
fn pack_makes_room_for_folders_of_few_names() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    for number in 0..600 {
        fs::create_dir_all(source.join(number.to_string()).join("empty")).unwrap();
    }
    // Its length is what the folder asks for, and each of them takes a page.
    expect(0, &hifs(&["pack", path(&source), path(&image)]));
    expect(0, &hifs(&["check", path(&image)]));
}

#[test]
fn a_folder_is_packed_by_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, link) = (dir.path().join("folder"), dir.path().join("link"));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o710)).unwrap();
    std::os::unix::fs::symlink("folder", &link).unwrap();
    let (image, out) = (dir.path().join("i.img"), dir.path().join("out"));
    expect(0, &hifs(&["pack", path(&link), path(&image)]));
    expect(0, &hifs(&["unpack", path(&image), path(&out)]));
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o7777, 0o710);
}

/// It would hold what it held before, deleted files among it.
/// The folder so many levels below one, each called alike; `make` makes them.
fn far_below(folder: &Path, levels: usize, make: bool) -> OwnedFd {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, folder, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        let name = "deep".repeat(50);
        if make {
            mkdirat(&at, &name, Mode::RWXU).unwrap();
        }
        at = openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    at
}

#[test]
fn paths_longer_than_system_calls_take() {
    let dir = tempfile::tempdir().unwrap();
    let [source, image, out] = ["source", "image", "out"].map(|name| dir.path().join(name));
    fs::create_dir(&source).unwrap();
    // 10,050 bytes of path.
    let below = far_below(&source, 50, true);
    let file = openat(&below, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    rustix::io::write(&file, b"far below").unwrap();
    symlinkat("file", &below, "link").unwrap();
    linkat(&below, "file", CWD, source.join("near"), AtFlags::empty()).unwrap();
    linkat(&below, "file", &below, "again", AtFlags::empty()).unwrap();
    expect(0, &hifs(&["pack", path(&source), path(&image)]));
    expect(0, &hifs(&["unpack", path(&image), path(&out)]));

    let below = far_below(&out, 50, false);
    let stat = |name| statat(&below, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    assert_eq!((stat("file").st_nlink, stat("file").st_mode & 0o777), (3, 0o400));
    assert_eq!(stat("file").st_ino, fs::metadata(out.join("near")).unwrap().ino());
    assert_eq!(stat("file").st_ino, stat("again").st_ino);
    assert_eq!(readlinkat(&below, "link", []).unwrap().as_bytes(), b"file");
    assert_eq!(fs::read(out.join("near")).unwrap(), b"far below");
}

#[test]
fn many_names_far_below() {
    let dir = tempfile::tempdir().unwrap();
    let [source, image, out] = ["source", "image", "out"].map(|name| dir.path().join(name));
    fs::create_dir(&source).unwrap();
    // 3,015 bytes of path, and more of each than files that may be open.
    let below = far_below(&source, 15, true);
    for number in 0..600 {
        let file = format!("file{number}");
        mkdirat(&below, format!("folder{number}"), Mode::RWXU).unwrap();
        openat(&below, &file, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        linkat(&below, &file, &below, format!("link{number}"), AtFlags::empty()).unwrap();
    }
    for what in [["pack", path(&source), path(&image)], ["unpack", path(&image), path(&out)]] {
        let line =
            format!("ulimit -n 128; exec {} hifs {}", env!("CARGO_BIN_EXE_tacita"), what.join(" "));
        expect(0, &Command::new("sh").args(["-c", &line]).output().unwrap());
    }
    let below = far_below(&out, 15, false);
    for name in ["file599", "link599"] {
        assert_eq!(statat(&below, name, AtFlags::empty()).unwrap().st_nlink, 2);
    }
}

#[test]
fn an_image_is_not_packed_into_itself() {
    let dir = tempfile::tempdir().unwrap();
    let within = dir.path().join("folder");
    fs::create_dir(&within).unwrap();
    for image in [dir.path().join("i.img"), within.join("i.img")] {
        let said = expect(2, &hifs(&["pack", path(dir.path()), path(&image)]));
        assert!(said.contains("outside"), "{said}");
        assert!(!image.exists());
    }
    expect(0, &hifs(&["pack", path(&within), path(&dir.path().join("i.img"))]));
}

struct Bench {
    guard: MountGuard,
    images: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Bench {
    fn new(test: &str) -> Option<Self> {
        if skip_without_fuse(test) {
            return None;
        }
        let (guard, images) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
        Some(Self { guard, images, _watchdog: Watchdog::start(test, TIME_MAX) })
    }

    fn dir(&self) -> &str {
        path(self.guard.path())
    }

    fn umount(&self) -> Output {
        tacita(&["umount".as_ref(), self.dir().as_ref()])
    }
}

#[test]
fn busy_images_and_places() {
    let Some(bench) = Bench::new("busy_images_and_places") else { return };
    let image = format(bench.images.path(), "i.img", "4M");
    let other = MountGuard::new().unwrap();
    expect(0, &hifs(&["mount", path(&image), bench.dir()]));
    expect(5, &hifs(&["mount", path(&image), path(other.path())]));
    expect(5, &hifs(&["mount", path(&image), path(other.path()), "-o", "ro"]));
    expect(5, &hifs(&["check", path(&image)]));
    expect(5, &hifs(&["info", path(&image)]));
    expect(5, &hifs(&["format", path(&image), "--size", "4M", "--force"]));
    let file = fs::File::create(bench.guard.join("open")).unwrap();
    let said = expect(5, &bench.umount());
    assert!(said.contains(bench.dir()), "{said}");
    drop(file);
    expect(0, &bench.umount());
    expect(0, &hifs(&["check", path(&image)]));
    // Nothing is mounted any more, and nowhere.
    expect(2, &bench.umount());
    expect(2, &tacita(&["umount".as_ref(), "/no/such/place".as_ref()]));
    expect(2, &hifs(&["mount", path(&image), "/no/such/place"]));
    let plain = bench.images.path().join("plain");
    fs::write(&plain, "x").unwrap();
    expect(2, &hifs(&["mount", path(&image), path(&plain)]));
    expect(2, &hifs(&["mount", path(&image), bench.dir(), "--sync", "never"]));
    // A refused mount has let go of the image.
    expect(0, &hifs(&["check", path(&image)]));
}

#[test]
fn every_way_to_unmount() {
    let Some(bench) = Bench::new("every_way_to_unmount") else { return };
    let image = format(bench.images.path(), "i.img", "4M");
    let mut images = Vec::new();
    for way in ["tacita", "umount", "fusermount3", "TERM", "INT", "HUP"] {
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_tacita"))
            .args(["hifs", "mount", path(&image), bench.dir(), "--foreground"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_mount(&bench);
        fs::write(bench.guard.join("file"), way.repeat(3000)).unwrap();
        fs::write(bench.guard.join("file"), "the same".repeat(3000)).unwrap();
        let pid = rustix::process::Pid::from_child(&daemon);
        let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
        match way {
            "tacita" => drop(expect(0, &bench.umount())),
            "TERM" => signal(rustix::process::Signal::TERM),
            "INT" => signal(rustix::process::Signal::INT),
            "HUP" => signal(rustix::process::Signal::HUP),
            program => {
                let arguments = if program == "umount" { &[][..] } else { &["-u"] };
                let mut command = Command::new(program);
                if let Ok(status) = command.args(arguments).arg(bench.dir()).status() {
                    assert!(status.success(), "{program}");
                } else {
                    eprintln!("SKIPPED: every_way_to_unmount: {program} is not installed");
                    expect(0, &bench.umount());
                }
            }
        }
        assert!(daemon.wait().unwrap().success(), "{way}");
        assert!(!bench.guard.join("file").exists(), "{way}: still mounted");
        expect(0, &hifs(&["check", path(&image)]));
        images.push(fs::read(&image).unwrap());
    }
    assert!(images.windows(2).all(|pair| pair[0] == pair[1]), "ways leave different images");
}

fn wait_for_mount(bench: &Bench) {
    let outside = fs::metadata(bench.guard.path().parent().unwrap()).unwrap().dev();
    let start = Instant::now();
    while fs::metadata(bench.guard.path()).is_ok_and(|meta| meta.dev() == outside) {
        assert!(start.elapsed() < Duration::from_mins(2), "no mount");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_image_that_cannot_be_written() {
    let Some(bench) = Bench::new("an_image_that_cannot_be_written") else { return };
    let image = format(bench.images.path(), "i.img", "4M");
    let before = fs::read(&image).unwrap();
    expect(0, &hifs(&["mount", path(&image), bench.dir(), "-o", "ro"]));
    let refused = fs::write(bench.guard.join("x"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    expect(0, &bench.umount());
    assert!(fs::read(&image).unwrap() == before);
    // One superblock damaged: readable, with a warning.
    let mut bytes = before.clone();
    bytes[70] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let output = hifs(&["mount", path(&image), bench.dir()]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("read-only") && said.contains("block 0"), "{said}");
    assert!(fs::write(bench.guard.join("x"), "x").is_err());
    expect(0, &bench.umount());
    assert!(fs::read(&image).unwrap() == bytes, "a damaged image was changed");
}

#[test]
fn without_fuse_there_is_another_way() {
    let test = "without_fuse_there_is_another_way";
    let dir = tempfile::tempdir().unwrap();
    let image = format(dir.path(), "i.img", "4M");
    let script = "mount -t tmpfs none /dev && exec \"$@\"";
    let run = |arguments: &[&str]| {
        Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
    };
    if !run(&["true"]).is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: {test}: unshare -m is not permitted here");
        return;
    }
    let place = dir.path().join("place");
    fs::create_dir(&place).unwrap();
    let program = env!("CARGO_BIN_EXE_tacita");
    for more in [&[][..], &["--foreground"]] {
        let arguments = [&[program, "hifs", "mount", path(&image), path(&place)], more].concat();
        let said = expect(7, &run(&arguments).unwrap());
        assert!(said.contains("unpack"), "{said}");
    }
    let out = dir.path().join("out");
    expect(0, &run(&[program, "hifs", "unpack", path(&image), path(&out)]).unwrap());
}
