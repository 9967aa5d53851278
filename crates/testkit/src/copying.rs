//! Programs that tests copy and then run.

use std::path::Path;
use std::process::Command;

/// Copies a program, with its permissions, so that it can be run at once.
///
/// By a process of its own: what this one has open to be written is open in whatever other threads
/// begin just then, and cannot be run as long as they have it ("Text file busy").
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg("-p").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(copied.expect("`cp` is everywhere").success(), "{}", to.as_ref().display());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other threads begin programs meanwhile.
    #[test]
    fn a_copy_runs_at_once() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert!(Command::new("true").status().unwrap().success());
                    }
                });
            }
            for number in 0..50 {
                let program = folder.path().join(number.to_string());
                copy_program("/bin/true", &program);
                let ran = Command::new(&program).status().map(|status| status.success());
                assert!(matches!(ran, Ok(true)), "{ran:?}");
            }
        });
    }
}
