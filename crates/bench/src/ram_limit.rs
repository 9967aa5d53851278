//! Reads from a warm image, beside a file system that only holds RAM: what FUSE itself allows.

use std::path::Path;

use anyhow::Result;

use crate::arguments::{RamOptions, SEED};
use crate::harness::record::Record;
use crate::harness::rounds;
use crate::hifs::peer::{self, Memory, Peer};
use crate::hifs::volume::Volume;
use crate::hifs::workload::{Amounts, Files, Profile, Workload};

/// Share of the image that is filled, in percent.
const LOAD_PERCENT: u32 = 25;

/// Reads large files from start to end again and again; the image stays in the page cache, the
/// mount's own pages are dropped before each read.
pub(crate) fn run(options: &RamOptions, scratch: &Path) -> Result<Vec<Record>> {
    let mut peers = peer::select(&options.layouts, &options.peers, SEED)?;
    match Memory::from_environment() {
        Some(memory) => peers.push(Box::new(memory)),
        None => eprintln!("TACITA_MEMORY_MOUNT is not set: no RAM file system to compare with"),
    }
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    let amounts = Amounts::for_image(options.size);
    let fill_bytes = options.size / 100 * u64::from(LOAD_PERCENT);
    let mut volumes = Vec::new();
    let mut records = Vec::new();
    for peer in &peers {
        let volume = Volume::prepare(&**peer, folder.path(), options.size)?;
        let mut files = Files::new(Profile::Db);
        files.grow(&volume, fill_bytes)?;
        // The first read warms the image and is not counted.
        files.measure(Workload::SeqRead, &volume, &amounts, 1, folder.path())?;
        volumes.push((volume, files));
        records.push(record(&**peer, options));
    }
    for round in 0..options.rounds {
        rounds::round(round, volumes.len(), |index| {
            let (volume, files) = &volumes[index];
            let seed = u64::from(round) + 1;
            let value = files.measure(Workload::SeqRead, volume, &amounts, seed, folder.path())?;
            records[index].samples.push(value);
            Ok(())
        })?;
    }
    Ok(records)
}

fn record(peer: &dyn Peer, options: &RamOptions) -> Record {
    Record {
        profile: "ram".into(),
        workload: "warm-seq-read".into(),
        load_percent: LOAD_PERCENT,
        peer: peer.name().into(),
        unit: Workload::SeqRead.unit().into(),
        image_bytes: options.size,
        ..Record::default()
    }
}
