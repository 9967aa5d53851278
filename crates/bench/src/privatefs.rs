//! `PrivateFS` through real mounts: files written and read in parallel, small files, metadata, by the number
//! of clients and the round trip, beside what the store gives by itself, the same file system over a plain
//! store, and gocryptfs on a local disk.
//!
//! Paper: `PrivateFS`, figures 10 and 11.

mod contender;
pub(crate) mod targets;
mod work;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::arguments::{Arguments, PrivatefsOptions};
use crate::harness::promise::lines;
use crate::harness::provenance::Provenance;
use crate::harness::record::Record;
use crate::harness::report::report;
use crate::harness::runner;
use contender::{Contender, Gocryptfs, Plain, Private, Raw};
use work::Size;

/// What can be measured; any other number of milliseconds will do, too.
const PARTS: &str = "0ms, 40ms, 80ms, 160ms and memory";

/// Measures all parts, and says what is reached.
pub(crate) fn report_all(
    options: &PrivatefsOptions,
    arguments: &Arguments,
    origin: &Provenance,
) -> Result<()> {
    let mut records = Vec::new();
    for part in &options.parts {
        let found = run(part, options, &arguments.scratch)?;
        report(&found, origin, &arguments.out, &format!("privatefs-{part}"))?;
        records.extend(found);
    }
    print!("{}", lines(&targets::promises(&records)));
    Ok(())
}

/// Measures a part.
fn run(part: &str, options: &PrivatefsOptions, scratch: &Path) -> Result<Vec<Record>> {
    runner::check_stop()?;
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    if part == "memory" {
        return memory(options, folder.path());
    }
    let Some(Ok(round_trip_ms)) = part.strip_suffix("ms").map(str::parse) else {
        bail!("no part is called {part}: {PARTS} are possible")
    };
    let round_trip = Duration::from_millis(round_trip_ms);
    let mut records = Vec::new();
    for _ in 0..options.rounds {
        for clients in &options.clients {
            let size = Size::of(*clients, round_trip);
            let folder = tempfile::tempdir_in(folder.path())?;
            let at = |name: &str| folder.path().join(name);
            let mut contenders = contenders(options, folder.path(), *clients, round_trip)?;
            let mut all_began = Vec::new();
            for contender in &mut contenders {
                runner::check_stop()?;
                let (told, began) = work::of_files(&mut **contender, size)?;
                add(&mut records, part, *clients, contender.name(), &told);
                all_began.push(began);
            }
            drop(contenders);
            let raw = Raw::new(&at("raw"), options.blocks, round_trip)?;
            let told = raw.measure(*clients, size, all_began[0])?;
            add(&mut records, part, *clients, "store", &told);
        }
    }
    Ok(records)
}

/// Who is measured through a mount, `PrivateFS` first.
fn contenders(
    options: &PrivatefsOptions,
    folder: &Path,
    clients: u32,
    round_trip: Duration,
) -> Result<Vec<Box<dyn Contender>>> {
    let is_wanted = |peer: &str| options.peers.iter().any(|wanted| wanted == peer);
    let at = |name: &str| folder.join(name);
    let private = |name: &str, option: &str| {
        Private::new(&at(name), options.blocks, clients, round_trip, option)
    };
    let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(private("private", "")?)];
    if is_wanted("privatefs-pad") {
        contenders.push(Box::new(private("padded", "--pad")?));
    }
    if is_wanted("plain") {
        contenders.push(Box::new(Plain::new(&at("plain"), options.blocks, clients, round_trip)?));
    }
    // The upper end does not depend on the store.
    if is_wanted("gocryptfs") && round_trip.is_zero() {
        contenders.extend(Gocryptfs::made(&at("gocryptfs"))?);
    }
    Ok(contenders)
}

/// Memory of a mount at a store of 2^20 blocks while files are written and read.
fn memory(options: &PrivatefsOptions, folder: &Path) -> Result<Vec<Record>> {
    let none = Duration::ZERO;
    let mut mount = Private::new(&folder.join("private"), options.memory_blocks, 16, none, "")?;
    work::of_files(&mut mount, Size::large())?;
    let most = mount.memory_kib()? / 1024.0;
    let mut records = Vec::new();
    add(&mut records, "memory", 16, mount.name(), &[("mount", "MiB", most)]);
    Ok(records)
}

/// What is told of one contender: workload, unit, value.
type Told = (&'static str, &'static str, f64);

fn add(records: &mut Vec<Record>, profile: &str, clients: u32, peer: &str, told: &[Told]) {
    for (workload, unit, value) in told {
        eprintln!("{profile} {peer}, {clients} clients: {workload} {value:.1} {unit}");
        let found = records.iter_mut().find(|record| {
            record.workload == *workload && record.peer == peer && record.load_percent == clients
        });
        if let Some(found) = found {
            found.samples.push(*value);
            continue;
        }
        records.push(Record {
            profile: profile.into(),
            workload: (*workload).into(),
            load_percent: clients,
            peer: peer.into(),
            unit: (*unit).into(),
            samples: vec![*value],
            ..Record::default()
        });
    }
}
