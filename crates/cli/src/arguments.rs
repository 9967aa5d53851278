//! The command line as it is typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{passwords, sizes};

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
    /// Put everything written to the mount on DIR on the medium, and finish what it promises
    Sync {
        /// Where it is mounted
        dir: PathBuf,
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
    /// Write man pages and shell completions into DIR
    #[command(hide = true)]
    Manual {
        /// Where to
        dir: PathBuf,
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
    /// From the path: the strict promise; a rename moves data
    Path,
    /// Random: cheap renames, a weaker promise
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

/// What distinguishes one image from another.
#[derive(Debug, Args)]
pub(crate) struct Shape {
    /// Layout of the files
    #[arg(long, value_enum, default_value = "d", ignore_case = true)]
    pub(crate) layout: LayoutName,
    /// Bucket size, a power of two from 4K to 1M [default: 16K, 64K above 16G]
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse)]
    pub(crate) bucket: Option<u64>,
    /// Number of block groups [default: by size, 4 to 64]
    #[arg(long, value_name = "N")]
    pub(crate) groups: Option<u32>,
    /// Key of all hashes, up to 64 hexadecimal digits [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,
    /// Where file ids come from
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
        #[arg(long, value_parser = sizes::parse)]
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
        /// Commit at least so often while files change; 0 for never by the clock
        #[arg(long, value_name = "SECONDS", default_value_t = 5)]
        commit_every: u32,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
        /// Mount options, separated by commas: ro, `allow_other`, dev, suid, ...
        #[arg(short = 'o', value_name = "OPTIONS")]
        options: Vec<String>,
    },
    /// Is this the canonical image of its files? Exit 0 yes, 1 no
    ///
    /// Content has no checksum: a changed byte within a file is another file, and canonical.
    Check {
        /// File or block device
        image: PathBuf,
        /// Print the findings as JSON
        #[arg(long)]
        json: bool,
    },
    /// Geometry, load, files, extents a file
    Info {
        /// File or block device
        image: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Who lies where: groups and buckets as text or picture
    Map {
        /// File or block device
        image: PathBuf,
        /// Write a picture
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
        #[arg(long, value_parser = sizes::parse)]
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
        #[arg(long, value_parser = sizes::parse)]
        size: Option<u64>,
        /// Classes of hidden slots: so many hidden volumes there can be, used or not
        #[arg(long, value_name = "N", default_value_t = 1)]
        classes: u32,
        /// Public and hidden slots of a unit
        #[arg(long, value_name = "P:H", default_value = "20:11")]
        ratio: String,
        /// Share of all slots that is kept free, or two shares, public and hidden: more is faster
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
        /// Make a device of whatever DEVICE holds
        #[arg(long)]
        force: bool,
        /// Print what was made as JSON
        #[arg(long)]
        json: bool,
    },
    /// Serve the volume of a password and all below it; returns when they are ready
    Open {
        /// File or block device
        device: PathBuf,
        #[command(flatten)]
        front: Front,
        #[command(flatten)]
        password: passwords::From,
        /// Write nothing
        #[arg(long)]
        read_only: bool,
        /// Keep hidden volumes closed; what they hold is destroyed as the device is written
        #[arg(long)]
        public_only: bool,
        /// Look for hidden volumes of a password that opens the public one in all units, and not only
        /// in the newest
        #[arg(long)]
        search: bool,
        /// What a flush of a hidden volume is
        #[arg(long, value_enum, default_value = "ordered")]
        hidden_flush: HiddenFlushName,
        /// How much may wait on hidden volumes before their writers do
        #[arg(long, value_name = "SIZE", value_parser = sizes::parse, default_value = "64M")]
        queue: u64,
        /// Stay in the foreground
        #[arg(long)]
        foreground: bool,
    },
    /// Stop serving; returns when everything public is on the medium and the daemon is gone
    Close {
        /// What `open` was given: the socket or the folder
        front: PathBuf,
        #[command(flatten)]
        rest: Rest,
        /// Print what was dropped as JSON
        #[arg(long)]
        json: bool,
    },
    /// What an open device is doing, as far as it is public
    Status {
        /// What `open` was given: the socket or the folder
        front: PathBuf,
        /// What waits and what is lost on hidden volumes that are open, instead
        #[arg(long)]
        hidden: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read, verify and write the whole log anew, one round; what waits on open hidden volumes gets to
    /// the device
    Sweep {
        /// File or block device, or the socket or folder that `open` was given
        target: PathBuf,
        #[command(flatten)]
        password: passwords::From,
        /// Do it although only the public volume is open
        #[arg(long)]
        public_only: bool,
        /// Bytes a second at most
        #[arg(long, value_name = "SIZE", value_parser = sizes::parse)]
        rate: Option<u64>,
    },
    /// Change the password of the volume that the old one opens, or of one below
    Passwd {
        /// File or block device
        device: PathBuf,
        #[command(flatten)]
        password: passwords::From,
        /// Change the password of this volume, which the password given opens too: public, hidden,
        /// hidden2...
        #[arg(long, value_name = "NAME")]
        volume: Option<String>,
        /// Read the new password from the first line of this file
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<PathBuf>,
    },
    /// Are all units whole? Exit 0 yes, 1 no
    Check {
        /// File or block device
        device: PathBuf,
        #[command(flatten)]
        password: passwords::From,
        /// Write damaged pages of the public map again, as headers tell what they said
        #[arg(long)]
        repair: bool,
        /// Do that although only the public volume is open
        #[arg(long, requires = "repair")]
        public_only: bool,
        /// Print the findings as JSON
        #[arg(long)]
        json: bool,
    },
}

/// What happens with hidden data that is not on the device yet.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub(crate) struct Rest {
    /// Sweep first, so that all of it gets to the device
    #[arg(long)]
    pub(crate) sweep: bool,
    /// Drop it
    #[arg(long)]
    pub(crate) drop: bool,
}

