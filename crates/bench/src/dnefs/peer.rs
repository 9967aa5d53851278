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

/// Peers by name.
///
/// # Errors
/// If a peer is unknown, or its program missing.
pub(super) fn select(names: &[String]) -> Result<Vec<Box<dyn Peer>>> {
    names.iter().map(|name| one(name)).collect()
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
        "gocryptfs" => Box::new(Gocryptfs),
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

/// gocryptfs over an ext4 on a loop device, so that no other file system is synced with it. Root
/// only.
struct Gocryptfs;

impl Gocryptfs {
    fn lower(dir: &Path) -> PathBuf {
        dir.with_extension("lower")
    }
}

impl Peer for Gocryptfs {
    fn name(&self) -> &'static str {
        "gocryptfs"
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
            // The least work for a password: it is not what is measured.
            let init = ["-init", "-q", "-scryptn", "10", "-passfile", password_file];
            command("gocryptfs", &init, &[&folder])?;
        }
        command("gocryptfs", &["-q", "-passfile", password_file], &[&folder, dir])
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
