//! What the contenders do.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::LIMIT;
use crate::harness::statistics::{mib, real};
use crate::harness::{fio, runner};

/// Size of the file that is read and written warm.
const WARM_LEN_BYTES: u64 = 128 << 20;

/// How often; the best counts, for whatever else the machine does only takes away.
const WARM_GOES: u32 = 12;

/// The same for reading through a mapping, where fio goes four times at once.
const MAP_GOES: u32 = 5;

/// Small files that are made and deleted.
const SMALL_COUNT: u64 = 2000;

/// The same if each is put on the disk.
const SYNCED_COUNT: u64 = 200;

/// Files and transactions of Postmark: a hundredth of the paper's, and fewer where each takes long.
const POSTMARK_FILES: u64 = 200;
const POSTMARK_TRANSACTIONS: u64 = 2000;
const POSTMARK_TRANSACTIONS_UNBUFFERED: u64 = 500;

/// Folders of a made-up source tree, each in the one before or, every eighth, in the topmost; files in
/// each; and lines in the longest.
const TREE_FOLDER_COUNT: u64 = 150;
const TREE_FILES_IN_FOLDER: u64 = 16;
const TREE_LINES_MAX: u64 = 600;

/// Sources of the made-up package.
const SOURCE_COUNT: usize = 60;

/// One kind of work, and the unit of its speed.
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
}

pub(super) const ALL: [Work; 9] = [
    Work { name: "warm-read", unit: "MiB/s" },
    Work { name: "warm-overwrite", unit: "MiB/s" },
    Work { name: "warm-mmap-read", unit: "MiB/s" },
    Work { name: "small-create-delete", unit: "files/s" },
    Work { name: "small-synced-delete", unit: "files/s" },
    Work { name: "tree-deleted", unit: "files/s" },
    Work { name: "postmark", unit: "transactions/s" },
    Work { name: "postmark-unbuffered", unit: "transactions/s" },
    Work { name: "build", unit: "builds/min" },
];

impl Work {
    /// Does the work in a new folder and says how fast it was. `lower` is the file system that holds
    /// what is there, and `source` the package to build.
    pub(super) fn measure(&self, dir: &Path, lower: &Path, source: Option<&Path>) -> Result<f64> {
        fs::create_dir(dir)?;
        let value = match self.name {
            "warm-read" => warm(dir, &read_whole),
            "warm-overwrite" => warm(dir, &overwrite_whole),
            "warm-mmap-read" => map_read(dir),
            "small-create-delete" => small_files(dir, SMALL_COUNT, false),
            "small-synced-delete" => small_files(dir, SYNCED_COUNT, true),
            "tree-deleted" => tree_deleted(dir, lower),
            "postmark" => postmark(dir, true),
            "postmark-unbuffered" => postmark(dir, false),
            _ => source.map_or_else(|| build_made_up(dir), |source| build(dir, source)),
        };
        fs::remove_dir_all(dir)?;
        value
    }
}

/// The best of a few goes over a file that is in memory, in MiB/s.
fn warm(dir: &Path, go: &dyn Fn(&Path) -> Result<()>) -> Result<f64> {
    let path = dir.join("file");
    overwrite_whole(&path)?;
    go(&path)?;
    let mut best = f64::INFINITY;
    for _ in 0..WARM_GOES {
        let begin = Instant::now();
        go(&path)?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(mib(WARM_LEN_BYTES) / best)
}

fn read_whole(path: &Path) -> Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

fn overwrite_whole(path: &Path) -> Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let chunk = vec![0xA5; 1 << 20];
    for _ in 0..WARM_LEN_BYTES / (1 << 20) {
        file.write_all(&chunk)?;
    }
    Ok(())
}

fn map_read(dir: &Path) -> Result<f64> {
    overwrite_whole(&dir.join("file"))?;
    let mut best = 0;
    for _ in 0..MAP_GOES {
        let mut command = Command::new("fio");
        command.args(["--name=m", "--ioengine=mmap", "--rw=read", "--bs=64k", "--loops=4"]);
        command.args(["--size=128M", "--output-format=json", "--invalidate=0", "--overwrite=1"]);
        command.arg(format!("--filename={}", dir.join("file").display()));
        let facts = fio::facts(&runner::run(&mut command, LIMIT)?)?;
        let speed = facts["jobs"][0]["read"]["bw_bytes"].as_u64().context("no speed from fio")?;
        best = best.max(speed);
    }
    Ok(mib(best))
}

