//! Programs of the system that tests work with.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a program of the system; what it prints, without blanks at the ends.
///
/// # Errors
/// What it says.
pub fn system(program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<String, String> {
    // By its path: to look along a PATH that is given, a whole copy of this process would be made first.
    let mut command = Command::new(place(program));
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{program}: {}{}", text(&output.stdout), text(&output.stderr)))
    }
}

/// Where a program is, of the administrator's, too; only its name where there is none.
fn place(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut places = folders.map(|folder| folder.join(program));
    places.find(|place| place.is_file()).unwrap_or_else(|| Path::new(program).to_owned())
}
