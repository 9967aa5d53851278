//! Devices that cannot be written: what only reads works on them, and what writes says how it could.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::geteuid;
use tacita_testkit::copy_program;
use tacita_testkit::system;

use crate::bench::{Bench, expect, tacita};

const NOBODY: u32 = 65_534;

/// What was said of a device, as `run` runs the program; checked when the device is free again.
struct Said {
    reading: [Output; 3],
    open: Output,
    repair: Output,
    others: [Output; 2],
}

impl Said {
    fn of(bench: &Bench, device: &str, run: impl Fn(&[&str]) -> Output) -> Self {
        let (socket, password) = (bench.path("sockets/socket"), bench.path("public"));
        let folder = bench.folder.path().join("sockets");
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        let on = |command: &str, more: &[&str]| {
            run(&[&["pddm", command, device, "--password-file", &password], more].concat())
        };
        Self {
            open: on("open", &["--nbd", &socket]),
            repair: on("check", &["--repair"]),
            others: [
                on("passwd", &["--new-password-file", &bench.path("second")]),
                on("sweep", &["--public-only"]),
            ],
            reading: [
                on("check", &[]),
                on("open", &["--nbd", &socket, "--read-only"]),
                run(&["pddm", "close", "--drop", &socket]),
            ],
        }
    }

    #[track_caller]
    fn judge(&self, cause: &[&str]) {
        let said = |output: &Output, more: &str, not: &str| {
            let said = expect(4, output);
            let wanted = ["make it writable", more];
            assert!(wanted.iter().chain(cause).all(|part| said.contains(part)), "{said}");
            assert!(!said.contains(not), "{said}");
        };
        said(&self.open, "`--read-only`", "--repair");
        said(&self.repair, "without `--repair`", "--read-only");
        for other in &self.others {
            said(other, "", "--read-only");
        }
        for output in &self.reading {
            expect(0, output);
        }
    }
}

fn bench(test: &str) -> Bench {
    let bench = Bench::new(test);
    bench.init("16M", &[], &["--heartbeat", "0"]);
    bench
}

#[test]
fn a_device_that_is_set_read_only() {
    let test = "a_device_that_is_set_read_only";
    let bench = bench(test);
    let options = ["--find", "--show", "--read-only", &bench.path("device")];
    let looped = match system("losetup", &options) {
        Ok(looped) => looped,
        Err(why) => {
            eprintln!("SKIPPED: {test}: no loop device here: {why}");
            return;
        }
    };
    let said = Said::of(&bench, &looped, tacita);
    system("losetup", &["--detach", &looped]).unwrap();
    said.judge(&["read-only device"]);
}

/// Not even root may write it.
#[test]
fn a_device_that_is_immutable() {
    let test = "a_device_that_is_immutable";
    let bench = bench(test);
    let device = bench.path("device");
    if let Err(why) = system("chattr", &["+i", &device]) {
        eprintln!("SKIPPED: {test}: no file can be made immutable here: {why}");
        return;
    }
    let said = Said::of(&bench, &device, tacita);
    system("chattr", &["-i", &device]).unwrap();
    said.judge(&["for writing", "Operation not permitted"]);
}

#[test]
fn a_device_on_a_read_only_file_system() {
    let test = "a_device_on_a_read_only_file_system";
    let bench = bench(test);
    let protected = bench.folder.path().join("protected");
    fs::create_dir(&protected).unwrap();
    if !geteuid().is_root() || rustix::mount::mount_bind(bench.folder.path(), &protected).is_err() {
        eprintln!("SKIPPED: {test}: no bind mount");
        return;
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    rustix::mount::mount_change(&protected, MountPropagationFlags::PRIVATE).unwrap();
    rustix::mount::mount_remount(&protected, flags, c"").unwrap();
    let said = Said::of(&bench, &bench.path("protected/device"), tacita);
    rustix::mount::unmount(&protected, UnmountFlags::empty()).unwrap();
    said.judge(&["for writing", "Read-only file system"]);
}

#[test]
fn a_device_that_its_user_may_only_read() {
    let test = "a_device_that_its_user_may_only_read";
    if !geteuid().is_root() {
        eprintln!("SKIPPED: {test}: not root");
        return;
    }
    let bench = bench(test);
    let device = bench.path("device");
    fs::set_permissions(&device, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(bench.folder.path(), Permissions::from_mode(0o755)).unwrap();
    // Where it was built not everybody may look.
    copy_program(env!("CARGO_BIN_EXE_tacita"), bench.path("tacita"));
    let said = Said::of(&bench, &device, |arguments| {
        let mut command = Command::new(bench.path("tacita"));
        command.args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::null());
        command.output().unwrap()
    });
    said.judge(&["for writing", "Permission denied"]);
}
