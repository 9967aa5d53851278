//! The command line as it is typed.

mod dnefs;
mod fist;
mod hifs;
mod oram;
mod pddm;
mod privatefs;
mod purge;
mod span;

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::passwords;

pub(crate) use dnefs::{CipherName, CompressionName, Dnefs, PurgeScopeName};
pub(crate) use fist::Fist;
pub(crate) use hifs::{Hifs, IdsName, LayoutName, ProfileName, Shape, SyncName, TimesName};
pub(crate) use oram::{Client as OramClient, Oram, Reach as OramReach, Shapes, Trace as OramTrace};
pub(crate) use pddm::{
    Endpoint, HiddenFlushName, Pddm, ProfileName as PddmProfile, Rest, Shape as PddmShape,
};
pub(crate) use privatefs::{At as PrivateFsAt, Mount as PrivateFsMount, PrivateFs};
pub(crate) use purge::{OnFailureName, Purge, PurgeMount};

/// What the pages of the commands that mount say of mount(8).
const FSTAB: &str = "In /etc/fstab, and behind `mount -t`, the type is fuse.tacita- and the system, as in \
`/srv/ward.img /ward fuse.tacita-hifs noauto,user,uid=1000,umask=077 0 0`. An option --NAME=VALUE of this \
command stands there as tacita.NAME=VALUE, and --NAME as tacita.NAME. Of the generic options ro, exec, sync, \
dirsync, nosymfollow and their opposites mean what they mean elsewhere; uid=, gid= and umask= show all files \
with this owner, group and mode. So that `umount` returns when everything is on the medium, as `tacita \
umount` does, root's lines have uhelper=fuse.tacita-SYSTEM.";

/// Of every command: docs/cli.md has the table.
pub(crate) const EXIT_CODES: &str = "0 done, 1 found wrong, 2 usage, 3 wrong password or no such volume, 4 device or \
image unusable, 5 busy, 6 no space, 7 not possible here.";

/// Storage that keeps silent.
///
/// Encryption hides what data says. Tacita hides what storage gives away in spite of encryption.
#[derive(Debug, Parser)]
#[command(
    name = "tacita",
    version,
    after_help = format!("Exit codes: {EXIT_CODES}")
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show every system at work on sample files, with the evidence
    Tour(Tour),
    /// Unmount DIR; returns when everything is on the medium and the daemon is gone. Of a folder of
    /// `tacita pddm open` it is `tacita pddm close --drop`
    Umount {
        /// Take it out of sight though it is in use, and do not wait; umount(8) calls it so for `-l`
        #[arg(long, hide = true)]
        lazy: bool,
        /// Where it is mounted
        dir: PathBuf,
    },
    /// Change the generic options of the mount on DIR; mount(8) calls it for `-o remount`
    #[command(hide = true)]
    Remount {
        /// As for a mount: ro, rw, nosuid, noexec...
        #[arg(short = 'o', value_name = "OPTIONS")]
        options: String,
        /// Where it is mounted
        dir: PathBuf,
    },
    /// Write everything pending in the mount on DIR to the medium, and finish what it promises
    Sync {
        /// Where it is mounted, or its socket
        target: PathBuf,
    },
    /// Show what a daemon serves, since when, what is pending, and its last messages; without TARGET
    /// what all of them serve
    Status {
        /// Where it is mounted, its socket, or the image or device that is open
        target: Option<PathBuf>,
        /// Log messages of this level and above from now on
        #[arg(long, value_name = "LEVEL", requires = "target")]
        log: Option<LogLevel>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check whatever Tacita made: an image, a device, a volume
    Check {
        /// What to check
        file: PathBuf,
        #[command(flatten)]
        from: passwords::From,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what something is that Tacita made
    Info {
        /// What to look at
        file: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Look at what this machine gives away around a file or folder, and say what to do: exit 1 if
    /// there is something
    Doctor {
        /// An image or device, or where it is mounted
        target: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// The history-independent file system
    #[command(subcommand)]
    Hifs(Hifs),
    /// Purgefs: what programs delete is overwritten, on an ordinary file system
    ///
    /// A logical overwrite of single files, comparable to "clear" of NIST SP 800-88 at that
    /// granularity. It sanitizes no medium, and on flash old copies may be left: docs/threats.md.
    #[command(subcommand)]
    Purge(Purge),
    /// Plausibly deniable block devices
    #[command(subcommand)]
    Pddm(Pddm),
    /// The data node encrypted file system for flash: what is deleted cannot be decrypted after a purge
    #[command(subcommand)]
    Dnefs(Dnefs),
    /// An oblivious block store: its server does not learn which blocks are read or written
    #[command(subcommand)]
    Oram(Oram),
    /// A file system in an oblivious store: its server does not learn which file is read or written
    #[command(subcommand)]
    Privatefs(PrivateFs),
    /// Purging and more built into file systems of the kernel: their source instrumented by a page of extension
    #[command(subcommand)]
    Fist(Fist),
    /// Write man pages and shell completions into DIR
    #[command(hide = true)]
    Manual {
        /// Where to
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Tour {
    /// Show this system alone
    #[arg(value_name = "SYSTEM")]
    pub(crate) system: Option<SystemName>,
    /// Keep what the tour makes in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Write the evidence as a page with pictures, too
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the evidence as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Where what goes is made: another process removes it
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) within: Option<PathBuf>,
}

/// The systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SystemName {
    Hifs,
    Purge,
    Pddm,
    Dnefs,
    Oram,
    Privatefs,
    Fist,
}

impl Display for SystemName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// How much a daemon tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl LogLevel {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}
