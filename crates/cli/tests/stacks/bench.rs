//! The program, the places of a stack, and what lies on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_testkit::system;
use tacita_testkit::{MountGuard, Watchdog, search, skip_without, skip_without_fuse};

const TIME_MAX: Duration = Duration::from_mins(20);
pub(crate) const SEED: &str = "5ead";
/// Rows of a database, so many as have pages of their own.
const ROWS: &str = "create table rows(id integer primary key, what text);
    with recursive n(i) as (values(1) union all select i + 1 from n where i < 500)
    insert into rows select i, printf('row %d of a database on a stack; ', i) from n;";

pub(crate) fn tacita(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs what must end with this code; all that it says.
#[track_caller]
pub(crate) fn ends(code: i32, arguments: &[&str]) -> String {
    let output = tacita(arguments);
    let told = String::from_utf8_lossy(&output.stdout);
    let said = format!("{told}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "tacita {arguments:?}: {said}");
    said
}

/// What a command with `--json` tells.
#[track_caller]
pub(crate) fn facts(arguments: &[&str]) -> serde_json::Value {
    let output = tacita(&[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// How often a marker stands in bytes.
pub(crate) fn count(bytes: &[u8], marker: &str) -> usize {
    search::places(bytes, marker).len()
}

/// Makes what was written to a file durable; by another process, which holds no mount.
pub(crate) fn sync(path: &Path) {
    system("sync", &[text(path)]).unwrap();
}

fn sqlite(database: &Path, sql: &str) -> String {
    system("sqlite3", &["-bail", text(database), sql]).unwrap()
}

/// Puts a database into a folder, by the same statements each time.
pub(crate) fn fill_database(folder: &Path) {
    sqlite(&folder.join("db"), ROWS);
}

/// The database is whole.
pub(crate) fn look_at_database(folder: &Path) {
    let facts = "pragma integrity_check; select count(*), sum(id) from rows;";
    assert_eq!(sqlite(&folder.join("db"), facts), "ok\n500|125250");
}

/// A loop device; detached when dropped.
pub(crate) struct Loop(String);

impl Loop {
    /// One on a file; why there is none here, otherwise.
    pub(crate) fn on(file: &Path) -> Result<Self, String> {
        system("losetup", &["--find", "--show", text(file)]).map(Self)
    }

    pub(crate) fn device(&self) -> &str {
        &self.0
    }

    /// All that stands on it, past what the kernel remembers.
    pub(crate) fn content(&self) -> Vec<u8> {
        system("blockdev", &["--flushbufs", &self.0]).unwrap();
        fs::read(&self.0).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = system("losetup", &["--detach", &self.0]);
    }
}

/// A folder, places to mount on, and a watchdog.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    /// Where the upper system is mounted.
    pub(crate) upper: MountGuard,
    /// Where the lower one is.
    pub(crate) lower: MountGuard,
    _watchdog: Watchdog,
}

impl Bench {
    /// `None` where the machine cannot, which is said.
    pub(crate) fn new(test: &str, programs: &[&str]) -> Option<Self> {
        if skip_without_fuse(test) || skip_without(test, &[&["losetup"], programs].concat()) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: {test}: loop devices need root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, [0; 4096]).unwrap();
        if let Err(why) = Loop::on(&file) {
            eprintln!("SKIPPED: {test}: no loop device here: {why}");
            return None;
        }
        for name in ["public", "hidden"] {
            fs::write(folder.path().join(name), format!("the {name} password\n")).unwrap();
        }
        let (upper, lower) = (MountGuard::new().unwrap(), MountGuard::new().unwrap());
        Some(Self { folder, upper, lower, _watchdog: Watchdog::start(test, TIME_MAX) })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        text(&self.path(name)).to_owned()
    }

    /// Makes a device of PD-DM with a hidden volume.
    pub(crate) fn init(&self, device: &str, more: &[&str]) {
        let (public, hidden) = (self.text("public"), self.text("hidden"));
        let passwords = ["--password-file", &public, "--hidden-password-file", &hidden];
        ends(0, &[&["pddm", "init", device], &passwords[..], more].concat());
    }

    /// Opens it as files below `lower`; a loop device on the hidden volume.
    pub(crate) fn open(&self, device: &str) -> Loop {
        let (hidden, dir) = (self.text("hidden"), text(self.lower.path()));
        ends(0, &["pddm", "open", device, "--fuse", dir, "--password-file", &hidden]);
        Loop::on(&self.lower.join("hidden")).unwrap()
    }

    /// Closes it, and writes what waits.
    pub(crate) fn close(&self, volume: Loop) {
        drop(volume);
        ends(0, &["pddm", "close", text(self.lower.path()), "--sweep"]);
    }

    /// Mounts HIFS on `upper`.
    pub(crate) fn mount(&self, image: &str) {
        ends(0, &["hifs", "mount", image, text(self.upper.path())]);
    }

    pub(crate) fn umount(&self) {
        ends(0, &["umount", text(self.upper.path())]);
    }
}

/// A file that is a device of an NBD server, for loop devices; gone with its folder when dropped.
pub(crate) struct AsFile {
    process: Child,
    pub(crate) file: PathBuf,
}

impl AsFile {
    /// Why there is none here, otherwise.
    pub(crate) fn new(file: PathBuf, socket: &str) -> Result<Self, String> {
        fs::write(&file, []).unwrap();
        let mut nbdfuse = Command::new("nbdfuse");
        nbdfuse.arg(&file).arg(format!("nbd+unix:///oram?socket={socket}")).stdin(Stdio::null());
        let mut process = nbdfuse.spawn().unwrap();
        while fs::metadata(&file).is_ok_and(|metadata| metadata.len() == 0) {
            if let Some(status) = process.try_wait().unwrap() {
                return Err(format!("nbdfuse does not mount here: {status}"));
            }
            System.wait(Duration::from_millis(20));
        }
        Ok(Self { process, file })
    }
}

impl Drop for AsFile {
    fn drop(&mut self) {
        // Who still has it open, after a test has failed, does not keep it.
        if system("fusermount3", &["-u", text(&self.file)]).is_err() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
