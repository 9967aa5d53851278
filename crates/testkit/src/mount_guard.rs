//! Mounts of tests: a folder of their own, and nothing left behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tacita_clock::{Clock, System};
use tempfile::TempDir;

/// Longest time that a mount is busy with programs that other tests start.
const BUSY_MAX: Duration = Duration::from_mins(2);

/// Whether a test that mounts has to be skipped; says so on standard error, for a test that
/// silently did nothing looks like one that passed.
pub fn skip_without_fuse(test: &str) -> bool {
    let reason = if !Path::new("/dev/fuse").exists() {
        "there is no /dev/fuse"
    } else if !rustix::process::geteuid().is_root() && !has_helper() {
        "not root, and fusermount3 is not installed"
    } else {
        return false;
    };
    eprintln!("SKIPPED: {test}: {reason}");
    true
}

/// Unmounts a folder. It is busy for a moment whenever another test starts a program, which has
/// copies of all descriptors until it is executed; so it is tried again.
///
/// # Panics
/// If it cannot be unmounted, or is still busy after two minutes.
pub fn unmount(dir: &Path) {
    if let Err(e) = try_unmount(dir) {
        panic!("{}: {e}", dir.display());
    }
}

/// The same for who does not know whether something is mounted there.
pub(crate) fn try_unmount(dir: &Path) -> rustix::io::Result<()> {
    let begin = System.monotonic();
    loop {
        match rustix::mount::unmount(dir, UnmountFlags::empty()) {
            Err(Errno::BUSY) if System.elapsed(begin) < BUSY_MAX => {
                System.wait(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

fn has_helper() -> bool {
    Command::new("fusermount3")
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// A folder to mount on. When dropped it takes away whatever is still mounted there, in use or not.
#[derive(Debug)]
pub struct MountGuard {
    dir: Option<TempDir>,
    path: PathBuf,
}

impl MountGuard {
    /// A new empty folder.
    ///
    /// # Errors
    /// As the file system has them.
    pub fn new() -> std::io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("tacita-mount-").tempdir()?;
        let path = dir.path().join("mnt");
        std::fs::create_dir(&path)?;
        Ok(Self { dir: Some(dir), path })
    }

    /// Where to mount.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path beneath the mount.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        // Until there is none left: mounts can lie on top of one another.
        while rustix::mount::unmount(&self.path, flags).is_ok() {}
        if !rustix::process::geteuid().is_root() {
            let _ =
                Command::new("fusermount3").args(["-u", "-q", "-z", "--"]).arg(&self.path).status();
        }
        drop(self.dir.take());
    }
}
