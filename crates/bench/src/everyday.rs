//! What people do with files, in plain numbers: a large one is copied in, and read after the next mount;
//! many small ones are unpacked, and deleted. Each system as it comes, on a new image of its own, beside
//! ext4 on one.

mod contender;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::arguments::EverydayOptions;
use crate::harness::record::Record;
use crate::harness::statistics::real;
use crate::harness::{content, rounds, runner};
use contender::Contender;

const MIB: u64 = 1 << 20;

/// Bytes of a small file, and how many are in a folder.
const SMALL_LEN: u64 = 8 << 10;
const IN_A_FOLDER: u64 = 100;

/// Bytes that are read at once.
const READ_LEN: usize = 1 << 20;

/// What is told of a contender: workload, unit, value.
type Told = (&'static str, &'static str, f64);

/// Measures all that are asked for, by turns.
pub(crate) fn run(options: &EverydayOptions, scratch: &Path) -> Result<Vec<Record>> {
    let contenders = contender::select(&options.peers)?;
    let mut records = Vec::new();
    for round in 0..options.rounds {
        rounds::round(round, contenders.len(), |index| {
            let contender = &contenders[index];
            let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
            let told = measure(contender, folder.path(), options)
                .with_context(|| contender.name.to_owned())?;
            for (workload, unit, value) in told {
                eprintln!("{}: {workload} {value:.1} {unit}", contender.name);
                add(&mut records, contender.name, (workload, unit, value), options.size);
            }
            Ok(())
        })?;
    }
    Ok(records)
}

fn add(records: &mut Vec<Record>, peer: &str, (workload, unit, value): Told, image_bytes: u64) {
    let found = records.iter_mut().find(|r: &&mut Record| r.peer == peer && r.workload == workload);
    if let Some(record) = found {
        record.samples.push(value);
        return;
    }
    records.push(Record {
        profile: "everyday".into(),
        workload: workload.into(),
        peer: peer.into(),
        unit: unit.into(),
        samples: vec![value],
        image_bytes,
        ..Record::default()
    });
}

fn measure(contender: &Contender, folder: &Path, options: &EverydayOptions) -> Result<Vec<Told>> {
    let (image, dir) = (folder.join("image"), folder.join("mnt"));
    fs::create_dir(&dir)?;
    let peer = &*contender.peer;
    peer.format(&image, options.size)?;
    let mounted = Mounted::new(contender, &image, &dir)?;
    // What waits on a hidden volume has to fit its queue.
    let film_len = options.film.min(contender.at_once_max);
    let film = dir.join("film");
    let begin = Instant::now();
    content::append(&film, film_len, 1)?;
    File::open(&film)?.sync_all()?;
    peer.settle(&dir)?;
    let copied = per_second(film_len / MIB, begin);
    mounted.undo()?;

    runner::drop_pages(&image);
    let mounted = Mounted::new(contender, &image, &dir)?;
    let begin = Instant::now();
    read_all(&film)?;
    let read = per_second(film_len / MIB, begin);

    let begin = Instant::now();
    unpack(&dir, options.files)?;
    peer.settle(&dir)?;
    let unpacked = per_second(options.files, begin);
    let begin = Instant::now();
    fs::remove_dir_all(dir.join("tree"))?;
    peer.settle(&dir)?;
    let deleted = per_second(options.files, begin);
    let begin = Instant::now();
    mounted.undo()?;
    Ok(vec![
        ("copied in", "MiB/s", copied),
        ("read again", "MiB/s", read),
        ("unpacked", "files/s", unpacked),
        ("deleted", "files/s", deleted),
        ("closed", "s", begin.elapsed().as_secs_f64()),
    ])
}

/// A mount, undone in the end whatever happens.
struct Mounted<'a> {
    contender: &'a Contender,
    dir: &'a Path,
}

impl<'a> Mounted<'a> {
    fn new(contender: &'a Contender, image: &Path, dir: &'a Path) -> Result<Self> {
        contender.peer.mount(image, dir)?;
        Ok(Self { contender, dir })
    }

    fn undo(self) -> Result<()> {
        let Self { contender, dir } = self;
        std::mem::forget(self);
        contender.peer.unmount(dir)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = self.contender.peer.unmount(self.dir);
    }
}

fn per_second(count: u64, begin: Instant) -> f64 {
    real(count) / begin.elapsed().as_secs_f64()
}

fn read_all(file: &Path) -> Result<()> {
    let mut file = File::open(file)?;
    let mut buffer = vec![0; READ_LEN];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

fn unpack(dir: &Path, files: u64) -> Result<()> {
    for number in 0..files {
        let folder = dir.join("tree").join((number / IN_A_FOLDER).to_string());
        if number % IN_A_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        content::append(&folder.join(number.to_string()), SMALL_LEN, number)?;
    }
    Ok(())
}
