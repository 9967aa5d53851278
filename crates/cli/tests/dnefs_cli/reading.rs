//! Commands that only read, and `mount -o ro`: they change no byte, let each other in, and need no volume
//! that can be written.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::geteuid;
use tacita_testkit::{MountGuard, copy_program};

use crate::bench::{Bench, Mounted, fail, kill, status_of, succeed};

/// When a volume was written last, in these tests.
const LONG_AGO: Duration = Duration::from_secs(1_000_000_000);
const NOBODY: u32 = 65_534;
const READ_ONLY_FS: i32 = 30;

/// A volume of which nothing is to change.
struct Kept<'a> {
    volume: &'a str,
    bytes: Vec<u8>,
}

impl<'a> Kept<'a> {
    fn new(volume: &'a str) -> Self {
        let file = fs::File::options().write(true).open(volume).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + LONG_AGO).unwrap();
        Self { volume, bytes: fs::read(volume).unwrap() }
    }

    fn check(&self, after: &str) {
        assert!(fs::read(self.volume).unwrap() == self.bytes, "{after} has changed the volume");
        let modified = fs::metadata(self.volume).unwrap().modified().unwrap();
        assert_eq!(modified, SystemTime::UNIX_EPOCH + LONG_AGO, "{after} has written the volume");
    }

    /// Every command that reads, each of which succeeds.
    fn read(&self, bench: &Bench) {
        let volume = self.volume;
        let dump = bench.text("dump");
        for command in [
            &["dnefs", "check", volume][..],
            &["dnefs", "info", volume],
            &["dnefs", "map", volume],
            &["dnefs", "receipt", volume, "--all"],
            &["dnefs", "dump", volume, &dump],
            &["check", volume],
            &["info", volume],
        ] {
            succeed(command);
            self.check(&format!("{command:?}"));
        }
    }
}

/// All names of a folder, with contents.
fn seen(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    let mut seen: Vec<_> = fs::read_dir(dir).unwrap().map(read).collect();
    seen.sort();
    seen
}

#[test]
fn readers_let_each_other_in_and_change_nothing() {
    let test = "readers_let_each_other_in_and_change_nothing";
    let Some(Mounted { bench, volume, guard, dir }) = Bench::mounted(test, &[], &[]) else {
        return;
    };
    fs::write(guard.join("file"), "content".repeat(9000)).unwrap();
    succeed(&["umount", &dir]);
    let kept = Kept::new(&volume);
    kept.read(&bench);

    let (other, third) = (MountGuard::new().unwrap(), MountGuard::new().unwrap());
    let of = |guard: &MountGuard| guard.path().to_str().unwrap().to_owned();
    succeed(&["dnefs", "mount", &volume, &dir, "-o", "ro", "--purge-every", "1"]);
    succeed(&["dnefs", "mount", &volume, &of(&other), "-o", "noexec,ro"]);
    for guard in [&guard, &other] {
        assert_eq!(fs::read(guard.join("file")).unwrap(), "content".repeat(9000).as_bytes());
        let refused = fs::write(guard.join("new"), "new").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(READ_ONLY_FS));
    }
    kept.read(&bench);
    assert_eq!(status_of(&dir)["facts"]["read_only"], true);
    let all = |target: &str| succeed(&["dnefs", "receipt", target, "--all", "--json"]);
    assert_eq!(all(&dir), all(&volume));
    succeed(&["sync", &dir]);
    let said = fail(4, &["dnefs", "purge", &dir]);
    assert!(said.contains("for reading") && said.contains("without `-o ro`"), "{said}");
    for writer in [
        &["dnefs", "mount", &volume, &of(&third)][..],
        &["dnefs", "passwd", &volume, "--remove"],
        &["dnefs", "erase", &volume, "--force"],
        &["dnefs", "format", &volume, "--size", "32M", "--force"],
    ] {
        assert!(fail(5, writer).contains("is it mounted?"), "{writer:?}");
    }
    if geteuid().is_root() {
        // What the kernel lets through by now is refused below.
        let flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount_remount(guard.path(), flags, c"").unwrap();
        let file = guard.join("file");
        for refused in [
            fs::write(guard.join("new"), "new"),
            fs::write(&file, "new"),
            fs::remove_file(&file),
            fs::set_permissions(&file, Permissions::from_mode(0o600)),
            fs::File::open(&file).unwrap().set_modified(SystemTime::now()),
        ] {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(READ_ONLY_FS));
        }
    }
    // Their timers have come by.
    std::thread::sleep(Duration::from_secs(6));
    succeed(&["umount", &dir]);
    succeed(&["umount", &of(&other)]);
    kept.check("mounts for reading");
    let refused = ["dnefs", "mount", &volume, &dir, "-o", "ro", "--ephemeral", "--force"];
    fail(2, &refused);
    kept.check("what was refused");
    succeed(&["dnefs", "mount", &volume, &dir]);
    assert!(fail(5, &["dnefs", "check", &volume]).contains("is it mounted?"));
    fail(5, &["dnefs", "mount", &volume, &of(&other), "-o", "ro"]);
    fs::write(guard.join("file"), "new").unwrap();
    succeed(&["umount", &dir]);
    assert!(fs::read(&volume).unwrap() != kept.bytes);
}

