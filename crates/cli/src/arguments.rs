//! The command line as it is typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tacita_block::size;

use crate::passwords;

/// Storage that keeps silent.
///
/// Encryption hides what data says. Tacita hides what storage gives away in spite of encryption.
#[derive(Debug, Parser)]
#[command(
    name = "tacita",
    version,
    after_help = "Exit codes: 0 done, 1 found wrong, 2 usage, \
3 wrong password or no such volume, 4 device or image unusable, 5 busy, 6 no space, 7 not possible here."
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
        /// Where it is mounted
        dir: PathBuf,
    },
    /// Write everything pending in the mount on DIR to the medium, and finish what it promises
    Sync {
        /// Where it is mounted, or its socket
        target: PathBuf,
    },
    /// Show what a daemon serves, since when, what is pending, and its last messages
    Status {
        /// Where it is mounted, its socket, or the image or device that is open
        target: PathBuf,
        /// Log messages of this level and above from now on
        #[arg(long, value_name = "LEVEL")]
        log: Option<LogLevel>,
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
    /// Write man pages and shell completions into DIR
    #[command(hide = true)]
    Manual {
        /// Where to
        dir: PathBuf,
    },
}

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
    },
    /// Mount a volume; returns when it is ready
    Mount {
        /// The volume
        volume: PathBuf,
        /// Where to mount it
        dir: PathBuf,
        /// Seconds from one purge to the next, if anything was deleted; 0 for never
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        purge_every: u32,
        /// Purge when so many keys are deleted
        #[arg(long, value_name = "N")]
        purge_after_keys: Option<u64>,
        /// Purge when nodes of so many bytes are deleted, as they lie on the medium
        #[arg(long, value_name = "SIZE", value_parser = size::parse)]
        purge_after_bytes: Option<u64>,
        /// Keep all keys in memory: nothing outlives the mount, and nothing the volume held before
        #[arg(long)]
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
        /// Mount options
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
        /// Read the new password from the first line of this file
        #[arg(long, value_name = "FILE", conflicts_with = "remove")]
        new_password_file: Option<PathBuf>,
        /// Take the password away: whoever has the volume can read it then
        #[arg(long)]
        remove: bool,
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

#[derive(Debug, Args)]
pub(crate) struct Tour {
    /// Keep what the tour makes in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Print the evidence as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncName {
    /// fsync returns when all is durable and nothing else is left on the medium
    Strict,
    /// fsync returns when all is durable; the journal is erased soon after
    Durable,
}

/// What distinguishes one image from another.
#[derive(Debug, Args)]
pub(crate) struct Shape {
    /// Layout of the files
    #[arg(long, value_enum, default_value = "d", ignore_case = true)]
    pub(crate) layout: LayoutName,
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
    Mount {
        /// File or block device
        image: PathBuf,
        /// Where to
        dir: PathBuf,
        /// When fsync returns. fsync, `tacita sync`, `tacita umount`, half a second of quiet and
        /// the timer make changes durable; the command `sync` and sync(2) do not
        #[arg(long, value_enum, default_value = "strict")]
        sync: SyncName,
        /// Commit at least this often while files change; 0 for no timer
        #[arg(long, value_name = "SECONDS", default_value_t = 5)]
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
        /// Print what was unpacked as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Pddm {
    /// Make a device; asks for a public password, then for those of hidden volumes
    Init {
        /// File or block device
        device: PathBuf,
        /// Size of a new file; a device or file that is there is used whole without it
        #[arg(long, value_parser = size::parse)]
        size: Option<u64>,
        /// Number of hidden volumes that the device has room for, whether or not they are used
        #[arg(long, value_name = "N", default_value_t = 1)]
        classes: u32,
        /// Public and hidden slots in each unit
        #[arg(long, value_name = "P:H", default_value = "20:11")]
        ratio: String,
        /// Share of slots kept free, or two shares, public and hidden; the more, the faster
        #[arg(long, value_name = "F[,F]", default_value = "0.3")]
        spare: String,
        /// Seconds between units of padding for 60 of them after a public write; then the time doubles,
        /// up to 60 times as long. 0 for never
        #[arg(long, value_name = "SECONDS", default_value = "1")]
        heartbeat: String,
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
    /// Read, verify and rewrite the whole log once; what waits on open hidden volumes is written with it
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
    /// Check that all units are intact: exit 0 if they are, 1 if not
    Check {
        /// File or block device
        device: PathBuf,
        #[command(flatten)]
        password: passwords::From,
        /// Rebuild damaged pages of the public map from unit headers
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
    /// How often names and journal are cleared, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
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
    Mount(PurgeMount),
    /// Overwrite and remove files; prints a verdict for each
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
