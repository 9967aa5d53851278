//! Programs on a terminal of their own, by `script` of util-linux.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// A program on a terminal, whose code is that of the program.
#[derive(Debug)]
pub struct Terminal {
    script: Child,
    typed: ChildStdin,
    out: ChildStdout,
    shown: Vec<u8>,
}

impl Terminal {
    /// Has a shell run a line.
    ///
    /// # Panics
    /// If there is no `script`.
    pub fn run(line: &str) -> Self {
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--command", line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script runs");
        let (typed, out) = (script.stdin.take(), script.stdout.take());
        let (typed, out) = (typed.expect("it is piped"), out.expect("it is piped"));
        Self { script, typed, out, shown: Vec::new() }
    }

    /// Waits until this is the end of what is shown, and gives all of it.
    ///
    /// # Panics
    /// If the program ends before.
    pub fn until(&mut self, end: &str) -> String {
        while !self.shown.ends_with(end.as_bytes()) {
            let mut byte = [0];
            let read = self.out.read_exact(&mut byte);
            let shown = || String::from_utf8_lossy(&self.shown);
            assert!(read.is_ok(), "`{end}` is not shown: {}", shown());
            self.shown.extend(byte);
        }
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Types something; `false` if the program has ended.
    pub fn type_in(&mut self, keys: impl AsRef<[u8]>) -> bool {
        self.typed.write_all(keys.as_ref()).is_ok()
    }

    /// Waits for the end of the program; how it ended, and all that was shown.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn end(self) -> (ExitStatus, String) {
        let Self { mut script, typed, mut out, mut shown } = self;
        out.read_to_end(&mut shown).expect("it is shown");
        let ended = script.wait().expect("it ends");
        drop(typed);
        (ended, String::from_utf8_lossy(&shown).into_owned())
    }
}
