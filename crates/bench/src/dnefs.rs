//! DNEFS beside other encrypting file systems through real mounts, and by itself on a chip in
//! memory: the paper's tables 3 to 5, mounting, purging, wear, memory.

mod chip;
mod inside;
mod opening;
mod peer;
pub(crate) mod targets;
mod wear;

use std::path::Path;

use anyhow::{Result, bail};

use crate::arguments::DnefsOptions;
use crate::harness::record::Record;
use crate::harness::runner;
use crate::hifs::side_by_side;
use crate::hifs::workload::Profile;

/// How full a volume is when it is measured, in percent.
const LOAD: u32 = 30;

/// Measures a part.
pub(crate) fn run(part: &str, options: &DnefsOptions, scratch: &Path) -> Result<Vec<Record>> {
    runner::check_stop()?;
    match part {
        "mounts" => mounts(options, scratch),
        "open" => opening::run(options.rounds, scratch),
        "memory" => inside::run(options.rounds),
        "wear" => wear::run(),
        _ => bail!("no part is called {part}: mounts, open, memory and wear are possible"),
    }
}

fn mounts(options: &DnefsOptions, scratch: &Path) -> Result<Vec<Record>> {
    let peers = peer::select(&options.peers)?;
    let amount = (options.size, options.rounds);
    side_by_side(peers, Profile::Paged, LOAD, amount, scratch, runner::drop_pages)
}

/// A record of what is measured without a peer.
fn record(profile: &str, workload: &str, peer: &str, unit: &str, samples: Vec<f64>) -> Record {
    Record {
        profile: profile.into(),
        workload: workload.into(),
        peer: peer.into(),
        unit: unit.into(),
        samples,
        ..Record::default()
    }
}
