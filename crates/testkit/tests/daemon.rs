//! Serving from another process: unmounting by every way there is, and dying.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tacita_testkit::{MountGuard, Watchdog, skip_without, skip_without_fuse};
use tacita_vfs::Kind;
use tacita_vfs::fuse::unmount_within;

/// Longest time that a test may take.
const TIME_MAX: Duration = Duration::from_mins(20);

/// Longest wait for one event.
const WAIT_MAX: Duration = Duration::from_mins(2);

/// A server in the foreground, in a process of its own. Dropping it kills it.
struct Server {
    // In this order they are dropped.
    child: Child,
    guard: MountGuard,
    _watchdog: Watchdog,
}

fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    target.join("examples/memory_mount")
}

fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg(dir).args(arguments).stdin(Stdio::null());
    command
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < WAIT_MAX, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = format!(" {} ", dir.display());
    table.lines().any(|row| row.contains(&dir) && row.contains(" - fuse."))
}

impl Server {
    fn start(test: &str, arguments: &[&str]) -> Option<Self> {
        if skip_without_fuse(test) {
            return None;
        }
        let watchdog = Watchdog::start(test, TIME_MAX);
        Some(Self::on(MountGuard::new().unwrap(), watchdog, arguments))
    }

    /// On a folder that is there.
    fn on(guard: MountGuard, watchdog: Watchdog, arguments: &[&str]) -> Self {
        let mut command = command(guard.path(), arguments);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let server = Self { child, guard, _watchdog: watchdog };
        until("the mount", || is_mounted(server.guard.path()));
        // Serving begins a moment after the mount shows; this waits for it.
        fs::read_dir(server.guard.path()).unwrap();
        server
    }

