//! Who is measured: each as it is mounted by people, by the program.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arguments::SEED;
use crate::harness::runner::{self, tacita};
use crate::hifs::peer::{Ext4Loop, Peer, hex_of};

/// Longest command. A sweep writes all of a device.
const LIMIT: Duration = Duration::from_mins(5);

/// A peer, and what is special about it.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) peer: Box<dyn Peer>,
    /// Bytes that can be written at once without waiting for others.
    pub(super) at_once_max: u64,
}

/// All that are known; the first is the one that the others are compared with.
const NAMES: [&str; 8] = [
    "ext4-loop",
    "hifs",
    "purge",
    "purge-async",
    "pddm-public",
    "pddm-hidden",
    "dnefs",
    "privatefs",
];

/// Those of these names; all, if there are none.
///
/// # Errors
/// If there is no such one, or no program.
pub(super) fn select(names: &[String]) -> Result<Vec<Contender>> {
    if let Some(name) = names.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!("no peer is called {name}: {} are possible", NAMES.join(", "));
    }
    let chosen = NAMES.into_iter().filter(|n| names.is_empty() || names.iter().any(|o| o == n));
    chosen.map(contender).collect()
}

fn contender(name: &'static str) -> Result<Contender> {
    let program = Program(tacita()?);
    let mut at_once_max = u64::MAX;
    let peer: Box<dyn Peer> = match name {
        "hifs" | "dnefs" => Box::new(Image { program, system: name }),
        "purge" => Box::new(Purge { program, option: None }),
        "purge-async" => Box::new(Purge { program, option: Some("--async") }),
        "pddm-public" => Box::new(Volume { program, name: "public" }),
        "pddm-hidden" => {
            at_once_max = 32 << 20;
            Box::new(Volume { program, name: "hidden" })
        }
        "privatefs" => Box::new(Private { program }),
        _ => Box::new(Ext4),
    };
    Ok(Contender { name, peer, at_once_max })
}

struct Program(PathBuf);

impl Program {
    fn run(&self, arguments: &[&str]) -> Result<String> {
        runner::run(Command::new(&self.0).args(arguments), LIMIT)
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of text")
}

/// What lies beside a mount.
fn beside(dir: &Path, what: &str) -> PathBuf {
    dir.with_extension(what)
}

fn sync_file_system(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(&File::open(dir)?)?)
}

/// Ext4 on a loop device.
struct Ext4;

impl Peer for Ext4 {
    fn name(&self) -> &'static str {
        Ext4Loop.name()
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        Ext4Loop.format(image, size_bytes)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        Ext4Loop.mount(image, dir)
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        Ext4Loop.unmount(dir)
    }

    fn settle(&self, dir: &Path) -> Result<()> {
        sync_file_system(dir)
    }
}

/// A file system in an image.
struct Image {
    program: Program,
    system: &'static str,
}

impl Peer for Image {
    fn name(&self) -> &str {
        self.system
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        let (size, seed) = (size_bytes.to_string(), hex_of(SEED));
        let mut arguments = vec![self.system, "format", text(image)?, "--size", &size];
        if self.system == "hifs" {
            arguments.extend(["--seed", &seed]);
        }
        self.program.run(&arguments).map(drop)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        self.program.run(&[self.system, "mount", text(image)?, text(dir)?]).map(drop)
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        self.program.run(&["umount", text(dir)?]).map(drop)
    }

    fn settle(&self, dir: &Path) -> Result<()> {
        self.program.run(&["sync", text(dir)?]).map(drop)
    }
}

/// Purging over ext4 on a loop device.
struct Purge {
    program: Program,
    option: Option<&'static str>,
}

impl Peer for Purge {
    fn name(&self) -> &'static str {
        "purge"
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        Ext4Loop.format(image, size_bytes)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        let lower = beside(dir, "lower");
        fs::create_dir_all(&lower)?;
        Ext4Loop.mount(image, &lower)?;
        let mut arguments = vec!["purge", "mount", text(&lower)?, text(dir)?];
        arguments.extend(self.option);
        self.program.run(&arguments).map(drop)
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        self.program.run(&["umount", text(dir)?])?;
        Ext4Loop.unmount(&beside(dir, "lower"))
    }

    fn settle(&self, dir: &Path) -> Result<()> {
        self.program.run(&["sync", text(dir)?]).map(drop)
    }
}

