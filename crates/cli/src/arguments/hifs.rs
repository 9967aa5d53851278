//! `tacita hifs ...`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tacita_block::size;

use super::span;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutName {
    /// Rule D: contiguous pieces, calm at any load
    D,
    /// The paper's block group locality
    A,
    /// The paper's complete sequential layout
    B,
    /// The paper's locality by user
    C,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IdsName {
    /// From the path: the strict promise; renaming moves data
    Path,
    /// Random: renaming is cheap, the promise weaker
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimesName {
    /// No times are stored
    None,
    /// Times that users set are stored
    User,
    /// All but access times are stored
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncName {
    /// fsync returns when all is durable and nothing else is left on the medium
    Strict,
    /// fsync returns when all is durable; the journal is erased soon after
    Durable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// Few large files: buckets of 64K, 8 groups
    Db,
    /// Many files of some hundred KiB: buckets of 16K, 24 groups
    Web,
    /// Files of a few KiB: buckets of 4K
    Small,
}

/// What distinguishes one image from another.
#[derive(Debug, Args)]
pub(crate) struct Shape {
    /// Layout of the files
    #[arg(long, value_enum, default_value = "d", ignore_case = true)]
    pub(crate) layout: LayoutName,
    /// Bucket size and groups for a kind of files; --bucket and --groups go before
    #[arg(long, value_enum)]
    pub(crate) profile: Option<ProfileName>,
    /// Bucket size, a power of two from 4K to 1M [default: 16K, 64K above 16G]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) bucket: Option<u64>,
    /// Number of block groups [default: by size, 4 to 64]
    #[arg(long, value_name = "N")]
    pub(crate) groups: Option<u32>,
    /// Key of all hashes, up to 64 hexadecimal digits [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,
    /// Where the ids of files come from
    #[arg(long, value_enum, default_value = "path")]
    pub(crate) ids: IdsName,
    /// Which times are stored
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) times: TimesName,
    /// Overwrite whatever IMAGE holds
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Hifs {
    /// Make an image: a file, written in full, or a block device
    Format {
        /// File or block device
        image: PathBuf,
        /// Size of the image; a block device is used whole without it
        #[arg(long, value_parser = size::parse)]
        size: Option<u64>,
        #[command(flatten)]
        shape: Shape,
        /// Print what was made as JSON
        #[arg(long)]
        json: bool,
    },
    /// Mount an image; returns when it is ready and leaves a daemon behind
    #[command(after_long_help = super::FSTAB)]
    Mount {
        /// File or block device
        image: PathBuf,
        /// Where to
        dir: PathBuf,
        /// When fsync returns. fsync, `tacita sync`, `tacita umount`, half a second of quiet and
        /// the timer make changes durable; the command `sync` and sync(2) do not
        #[arg(long, value_enum, default_value = "strict")]
        sync: SyncName,
        /// Commit at least this often while files change: seconds, or as in 90s, 5m, 1h; 0 for no timer
        #[arg(long, value_name = "TIME", value_parser = span::seconds::<u32>, default_value_t = 5)]
        commit_every: u32,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
        /// Mount options, separated by commas: ro, `allow_other`, dev, suid, ...
        #[arg(short = 'o', value_name = "OPTIONS")]
        options: Vec<String>,
    },
    /// Check that this is the canonical image of its files: exit 0 if it is, 1 if not
    ///
    /// Content has no checksum: a changed byte within a file is another file, and canonical.
    Check {
        /// File or block device
        image: PathBuf,
        /// Print the findings as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show geometry, load, number of files, and extents per file
    Info {
        /// File or block device
        image: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show which file lies where, as text or as a picture
    Map {
        /// File or block device
        image: PathBuf,
        /// Write a picture (SVG) to this file
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make an image of a folder's files, without a mount
    Pack {
        /// The folder
        folder: PathBuf,
        /// The new image
        image: PathBuf,
        /// Size of the image [default: room for the files and as much again]
        #[arg(long, value_parser = size::parse)]
        size: Option<u64>,
        #[command(flatten)]
        shape: Shape,
        /// Print what was packed as JSON
        #[arg(long)]
        json: bool,
    },
    /// Copy an image's files into a folder, without a mount
    Unpack {
        /// The image
        image: PathBuf,
        /// The folder: new, or empty
        folder: PathBuf,
        /// Of a damaged image take what is left, and tell what is lost
        #[arg(long)]
        salvage: bool,
        /// Print what was unpacked as JSON
        #[arg(long)]
        json: bool,
    },
}