    fn dir(&self) -> &Path {
        self.guard.path()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the end and returns how it went and what was said.
    fn end(&mut self) -> (ExitStatus, String) {
        until("the server's end", || self.has_ended().is_some());
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (self.has_ended().unwrap(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(program: &str, arguments: &[&str], dir: &Path) {
    let status = Command::new(program).args(arguments).arg(dir).status();
    assert!(status.unwrap().success(), "{program}");
}

#[test]
fn unmount_waits_for_the_server() {
    let Some(mut server) = Server::start("unmount_waits_for_the_server", &[]) else {
        return;
    };
    fs::write(server.dir().join("f"), b"x").unwrap();
    unmount_within(server.dir(), WAIT_MAX).unwrap();
    // The lock falls in the middle of the process's end: no more than reaping is left.
    let (status, said) = server.end();
    assert!(status.success(), "{said}");
    let again = unmount_within(server.dir(), WAIT_MAX).unwrap_err();
    assert_eq!(again.kind(), Kind::NotFound);
}

/// The kernel gives the number of a file system that is gone to the next one.
#[test]
fn a_mount_with_the_number_of_one_that_ends_does_not_hold_it() {
    let test = "a_mount_with_the_number_of_one_that_ends";
    // Longer than whoever unmounts waits before it looks for holders.
    let Some(mut server) = Server::start(test, &["--slow-sync", "6000"]) else { return };
    let dev = fs::metadata(server.dir()).unwrap().dev();
    let number = format!(" {}:{} ", rustix::fs::major(dev), rustix::fs::minor(dev));
    let has_number = |row: &str| row.contains(&number);
    std::thread::scope(|scope| {
        let unmounting = scope.spawn(|| unmount_within(server.dir(), WAIT_MAX));
        until("the kernel to let go", || !is_mounted(server.dir()));
        // It may also have gone to somebody in another namespace.
        let mut others = Vec::new();
        while others.len() < 20
            && !fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(has_number)
        {
            others.extend(Server::start(test, &[]));
        }
        unmounting.join().unwrap().unwrap();
        for other in others {
            unmount_within(other.dir(), WAIT_MAX).unwrap();
        }
    });
    assert!(server.end().0.success());
}

/// The kernel holds a page for a write that waits for the server, and a thread of the server waits for the
/// page: nothing but the mount's end ends that when the server is killed.
#[test]
fn a_server_that_was_killed_while_its_own_thread_waits_for_it_is_taken_away() {
    let test = "a_server_that_was_killed_while_its_own_thread_waits_for_it";
    if skip_without(test, &["strace"]) {
        return;
    }
    let Some(mut server) = Server::start(test, &["--hold-writes"]) else { return };
    let file = File::create_new(server.dir().join("file")).unwrap();
    file.set_len(8192).unwrap();
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
        tasks.map(|task| task.unwrap().path())
    };
    let said = |thread: PathBuf| fs::read_to_string(thread.join("stat")).unwrap_or_default();
    let mut thread = threads().filter(|thread| said(thread.clone()).contains("(tacita-inval)"));
    let thread = thread.next().unwrap();
    // What it says of the pages that a file has lost comes so late that the file has one again, which stays
    // locked, for only a part of it is written.
    let mut late = Command::new("strace");
    late.args(["-e", "inject=write,writev:delay_enter=1000000", "-p"]);
    late.arg(thread.file_name().unwrap()).args(["-o", "/dev/null"]);
    let mut late = late.stderr(Stdio::piped()).spawn().unwrap();
    let (mut line, mut words) = (String::new(), BufReader::new(late.stderr.take().unwrap()));
    words.read_line(&mut line).unwrap();
    assert!(line.contains("attached"), "{line}");
    file.set_len(0).unwrap();
    let writer = std::thread::spawn(move || (&file).write_all(&[1; 10]));
    until("a thread that waits for a page", || said(thread.clone()).contains(") D"));
    server.signal(Signal::KILL);
    let error = unmount_within(server.dir(), WAIT_MAX).unwrap_err();
    assert_eq!(error.kind(), Kind::Stale, "{error}");
    assert!(!is_mounted(server.dir()));
    assert!(writer.join().unwrap().is_err(), "nobody has taken what it wrote");
    late.wait().unwrap();
    server.end();
}

#[test]
fn unmount_reports_a_failed_final_sync() {
    let Some(mut server) = Server::start("unmount_reports", &["--fail-sync"]) else {
        return;
    };
    let error = unmount_within(server.dir(), WAIT_MAX).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.to_string().contains("told to fail"), "{error}");
    let (status, said) = server.end();
    assert!(!status.success());
    assert!(said.contains("told to fail"), "{said}");
}

#[test]
fn unmount_refuses_while_in_use() {
    let Some(mut server) = Server::start("unmount_refuses_while_in_use", &[]) else {
        return;
    };
    let file = File::create(server.dir().join("f")).unwrap();
    let error = unmount_within(server.dir(), WAIT_MAX).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    assert!(is_mounted(server.dir()));
    drop(file);
    unmount_within(server.dir(), WAIT_MAX).unwrap();
    assert!(server.end().0.success());
}

/// Whoever holds a file for a moment does not make it fail. On a busy machine a moment may be long,
/// so it is tried a few times.
#[test]
fn unmount_waits_for_what_is_in_use_for_a_moment() {
    let unmounts = || -> Option<bool> {
        let mut server = Server::start("unmount_waits_for_what_is_in_use", &[])?;
        let file = File::create(server.dir().join("f")).unwrap();
        let done = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                drop(file);
            });
            unmount_within(server.dir(), WAIT_MAX)
        });
        if done.is_err() {
            unmount_within(server.dir(), WAIT_MAX).unwrap();
        }
        assert!(server.end().0.success());
        Some(done.is_ok())
    };
    assert!((0..10).any(|_| unmounts() != Some(false)), "in use, ten times");
}

#[test]
fn other_programs_can_unmount() {
    for (program, arguments) in [("umount", &[][..]), ("fusermount3", &["-u"][..])] {
        let Some(mut server) = Server::start("other_programs_can_unmount", &[]) else {
            return;
        };
        run(program, arguments, server.dir());
        let (status, said) = server.end();
        assert!(status.success(), "{program}: {said}");
        let error = unmount_within(server.dir(), WAIT_MAX).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }
}

#[test]
fn a_killed_server_leaves_a_mount_that_can_be_cleared() {
    let Some(mut server) = Server::start("a_killed_server", &[]) else {
        return;
    };
    let file = File::create(server.dir().join("f")).unwrap();
    server.signal(Signal::KILL);
    assert!(!server.end().0.success());
    assert!(is_mounted(server.dir()));
    assert!(fs::read_dir(server.dir()).is_err());
    let error = unmount_within(server.dir(), WAIT_MAX).unwrap_err();
    assert_eq!(error.kind(), Kind::Stale, "{error}");
    assert!(!is_mounted(server.dir()), "cleared, although in use");
    drop(file);
    let second = Command::new(program()).arg(server.dir()).arg("--daemon").status();
    assert!(second.unwrap().success(), "free for the next");
    unmount_within(server.dir(), WAIT_MAX).unwrap();
}