/// Ext4 on a volume of PD-DM.
struct Volume {
    program: Program,
    name: &'static str,
}

impl Volume {
    /// Opens the device with both volumes, as files beside `dir`, and makes a loop device of one.
    fn open(&self, image: &Path, dir: &Path) -> Result<String> {
        let (side, password) = (beside(dir, "volumes"), image.with_extension("hidden"));
        fs::create_dir_all(&side)?;
        let side_text = text(&side)?;
        let open = ["pddm", "open", text(image)?, "--fuse", side_text, "--password-file"];
        self.program.run(&[&open[..], &[text(&password)?]].concat())?;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).arg(side.join(self.name));
        Ok(runner::run(&mut losetup, LIMIT)?.trim().to_owned())
    }

    fn close(&self, device: &str, dir: &Path) -> Result<()> {
        runner::run(Command::new("losetup").args(["--detach", device]), LIMIT)?;
        self.program.run(&["pddm", "close", text(&beside(dir, "volumes"))?, "--sweep"]).map(drop)
    }
}

impl Peer for Volume {
    fn name(&self) -> &str {
        self.name
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        let passwords = ["public", "hidden"].map(|name| image.with_extension(name));
        for (password, word) in passwords.iter().zip(["one\n", "two\n"]) {
            fs::write(password, word)?;
        }
        let [public, hidden] = &passwords;
        let size = size_bytes.to_string();
        let init = ["pddm", "init", text(image)?, "--size", &size];
        let passwords = ["--password-file", text(public)?, "--hidden-password-file", text(hidden)?];
        self.program.run(&[&init[..], &passwords].concat())?;
        let dir = image.with_extension("made");
        let device = self.open(image, &dir)?;
        let mut mkfs = Command::new("mkfs.ext4");
        let made = runner::run(mkfs.args(["-q", "-m", "0", &device]), LIMIT);
        self.close(&device, &dir)?;
        made.map(drop)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        let device = self.open(image, dir)?;
        runner::run(Command::new("mount").arg(&device).arg(dir), LIMIT)?;
        Ok(fs::write(beside(dir, "device"), device)?)
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        runner::run(Command::new("umount").arg(dir), LIMIT)?;
        self.close(&fs::read_to_string(beside(dir, "device"))?, dir)
    }

    fn settle(&self, dir: &Path) -> Result<()> {
        sync_file_system(dir)
    }
}

/// A file system in a store on this machine.
struct Private {
    program: Program,
}

impl Private {
    fn key(image: &Path) -> PathBuf {
        image.with_extension("key")
    }

    fn serve(&self, image: &Path, socket: &Path) -> Result<String> {
        let address = format!("unix:{}", text(socket)?);
        self.program.run(&["oram", "serve", text(image)?, "--listen", &address])?;
        Ok(address)
    }
}

impl Peer for Private {
    fn name(&self) -> &'static str {
        "privatefs"
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        let (key, socket) = (Self::key(image), image.with_extension("made"));
        let (key, blocks) = (text(&key)?, (size_bytes / 4096).to_string());
        self.program.run(&["oram", "init", text(image)?, "--key", key, "--blocks", &blocks])?;
        let address = self.serve(image, &socket)?;
        self.program.run(&["privatefs", "format", &address, "--key", key])?;
        self.program.run(&["oram", "close", text(&socket)?]).map(drop)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        let address = self.serve(image, &beside(dir, "socket"))?;
        let key = Self::key(image);
        let mount = ["privatefs", "mount", &address, text(dir)?, "--key", text(&key)?];
        self.program.run(&mount).map(drop)
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        self.program.run(&["umount", text(dir)?])?;
        self.program.run(&["oram", "close", text(&beside(dir, "socket"))?]).map(drop)
    }

    fn settle(&self, dir: &Path) -> Result<()> {
        self.program.run(&["sync", text(dir)?]).map(drop)
    }
}
