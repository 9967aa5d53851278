//! Deleting in full view of what it costs: stored files, one after the other, beside the least that
//! the promise "overwritten when `rm` returns" can cost, and beside plain deletion.
//!
//! Everything works on one ext4 on one loop device, in interleaved rounds, so that whatever else the
//! machine does falls on all of them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{OFlags, syncfs};
use tacita_block::AlignedBuf;
use tacita_daemon::voice::shown_name;

use super::{IMAGE_LEN_BYTES, LIMIT};
use crate::arguments::DeletingOptions;
use crate::harness::promise::{Bound, Promise};
use crate::harness::record::Record;
use crate::harness::runner::{self, tacita};
use crate::harness::statistics::real;
use crate::harness::{fio, rounds};

const PROFILE: &str = "deleting";

/// Size of each file.
const FILE_LEN_BYTES: usize = 8 << 10;

/// Threads that delete at once, each in a folder of its own.
const WORKER_COUNT: usize = 8;

/// Transactions of one `SQLite` run.
const TRANSACTION_COUNT: usize = 200;

/// How long fio writes.
const FIO_SECONDS: u32 = 3;

/// What is measured, and the unit of each sample.
const WORKS: [(&str, &str); 12] = [
    ("floor", "us/file"),
    ("floor-8", "us/file"),
    ("native", "us/file"),
    ("off", "us/file"),
    ("sync", "us/file"),
    ("sync-8", "us/file"),
    ("async", "us/file"),
    ("async-end", "us/file"),
    ("sqlite-native", "transactions/s"),
    ("sqlite-sync", "transactions/s"),
    ("fio-native", "writes/s"),
    ("fio-sync", "writes/s"),
];

/// What is wanted: the first of the second.
const WANTED: [(&str, &str, Bound); 6] = [
    ("sync", "floor", Bound::Most(1.3)),
    ("sync", "sync-8", Bound::Least(3.0)),
    ("async", "off", Bound::Most(1.2)),
    ("async-end", "native", Bound::Most(10.0)),
    ("sqlite-sync", "sqlite-native", Bound::Least(0.7)),
    ("fio-sync", "fio-native", Bound::Least(0.95)),
];

/// The file system that everything lies on.
struct Ground {
    image: PathBuf,
    lower: PathBuf,
    mount: PathBuf,
}

/// A purge mount of it.
struct Mounted<'a>(&'a Ground);

/// Measures everything.
pub(crate) fn run(options: &DeletingOptions, scratch: &Path) -> Result<Vec<Record>> {
    let folder = tempfile::Builder::new().prefix("bench-purge-").tempdir_in(scratch)?;
    let ground = Ground::new(folder.path())?;
    let mut samples = vec![Vec::new(); WORKS.len()];
    for round in 0..options.rounds {
        rounds::round(round, WORKS.len(), |index| {
            samples[index].push(ground.measure(WORKS[index].0, options.files)?);
            Ok(())
        })?;
        eprintln!("round {} of {} done", round + 1, options.rounds);
    }
    let records = WORKS.iter().zip(samples).map(|((work, unit), samples)| Record {
        profile: PROFILE.into(),
        workload: (*work).into(),
        peer: "tacita".into(),
        unit: (*unit).into(),
        samples,
        image_bytes: IMAGE_LEN_BYTES,
        ..Record::default()
    });
    Ok(records.collect())
}

/// One for each ratio that is wanted.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    let of = |work: &str| records.iter().find(|r| r.profile == PROFILE && r.workload == work);
    let promise = |(one, other, bound): (&str, &str, Bound)| {
        let record = of(one)?;
        let values = (record.value(), of(other).and_then(Record::value));
        Some(Promise::ratio(one, bound, other, &record.unit, values))
    };
    WANTED.into_iter().filter_map(promise).collect()
}

impl Ground {
    fn new(folder: &Path) -> Result<Self> {
        let image = folder.join("image");
        let (lower, mount) = (folder.join("lower"), folder.join("mount"));
        let ground = Self { image: image.clone(), lower, mount };
        fs::create_dir(&ground.lower)?;
        fs::create_dir(&ground.mount)?;
        File::create(&image)?.set_len(IMAGE_LEN_BYTES)?;
        let mut format = Command::new("mkfs.ext4");
        runner::run(format.args(["-q", "-F", "-b", "4096", "-m", "0"]).arg(&image), LIMIT)?;
        let mut mount = Command::new("mount");
        runner::run(mount.args(["-o", "loop"]).arg(&image).arg(&ground.lower), LIMIT)?;
        Ok(ground)
    }

    /// One sample.
    fn measure(&self, work: &str, files: usize) -> Result<f64> {
        let value = match work {
            "floor" => self.overwrite(files, 1),
            "floor-8" => self.overwrite(files, WORKER_COUNT),
            "native" => self.delete(files, 1, None).map(|(taken, _)| taken),
            "off" => self.delete(files, 1, Some(&["--marked-only"])).map(|(taken, _)| taken),
            "sync" => self.delete(files, 1, Some(&[])).map(|(taken, _)| taken),
            "sync-8" => self.delete(files, WORKER_COUNT, Some(&[])).map(|(taken, _)| taken),
            "async" => self.delete(files, 1, Some(&["--async"])).map(|(taken, _)| taken),
            "async-end" => self.delete(files, 1, Some(&["--async"])).map(|(_, end)| end),
            "sqlite-native" => sqlite(&self.lower),
            "sqlite-sync" => {
                let _mounted = self.purge(&[])?;
                sqlite(&self.mount)
            }
            "fio-native" => writes(&self.lower),
            _ => {
                let _mounted = self.purge(&[])?;
                writes(&self.mount)
            }
        };
        self.settle()?;
        value.with_context(|| format!("{work} went wrong"))
    }

