//! Purgefs beside the file system beneath it and a FUSE pass-through: what purging costs.
//!
//! Every contender works on the same kind of image, an ext4 on a loop device of its own, in
//! interleaved rounds. Times include what is left to be done in the background by the end of the
//! work, but not unmounting.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail};

use crate::arguments::PurgeOptions;
use crate::record::Record;
use crate::runner;
use crate::statistics::{mib, real};

/// Longest single command.
const LIMIT: Duration = Duration::from_mins(10);

/// Size of the images.
const IMAGE_LEN_BYTES: u64 = 1 << 30;

/// Size of the file that is read and written warm.
const WARM_LEN_BYTES: u64 = 128 << 20;

/// Small files that are made and deleted.
const SMALL_COUNT: u64 = 2000;

/// Sources of the package that is built, and how often the build starts over.
const SOURCE_COUNT: usize = 60;

/// Who works: a name, and how its folder is made from the lower one.
struct Contender {
    name: &'static str,
    way: Way,
}

enum Way {
    Native,
    Bindfs,
    Purge(&'static [&'static str]),
}

const CONTENDERS: [Contender; 7] = [
    Contender { name: "native", way: Way::Native },
    Contender { name: "bindfs", way: Way::Bindfs },
    Contender { name: "purge-off", way: Way::Purge(&["--marked-only"]) },
    Contender { name: "async-clear", way: Way::Purge(&["--async"]) },
    Contender { name: "async-e", way: Way::Purge(&["--async", "--method", "e"]) },
    Contender { name: "sync-clear", way: Way::Purge(&[]) },
    Contender { name: "sync-e", way: Way::Purge(&["--method", "e"]) },
];

/// What is measured, and in which unit.
const WORKLOADS: [(&str, &str); 6] = [
    ("warm-read", "MiB/s"),
    ("warm-overwrite", "MiB/s"),
    ("warm-mmap-read", "MiB/s"),
    ("small-create-delete", "files/s"),
    ("postmark", "transactions/s"),
    ("build", "builds/min"),
];

/// A contender at work.
struct Place {
    lower: PathBuf,
    dir: PathBuf,
    mounted: bool,
}

/// Measures all contenders.
pub(crate) fn run(options: &PurgeOptions, scratch: &Path) -> Result<Vec<Record>> {
    if !rustix::process::geteuid().is_root() {
        bail!("loop mounts need root");
    }
    let folder = tempfile::Builder::new().prefix("bench-purge-").tempdir_in(scratch)?;
    let mut places = Vec::new();
    for contender in &CONTENDERS {
        places.push(Place::new(contender, folder.path())?);
    }
    let mut records: Vec<Record> = CONTENDERS
        .iter()
        .flat_map(|contender| WORKLOADS.iter().map(move |work| record(contender.name, *work)))
        .collect();
    for round in 0..options.rounds {
        for (index, (work, _)) in WORKLOADS.iter().enumerate() {
            for (number, place) in places.iter().enumerate() {
                runner::check_stop()?;
                let record = &mut records[number * WORKLOADS.len() + index];
                match measure(work, &place.dir.join(format!("{work}-{round}"))) {
                    Ok(value) => record.samples.push(value),
                    Err(e) => record.note = format!("{e:#}"),
                }
            }
        }
        eprintln!("round {} of {} done", round + 1, options.rounds);
    }
    for place in &places {
        if let Some(ratio) = place.overwritten_per_deleted() {
            eprintln!("{}: {ratio}", place.dir.display());
        }
    }
    Ok(records)
}

fn record(peer: &str, (workload, unit): (&str, &str)) -> Record {
    Record {
        profile: "purge".into(),
        workload: workload.into(),
        peer: peer.into(),
        unit: unit.into(),
        image_bytes: IMAGE_LEN_BYTES,
        ..Record::default()
    }
}

impl Place {
    fn new(contender: &Contender, folder: &Path) -> Result<Self> {
        let name = contender.name;
        let image = folder.join(format!("{name}.img"));
        let lower = folder.join(format!("{name}.lower"));
        File::create(&image)?.set_len(IMAGE_LEN_BYTES)?;
        fs::create_dir(&lower)?;
        let mut format = Command::new("mkfs.ext4");
        runner::run(format.args(["-q", "-F", "-b", "4096", "-m", "0"]).arg(&image), LIMIT)?;
        let mut mount = Command::new("mount");
        runner::run(mount.args(["-o", "loop"]).arg(&image).arg(&lower), LIMIT)?;
        let mut place = Self { dir: lower.clone(), lower, mounted: false };
        let dir = folder.join(name);
        fs::create_dir(&dir)?;
        match contender.way {
            Way::Native => {}
            Way::Bindfs => {
                runner::run(Command::new("bindfs").arg(&place.lower).arg(&dir), LIMIT)?;
                (place.dir, place.mounted) = (dir, true);
            }
            Way::Purge(options) => {
                let mut purge = Command::new(tacita()?);
                purge.args(["purge", "mount"]).arg(&place.lower).arg(&dir).args(options);
                runner::run(&mut purge, LIMIT)?;
                (place.dir, place.mounted) = (dir, true);
            }
        }
        Ok(place)
    }