/// Any that would end a process at once and says of no fault in it, be it a person's, a timer's or a limit's.
#[test]
fn the_first_signal_unmounts() {
    let named = [
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::VTALARM,
        Signal::PROF,
        Signal::XCPU,
        Signal::IO,
        Signal::POWER,
        Signal::STKFLT,
    ];
    // The first and the last of those that have no names, whatever the C library keeps for itself.
    for number in named.map(Signal::as_raw).into_iter().chain([35, 64]) {
        let Some(mut server) = Server::start("the_first_signal_unmounts", &[]) else {
            return;
        };
        let send = format!("kill -{number} {}", server.child.id());
        assert!(Command::new("sh").args(["-c", &send]).status().unwrap().success());
        let (status, said) = server.end();
        assert!(status.success(), "signal {number}: {status}: {said}");
        assert!(!is_mounted(server.dir()));
    }
}

/// What lies beneath a mount is another's: it stays, however and by whomever the mount is ended.
#[test]
fn what_is_mounted_beneath_stays() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    let test = "what_is_mounted_beneath_stays";
    if skip_without_fuse(test) {
        return;
    }
    for way in ["a signal", "an unmount", "a signal when it is out of sight"] {
        let guard = MountGuard::new().unwrap();
        let dir = guard.path().to_owned();
        if mount("none", &dir, "tmpfs", MountFlags::empty(), None).is_err() {
            eprintln!("SKIPPED: {test}: only root can mount what lies beneath");
            return;
        }
        fs::write(dir.join("beneath"), "stays").unwrap();
        let mut server = Server::on(guard, Watchdog::start(test, TIME_MAX), &[]);
        assert!(!dir.join("beneath").exists());
        let mut file = Some(File::create(dir.join("f")).unwrap());
        match way {
            "a signal" => {
                file = None;
                server.signal(Signal::TERM);
            }
            "an unmount" => {
                file = None;
                unmount_within(&dir, WAIT_MAX).unwrap();
            }
            _ => {
                unmount(&dir, UnmountFlags::DETACH).unwrap();
                server.signal(Signal::TERM);
                std::thread::sleep(Duration::from_millis(200));
                assert!(dir.join("beneath").exists(), "{way}");
            }
        }
        drop(file);
        let (status, said) = server.end();
        assert!(status.success(), "{way}: {status}: {said}");
        assert!(!said.contains("not unmounted"), "{way}: {said}");
        assert!(dir.join("beneath").exists(), "{way}");
        unmount(&dir, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn the_second_signal_puts_a_busy_mount_out_of_sight() {
    let Some(mut server) = Server::start("the_second_signal", &[]) else {
        return;
    };
    let mut file = File::create(server.dir().join("f")).unwrap();
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    assert!(is_mounted(server.dir()));
    file.write_all(b"served").unwrap();
    until("the mount out of sight", || {
        // Where the first has not been heeded yet, the next is one with it.
        server.signal(Signal::TERM);
        !is_mounted(server.dir())
    });
    assert!(server.has_ended().is_none());
    file.write_all(b"served to the end").unwrap();
    drop(file);
    let (status, said) = server.end();
    assert!(status.success(), "{status}: {said}");
}

#[test]
fn a_process_in_the_background_reports_back() {
    if skip_without_fuse("a_process_in_the_background_reports_back") {
        return;
    }
    let _watchdog = Watchdog::start("a_process_in_the_background", TIME_MAX);
    let guard = MountGuard::new().unwrap();
    let output = command(guard.path(), &["--daemon"]).output().unwrap();
    assert!(output.status.success());
    assert!(is_mounted(guard.path()), "mounted when the parent returns");
    fs::write(guard.join("f"), b"x").unwrap();
    let second = command(guard.path(), &["--daemon"]).output().unwrap();
    assert_eq!(second.status.code(), Some(7));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains("already mounted"), "{said}");
    let nowhere = guard.path().with_file_name("nowhere");
    let third = command(&nowhere, &["--daemon"]).output().unwrap();
    assert_eq!(third.status.code(), Some(7));
    unmount_within(guard.path(), WAIT_MAX).unwrap();
    assert!(!is_mounted(guard.path()));
}

#[test]
fn interrupted_programs_do_not_disturb_the_server() {
    let Some(mut server) = Server::start("interrupted_programs", &[]) else {
        return;
    };
    for _ in 0..10 {
        let mut writer = Command::new("dd")
            .args(["if=/dev/zero", "bs=1M", "count=500"])
            .arg(format!("of={}", server.dir().join("f").display()))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(30));
        kill_process(Pid::from_child(&writer), Signal::INT).unwrap();
        until("the writer's end", || writer.try_wait().unwrap().is_some());
    }
    fs::write(server.dir().join("f"), b"fine").unwrap();
    assert_eq!(fs::read(server.dir().join("f")).unwrap(), b"fine");
    unmount_within(server.dir(), WAIT_MAX).unwrap();
    assert!(server.end().0.success());
}
