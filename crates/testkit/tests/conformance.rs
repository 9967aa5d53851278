//! The external conformance suites, on the file system in memory. They need root, and are skipped
//! where they are not installed; the scripts themselves would install them.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tacita_testkit::{MountGuard, Watchdog, skip_without_fuse};
use tacita_vfs::fuse::unmount_within;

/// Longest time that a suite may take.
const TIME_MAX: Duration = Duration::from_mins(20);

/// Longest wait for the server's end.
const WAIT_MAX: Duration = Duration::from_mins(2);

fn is_installed(tool: &str) -> bool {
    let home = env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    home.join("bin").join(tool).exists()
}

/// Runs a script of `conformance/` on a new mount.
fn run(test: &str, tool: &str, mount: &[&str], before: &[&str], after: &[&str]) {
    if skip_without_fuse(test) {
        return;
    }
    if !is_installed(tool) {
        eprintln!("SKIPPED: {test}: {tool} is not installed");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: not root");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let guard = MountGuard::new().unwrap();
    // The users that cases switch to have to get there.
    let above = guard.path().parent().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(above, open).unwrap();
    let program = env::current_exe().unwrap();
    let target = program.parent().and_then(Path::parent).unwrap();
    let served = Command::new(target.join("examples/memory_mount"))
        .arg(guard.path())
        .arg("--daemon")
        .args(mount)
        .status();
    assert!(served.unwrap().success());
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance").join(format!("{tool}.sh"));
    let output = Command::new(script).args(before).arg(guard.path()).args(after).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    unmount_within(guard.path(), WAIT_MAX).unwrap();
}

#[test]
fn pjdfstest() {
    run("pjdfstest", "pjdfstest", &[], &[], &[]);
}

#[test]
fn pjdfstest_with_numbers_that_follow_names() {
    let name = "pjdfstest_with_numbers_that_follow_names";
    run(name, "pjdfstest", &["--path-ino"], &["--renumbers"], &[]);
}

#[test]
fn fsx() {
    run("fsx", "fsx", &[], &[], &["5000", "1"]);
}

#[test]
fn fsx_with_write_back_cache() {
    let name = "fsx_with_write_back_cache";
    run(name, "fsx", &["--writeback"], &[], &["5000", "2"]);
}
