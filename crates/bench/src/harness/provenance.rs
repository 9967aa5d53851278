//! Where and from what a result comes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use crate::harness::runner;

/// Columns that every row of a CSV carries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Provenance {
    /// File system beneath the images.
    pub(crate) medium: String,
    pub(crate) machine: String,
    pub(crate) kernel: String,
    pub(crate) commit: String,
    pub(crate) date: String,
}

/// What this machine says about itself; "unknown" for what it does not. Images lie in `scratch`.
pub(crate) fn of_this_machine(scratch: &Path) -> Provenance {
    let scratch = scratch.to_string_lossy();
    Provenance {
        medium: output("stat", &["-f", "-c", "%T", &scratch]),
        machine: machine(),
        kernel: output("uname", &["-sr"]),
        commit: output("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        date: output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
    }
}

fn machine() -> String {
    let field = |path: &str, name: &str| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    format!("{model} x{cores} {memory}")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let text = runner::run(command.args(arguments), Duration::from_secs(10));
    text.map_or_else(|_| "unknown".into(), |t| t.trim().to_owned())
}