/// Files of 4 KiB, made and deleted: files a second. Without `synced` they never reach the disk.
fn small_files(dir: &Path, count: u64, synced: bool) -> Result<f64> {
    let begin = Instant::now();
    let content = [0x5A; 4096];
    for number in 0..count {
        let mut file = File::create(dir.join(format!("{number}")))?;
        file.write_all(&content)?;
        if synced {
            file.sync_all()?;
        }
    }
    for number in 0..count {
        fs::remove_file(dir.join(format!("{number}")))?;
    }
    Ok(real(count) / begin.elapsed().as_secs_f64())
}

/// `rm -rf` of a source tree that is on the disk: files a second.
fn tree_deleted(dir: &Path, lower: &Path) -> Result<f64> {
    let top = dir.join("tree");
    let mut folder = top.clone();
    for number in 0..TREE_FOLDER_COUNT {
        folder = if number % 8 == 0 { &top } else { &folder }.join(format!("folder{number}"));
        fs::create_dir_all(&folder)?;
        for file in 0..TREE_FILES_IN_FOLDER {
            // A permutation of lengths, so that they have no order.
            let lines = (number * TREE_FILES_IN_FOLDER + file) * 389 % TREE_LINES_MAX;
            let text = format!("a line of the source of file {file} in folder {number}\n");
            let content = text.repeat(usize::try_from(lines)?);
            fs::write(folder.join(format!("source{file}.c")), content)?;
        }
    }
    rustix::fs::syncfs(File::open(lower)?)?;
    let begin = Instant::now();
    runner::run(Command::new("rm").arg("-rf").arg(&top), LIMIT)?;
    Ok(real(TREE_FOLDER_COUNT * TREE_FILES_IN_FOLDER) / begin.elapsed().as_secs_f64())
}

/// Postmark with the paper's mix and sizes, and all else as the program has it; `buffered` is its
/// own choice, and else each 512 bytes are a call.
fn postmark(dir: &Path, buffered: bool) -> Result<f64> {
    let transactions =
        if buffered { POSTMARK_TRANSACTIONS } else { POSTMARK_TRANSACTIONS_UNBUFFERED };
    let script = format!(
        "set location {}\nset number {POSTMARK_FILES}\nset size 512 1048576\n\
         set transactions {transactions}\nset bias create 5\nset bias read 5\n\
         set buffering {buffered}\nrun\nquit\n",
        dir.display()
    );
    let mut script_file = tempfile::NamedTempFile::new()?;
    script_file.write_all(script.as_bytes())?;
    let begin = Instant::now();
    runner::run(Command::new("postmark").arg(script_file.path()), LIMIT)?;
    Ok(real(transactions) / begin.elapsed().as_secs_f64())
}

/// Configures and compiles a package with all that belongs to it: builds a minute.
fn build(dir: &Path, source: &Path) -> Result<f64> {
    let mut unpack = Command::new("tar");
    runner::run(unpack.arg("xf").arg(source).arg("--strip-components=1").current_dir(dir), LIMIT)?;
    let begin = Instant::now();
    // Configuring as root is refused by some packages unless they are told.
    let script = "export FORCE_UNSAFE_CONFIGURE=1 TMPDIR=.; ./configure -q && make -s";
    runner::run(Command::new("sh").args(["-c", script]).current_dir(dir), LIMIT)?;
    Ok(60.0 / begin.elapsed().as_secs_f64())
}

/// Compiles made-up C files, with an archive and many temporary files, twice: builds a minute.
fn build_made_up(dir: &Path) -> Result<f64> {
    for number in 0..SOURCE_COUNT {
        let mut source = String::from("#include <stdio.h>\n");
        for function in 0..40 {
            let _ = writeln!(
                source,
                "int f{number}_{function}(int x) {{ return printf(\"%d\", x * {function}); }}"
            );
        }
        fs::write(dir.join(format!("s{number}.c")), source)?;
    }
    let script = "set -e; for round in 1 2; do rm -f *.o lib.a; \
                  for s in s*.c; do TMPDIR=. cc -O0 -c $s; echo test > conftest; rm conftest; done; \
                  ar rc lib.a *.o; done";
    let begin = Instant::now();
    runner::run(Command::new("sh").args(["-c", script]).current_dir(dir), LIMIT)?;
    Ok(2.0 * 60.0 / begin.elapsed().as_secs_f64())
}
