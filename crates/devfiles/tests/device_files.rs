//! Block devices as files: at the seam, through a mount, and under loop devices.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tacita_block::{
    BlockDevice, Fault, FaultDevice, Geometry, MemoryDevice, RequestKind, Trace, TraceDevice,
};
use tacita_clock::System;
use tacita_devfiles::DeviceFiles;
use tacita_testkit::{MountGuard, Watchdog, skip_without, skip_without_fuse, unmount};
use tacita_vfs::fuse::{Mount, mount};
use tacita_vfs::{Change, FileSystem, Kind, Posix, Stamps, Timestamp};

/// Longest time that a test may take.
const TIME_MAX: Duration = Duration::from_mins(20);

fn memory(len_bytes: u64, block_len_bytes: u32) -> MemoryDevice {
    MemoryDevice::new(Geometry::within(len_bytes, block_len_bytes).unwrap())
}

fn named(name: &str, device: impl BlockDevice + 'static) -> (OsString, Arc<dyn BlockDevice>) {
    (name.into(), Arc::new(device))
}

#[test]
fn names_must_be_names() {
    for (names, kind) in [
        (vec![""], Kind::Invalid),
        (vec![".."], Kind::Invalid),
        (vec!["a/b"], Kind::Invalid),
        (vec!["a", "b", "a"], Kind::Exists),
    ] {
        let devices = names.iter().map(|name| named(name, memory(4096, 512)));
        assert_eq!(DeviceFiles::new(devices).unwrap_err().kind(), kind, "{names:?}");
    }
}

#[test]
fn failures_of_the_device_are_told_by_their_kind() {
    let device = FaultDevice::new(Geometry::within(1 << 16, 512).unwrap());
    device.inject(Fault::FailWrite { write: 0, kind: tacita_block::Kind::NoSpace });
    device.inject(Fault::FailWrite { write: 1, kind: tacita_block::Kind::ReadOnly });
    device.inject(Fault::FailReads(0..512));
    device.inject(Fault::FailFlush(0));
    let files = DeviceFiles::new([named("a", device)]).unwrap();
    let (node, _) = files.lookup(files.root(), OsStr::new("a")).unwrap();
    let kind = |result: tacita_vfs::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(files.write(node, 512, &[1; 512], Stamps::NONE)), Kind::NoSpace);
    assert_eq!(kind(files.write(node, 512, &[1; 512], Stamps::NONE)), Kind::ReadOnly);
    assert_eq!(kind(files.read(node, 0, &mut [0; 9]).map(drop)), Kind::Io);
    assert_eq!(kind(files.sync_node(node)), Kind::Io);
    files.sync_node(node).unwrap();
}

/// `df` is asked by many who write down what they hear.
#[test]
fn hidden_files_do_not_count() {
    let alone = DeviceFiles::new([named("public", memory(1 << 16, 512))]).unwrap();
    let both = [named("public", memory(1 << 16, 512)), named("hidden", memory(1 << 18, 512))];
    let both = DeviceFiles::new(both).unwrap().hiding(|name| name != "public");
    assert_eq!(format!("{:?}", both.stats().unwrap()), format!("{:?}", alone.stats().unwrap()));
}

#[test]
fn attributes_stay() {
    let files = DeviceFiles::new([named("a", memory(1 << 16, 512))]).unwrap();
    let (node, attr) = files.lookup(files.root(), OsStr::new("a")).unwrap();
    assert_eq!((attr.size, attr.blocks), (1 << 16, 128));
    let now = Some(Timestamp { secs: 1_000_000_000, nanos: 0 });
    let stamp = Change { mtime: now, ctime: now, ..Change::default() };
    assert_eq!(files.change(node, &stamp).unwrap(), attr);
    let same = Change { size: Some(1 << 16), ..stamp };
    assert_eq!(files.change(node, &same).unwrap(), attr);
    for change in [
        Change { size: Some(0), ..stamp },
        Change { size: Some(1 << 17), ..stamp },
        Change { perm: Some(0o644), ..stamp },
        Change { uid: Some(attr.uid + 1), ..stamp },
        Change { user_times: true, ..stamp },
    ] {
        assert_eq!(files.change(node, &change).unwrap_err().kind(), Kind::NotPermitted);
    }
    assert_eq!(files.attr(node).unwrap(), attr);
}

