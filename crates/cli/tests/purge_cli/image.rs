//! An image with a file system, and what is asked of the program.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::mount::{UnmountFlags, unmount};
use serde_json::Value;
use tacita_testkit::{search, skip_without_fuse};
use tempfile::TempDir;

pub(crate) fn tacita(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A mounted ext4 image.
pub(crate) struct Image {
    pub(crate) folder: TempDir,
}

impl Image {
    pub(crate) fn new(test: &str) -> Option<Self> {
        Self::of(test, "mkfs.ext4", &["-q", "-F"], 32)
    }

    /// An image of another kind: the program that makes it, its arguments, the size in MiB.
    pub(crate) fn of(test: &str, maker: &str, arguments: &[&str], mib: u64) -> Option<Self> {
        if skip_without_fuse(test) {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("tacita-purge-cli-").tempdir().unwrap();
        let image = Self { folder };
        for dir in [image.lower(), image.upper()] {
            fs::create_dir(dir).unwrap();
        }
        fs::File::create(image.path()).unwrap().set_len(mib << 20).unwrap();
        let path = image.path();
        let arguments = [arguments, &[path.to_str().unwrap()]].concat();
        let made = system(maker, &arguments) && image.mount();
        if !made {
            eprintln!("SKIPPED: {test}: no {maker}, or no loop mount");
            return None;
        }
        Some(image)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub(crate) fn lower(&self) -> PathBuf {
        self.folder.path().join("lower")
    }

    pub(crate) fn upper(&self) -> PathBuf {
        self.folder.path().join("upper")
    }

    pub(crate) fn mount(&self) -> bool {
        let (path, lower) = (self.path(), self.lower());
        system("mount", &["-o", "loop", path.to_str().unwrap(), lower.to_str().unwrap()])
    }

    /// Mounts it anew with options of its file system.
    pub(crate) fn mount_with(&self, options: &str) -> bool {
        tacita_testkit::unmount(&self.lower());
        let (path, lower) = (self.path(), self.lower());
        let options = format!("loop,{options}");
        system("mount", &["-o", &options, path.to_str().unwrap(), lower.to_str().unwrap()])
    }

    pub(crate) fn purge_mount(&self, options: &[&str]) -> Output {
        let (lower, upper) = (self.lower(), self.upper());
        let places = ["purge", "mount", lower.to_str().unwrap(), upper.to_str().unwrap()];
        tacita(&[&places, options].concat())
    }

    pub(crate) fn umount(&self) -> Output {
        tacita(&["umount", self.upper().to_str().unwrap()])
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        tacita_testkit::unmount(&self.lower());
        let image = fs::read(self.path()).unwrap();
        assert!(self.mount());
        search::places(&image, text).len()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for dir in [self.upper(), self.lower()] {
            while unmount(&dir, UnmountFlags::DETACH).is_ok() {}
        }
    }
}

pub(crate) fn system(program: &str, arguments: &[impl AsRef<OsStr>]) -> bool {
    tacita_testkit::system(program, arguments).is_ok()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A refusal with that exit code, which names a cause with `cause` in it and, on a line of its own, a
/// remedy with `remedy`.
pub(crate) fn assert_refused(output: &Output, expected: i32, cause: &str, remedy: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output), expected, "{}", said(output));
    let lines: Vec<&str> = text.lines().collect();
    let named = lines.iter().any(|line| line.starts_with("tacita: ") && line.contains(cause));
    let helped = lines.iter().any(|line| line.starts_with("  ") && line.contains(remedy));
    assert!(named && helped, "{cause:?} and {remedy:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
}
