//! Who is measured beside DNEFS.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::harness::runner::{self, tacita, unencrypted_tacita};
use crate::hifs::peer::{Ext4Loop, Peer, command};

/// Longest format, mount or unmount.
const LIMIT: Duration = Duration::from_mins(2);

/// DNEFS without encryption.
pub(super) const UNENCRYPTED: &str = "dnefs-none";

/// Peers by name. Without securefs where it is not installed.
///
/// # Errors
/// If a peer is unknown, or its program missing.
pub(super) fn select(names: &[String]) -> Result<Vec<Box<dyn Peer>>> {
    let mut peers = Vec::with_capacity(names.len());
    for name in names {
        if name == SECUREFS.name && !is_installed(name) {
            eprintln!("without {name}: it is not installed (on Debian: apt install {name})");
        } else {
            peers.push(one(name)?);
        }
    }
    Ok(peers)
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// A peer by name.
pub(super) fn one(name: &str) -> Result<Box<dyn Peer>> {
    Ok(match name {
        "dnefs" => Box::new(Dnefs::new("dnefs", &[])?),
        "dnefs-gcm16" => Box::new(Dnefs::new("dnefs-gcm16", &["--key", "16"])?),
        "dnefs-ctr16" => {
            Box::new(Dnefs::new("dnefs-ctr16", &["--key", "16", "--cipher", "aes128-ctr"])?)
        }
        UNENCRYPTED => Box::new(Dnefs::unencrypted()?),
        "gocryptfs" => Box::new(Stacked(&GOCRYPTFS)),
        "securefs" => Box::new(Stacked(&SECUREFS)),
        "ext4-loop" => Box::new(Ext4Loop),
        _ => bail!("no peer is called {name}"),
    })
}

/// DNEFS on an emulated chip in the image, by the `tacita` binary.
struct Dnefs {
    program: PathBuf,
    name: &'static str,
    options: &'static [&'static str],
}

impl Dnefs {
    fn new(name: &'static str, options: &'static [&'static str]) -> Result<Self> {
        Ok(Self { program: tacita()?, name, options })
    }

    /// All that is done with keys is done, but nothing is encrypted.
    fn unencrypted() -> Result<Self> {
        Ok(Self { program: unencrypted_tacita()?, name: UNENCRYPTED, options: &[] })
    }
}

impl Peer for Dnefs {
    fn name(&self) -> &str {
        self.name
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["dnefs", "format", "--force"]).arg(image);
        command.args(["--size", &size_bytes.to_string()]).args(self.options);
        runner::run(&mut command, LIMIT).map(drop)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        command(&self.program, &["dnefs", "mount"], &[image, dir])
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        command(&self.program, &["umount"], &[dir])
    }
}

/// A file system that encrypts the files of another one.
struct Program {
    name: &'static str,
    /// Makes an empty one in a folder, and mounts it, with a password in a file; the least work is done
    /// for that, for it is not what is measured.
    create: fn(password: &str) -> Vec<String>,
    mount: fn(password: &str) -> Vec<String>,
}

const GOCRYPTFS: Program = Program {
    name: "gocryptfs",
    create: |password| owned(&["-init", "-q", "-scryptn", "10", "-passfile", password]),
    mount: |password| owned(&["-q", "-passfile", password]),
};

/// With its defaults: names and content encrypted and authenticated, in blocks of 4 KiB.
const SECUREFS: Program = Program {
    name: "securefs",
    create: |password| {
        let rounds = ["--pbkdf", "pkcs5-pbkdf2-hmac-sha256", "--rounds", "1"];
        [owned(&["create", "--keyfile", password]), owned(&rounds)].concat()
    },
    mount: |password| owned(&["mount", "--background", "--keyfile", password]),
};

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(ToString::to_string).collect()
}

/// One of those over an ext4 on a loop device, so that no other file system is synced with it. Root
/// only.
struct Stacked(&'static Program);

impl Stacked {
    fn lower(dir: &Path) -> PathBuf {
        dir.with_extension("lower")
    }

    fn run(&self, arguments: &[String], paths: &[&Path]) -> Result<()> {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        command(self.0.name, &arguments, paths)
    }
}

impl Peer for Stacked {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn format(&self, image: &Path, size_bytes: u64) -> Result<()> {
        Ext4Loop.format(image, size_bytes)
    }

    fn mount(&self, image: &Path, dir: &Path) -> Result<()> {
        let lower = Self::lower(dir);
        fs::create_dir_all(&lower).context("no lower folder")?;
        Ext4Loop.mount(image, &lower)?;
        let password = dir.with_extension("password");
        let password_file = password.to_str().context("the scratch folder has an odd name")?;
        let folder = lower.join("cipher");
        if !folder.exists() {
            fs::create_dir(&folder)?;
            fs::write(&password, "password\n")?;
            self.run(&(self.0.create)(password_file), &[&folder])?;
        }
        self.run(&(self.0.mount)(password_file), &[&folder, dir])
    }

    fn unmount(&self, dir: &Path) -> Result<()> {
        let daemon = runner::process_with(dir);
        command("fusermount3", &["-u"], &[dir])?;
        if let Some(daemon) = daemon {
            runner::wait_until(LIMIT, || !runner::is_running(daemon))?;
        }
        Ext4Loop.unmount(&Self::lower(dir))
    }

    fn settle(&self, dir: &Path) -> Result<()> {
        Ok(rustix::fs::syncfs(&File::open(Self::lower(dir))?)?)
    }
}
