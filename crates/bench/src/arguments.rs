//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use tacita_block::size;

/// The seed of HIFS's images where none is asked for: the same buckets move in every run.
pub(crate) const SEED: u64 = 1;

/// Measures file systems side by side.
#[derive(Debug, Parser)]
#[command(name = "tacita-bench", version)]
pub(crate) struct Arguments {
    /// Folder for CSV and plots
    #[arg(long, global = true, default_value = "target/bench")]
    pub(crate) out: PathBuf,
    /// Folder for images and mount points, removed at the end; /dev/shm leaves out the disk, and
    /// its noise
    #[arg(long, global = true, default_value = "/tmp")]
    pub(crate) scratch: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// HIFS's layouts and peers through real mounts: reads, overwrites, new data, small files
    Hifs(HifsOptions),
    /// The same workloads on a model of a spinning disk, on a virtual clock
    Model(ModelOptions),
    /// Time and memory of mounting a large image
    Mount(MountOptions),
    /// Reads from a warm image beside a file system that only holds RAM
    Ram(RamOptions),
    /// Purgefs beside ext4 itself and bindfs: what purging costs
    Purge(PurgeOptions),
    /// Deleting under purge beside the least that it can cost, and beside plain deletion
    Deleting(DeletingOptions),
    /// Our NBD server over a file beside nbdkit's file plugin
    Nbd(NbdOptions),
    /// PD-DM's volumes over NBD beside plain and encrypted ones
    Pddm(PddmOptions),
    /// PD-DM's volumes on a model of a spinning disk, on a virtual clock, and the paper's tables
    PddmModel(PddmModelOptions),
    /// DNEFS beside gocryptfs and ext4, and by itself: mounts, purges, wear, the paper's tables
    Dnefs(DnefsOptions),
    /// Every system as it comes, with what people do to files, in plain numbers beside ext4
    Everyday(EverydayOptions),
    /// `FiST`: instrumenting beside compiling, and what the purging ext2 writes and computes
    Fist(FistOptions),
    /// PD-ORAM beside plain stores of blobs: queries by clients and latency, growth, builds, memory
    Oram(OramOptions),
    /// `PrivateFS` beside its store, a plain one, and gocryptfs: files by clients and latency, memory
    Privatefs(PrivatefsOptions),
    /// Draws the plots again from the CSV files in the output folder
    Plot,
    /// What is promised and what was reached, a row each in Markdown, by the CSV files in the output
    /// folder
    Promises,
}

#[derive(Debug, Args)]
pub(crate) struct HifsOptions {
    /// About three minutes: 512M, loads 30 and 80, layouts a and d
    #[arg(long)]
    pub(crate) quick: bool,
    /// Percentages of what each file system can hold, filled before measuring
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(5..=95))]
    pub(crate) loads: Option<Vec<u32>>,
    /// Size of every image, in bytes or with K, M, G
    #[arg(long, value_parser = size::parse)]
    pub(crate) size: Option<u64>,
    /// HIFS layouts, measured as tacita-a and so on
    #[arg(long, value_delimiter = ',')]
    pub(crate) layouts: Option<Vec<String>>,
    /// Who else: fuse2fs (the one that ratios refer to), fuse2fs-again (shows the noise),
    /// ext4-loop, bindfs
    #[arg(long, value_delimiter = ',', default_value = "fuse2fs")]
    pub(crate) peers: Vec<String>,
    /// db (few large files), web (many of 512 KiB)
    #[arg(long, value_delimiter = ',', default_value = "db,web")]
    pub(crate) profiles: Vec<String>,
    /// Interleaved rounds of every workload, fewer if time runs out; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// The seed of HIFS's images in the first round, a number, and the next ones in those that follow:
    /// it decides how much moves when something is new
    #[arg(long, default_value_t = SEED)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct EverydayOptions {
    /// Size of every image, in bytes or with K, M, G
    #[arg(long, value_parser = size::parse, default_value = "2G")]
    pub(crate) size: u64,
    /// Of the large file; on a hidden volume 32M at most, which its queue takes
    #[arg(long, value_parser = size::parse, default_value = "256M")]
    pub(crate) film: u64,
    /// Small files of 8 KiB
    #[arg(long, default_value_t = 2000)]
    pub(crate) files: u64,
    /// Only these: ext4-loop, hifs, purge, purge-async, pddm-public, pddm-hidden, dnefs, privatefs
    #[arg(long, value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// Rounds by turns; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ModelOptions {
    /// Percentages of the device that is filled before measuring
    #[arg(long, value_delimiter = ',', default_value = "10,30,60,80,90",
        value_parser = clap::value_parser!(u32).range(5..=95))]
    pub(crate) loads: Vec<u32>,
    /// Size of the device, in bytes or with K, M, G
    #[arg(long, value_parser = size::parse, default_value = "1G")]
    pub(crate) size: u64,
}