/// What a reader sees after a crash is what the recovery makes of it, which is yet to come then.
#[test]
fn readers_change_nothing_after_a_crash() {
    let test = "readers_change_nothing_after_a_crash";
    let mounted = Bench::mounted(test, &[], &["--purge-every", "0"]);
    let Some(Mounted { bench, volume, guard, dir }) = mounted else { return };
    for number in 0..40 {
        fs::write(guard.join(format!("{number}")), format!("{number}").repeat(4000)).unwrap();
    }
    succeed(&["sync", &dir]);
    for number in 0..20 {
        fs::remove_file(guard.join(format!("{number}"))).unwrap();
    }
    fs::write(guard.join("20"), "written over").unwrap();
    fs::File::open(guard.join("20")).unwrap().sync_all().unwrap();
    kill(&dir);

    let kept = Kept::new(&volume);
    kept.read(&bench);
    let map = succeed(&["dnefs", "map", &volume, "--json"]);
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    assert_eq!(map["was_unmounted"], false);
    succeed(&["dnefs", "mount", &volume, &dir, "-o", "ro"]);
    let before = seen(guard.path());
    assert_eq!(before.len(), 20, "{:?}", before.iter().map(|(name, _)| name).collect::<Vec<_>>());
    assert_eq!(fs::read(guard.join("20")).unwrap(), b"written over");
    kept.read(&bench);
    kill(&dir);
    kept.check("a mount for reading that was killed");
    succeed(&["dnefs", "mount", &volume, &dir, "-o", "ro"]);
    succeed(&["umount", &dir]);
    kept.check("a mount for reading");
    succeed(&["dnefs", "mount", &volume, &dir]);
    assert!(seen(guard.path()) == before, "recovered it is what readers saw");
    succeed(&["umount", &dir]);
    succeed(&["dnefs", "check", &volume]);
}

/// A file system that is read-only: what only reads does, and what writes says why not.
#[test]
fn what_is_write_protected_is_read_and_not_mounted_for_writing() {
    let test = "what_is_write_protected_is_read_and_not_mounted_for_writing";
    let Some(Mounted { bench, volume, guard, dir }) = Bench::mounted(test, &[], &[]) else {
        return;
    };
    fs::write(guard.join("file"), "content").unwrap();
    succeed(&["umount", &dir]);
    let protected = bench.path("protected");
    fs::create_dir(&protected).unwrap();
    if !geteuid().is_root() || rustix::mount::mount_bind(bench.path(""), &protected).is_err() {
        eprintln!("SKIPPED: {test}: no bind mount");
        return;
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    rustix::mount::mount_change(&protected, MountPropagationFlags::PRIVATE).unwrap();
    rustix::mount::mount_remount(&protected, flags, c"").unwrap();
    let there = protected.join("volume").to_str().unwrap().to_owned();
    let kept = Kept::new(&volume);
    for command in ["check", "info", "map", "receipt"] {
        succeed(&["dnefs", command, &there]);
    }
    succeed(&["dnefs", "dump", &there, &bench.text("dump")]);
    for (reads, writer) in [
        (true, &["mount", &there, &dir][..]),
        (false, &["mount", &there, &dir, "--ephemeral", "--force"]),
        (false, &["passwd", &there, "--remove"]),
        (false, &["erase", &there, "--force"]),
    ] {
        let said = fail(4, &[&["dnefs"], writer].concat());
        let wanted = ["for writing", "Read-only file system", "remount,rw"];
        assert!(wanted.iter().all(|part| said.contains(part)), "{said}");
        // Only a mount has a use for what can be read.
        assert_eq!(said.contains("`-o ro`"), reads, "{said}");
    }
    succeed(&["dnefs", "mount", &there, &dir, "-o", "ro"]);
    assert_eq!(fs::read(guard.join("file")).unwrap(), b"content");
    succeed(&["umount", &dir]);
    rustix::mount::unmount(&protected, rustix::mount::UnmountFlags::empty()).unwrap();
    kept.check("reading through the protected folder");
}

/// Of a file that this user may only read.
#[test]
fn a_file_of_mode_0444_is_read_by_everybody() {
    let test = "a_file_of_mode_0444_is_read_by_everybody";
    if !geteuid().is_root() {
        eprintln!("SKIPPED: {test}: not root");
        return;
    }
    let bench = Bench::new(test);
    let volume = bench.format(&[]);
    fs::set_permissions(&volume, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(bench.path(""), Permissions::from_mode(0o755)).unwrap();
    // Where it was built not everybody may look.
    copy_program(env!("CARGO_BIN_EXE_tacita"), bench.path("tacita"));
    let kept = Kept::new(&volume);
    let as_nobody = |code: i32, arguments: &[&str]| {
        let mut command = Command::new(bench.path("tacita"));
        command.args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    };
    for command in ["check", "info", "map"] {
        as_nobody(0, &["dnefs", command, &volume]);
    }
    let said = as_nobody(4, &["dnefs", "mount", &volume, "/mnt"]);
    let wanted = ["for writing", "Permission denied", "`-o ro`"];
    assert!(wanted.iter().all(|part| said.contains(part)), "{said}");
    kept.check("somebody who may only read");
}
