//! HIFS through real mounts, with the programs that people use.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tacita_testkit::{MountGuard, Watchdog, skip_without, skip_without_fuse};

const SEED: &str = "00112233445566778899aabbccddeeff";
const TIME_MAX: Duration = Duration::from_mins(20);

/// A folder for images, and a place to mount.
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
        let guard = MountGuard::new().unwrap();
        let images = tempfile::tempdir().unwrap();
        Some(Self { guard, images, _watchdog: Watchdog::start(test, TIME_MAX) })
    }

    fn image(&self, name: &str, size: &str) -> PathBuf {
        let path = self.images.path().join(name);
        let path_text = path.to_str().unwrap();
        succeed(&["hifs", "format", path_text, "--size", size, "--seed", SEED]);
        path
    }

    fn mount(&self, image: &Path, more: &[&str]) {
        let dir = self.guard.path().to_str().unwrap();
        let mut arguments = vec!["hifs", "mount", image.to_str().unwrap(), dir];
        arguments.extend(more);
        succeed(&arguments);
    }

    fn umount(&self) {
        succeed(&["umount", self.guard.path().to_str().unwrap()]);
    }

    fn join(&self, name: &str) -> PathBuf {
        self.guard.join(name)
    }
}

fn tacita(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let output = tacita(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tacita {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Both this program and a second reader, written from the specification alone, find every block
/// where it must be.
fn check(image: &Path) {
    const READER: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../hifs/tests/second_reader/read_image.py");
    succeed(&["hifs", "check", image.to_str().unwrap()]);
    let Ok(output) = Command::new("python3").arg(READER).arg(image).output() else {
        eprintln!("SKIPPED: the second reader of HIFS: no python3");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the second reader says: {said}");
}

fn run(program: &str, arguments: &[&str], dir: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn two_mount_histories_give_one_image() {
    let Some(bench) = Bench::new("two_mount_histories_give_one_image") else { return };
    let (a, b) = (bench.image("a.img", "32M"), bench.image("b.img", "32M"));
    let content = |n: usize| vec![u8::try_from(n % 250).unwrap() + 1; n * 3000];
    bench.mount(&a, &[]);
    fs::create_dir(bench.join("d")).unwrap();
    for n in 0..20 {
        fs::write(bench.join(&format!("d/file-{n}")), content(n)).unwrap();
    }
    fs::hard_link(bench.join("d/file-7"), bench.join("also-seven")).unwrap();
    bench.umount();

    bench.mount(&b, &[]);
    fs::write(bench.join("secret"), b"this was never here".repeat(5000)).unwrap();
    fs::create_dir(bench.join("other")).unwrap();
    for n in (0..20).rev() {
        fs::write(bench.join(&format!("other/file-{n}")), b"another content").unwrap();
        if n % 5 == 0 {
            bench.umount();
            bench.mount(&b, &["--sync", "durable"]);
        }
        fs::write(bench.join(&format!("other/file-{n}")), content(n)).unwrap();
    }
    fs::hard_link(bench.join("other/file-7"), bench.join("also-seven")).unwrap();
    fs::remove_file(bench.join("secret")).unwrap();
    fs::rename(bench.join("other"), bench.join("d")).unwrap();
    bench.umount();

    assert!(fs::read(&a).unwrap() == fs::read(&b).unwrap(), "the images differ");
    check(&a);
    let map = succeed(&["hifs", "map", a.to_str().unwrap()]);
    assert!(map.contains("/d/file-19"));
}

/// The host must not be able to tell which parts of the image file were ever used.
#[test]
fn the_image_file_keeps_its_extents() {
    let Some(bench) = Bench::new("the_image_file_keeps_its_extents") else { return };
    if skip_without("the_image_file_keeps_its_extents", &["filefrag"]) {
        return;
    }
    let image = bench.image("a.img", "16M");
    let extents = || run("filefrag", &["-v", image.to_str().unwrap()], Path::new("/"));
    run("sync", &[image.to_str().unwrap()], Path::new("/"));
    let before = extents();
    let blocks = fs::metadata(&image).unwrap().blocks();
    assert!(blocks * 512 >= 16 << 20, "the image file has holes");
    bench.mount(&image, &[]);
    fs::write(bench.join("x"), vec![7; 5 << 20]).unwrap();
    fs::remove_file(bench.join("x")).unwrap();
    bench.umount();
    run("sync", &[image.to_str().unwrap()], Path::new("/"));
    assert_eq!(before, extents());
    assert!(!before.contains("unwritten"), "{before}");
}

#[test]
fn a_git_clone_and_a_cargo_build_inside() {
    let test = "a_git_clone_and_a_cargo_build_inside";
    let Some(bench) = Bench::new(test) else { return };
    if skip_without(test, &["git", "cargo"]) {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str], dir: &Path| {
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        run("git", &[&who[..], arguments].concat(), dir)
    };
    run("cargo", &["init", "--quiet", "--name", "small", "--lib"], outside.path());
    for n in 0..200 {
        fs::write(outside.path().join(format!("src/part-{n}.txt")), format!("{n}\n").repeat(n))
            .unwrap();
    }
    git(&["add", "-A"], outside.path());
    git(&["commit", "--quiet", "-m", "small"], outside.path());

    let image = bench.image("a.img", "256M");
    bench.mount(&image, &[]);
    git(&["clone", "--quiet", outside.path().to_str().unwrap(), "small"], bench.guard.path());
    let clone = bench.join("small");
    assert_eq!(git(&["status", "--porcelain"], &clone), "");
    run("cargo", &["test", "--quiet", "--offline"], &clone);
    git(&["gc", "--quiet"], &clone);
    git(&["fsck", "--strict"], &clone);
    bench.umount();
    check(&image);
    bench.mount(&image, &["-o", "ro"]);
    git(&["fsck", "--strict"], &clone);
    let refused = fs::write(bench.join("x"), b"x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    bench.umount();
}

/// What `SQLite` has committed survives the death of the daemon at any moment.
#[test]
fn sqlite_survives_kill_9() {
    let test = "sqlite_survives_kill_9";
    let Some(bench) = Bench::new(test) else { return };
    if skip_without(test, &["sqlite3"]) {
        return;
    }
    let image = bench.image("a.img", "64M");
    for (round, journal) in ["delete", "wal", "truncate"].into_iter().enumerate() {
        let more =
            if round == 1 { &["--sync", "durable", "--foreground"][..] } else { &["--foreground"] };
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_tacita"))
            .args(["hifs", "mount", image.to_str().unwrap(), bench.guard.path().to_str().unwrap()])
            .args(more)
            .spawn()
            .unwrap();
        wait_for_mount(&bench, &mut daemon);
        let mut sqlite = Command::new("sqlite3")
            .arg(bench.join("db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = sqlite.stdin.take().unwrap();
        // A transaction of mode `delete` ends with a name taken away, which `full` does not sync:
        // SQLite promises that it stays committed with `extra` alone. And even then it says so when
        // it cannot open the folder to sync it, as between the two in a mount that has just died.
        let last_may_be_lost = journal == "delete";
        writeln!(input, "pragma journal_mode={journal}; pragma synchronous=extra;").unwrap();
        writeln!(input, "create table if not exists t(round int, n int, pad text);").unwrap();
        // What the dead mount refuses is refused row by row, so there are not too many of them.
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let feeder = std::thread::spawn(move || {
            for n in (0_u32..).take_while(|_| !over.load(Ordering::Relaxed)) {
                let sql = format!(
                    "insert into t values({round},{n},hex(randomblob(500))); select 'done {n}';"
                );
                if writeln!(input, "{sql}").is_err() {
                    break;
                }
            }
        });
        let stored = || -> u64 {
            let len = |name| fs::metadata(bench.join(name)).map_or(0, |metadata| metadata.len());
            len("db") + len("db-wal")
        };
        // Rows of a kilobyte, so some dozens have been committed.
        let (before, start) = (stored(), Instant::now());
        while stored() < before + (64 << 10) {
            assert!(start.elapsed() < Duration::from_mins(2), "nothing is stored");
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon.kill().unwrap();
        let cleared = clear_if_stuck(&bench, &mut daemon);
        is_over.store(true, Ordering::Relaxed);
        let output = sqlite.wait_with_output().unwrap();
        feeder.join().unwrap();
        let done = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.strip_prefix("done ")?.parse::<u64>().ok())
            .max()
            .expect("some transactions were committed");
        // The mount is dead; unmounting says so and clears it.
        assert!(cleared || clear(&bench));

        bench.mount(&image, &[]);
        let ask = |sql: &str| run("sqlite3", &["db", sql], bench.guard.path());
        assert_eq!(ask("pragma integrity_check").trim(), "ok");
        let kept = ask(&format!("select count(*) from t where round={round} and n<={done}"));
        let said = String::from_utf8_lossy(&output.stderr);
        let kept: u64 = kept.trim().parse().unwrap();
        let is_promised = kept == done + 1 || last_may_be_lost && kept == done;
        assert!(is_promised, "{kept} of {} committed rows, {journal}: {said}", done + 1);
        bench.umount();
        check(&image);
    }
}

fn clear(bench: &Bench) -> bool {
    let cleared = tacita(&["umount", bench.guard.path().to_str().unwrap()]);
    assert_eq!(cleared.status.code(), Some(4), "{}", String::from_utf8_lossy(&cleared.stderr));
    true
}

/// Waits for the end of a daemon that was killed. It may wait in the kernel for an answer of its own, as for a page
/// that a program is writing: then its mount is taken away from it, whether which is returned.
fn clear_if_stuck(bench: &Bench, daemon: &mut std::process::Child) -> bool {
    let start = Instant::now();
    while daemon.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(10) {
            clear(bench);
            daemon.wait().unwrap();
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn wait_for_mount(bench: &Bench, daemon: &mut std::process::Child) {
    let outside = fs::metadata(bench.guard.path().parent().unwrap()).unwrap().dev();
    let start = Instant::now();
    while fs::metadata(bench.guard.path()).is_ok_and(|meta| meta.dev() == outside) {
        assert!(daemon.try_wait().unwrap().is_none(), "the daemon ended");
        assert!(start.elapsed() < Duration::from_mins(2), "no mount");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_file_in_use_without_a_name_lives_on_and_leaves_nothing() {
    let test = "a_file_in_use_without_a_name_lives_on_and_leaves_nothing";
    let Some(bench) = Bench::new(test) else { return };
    let image = bench.image("a.img", "16M");
    let empty = fs::read(&image).unwrap();
    bench.mount(&image, &[]);
    let path = bench.join("x");
    let marker = b"<held open and deleted>".repeat(2000);
    fs::write(&path, &marker).unwrap();
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    // Another file takes the name while the old one is in use.
    fs::write(&path, b"new").unwrap();
    file.sync_all().unwrap();
    let mut back = vec![0; marker.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, marker);
    file.write_all_at(b"more", 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    drop(file);
    fs::remove_file(&path).unwrap();
    bench.umount();
    assert!(fs::read(&image).unwrap() == empty, "something is left");
}

/// What programs see, but for times, is the same after other histories.
#[test]
fn visible_state_tells_nothing() {
    let Some(bench) = Bench::new("visible_state_tells_nothing") else { return };
    let mut seen = Vec::new();
    for way in 0..2 {
        let image = bench.image(&format!("{way}.img"), "32M");
        bench.mount(&image, &[]);
        let mut names: Vec<u32> = (0..300).collect();
        if way == 1 {
            names.reverse();
            fs::write(bench.join("detour"), vec![3; 1 << 20]).unwrap();
        }
        for n in &names {
            let size = usize::try_from(*n).unwrap() * 100;
            fs::write(bench.join(&format!("f{n}")), vec![1; size]).unwrap();
        }
        if way == 1 {
            fs::remove_file(bench.join("detour")).unwrap();
        }
        let holes = fs::File::create(bench.join("holes")).unwrap();
        holes.set_len(10 << 20).unwrap();
        holes.write_all_at(b"x", 5 << 20).unwrap();
        drop(holes);
        bench.umount();
        bench.mount(&image, &[]);
        let mut lines = Vec::new();
        for entry in fs::read_dir(bench.guard.path()).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            lines.push(format!(
                "{:?} {} {} {} {}",
                entry.file_name(),
                meta.ino(),
                meta.size(),
                meta.blocks(),
                meta.nlink()
            ));
        }
        let root = fs::metadata(bench.guard.path()).unwrap();
        let space = run("stat", &["-f", "-c", "%a %b %c %d %f %l %s", "."], bench.guard.path());
        seen.push((lines, root.size(), root.blocks(), root.nlink(), space));
        bench.umount();
    }
    assert_eq!(seen[0], seen[1]);
}

/// `pjdfstest` and `fsx`, with the same lists of reasons as the file system in memory.
#[test]
fn conformance_suites_pass() {
    let test = "conformance_suites_pass";
    let Some(bench) = Bench::new(test) else { return };
    let image = bench.image("a.img", "256M");
    // The users that cases switch to have to get there.
    let above = bench.guard.path().parent().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(above, open).unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/conformance");
    let suites: [(&str, &[&str], &[&str]); 2] =
        [("pjdfstest", &["--renumbers"], &[]), ("fsx", &[], &["20000", "11"])];
    for (tool, before, after) in suites {
        let home = std::env::var_os("CARGO_HOME").map_or_else(
            || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
            PathBuf::from,
        );
        if !home.join("bin").join(tool).exists() || fs::metadata("/root/.").is_err() {
            eprintln!("SKIPPED: {test}: {tool} is not installed, or not root");
            continue;
        }
        bench.mount(&image, &["-o", "allow_other,dev,suid"]);
        let output = Command::new(scripts.join(format!("{tool}.sh")))
            .args(before)
            .arg(bench.guard.path())
            .args(after)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        bench.umount();
        assert!(output.status.success(), "{tool}: {said}");
        check(&image);
    }
}

#[test]
fn a_write_stamps_the_file() {
    use std::io::Write;
    let Some(bench) = Bench::new("a_write_stamps_the_file") else { return };
    let image = bench.image("a.img", "16M");
    bench.mount(&image, &[]);
    let mut file = fs::File::create(bench.join("f")).unwrap();
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_modified(long_ago).unwrap();
    assert_eq!(file.metadata().unwrap().modified().unwrap(), long_ago);
    file.write_all(b"later").unwrap();
    assert!(file.metadata().unwrap().modified().unwrap() > long_ago);
    drop(file);
    bench.umount();
}
