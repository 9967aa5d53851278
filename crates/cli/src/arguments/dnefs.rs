//! `tacita dnefs ...`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use tacita_block::size;

use super::span;
use crate::passwords;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CipherName {
    /// AES-GCM: what is read is what was written
    AesGcm,
    /// AES-128 in counter mode from zero, as in the paper: it authenticates nothing
    Aes128Ctr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressionName {
    /// Quick
    Lz4,
    /// Smaller
    Zstd,
    /// Not at all
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PurgeScopeName {
    /// Erase blocks of keys with deleted ones
    Deleted,
    /// All of them: who saw the medium before knows no key that will be used
    All,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dnefs {
    /// Make a volume
    Format {
        /// A device that is a volume of UBI, or a file for an emulated chip
        volume: PathBuf,
        /// Size of the emulated chip
        #[arg(long, value_parser = size::parse)]
        size: Option<u64>,
        /// Most bytes of a file in one node, each of which has a key
        #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "4K")]
        node_size: u64,
        /// Length of keys in bytes: 16 or 32
        #[arg(long, value_name = "BYTES", default_value_t = 32)]
        key: u32,
        /// How nodes are encrypted
        #[arg(long, value_enum, default_value = "aes-gcm")]
        cipher: CipherName,
        /// How nodes are compressed before that
        #[arg(long, value_enum, default_value = "lz4")]
        compression: CompressionName,
        /// Size of a page of the emulated chip [default: 2K]
        #[arg(long, value_name = "SIZE", value_parser = size::parse)]
        page_size: Option<u64>,
        /// Pages in an erase block of the emulated chip [default: 64]
        #[arg(long, value_name = "N")]
        pages_per_block: Option<u32>,
        /// Ask for a password on the terminal; without one whoever has the volume can read it
        #[arg(long)]
        password: bool,
        #[command(flatten)]
        from: passwords::From,
        /// Overwrite VOLUME if it is there
        #[arg(long)]
        force: bool,
        /// Print what was made as JSON
        #[arg(long)]
        json: bool,
    },
    /// Mount a volume; returns when it is ready
    #[command(after_long_help = super::FSTAB)]
    Mount {
        /// The volume
        volume: PathBuf,
        /// Where to mount it
        dir: PathBuf,
        /// Time from one purge to the next, if anything was deleted: seconds, or as in 90s, 5m, 1h; 0 for never
        #[arg(long, value_name = "TIME", value_parser = span::seconds::<u32>, default_value_t = 60)]
        purge_every: u32,
        /// Purge when so many keys are deleted
        #[arg(long, value_name = "N")]
        purge_after_keys: Option<u64>,
        /// Purge when nodes of so many bytes are deleted, as they lie on the medium
        #[arg(long, value_name = "SIZE", value_parser = size::parse)]
        purge_after_bytes: Option<u64>,
        /// Keep all keys in memory: nothing outlives the mount, and nothing the volume held before
        #[arg(long, conflicts_with_all = ["password_file", "password_fd"])]
        ephemeral: bool,
        /// With --ephemeral: destroy what the volume holds
        #[arg(long, requires = "ephemeral")]
        force: bool,
        /// What a purge changes
        #[arg(long, value_enum, default_value = "deleted")]
        purge_scope: PurgeScopeName,
        #[command(flatten)]
        from: passwords::From,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
        /// Mount options, separated by commas: ro (nothing of the volume changes, not even after a crash),
        /// `allow_other`, dev, suid, ...
        #[arg(short = 'o', value_name = "OPTIONS")]
        options: Vec<String>,
    },
    /// Purge now: returns when nothing that was deleted can be decrypted, and prints the receipt
    Purge {
        /// Where it is mounted
        dir: PathBuf,
        /// Print the receipt as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the receipt of the last purge, or of all
    Receipt {
        /// Where a volume is mounted, or a volume that is not mounted
        target: PathBuf,
        #[command(flatten)]
        from: passwords::From,
        /// All that are kept, the oldest first
        #[arg(long)]
        all: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Open every node of a volume that is not mounted, and compare names with what they name
    Check {
        /// The volume
        volume: PathBuf,
        #[command(flatten)]
        from: passwords::From,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a volume is
    Info {
        /// The volume
        volume: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what every erase block of a volume holds, and how worn the chip is
    Map {
        /// The volume
        volume: PathBuf,
        #[command(flatten)]
        from: passwords::From,
        /// Write a picture to this file
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// What the length of nodes costs: key blocks, copies, memory, the time of a purge
    Plan {
        /// Size of the chip
        #[arg(long, value_parser = size::parse, default_value = "1G")]
        size: u64,
        /// Most bytes of a file in one node: several are compared
        #[arg(long, value_name = "SIZE", value_parser = size::parse, num_args = 1..,
            value_delimiter = ',')]
        node_size: Vec<u64>,
        /// Size of a page of the chip
        #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "2K")]
        page_size: u64,
        /// Pages in an erase block of the chip
        #[arg(long, value_name = "N", default_value_t = 64)]
        pages_per_block: u32,
        /// Length of keys in bytes: 16 or 32
        #[arg(long, value_name = "BYTES", default_value_t = 32)]
        key: u32,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the password of a volume that is not mounted, and erase what the old one opens
    Passwd {
        /// The volume
        volume: PathBuf,
        #[command(flatten)]
        from: passwords::From,
        #[command(flatten)]
        change: passwords::Change,
    },
    /// Erase a volume: nothing in it can be decrypted any more, whoever knows the password
    Erase {
        /// The volume
        volume: PathBuf,
        /// Do it
        #[arg(long)]
        force: bool,
    },
    /// Write every physical block of a volume, stale and bad ones too, to a file
    Dump {
        /// The volume
        volume: PathBuf,
        /// Where to
        out: PathBuf,
    },
    /// Look for keys of deleted nodes in a raw dump, at every byte
    Audit {
        /// A dump from before the deletion
        #[arg(long, value_name = "DUMP")]
        before: PathBuf,
        /// A dump from after the purge
        #[arg(long, value_name = "DUMP")]
        after: PathBuf,
        /// Look in this core dump of the daemon instead of the later dump
        #[arg(long, value_name = "FILE")]
        memory: Option<PathBuf>,
        /// Read a password of the volume from the first line of this file; may be repeated
        #[arg(long, value_name = "FILE")]
        password_file: Vec<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}
