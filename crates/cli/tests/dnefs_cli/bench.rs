//! The program, a folder with a volume, and what is asked of them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tacita_testkit::{MountGuard, Watchdog, skip_without_fuse};

const TIME_MAX: Duration = Duration::from_mins(20);

/// Runs the program, again if it cannot say what another test's daemon serves, which somebody traces.
pub(crate) fn tacita(arguments: &[&str]) -> Output {
    loop {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("whether it is served cannot be said") {
            return output;
        }
    }
}

pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = tacita(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tacita {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs what must fail with this code; what it says.
pub(crate) fn fail(code: i32, arguments: &[&str]) -> String {
    let output = tacita(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "tacita {arguments:?}: {said}");
    said
}

/// A folder with a volume, and files beside it.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Bench {
    pub(crate) fn new(test: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, _watchdog: Watchdog::start(test, TIME_MAX) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        fs::write(self.path(name), content).unwrap();
        self.text(name)
    }

    /// A new volume; of 32 MiB, if `options` do not say how long.
    pub(crate) fn format(&self, options: &[&str]) -> String {
        let volume = self.text("volume");
        let size: &[&str] = if options.contains(&"--size") { &[] } else { &["--size", "32M"] };
        succeed(&[&["dnefs", "format", &volume], size, options].concat());
        volume
    }

    /// A new volume, formatted and mounted with options; `None` where nothing can be mounted, which is
    /// said.
    pub(crate) fn mounted(test: &str, format: &[&str], mount: &[&str]) -> Option<Mounted> {
        if skip_without_fuse(test) {
            return None;
        }
        let bench = Self::new(test);
        let volume = bench.format(format);
        let guard = MountGuard::new().unwrap();
        let dir = guard.path().to_str().unwrap().to_owned();
        succeed(&[&["dnefs", "mount", &volume, &dir], mount].concat());
        Some(Mounted { bench, volume, guard, dir })
    }

    /// A copy of a volume that is mounted, from a moment in which nothing was written; where it is.
    pub(crate) fn copy_at_rest(&self, volume: &str, name: &str) -> String {
        let copy = self.text(name);
        loop {
            fs::copy(volume, &copy).unwrap();
            if fs::read(volume).unwrap() == fs::read(&copy).unwrap() {
                return copy;
            }
        }
    }

    pub(crate) fn dump(&self, volume: &str, name: &str) -> String {
        let out = self.text(name);
        succeed(&["dnefs", "dump", volume, &out]);
        out
    }
}

/// A volume that was mounted.
pub(crate) struct Mounted {
    pub(crate) bench: Bench,
    pub(crate) volume: String,
    pub(crate) guard: MountGuard,
    /// Where it is mounted.
    pub(crate) dir: String,
}

/// Kills the daemon of a mount, as a loss of power would, and takes the mount away.
pub(crate) fn kill(dir: &str) {
    let process = status_of(dir)["pid"].as_i64().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &process]).status().unwrap().success());
    fail(4, &["umount", dir]);
}

pub(crate) fn audit(code: i32, before: &str, after: &str) -> serde_json::Value {
    let output = tacita(&["dnefs", "audit", "--before", before, "--after", after, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn status_of(dir: &str) -> serde_json::Value {
    serde_json::from_str(&succeed(&["status", dir, "--json"])).unwrap()
}
