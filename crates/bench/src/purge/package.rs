//! The sources of a real package, as Debian has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::LIMIT;
use crate::harness::runner;

/// Where the sources of Debian's packages are.
const MIRROR: &str = "http://deb.debian.org/debian";

/// Fetches the sources of `name`, or tells why it cannot.
pub(super) fn fetch(name: &str, scratch: &Path) -> Option<PathBuf> {
    match ask_apt(name, scratch) {
        Ok(source) => Some(source),
        Err(e) => {
            eprintln!("{name}: no sources ({e:#}): a made-up package is built instead");
            None
        }
    }
}

/// By apt, with lists of its own, so that the machine's stay as they are.
fn ask_apt(name: &str, scratch: &Path) -> Result<PathBuf> {
    let folder = scratch.join("package");
    fs::create_dir_all(folder.join("lists/partial"))?;
    let release = fs::read_to_string("/etc/os-release")?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("no Debian with a code name")?;
    fs::write(folder.join("sources.list"), format!("deb-src {MIRROR} {codename} main\n"))?;
    let option = |key: &str, path: &Path| format!("-oDir::{key}={}", path.display());
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.arg(option("Etc::SourceList", &folder.join("sources.list")))
            .arg(option("Etc::SourceParts", Path::new("/dev/null")))
            .arg(option("State::Lists", &folder.join("lists")))
            .args(arguments)
            .current_dir(&folder);
        runner::run(&mut apt, LIMIT)
    };
    apt(&["-q", "update"])?;
    apt(&["-q", "source", "--download-only", name])?;
    let files = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let is_upstream = |path: &PathBuf| path.to_string_lossy().contains(".orig.tar.");
    files
        .filter(is_upstream)
        .find(|path| path.extension().is_some_and(|extension| extension != "asc"))
        .context("no upstream sources in the package")
}