/// Devices mounted for one test.
struct Mounted {
    // In this order they are dropped.
    _mount: Mount,
    guard: MountGuard,
    _watchdog: Watchdog,
}

impl Mounted {
    fn new(test: &str, devices: Vec<(OsString, Arc<dyn BlockDevice>)>) -> Option<Self> {
        if skip_without_fuse(test) {
            return None;
        }
        let watchdog = Watchdog::start(test, TIME_MAX);
        let guard = MountGuard::new().unwrap();
        let files = DeviceFiles::new(devices).unwrap();
        let posix = Arc::new(Posix::new(files, Arc::new(System)));
        let mount = mount(posix, guard.path(), &DeviceFiles::mount_options()).unwrap();
        Some(Self { _mount: mount, guard, _watchdog: watchdog })
    }
}

fn traced(len_bytes: u64) -> (TraceDevice<MemoryDevice>, Trace) {
    let device = TraceDevice::new(memory(len_bytes, 4096));
    let trace = device.trace();
    (device, trace)
}

fn read_write(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn files_are_read_and_written_at_any_byte() {
    let (device, trace) = traced(1 << 20);
    let devices = vec![named("public", device), named("other", memory(8192, 512))];
    let Some(mounted) = Mounted::new("device files", devices) else { return };
    let names: Vec<_> = fs::read_dir(mounted.guard.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["public", "other"]);
    let file = read_write(&mounted.guard.join("public"));
    file.write_all_at(&[7; 10_000], 4090).unwrap();
    let mut content = vec![1; 20_000];
    file.read_exact_at(&mut content, 0).unwrap();
    let expected = |at: usize| if (4090..14_090).contains(&at) { 7 } else { 0 };
    assert!(content.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    trace.take();
    file.sync_all().unwrap();
    assert_eq!(trace.count(RequestKind::Flush), 1);
    let keep = FallocateFlags::KEEP_SIZE;
    for (mode, from, to) in [
        (FallocateFlags::PUNCH_HOLE | keep, 4096, 8192),
        (FallocateFlags::ZERO_RANGE | keep, 8000, 9000),
        (keep, 0, 1 << 20),
    ] {
        rustix::fs::fallocate(&file, mode, from, to - from).unwrap();
    }
    assert!(trace.count(RequestKind::WriteZeroes) > 0);
    file.read_exact_at(&mut content, 0).unwrap();
    let expected = |at: usize| if (4096..9000).contains(&at) { 0 } else { expected(at) };
    assert!(content.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    // The end is the end.
    assert_eq!(file.read_at(&mut [0; 100], (1 << 20) - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut [0; 100], 1 << 20).unwrap(), 0);
    let beyond = file.write_all_at(&[1; 100], (1 << 20) - 10).unwrap_err();
    assert_eq!(beyond.kind(), std::io::ErrorKind::StorageFull);
    let longer = rustix::fs::fallocate(&file, keep, 1 << 20, 1).unwrap_err();
    assert_eq!(longer, Errno::NOSPC);
}

#[test]
fn nothing_but_content_changes() {
    let devices = vec![named("public", memory(1 << 20, 512))];
    let Some(mounted) = Mounted::new("device files stay", devices) else { return };
    let path = mounted.guard.join("public");
    let facts = || {
        let m = fs::metadata(&path).unwrap();
        (m.len(), m.blocks(), m.mode(), m.uid(), m.ino(), m.atime(), m.mtime(), m.ctime())
    };
    let before = facts();
    assert_eq!((before.0, before.1), (1 << 20, 2048));
    assert_eq!((before.5, before.6, before.7), (0, 0, 0));
    let file = read_write(&path);
    file.write_all_at(&[1; 5000], 100).unwrap();
    file.read_exact_at(&mut [0; 10_000], 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(1 << 20).unwrap();
    let denied = |result: std::io::Result<()>, what: &str| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()), "{what}");
    };
    denied(file.set_len(0), "truncate");
    denied(file.set_len(1 << 21), "grow");
    denied(File::options().write(true).truncate(true).open(&path).map(drop), "truncate at opening");
    denied(fs::remove_file(&path), "remove");
    denied(fs::rename(&path, mounted.guard.join("new")), "rename");
    denied(fs::create_dir(mounted.guard.join("new")), "make a folder");
    denied(File::create(mounted.guard.join("new")).map(drop), "make a file");
    denied(fs::hard_link(&path, mounted.guard.join("new")), "link");
    denied(fs::set_permissions(&path, fs::Permissions::from_mode(0o666)), "open it to others");
    denied(file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(5)), "set times");
    assert_eq!(facts(), before);
    let mut content = [0; 5000];
    file.read_exact_at(&mut content, 100).unwrap();
    assert_eq!(content, [1; 5000], "what was refused changed nothing");
}

