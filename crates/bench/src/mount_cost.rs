//! Time and memory that mounting a large image takes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tacita_daemon::voice::shown_name;

use crate::arguments::{MountOptions, SEED};
use crate::harness::record::Record;
use crate::harness::statistics::real;
use crate::harness::{rounds, runner};
use crate::hifs::peer;
use crate::hifs::volume::Volume;
use crate::hifs::workload::{Files, Profile};

/// Parts of the fill, so that each is bounded well.
const FILL_PARTS: u64 = 20;

/// What is measured of a mount: name and unit.
const MEASURES: [(&str, &str); 3] = [
    // Until the mount command returns, caches cold.
    ("time", "s"),
    // Peak of the daemon's resident memory right after.
    ("memory", "MiB"),
    // The same after every folder was listed.
    ("memory-listed", "MiB"),
];

/// Fills an image of every peer, half large and half web files, and mounts them in rounds.
pub(crate) fn run(options: &MountOptions, scratch: &Path) -> Result<Vec<Record>> {
    let peers = peer::select(&options.layouts, &options.peers, SEED)?;
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    let mut volumes = Vec::new();
    let mut records = Vec::new();
    for peer in &peers {
        let volume = Volume::prepare(&**peer, folder.path(), options.size)?;
        fill(&volume, options.load)?;
        volumes.push(volume);
        records.push(MEASURES.map(|(workload, unit)| Record {
            profile: "mount".into(),
            workload: workload.into(),
            load_percent: options.load,
            peer: peer.name().into(),
            unit: unit.into(),
            image_bytes: options.size,
            ..Record::default()
        }));
    }
    for round in 0..options.rounds {
        let count = volumes.len();
        rounds::round(round, count, |index| measure(&mut volumes[index], &mut records[index]))?;
    }
    Ok(records.into_iter().flatten().collect())
}

fn measure(volume: &mut Volume<'_>, records: &mut [Record; 3]) -> Result<()> {
    volume.unmount()?;
    let cold = runner::drop_caches();
    let time = volume.mount()?;
    for record in records.iter_mut() {
        record.cold = cold;
    }
    let [seconds, mounted, listed] = records;
    seconds.samples.push(time.as_secs_f64());
    mounted.samples.extend(peak_mib(volume));
    list(volume.dir())?;
    listed.samples.extend(peak_mib(volume));
    Ok(())
}

fn fill(volume: &Volume<'_>, load: u32) -> Result<()> {
    let target = volume.free_bytes()? / 100 * u64::from(load) / 2;
    for profile in Profile::ALL {
        let mut files = Files::new(profile);
        for part in 1..=FILL_PARTS {
            files.grow(volume, target / FILL_PARTS * part)?;
        }
        eprintln!("{}: {} files are there", volume.name(), profile.name());
    }
    Ok(())
}

/// Most resident memory of the daemon so far; `None` if the kernel serves the mount.
fn peak_mib(volume: &Volume<'_>) -> Option<f64> {
    let field = runner::status_field(volume.daemon()?, "VmHWM")?;
    let kib: u64 = field.strip_suffix(" kB")?.trim().parse().ok()?;
    Some(real(kib) / 1024.0)
}

/// Reads every name and every file's metadata.
fn list(folder: &Path) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", shown_name(folder)))?;
    for entry in entries {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            list(&entry.path())?;
        }
    }
    Ok(())
}
