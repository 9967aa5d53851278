//! The file systems that are measured, each behind the same four calls.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::harness::runner::{self, tacita};

/// Longest format, mount or unmount.
const LIMIT: Duration = Duration::from_mins(2);

/// A file system on an image file.
pub(crate) trait Peer {
    /// Name in tables and CSV.
    fn name(&self) -> &str;
    /// Makes an empty file system of `size_bytes` at `image`.
    fn format(&self, image: &Path, size_bytes: u64) -> Result<()>;
    /// Mounts it; ready when this returns.
    fn mount(&self, image: &Path, dir: &Path) -> Result<()>;
    /// Unmounts it; the caller waits for the daemon.
    fn unmount(&self, dir: &Path) -> Result<()>;
    /// Syncs what is between the mount at `dir` and the image, if anything.
    fn settle(&self, dir: &Path) -> Result<()> {
        let _ = dir;
        Ok(())
    }
}

/// Layouts of HIFS and other peers by name.
///
/// # Errors
/// If a peer is unknown, or its program missing.
pub(crate) fn select(
    layouts: &[String],
    others: &[String],
    seed: u64,
) -> Result<Vec<Box<dyn Peer>>> {
    let mut peers: Vec<Box<dyn Peer>> = Vec::new();
    for layout in layouts.iter().filter(|l| !l.is_empty()) {
        peers.push(Box::new(Tacita::new(layout, seed)?));
    }
    for name in others.iter().filter(|n| !n.is_empty()) {
        peers.push(match name.as_str() {
            "fuse2fs" => Box::new(Fuse2fs { name: "fuse2fs" }),
            "fuse2fs-again" => Box::new(Fuse2fs { name: "fuse2fs-again" }),
            "ext4-loop" => Box::new(Ext4Loop),
            "bindfs" => Box::new(Bindfs),
            _ => bail!("no peer is called {name}"),
        });
    }
    if peers.is_empty() {
        bail!("nothing to measure: neither layouts nor peers");
    }
    Ok(peers)
}

pub(crate) fn command(
    program: impl AsRef<std::ffi::OsStr>,
    arguments: &[&str],
    paths: &[&Path],
) -> Result<()> {
    let mut command = Command::new(program);
    runner::run(command.args(arguments).args(paths), LIMIT).map(drop)
}

/// A seed as HIFS's `format` takes it.
pub(crate) fn hex_of(seed: u64) -> String {
    format!("{seed:064x}")
}

fn format_ext4(image: &Path, size_bytes: u64) -> Result<()> {
    fs::File::create(image)?.set_len(size_bytes)?;
    // The block length that larger images have anyway, and no share kept for root.
    command("mkfs.ext4", &["-q", "-F", "-b", "4096", "-m", "0"], &[image])
}

/// A layout of HIFS, by the `tacita` binary.
struct Tacita {
    program: PathBuf,
    layout: String,
    name: String,
    /// Of its images: it decides how much moves.
    seed: u64,
}

impl Tacita {
    fn new(layout: &str, seed: u64) -> Result<Self> {
        let program = tacita().context("peers can be measured alone (--layouts '')")?;
        Ok(Self { program, layout: layout.to_owned(), name: format!("tacita-{layout}"), seed })
    }
}

impl Peer for Tacita {
    fn name(&self) -> &str {
        &self.name
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["hifs", "format"]).arg(image);
        command.args(["--size", &size_bytes.to_string(), "--layout", &self.layout]);
        command.args(["--seed", &hex_of(self.seed)]);
        runner::run(&mut command, LIMIT).map(drop)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        command(&self.program, &["hifs", "mount"], &[image, dir])
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        command(&self.program, &["umount"], &[dir])
    }
}

/// Ext4 in user space: what the paper calls Ext3 through FUSE. It keeps no journal.
///
/// Under its second name it runs beside itself: how far its ratio is from 1 is the run's noise.
struct Fuse2fs {
    name: &'static str,
}

impl Peer for Fuse2fs {
    fn name(&self) -> &str {
        self.name
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        format_ext4(image, size_bytes)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        let options: &[&str] =
            if rustix::process::geteuid().is_root() { &[] } else { &["-o", "fakeroot"] };
        command("fuse2fs", options, &[image, dir])
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        command("fusermount3", &["-u"], &[dir])
    }
}

/// Ext4 of the kernel on a loop device: how far FUSE is from none. Root only.
pub(crate) struct Ext4Loop;

impl Peer for Ext4Loop {
    fn name(&self) -> &'static str {
        "ext4-loop"
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        format_ext4(image, size_bytes)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        command("mount", &["-o", "loop"], &[image, dir])
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        command("umount", &[], &[dir])
    }
}

/// A pass-through FUSE file system over [`Ext4Loop`]: the cost of FUSE alone. Root only.
struct Bindfs;

impl Bindfs {
    fn lower(dir: &Path) -> PathBuf {
        dir.with_extension("lower")
    }
}

impl Peer for Bindfs {
    fn name(&self) -> &'static str {
        "bindfs"
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        format_ext4(image, size_bytes)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        let lower = Self::lower(dir);
        fs::create_dir_all(&lower).context("no lower folder")?;
        Ext4Loop.mount(image, &lower)?;
        command("bindfs", &[], &[&lower, dir])
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        let lower = Self::lower(dir);
        command("fusermount3", &["-u"], &[dir])?;
        runner::wait_until(LIMIT, || runner::process_with(&lower).is_none())?;
        Ext4Loop.unmount(&lower)
    }
}

/// A program that serves a file system held in memory alone: how fast FUSE can be.
///
/// It is started as `PROGRAM DIR` and may stay in the foreground.
pub(crate) struct Memory {
    program: PathBuf,
}

impl Memory {
    /// The program that the variable `TACITA_MEMORY_MOUNT` names, if it is set.
    pub(crate) fn from_environment() -> Option<Self> {
        let program = PathBuf::from(env::var_os("TACITA_MEMORY_MOUNT")?);
        Some(Self { program })
    }
}

impl Peer for Memory {
    fn name(&self) -> &'static str {
        "ram"
    }

    fn format(&self, image: &Path, _size_bytes: u64) -> Result<()> {
        // There is no image; an empty file stands for it.
        fs::File::create(image)?;
        Ok(())
    }

    fn mount(&self, _image: &Path, dir: &Path) -> Result<()> {
        let device = |path: &Path| Some(fs::metadata(path).ok()?.dev());
        let outside = device(dir);
        let mut command = Command::new(&self.program);
        command.arg(dir).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().context("cannot start the memory file system")?;
        runner::wait_until(LIMIT, || device(dir).is_some_and(|d| Some(d) != outside))
            .context("the memory file system is not mounted")
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        command("fusermount3", &["-u"], &[dir])
    }
}
