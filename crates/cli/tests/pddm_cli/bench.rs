//! A device file, its passwords, and the program run on them.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tacita_testkit::Watchdog;

const TIME_MAX: Duration = Duration::from_mins(20);

/// Longer devices are not kept: they take longer to copy than to make.
const KEPT_MAX_BYTES: u64 = 64 << 20;

/// Devices that were made, by their size and what they were made with.
static MADE: Mutex<Vec<((String, String), File)>> = Mutex::new(Vec::new());

/// A device file, its passwords, and places.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Bench {
    pub(crate) fn new(test: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["public", "hidden", "second", "wrong"] {
            fs::write(folder.path().join(name), format!("the {name} password\n")).unwrap();
        }
        Self { folder, _watchdog: Watchdog::start(test, TIME_MAX) }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// A device with these hidden volumes: made, or a copy of one that was made so before, since each
    /// password is half a second of a processor.
    pub(crate) fn init(&self, size: &str, hidden: &[&str], more: &[&str]) {
        let (device, public) = (self.path("device"), self.path("public"));
        let mut arguments =
            vec!["pddm", "init", &device, "--size", size, "--password-file", &public];
        let files: Vec<String> = hidden.iter().map(|name| self.path(name)).collect();
        for file in &files {
            arguments.extend(["--hidden-password-file", file]);
        }
        arguments.extend(more);
        let with = (size.to_owned(), [hidden, more].concat().join(" "));
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = made.iter_mut().find(|(others, _)| *others == with) {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&device);
            kept.rewind().unwrap();
            io::copy(kept, file.as_mut().unwrap()).unwrap();
            return;
        }
        expect(0, &tacita(&arguments));
        let mut file = File::open(&device).unwrap();
        if file.metadata().unwrap().len() <= KEPT_MAX_BYTES {
            // Without a name: it goes with the process.
            let mut kept = tempfile::tempfile().unwrap();
            io::copy(&mut file, &mut kept).unwrap();
            made.push((with, kept));
        }
    }

    pub(crate) fn open(&self, password: &str, endpoint: &[&str]) -> Output {
        let (device, password) = (self.path("device"), self.path(password));
        let mut arguments = vec!["pddm", "open", &device, "--password-file", &password];
        arguments.extend(endpoint);
        tacita(&arguments)
    }
}

pub(crate) fn tacita(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Checks the exit code; returns what was said.
#[track_caller]
pub(crate) fn expect(code: i32, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    format!("{}{said}", String::from_utf8_lossy(&output.stdout))
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
