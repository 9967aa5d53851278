//! `tacita purge ...`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::span;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFailureName {
    /// Keep the file and return an error to the program
    Fail,
    /// Delete the file all the same; its verdict says so
    Warn,
}

/// How an overlay works.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches of the command line")]
pub(crate) struct PurgeMount {
    /// The folder in which deletions are to be purged
    pub(crate) lower: PathBuf,
    /// Where to mount it
    pub(crate) dir: PathBuf,
    /// Overwriting method: clear (zeros, read back), zero, random, custom:LIST, or the legacy
    /// NISPOM patterns c, d, e, f, h
    #[arg(long, default_value = "clear")]
    pub(crate) method: tacita_purge::Method,
    /// Return from deletions at once, and purge in the background
    #[arg(long = "async")]
    pub(crate) asynchronous: bool,
    /// Purge only what `chattr +s`, `user.purge` or a rule selects
    #[arg(long)]
    pub(crate) marked_only: bool,
    /// File of rules, one a line: PATTERN [MIN..MAX] METHOD|off
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// What to do with a file that cannot be purged
    #[arg(long, value_enum, default_value = "fail")]
    pub(crate) on_failure: OnFailureName,
    /// How often names and journal are cleared: seconds, or as in 90s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = span::seconds::<u64>, default_value_t = 10)]
    pub(crate) epoch: u64,
    /// Append every verdict to this file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Mount even where overwriting does not reach the old blocks
    #[arg(long)]
    pub(crate) anyway: bool,
    /// Keep symbolic links with long targets as regular files, which can be purged; show them as links
    #[arg(long)]
    pub(crate) opaque_links: bool,
    /// Let all reads and writes go through the daemon, instead of letting the kernel pass them through
    #[arg(long)]
    pub(crate) no_passthrough: bool,
    /// Stay in the foreground
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Mount options, separated by commas: ro, `allow_other`, dev, suid, ...
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Purge {
    /// Mount LOWER on DIR so that every deletion is purged; leaves a daemon behind
    #[command(after_long_help = super::FSTAB)]
    Mount(PurgeMount),
    /// Overwrite and remove files; prints a verdict for each
    ///
    /// A signal (SIGINT, SIGTERM, SIGHUP) ends the run between two writes: what is not finished is
    /// kept under its name, the verdicts say so, and the exit code is 128 and the number of the signal.
    /// A second one ends it at once. A file that is being overwritten has another name meanwhile, as
    /// many letters of a to z and digits of 0 to 5 as its own has bytes, in the same folder: if the
    /// process is killed (SIGKILL), or power fails, it stays there under that one.
    File {
        /// Files, and with --recursive folders
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Overwriting method: clear (zeros, read back), zero, random, custom:LIST, or the
        /// legacy NISPOM patterns c, d, e, h; f holds files for as long as they were kept, which
        /// only a mount can do
        #[arg(long, default_value = "clear")]
        method: tacita_purge::Method,
        /// Purge folders and everything in them
        #[arg(short, long)]
        recursive: bool,
        /// Proceed even where overwriting does not reach the old blocks; the verdict says so
        #[arg(long)]
        anyway: bool,
        /// Print the verdicts as JSON, one a line
        #[arg(long)]
        json: bool,
    },
    /// Find out whether overwriting reaches the old blocks: exit 0 if it does, 7 with the reason if not
    #[command(alias = "suits")]
    Probe {
        /// A folder, or a file in it
        path: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a mount has purged, what is pending, and the last verdicts
    Status {
        /// Where it is mounted
        dir: PathBuf,
        /// Purge everything pending first
        #[arg(long)]
        finish: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}
