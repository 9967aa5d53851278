//! `tacita privatefs ...`.

use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};
use tacita_oram::{RATE_MAX, Way};

use super::{OramClient, span};

#[derive(Debug, Subcommand)]
pub(crate) enum PrivateFs {
    /// Make a file system in the store at ADDRESS, which `tacita oram init` has made
    Format {
        #[command(flatten)]
        at: At,
    },
    /// Mount the file system in the store at ADDRESS; returns when it is ready
    ///
    /// Several mounts of one store go through an engine (`tacita oram engine`): then they take turns.
    #[command(after_long_help = super::FSTAB)]
    Mount(Mount),
    /// Read the whole file system: exit 0 if it is sound, 1 if not
    Check {
        #[command(flatten)]
        at: At,
        /// Names and attributes only, without content
        #[arg(long)]
        quick: bool,
        /// Queries under way at once
        #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u16).range(1..=256))]
        clients: u16,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show which mounts there are, whose turn it is, and how much room
    Info {
        #[command(flatten)]
        at: At,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Where a file system is.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// Where the store is served: HOST:PORT, tls:HOST:PORT, unix:PATH, or engine: and where an engine listens
    pub(crate) address: Way,
    #[command(flatten)]
    pub(crate) client: OramClient,
    /// Take the store over from another client that has it open: it is told, and can write no more
    #[arg(long)]
    pub(crate) take_over: bool,
    /// After how long without an answer of the server a program hears of an error: seconds, or as in 90s, 5m
    #[arg(long, value_name = "TIME", default_value_t = 60,
        value_parser = |text: &str| span::seconds_within(text, 1..=3600))]
    pub(crate) timeout: u16,
}

/// What is mounted, and how.
#[derive(Debug, Args)]
pub(crate) struct Mount {
    #[command(flatten)]
    pub(crate) at: At,
    /// Where to mount it
    pub(crate) dir: PathBuf,
    /// Queries under way at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u16).range(1..=256))]
    pub(crate) clients: u16,
    /// Round operations up to fixed numbers of queries, so that the server cannot tell kinds of them apart
    #[arg(long)]
    pub(crate) pad: bool,
    /// Ask so many times a second, no more and no less: dummies where there is nothing to ask
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=RATE_MAX.into()))]
    pub(crate) rate: Option<u32>,
    /// Blocks that are read at once, whether the file goes on so far or not: a power of two
    #[arg(long, value_name = "BLOCKS", default_value_t = 8, value_parser = value_parser!(u16).range(1..=256))]
    pub(crate) read_ahead: u16,
    /// Time after which everything is durable by itself: seconds, or as in 90s, 5m; 0: only when it is asked for
    #[arg(long, value_name = "TIME", value_parser = span::seconds::<u16>, default_value_t = 5)]
    pub(crate) sync_every: u16,
    /// Make each way to the server take so many milliseconds longer, to see what it is like far from it
    #[arg(long, value_name = "MS", default_value_t = 0, hide = true)]
    pub(crate) latency: u64,
    /// Stay in the foreground
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Mount options
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
}
