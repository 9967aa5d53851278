//! What a test finds where it runs: programs, and how much it is asked to do.

use std::process::Command;

/// A number from the environment, so that a soak run can do more than `./test` does.
pub fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Whether a test has to be skipped for want of a program; says so.
pub fn skip_without(test: &str, programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    let missing = programs.iter().find(is_missing);
    if let Some(program) = missing {
        eprintln!("SKIPPED: {test}: {program} is not installed");
    }
    missing.is_some()
}
