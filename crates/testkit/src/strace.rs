//! Calls of a running process that fail or are recorded, by strace(1).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Whether nothing can be traced here; says so loudly.
pub fn cannot_trace(test: &str) -> bool {
    let traced = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    let can = traced.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("SKIPPED: {test}: strace is not installed, or may not trace");
    }
    !can
}

/// A process that is watched; no longer when this is dropped.
#[derive(Debug)]
pub struct Watched(Child);

impl Watched {
    /// Lets a call of a process that runs fail as `inject` says, as in `error=EIO:when=2`; returns when it
    /// is watched.
    ///
    /// # Panics
    /// If the process cannot be watched.
    pub fn attach(pid: &str, call: &str, inject: &str) -> Self {
        let inject = format!("inject={call}:{inject}");
        Self::begin(pid, call, &["-o", "/dev/null", "-e", &inject])
    }

    /// The same of calls that are for what has this path.
    ///
    /// # Panics
    /// If the process cannot be watched.
    pub fn attach_at(pid: &str, call: &str, inject: &str, path: &Path) -> Self {
        let inject = format!("inject={call}:{inject}");
        let path = path.to_str().expect("a name in UTF-8");
        Self::begin(pid, call, &["-o", "/dev/null", "-P", path, "-e", &inject])
    }

    /// Writes each such call of a process that runs to the file `out`, as a line; returns when it is watched.
    ///
    /// # Panics
    /// If the process cannot be watched.
    pub fn record(pid: &str, call: &str, out: &Path) -> Self {
        Self::begin(pid, call, &["-s", "4096", "-o", out.to_str().expect("a name in UTF-8")])
    }

    fn begin(pid: &str, call: &str, options: &[&str]) -> Self {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-p", pid, "-e", &format!("trace={call}")]).args(options);
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut watched = Self(strace.spawn().expect("strace starts"));
        let said = watched.0.stderr.take().expect("it is piped");
        let mut said = BufReader::new(said).lines();
        let attached = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("attached")));
        assert!(attached.is_some(), "strace does not attach to {pid}");
        // It goes on saying what it attaches to.
        std::thread::spawn(move || said.for_each(drop));
        watched
    }

    /// Waits until the process has ended.
    pub fn wait(mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
