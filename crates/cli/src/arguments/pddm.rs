//! `tacita pddm ...`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tacita_block::size;
use tacita_pddm::DEVICE_LEN_MAX_BYTES;

use super::span;
use crate::passwords;

#[derive(Debug, Subcommand)]
pub(crate) enum Pddm {
    /// Make a device; asks for a public password, then for those of hidden volumes
    Init {
        /// File or block device
        device: PathBuf,
        /// Size of a new file; a device or file that is there is used whole without it, up to 16 TiB
        #[arg(long, value_parser = device_size)]
        size: Option<u64>,
        #[command(flatten)]
        shape: Shape,
        /// Time between units of padding for 60 of them after a public write, in seconds or as in 500ms, 2m;
        /// then it doubles, up to 60 times as long. 0 for never
        #[arg(long, value_name = "TIME", value_parser = span::parse, default_value = "1")]
        heartbeat: Duration,
        #[command(flatten)]
        password: passwords::From,
        /// Read the password of a hidden volume from the first line of this file; may be repeated
        #[arg(long, value_name = "FILE")]
        hidden_password_file: Vec<PathBuf>,
        /// Overwrite whatever DEVICE holds
        #[arg(long)]
        force: bool,
        /// Print what was made as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what shapes cost: room, and writes to the device for each write of a program
    Plan {
        /// Size of the device
        #[arg(long, value_parser = device_size, default_value = "64G")]
        size: u64,
        #[command(flatten)]
        shape: Shape,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Serve the volume that a password opens, and all below it; returns when they are ready
    Open {
        /// File or block device
        device: PathBuf,
        #[command(flatten)]
        endpoint: Endpoint,
        #[command(flatten)]
        password: passwords::From,
        /// Write nothing
        #[arg(long)]
        read_only: bool,
        /// Keep hidden volumes closed; writing then destroys what they hold
        #[arg(long)]
        public_only: bool,
        /// Look for hidden volumes in all units, and not only in the newest, when the password opens
        /// the public volume
        #[arg(long)]
        search: bool,
        /// What a flush of a hidden volume is
        #[arg(long, value_enum, default_value = "ordered")]
        hidden_flush: HiddenFlushName,
        /// How much data may wait on each hidden volume before its writers have to
        #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "64M")]
        queue: u64,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
    },
    /// Stop serving; returns when everything public is on the medium and the daemon is gone
    Close {
        /// What `open` was given: the socket or the folder
        endpoint: PathBuf,
        #[command(flatten)]
        rest: Rest,
        /// Print what was dropped as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what an open device is doing, as far as it is public
    Status {
        /// What `open` was given: the socket or the folder
        endpoint: PathBuf,
        /// Show instead what waits and what was lost on the hidden volumes that are open
        #[arg(long)]
        hidden: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read, verify and rewrite all superblocks and units once; what waits on open hidden volumes is written with it
    Sweep {
        /// File or block device, or the socket or folder that `open` was given
        target: PathBuf,
        #[command(flatten)]
        password: passwords::From,
        /// Sweep even if only the public volume is open
        #[arg(long)]
        public_only: bool,
        /// Limit the rate to so many bytes a second
        #[arg(long, value_name = "SIZE", value_parser = size::parse)]
        rate: Option<u64>,
    },
    /// Change the password of the volume that the old password opens, or of one below it
    Passwd {
        /// File or block device
        device: PathBuf,
        #[command(flatten)]
        password: passwords::From,
        /// Change the password of this volume, which the old password must open as well: public,
        /// hidden, hidden2...
        #[arg(long, value_name = "NAME")]
        volume: Option<String>,
        /// Read the new password from the first line of this file
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<PathBuf>,
    },
    /// Check that all superblocks and units are intact: exit 0 if they are, 1 if not
    Check {
        /// File or block device
        device: PathBuf,
        #[command(flatten)]
        password: passwords::From,
        /// Write damaged superblocks again, and rebuild damaged pages of the public map from unit headers
        #[arg(long)]
        repair: bool,
        /// Repair even if only the public volume is open
        #[arg(long, requires = "repair")]
        public_only: bool,
        /// Print the findings as JSON
        #[arg(long)]
        json: bool,
    },
}

fn device_size(text: &str) -> Result<u64, String> {
    size::parse_up_to(text, DEVICE_LEN_MAX_BYTES)
}

/// What becomes of hidden data that is not on the device yet.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub(crate) struct Rest {
    /// Sweep first, so that all of it reaches the device
    #[arg(long)]
    pub(crate) sweep: bool,
    /// Discard it
    #[arg(long)]
    pub(crate) drop: bool,
}

/// What a flush of a hidden volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HiddenFlushName {
    /// A barrier that returns at once: after a crash, whatever is there, everything before it is too
    Ordered,
    /// Return when everything is on the device, which depends on public writes
    Durable,
}

/// How volumes are served.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Endpoint {
    /// Over NBD, on this Unix socket, as exports `public`, `hidden`, `hidden2`...
    #[arg(long, value_name = "SOCKET")]
    pub(crate) nbd: Option<PathBuf>,
    /// As files of this folder, with the same names
    #[arg(long, value_name = "DIR")]
    pub(crate) fuse: Option<PathBuf>,
}

/// What a device is divided into. Nothing of it tells of hidden volumes.
#[derive(Debug, Args)]
pub(crate) struct Shape {
    /// Shares that others have found good; `tacita pddm plan` compares them
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileName>,
    /// Number of hidden volumes that the device has room for, whether or not they are used
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) classes: u32,
    /// Public and hidden slots in each unit, if not the profile's [default: 20:11]
    #[arg(long, value_name = "P:H")]
    pub(crate) ratio: Option<String>,
    /// Share of slots kept free, or two shares, public and hidden; the more, the faster. If not the
    /// profile's [default: 0.35]
    #[arg(long, value_name = "F[,F]")]
    pub(crate) spare: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// 20:11, 0.35 free
    Balanced,
    /// 20:11, 0.5 and 0.35 free: quicker, with less room
    Fast,
    /// 20:11, 0.15 free: more room, slower
    Roomy,
    /// 24:7, 0.35 free: mostly public
    Public,
    /// 15:16, 0.35 free: as much hidden as public
    Hidden,
}