/// What a flush of a hidden volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HiddenFlushName {
    /// A barrier, which returns at once: after a crash nothing is there without what was before it
    Ordered,
    /// It returns when everything is on the device, which waits for public writes
    Durable,
}

/// How volumes are served.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Front {
    /// Over NBD, on this Unix socket, as exports `public`, `hidden`, `hidden2`...
    #[arg(long, value_name = "SOCKET")]
    pub(crate) nbd: Option<PathBuf>,
    /// As files of this folder, with the same names
    #[arg(long, value_name = "DIR")]
    pub(crate) fuse: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFailureName {
    /// The file stays, and the program gets an error
    Fail,
    /// The file is deleted all the same, and its verdict says so
    Warn,
}

/// How an overlay works.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches of the command line")]
pub(crate) struct PurgeMount {
    /// The folder whose deletions are to be purged
    pub(crate) lower: PathBuf,
    /// Where to mount it
    pub(crate) dir: PathBuf,
    /// What is written over it: clear (zeros, read back), zero, random, custom:LIST, or the legacy
    /// NISPOM patterns c, d, e, f, h
    #[arg(long, default_value = "clear")]
    pub(crate) method: tacita_purge::Method,
    /// Deleting returns at once; a thread in the background purges
    #[arg(long = "async")]
    pub(crate) asynchronous: bool,
    /// Purge only what `chattr +s`, `user.purge` or a rule names
    #[arg(long)]
    pub(crate) marked_only: bool,
    /// Rules, one a line: PATTERN [MIN..MAX] METHOD|off
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// What is done with a file that cannot be purged
    #[arg(long, value_enum, default_value = "fail")]
    pub(crate) on_failure: OnFailureName,
    /// How often names and journal are cleared, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) epoch: u64,
    /// Append every verdict to this file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Mount also where overwriting does not reach the old blocks
    #[arg(long)]
    pub(crate) anyway: bool,
    /// Keep symbolic links with long targets as regular files, which can be purged; show them as links
    #[arg(long)]
    pub(crate) opaque_links: bool,
    /// All reading and writing through the daemon, not by the kernel itself
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
    /// Purge and remove; one verdict a file
    File {
        /// What is to go
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// What is written over it: clear (zeros, read back), zero, random, custom:LIST, or the
        /// legacy NISPOM patterns c, d, e, h; f holds files for as long as they were kept, which
        /// only a mount can do
        #[arg(long, default_value = "clear")]
        method: tacita_purge::Method,
        /// Folders with everything in them
        #[arg(short, long)]
        recursive: bool,
        /// Also where overwriting does not reach the old blocks; the verdict says so
        #[arg(long)]
        anyway: bool,
        /// One line of JSON a file
        #[arg(long)]
        json: bool,
    },
    /// Does overwriting reach the old blocks here? Exit 0 yes, 7 no, with the reason
    #[command(alias = "suits")]
    Probe {
        /// A folder, or a file in it
        path: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// What a mount has purged, what is pending, the last verdicts
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