#[derive(Debug, Args)]
pub(crate) struct MountOptions {
    /// Size of the image
    #[arg(long, value_parser = size::parse, default_value = "10G")]
    pub(crate) size: u64,
    /// Percentage of the capacity that is filled
    #[arg(long, default_value_t = 60)]
    pub(crate) load: u32,
    /// HIFS layouts
    #[arg(long, value_delimiter = ',', default_value = "d")]
    pub(crate) layouts: Vec<String>,
    /// Who else
    #[arg(long, value_delimiter = ',', default_value = "fuse2fs")]
    pub(crate) peers: Vec<String>,
    /// Mounts of each; medians are shown
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct RamOptions {
    /// Size of the image
    #[arg(long, value_parser = size::parse, default_value = "512M")]
    pub(crate) size: u64,
    /// HIFS layouts
    #[arg(long, value_delimiter = ',', default_value = "d")]
    pub(crate) layouts: Vec<String>,
    /// Who else
    #[arg(long, value_delimiter = ',', default_value = "fuse2fs")]
    pub(crate) peers: Vec<String>,
    /// Rounds; medians are shown
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct NbdOptions {
    /// Size of the exports
    #[arg(long, value_parser = size::parse, default_value = "256M")]
    pub(crate) size: u64,
    /// Interleaved rounds of every workload; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Seconds of each workload in each round
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct PddmOptions {
    /// What is measured: volumes that are fresh, half full, or full and overwritten evenly, and how
    /// long opening takes after a crash
    #[arg(long, value_delimiter = ',', default_value = "fresh,half,aged,open")]
    pub(crate) states: Vec<String>,
    /// Size of the device that is opened after a crash
    #[arg(long, value_parser = size::parse, default_value = "64G")]
    pub(crate) open_size: u64,
    /// Size of the device
    #[arg(long, value_parser = size::parse, default_value = "1G")]
    pub(crate) size: u64,
    /// Interleaved rounds of every workload; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Seconds of each workload in each round
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct PddmModelOptions {
    /// Size of the disk, in memory
    #[arg(long, value_parser = size::parse, default_value = "512M")]
    pub(crate) size: u64,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeOptions {
    /// Interleaved rounds; medians are shown
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: u32,
    /// Only these workloads, such as postmark and build
    #[arg(long, value_delimiter = ',')]
    pub(crate) workloads: Vec<String>,
    /// Only these: native, bindfs, purge-off, async-clear, async-e, sync-clear, sync-e
    #[arg(long, value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// Debian's package of C sources that is configured and built; where it cannot be fetched a
    /// made-up one is
    #[arg(long, default_value = "hello")]
    pub(crate) package: String,
}

#[derive(Debug, Args)]
pub(crate) struct DnefsOptions {
    /// What is measured: peers through mounts; opening a volume of 1 GiB; volumes and ciphers in
    /// memory; wear
    #[arg(long, value_delimiter = ',', default_value = "mounts,open,memory,wear")]
    pub(crate) parts: Vec<String>,
    /// Who is mounted: dnefs, dnefs-gcm16, dnefs-ctr16 (the paper's mode), gocryptfs (the one that
    /// ratios refer to), securefs (where it is installed), ext4-loop; dnefs-none is a build of tacita
    /// that encrypts nothing
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "dnefs,dnefs-gcm16,dnefs-ctr16,gocryptfs,securefs,ext4-loop"
    )]
    pub(crate) peers: Vec<String>,
    /// Size of the images
    #[arg(long, value_parser = size::parse, default_value = "1G")]
    pub(crate) size: u64,
    /// Interleaved rounds; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct OramOptions {
    /// What is measured, each with a store of its own: making one of 2^20 blocks; queries at a round trip
    /// of so many milliseconds; while a store grows; how a build goes on; memory
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "init,0ms,40ms,80ms,160ms,growth,progress,memory"
    )]
    pub(crate) parts: Vec<String>,
    /// Blocks of 4 KiB in the store, all written before it is measured
    #[arg(long, default_value_t = 1 << 16, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) blocks: u64,
    /// Clients at once: queries under way
    #[arg(long, value_delimiter = ',', default_value = "1,10,20,40,80",
        value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) clients: Vec<u32>,
    /// A program that measures another oblivious store, called with blocks of 4 KiB and seconds, which
    /// prints the queries a second of one client; shown with the part 0ms under its file's name
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) rival: Vec<PathBuf>,
    /// How much is written while the store grows
    #[arg(long, value_parser = size::parse, default_value = "300M")]
    pub(crate) grow_to: u64,
    /// Interleaved rounds; medians are shown
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Seconds of each number of clients, and of each peer there, in each round
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct FistOptions {
    /// What is measured: times of instrumenting and compiling; counts of blocks and instructions
    #[arg(long, value_delimiter = ',', default_value = "times,counts", value_parser = ["times", "counts"])]
    pub(crate) parts: Vec<String>,
    /// Version of Linux, whose source and headers are installed
    #[arg(long, default_value = "6.1", value_parser = ["6.1", "6.12"])]
    pub(crate) kernel: String,
}

#[derive(Debug, Args)]
pub(crate) struct PrivatefsOptions {
    /// What is measured: files at a round trip of so many milliseconds; memory of a mount
    #[arg(long, value_delimiter = ',', default_value = "0ms,40ms,80ms,160ms,memory")]
    pub(crate) parts: Vec<String>,
    /// Blocks of 4 KiB in the stores
    #[arg(long, default_value_t = 1 << 16, value_parser = clap::value_parser!(u64).range(8192..=1 << 32))]
    pub(crate) blocks: u64,
    /// Blocks in the store of the part memory
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(131_072..=1 << 32))]
    pub(crate) memory_blocks: u64,
    /// Clients: queries under way at once
    #[arg(long, value_delimiter = ',', default_value = "1,10,20,40,80",
        value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) clients: Vec<u32>,
    /// Who is measured beside privatefs and the store; gocryptfs only where nothing is far away
    #[arg(long, value_delimiter = ',', default_value = "privatefs-pad,plain,gocryptfs",
        value_parser = ["privatefs-pad", "plain", "gocryptfs", "none"])]
    pub(crate) peers: Vec<String>,
    /// Interleaved rounds; medians are shown
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct DeletingOptions {
    /// Interleaved rounds; medians are shown
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: u32,
    /// Files that are deleted
    #[arg(long, default_value_t = 2000)]
    pub(crate) files: usize,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