    /// Bytes written over each byte deleted, where that is counted.
    fn overwritten_per_deleted(&self) -> Option<String> {
        let mut status = Command::new(tacita().ok()?);
        status.args(["purge", "status", "--json", "--finish"]).arg(&self.dir);
        let facts: serde_json::Value =
            serde_json::from_str(&runner::run(&mut status, LIMIT).ok()?).ok()?;
        let number = |key: &str| facts[key].as_u64().unwrap_or(0);
        let deleted = number("bytes_deleted");
        Some(format!(
            "{:.0} MiB deleted, {:.0} MiB never stored, {:.0} MiB overwritten: {:.2} a byte deleted",
            mib(deleted),
            mib(number("bytes_in_memory")),
            mib(number("bytes_overwritten")),
            mib(number("bytes_overwritten")) / mib(deleted.max(1))
        ))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let unmount = |dir: &Path| {
            let done = runner::run(Command::new("umount").arg(dir), LIMIT);
            if let Err(e) = done {
                eprintln!("{}: {e:#}", dir.display());
            }
        };
        if self.mounted {
            unmount(&self.dir);
            // The daemon lets go of the lower file system a moment later.
            let _ = runner::wait_until(LIMIT, || runner::process_with(&self.lower).is_none());
            thread::sleep(Duration::from_millis(200));
        }
        unmount(&self.lower);
    }
}

/// The binary that the variable `TACITA_BIN` names, or the one beside this program.
fn tacita() -> Result<PathBuf> {
    let program = match env::var_os("TACITA_BIN") {
        Some(path) => PathBuf::from(path),
        None => env::current_exe()?.with_file_name("tacita"),
    };
    if !program.is_file() {
        bail!("no tacita at {}: cargo build --release -p tacita-cli", program.display());
    }
    Ok(program)
}

/// Does the work in a new folder and says how fast it was.
fn measure(work: &str, dir: &Path) -> Result<f64> {
    fs::create_dir(dir)?;
    let value = match work {
        "warm-read" => warm(dir, &read_whole),
        "warm-overwrite" => warm(dir, &overwrite_whole),
        "warm-mmap-read" => map_read(dir),
        "small-create-delete" => small_files(dir),
        "postmark" => postmark(dir),
        _ => build(dir),
    };
    fs::remove_dir_all(dir)?;
    value
}

/// The best of a few goes over a file that is in memory, in MiB/s.
fn warm(dir: &Path, go: &dyn Fn(&Path) -> Result<()>) -> Result<f64> {
    let path = dir.join("file");
    overwrite_whole(&path)?;
    go(&path)?;
    let begin = Instant::now();
    for _ in 0..4 {
        go(&path)?;
    }
    Ok(4.0 * mib(WARM_LEN_BYTES) / begin.elapsed().as_secs_f64())
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
    let mut fio = Command::new("fio");
    fio.args(["--name=m", "--ioengine=mmap", "--rw=read", "--bs=64k", "--loops=4", "--size=128M"]);
    fio.args(["--output-format=json", "--invalidate=0", "--overwrite=1"]);
    fio.arg(format!("--filename={}", dir.join("file").display()));
    let output = runner::run(&mut fio, LIMIT)?;
    let start = output.find('{').context("no JSON from fio")?;
    let facts: serde_json::Value = serde_json::from_str(&output[start..])?;
    let speed = facts["jobs"][0]["read"]["bw_bytes"].as_u64().context("no speed from fio")?;
    Ok(mib(speed))
}

/// Files of 4 KiB that reach the disk, made and deleted: files a second.
fn small_files(dir: &Path) -> Result<f64> {
    let begin = Instant::now();
    let content = [0x5A; 4096];
    for number in 0..SMALL_COUNT {
        fs::write(dir.join(format!("{number}")), content)?;
    }
    rustix::fs::syncfs(File::open(dir)?)?;
    for number in 0..SMALL_COUNT {
        fs::remove_file(dir.join(format!("{number}")))?;
    }
    Ok(real(SMALL_COUNT) / begin.elapsed().as_secs_f64())
}

/// Postmark with the paper's mix, a hundredth of its size.
fn postmark(dir: &Path) -> Result<f64> {
    const TRANSACTIONS: u64 = 2000;
    let script = format!(
        "set location {}\nset number 200\nset size 512 1048576\nset transactions {TRANSACTIONS}\n\
         set bias create 5\nset bias read 5\nset buffering false\nrun\nquit\n",
        dir.display()
    );
    let path = dir.with_extension("postmark");
    let script_file = env::temp_dir().join(path.file_name().unwrap_or_default());
    fs::write(&script_file, script)?;
    let begin = Instant::now();
    let done = runner::run(Command::new("postmark").arg(&script_file), LIMIT);
    let took = begin.elapsed();
    fs::remove_file(&script_file)?;
    done.map(|_| real(TRANSACTIONS) / took.as_secs_f64())
}

/// Compiles a package of C files, with an archive and many temporary files, twice: builds a minute.
fn build(dir: &Path) -> Result<f64> {
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