    /// Nothing waits to be written, also of the image itself.
    fn settle(&self) -> Result<()> {
        syncfs(File::open(&self.lower)?)?;
        Ok(File::open(&self.image)?.sync_all()?)
    }

    /// Folders of files that are stored.
    fn make(&self, files: usize, folders: usize) -> Result<()> {
        let content = vec![0x5A; FILE_LEN_BYTES];
        for folder in 0..folders {
            let folder = self.lower.join(format!("folder-{folder}"));
            fs::create_dir(&folder)?;
            for number in 0..files / folders {
                fs::write(folder.join(number.to_string()), &content)?;
            }
        }
        self.settle()
    }

    fn clear(&self, folders: usize) -> Result<()> {
        for folder in 0..folders {
            fs::remove_dir_all(self.lower.join(format!("folder-{folder}")))?;
        }
        Ok(())
    }

    /// Overwrites each file directly and durably: microseconds a file.
    fn overwrite(&self, files: usize, workers: usize) -> Result<f64> {
        self.make(files, workers)?;
        let taken = together(&self.lower, workers, &|folder| {
            let mut content = AlignedBuf::new(FILE_LEN_BYTES);
            content.fill(0);
            for number in 0..files / workers {
                let flags = OFlags::DIRECT | OFlags::DSYNC;
                let file = OpenOptions::new()
                    .write(true)
                    .custom_flags(flags.bits().cast_signed())
                    .open(folder.join(number.to_string()))?;
                file.write_all_at(&content, 0)?;
            }
            Ok(())
        })?;
        self.clear(workers)?;
        Ok(a_file(taken, files))
    }

    /// Deletes all files: microseconds a file, until the last call returns and to the very end.
    fn delete(&self, files: usize, workers: usize, options: Option<&[&str]>) -> Result<(f64, f64)> {
        self.make(files, workers)?;
        let mounted = options.map(|options| self.purge(options)).transpose()?;
        let dir = if mounted.is_some() { &self.mount } else { &self.lower };
        let begin = Instant::now();
        let taken = together(dir, workers, &|folder| {
            for number in 0..files / workers {
                fs::remove_file(folder.join(number.to_string()))?;
            }
            Ok(())
        })?;
        if mounted.is_some() {
            let mut finish = Command::new(tacita()?);
            runner::run(finish.args(["purge", "status", "--finish"]).arg(dir), LIMIT)?;
        }
        let end = begin.elapsed();
        drop(mounted);
        self.clear(workers)?;
        Ok((a_file(taken, files), a_file(end, files)))
    }

    fn purge(&self, options: &[&str]) -> Result<Mounted<'_>> {
        let mut mount = Command::new(tacita()?);
        mount.args(["purge", "mount"]).arg(&self.lower).arg(&self.mount).args(options);
        runner::run(&mut mount, LIMIT)?;
        Ok(Mounted(self))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Err(e) = runner::run(Command::new("umount").arg(&self.0.mount), LIMIT) {
            eprintln!("{}: {e:#}", shown_name(&self.0.mount));
        }
        // The daemon lets go of the lower file system a moment later.
        let _ = runner::wait_until(LIMIT, || runner::process_with(&self.0.lower).is_none());
        thread::sleep(Duration::from_millis(200));
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Err(e) = runner::run(Command::new("umount").arg(&self.lower), LIMIT) {
            eprintln!("{}: {e:#}", shown_name(&self.lower));
        }
    }
}

/// Does something in each folder at the same time.
fn together(
    dir: &Path,
    folders: usize,
    act: &(dyn Fn(&Path) -> Result<()> + Sync),
) -> Result<Duration> {
    let begin = Instant::now();
    thread::scope(|scope| {
        let work = |folder: usize| {
            let folder = dir.join(format!("folder-{folder}"));
            scope.spawn(move || act(&folder))
        };
        let threads: Vec<_> = (0..folders).map(work).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => bail!("a thread has panicked"),
        })
    })?;
    Ok(begin.elapsed())
}

fn a_file(taken: Duration, files: usize) -> f64 {
    taken.as_secs_f64() * 1e6 / real(files as u64)
}

/// Transactions a second of `SQLite` with a rollback journal that is deleted.
fn sqlite(dir: &Path) -> Result<f64> {
    let path = dir.join("database");
    let table = "pragma journal_mode=delete; create table facts(id integer primary key, text);";
    runner::run(Command::new("sqlite3").arg(&path).arg(table), LIMIT)?;
    let insert = "insert into facts(text) values(hex(randomblob(100)));\n";
    let script = dir.join("script");
    fs::write(&script, insert.repeat(TRANSACTION_COUNT))?;
    let begin = Instant::now();
    let mut work = Command::new("sqlite3");
    runner::run(work.arg(&path).arg(format!(".read {}", script.display())), LIMIT)?;
    let taken = begin.elapsed().as_secs_f64();
    fs::remove_file(&path)?;
    fs::remove_file(&script)?;
    Ok(real(TRANSACTION_COUNT as u64) / taken)
}

/// Random writes of 4 KiB a second, to a file that is stored.
fn writes(dir: &Path) -> Result<f64> {
    let path = dir.join("written");
    let mut command = Command::new("fio");
    command.args(["--name=w", "--ioengine=psync", "--rw=randwrite", "--bs=4k", "--size=64M"]);
    command.args(["--overwrite=1", "--time_based", "--output-format=json"]);
    command.arg(format!("--runtime={FIO_SECONDS}")).arg(format!("--filename={}", path.display()));
    let facts = fio::facts(&runner::run(&mut command, LIMIT)?)?;
    fs::remove_file(path)?;
    facts["jobs"][0]["write"]["iops"].as_f64().context("no speed from fio")
}