/// A loop device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn attach(file: &Path, sector_len_bytes: u32) -> Option<Self> {
        let sector = sector_len_bytes.to_string();
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--sector-size", &sector]).arg(file);
        let output = command.output().ok().filter(|output| output.status.success())?;
        Some(Self(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

fn run(program: &str, arguments: &[&OsStr]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

/// Unmounts, and waits for a child of another test that has inherited an open file until it starts
/// its program.
/// Fills a mounted file system with files of all sizes; checks them where they are there already.
fn fill(dir: &Path, check: bool) {
    for number in 0..60_u32 {
        let folder = dir.join(format!("folder-{}", number % 7));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("file-{number}"));
        let bytes = (0..number * number * 331).map(|at| (at * 31 + number).to_le_bytes()[1]);
        let content: Vec<u8> = bytes.collect();
        if check {
            assert!(fs::read(&path).unwrap() == content, "{}", path.display());
        } else {
            fs::write(&path, content).unwrap();
        }
    }
}

/// Makes a file system on a loop device over a file over a device, fills it, and has it checked.
fn file_system_on_loop(make: &[&str], verify: &[&str], len_bytes: u64, sector_len_bytes: u32) {
    let test = format!("{} on a loop device, sectors of {sector_len_bytes}", make[0]);
    if skip_without(&test, &[make[0], verify[0]]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: not root");
        return;
    }
    let devices = vec![named("public", memory(len_bytes, 4096))];
    let Some(mounted) = Mounted::new(&test, devices) else { return };
    let Some(attached) = Loop::attach(&mounted.guard.join("public"), sector_len_bytes) else {
        eprintln!("SKIPPED: {test}: no loop device is to be had");
        return;
    };
    let with_device = |command: &[&str]| {
        let mut arguments: Vec<&OsStr> = command[1..].iter().map(OsStr::new).collect();
        arguments.push(attached.0.as_os_str());
        run(command[0], &arguments);
    };
    with_device(make);
    for check in [false, true] {
        // Dropped before the loop device is detached.
        let above = MountGuard::new().unwrap();
        run("mount", &[attached.0.as_os_str(), above.path().as_os_str()]);
        fill(above.path(), check);
        unmount(above.path());
        with_device(verify);
    }
}

#[test]
fn ext4_lives_on_a_loop_device() {
    for sector_len_bytes in [512, 4096] {
        let make = ["mkfs.ext4", "-q", "-F"];
        file_system_on_loop(&make, &["e2fsck", "-fn"], 64 << 20, sector_len_bytes);
    }
}

#[test]
fn xfs_lives_on_a_loop_device() {
    for sector_len_bytes in [512, 4096] {
        let make = ["mkfs.xfs", "-q", "-f"];
        file_system_on_loop(&make, &["xfs_repair", "-n"], 320 << 20, sector_len_bytes);
    }
}
