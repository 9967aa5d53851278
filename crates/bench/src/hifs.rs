//! HIFS's layouts beside other file systems, through real mounts: every peer filled alike, every
//! workload in interleaved rounds.
//!
//! How much HIFS moves when something is new follows from the seed of its image. So each round has
//! images of its own, with a seed that is the same in all runs, and for all layouts.

pub(crate) mod peer;
mod session;
pub(crate) mod targets;
pub(crate) mod volume;
pub(crate) mod workload;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::arguments::HifsOptions;
use crate::harness::record::Record;
use crate::harness::runner;
use peer::Peer;
use session::{Pace, Session, Span};
use workload::Profile;

/// Loads, size, layouts and time of a full run; loads and layouts are the paper's.
const LOADS: [u32; 5] = [10, 30, 60, 80, 90];
const SIZE_BYTES: u64 = 1 << 30;
const LAYOUTS: [&str; 4] = ["a", "b", "c", "d"];
const BUDGET: Duration = Duration::from_mins(13);

/// Those of a quick one.
const QUICK_LOADS: [u32; 2] = [30, 80];
const QUICK_SIZE_BYTES: u64 = 512 << 20;
const QUICK_LAYOUTS: [&str; 2] = ["a", "d"];
const QUICK_BUDGET: Duration = Duration::from_mins(3);

/// Measures all that the options ask for.
pub(crate) fn run(options: &HifsOptions, scratch: &Path) -> Result<Vec<Record>> {
    let quick = options.quick;
    let default_layouts = if quick { &QUICK_LAYOUTS[..] } else { &LAYOUTS };
    let default_loads = if quick { &QUICK_LOADS[..] } else { &LOADS };
    let default_size = if quick { QUICK_SIZE_BYTES } else { SIZE_BYTES };
    let budget = if quick { QUICK_BUDGET } else { BUDGET };
    let layouts = options.layouts.clone();
    let layouts = layouts.unwrap_or_else(|| default_layouts.iter().map(|&l| l.into()).collect());
    let mut loads = options.loads.clone().unwrap_or_else(|| default_loads.to_vec());
    // Images are filled from one load to the next.
    loads.sort_unstable();
    let span = |round: u32| {
        let seed = options.seed.wrapping_add(round.into());
        let peers = peer::select(&layouts, &options.peers, seed)?;
        Ok(Span { peers, seed: Some(seed), rounds: round..round + 1 })
    };
    let spans: Vec<Span> = (0..options.rounds).map(span).collect::<Result<_>>()?;
    if !runner::drop_caches() {
        eprintln!("only root can drop the caches of the machine: reads will be partly warm");
    }
    let profiles = options.profiles.iter().map(|name| Profile::named(name));
    let profiles: Vec<Profile> = profiles.collect::<Result<_>>()?;
    let count = u32::try_from(profiles.len())?;
    let start = Instant::now();
    let mut records = Vec::new();
    for (done, profile) in (1..).zip(profiles) {
        let session = Session {
            profile,
            size_bytes: options.size.unwrap_or(default_size),
            forget: |_| runner::drop_caches(),
            pace: Pace { start, budget, share: budget * done / count },
        };
        records.extend(session.run(&spans, &loads, scratch)?);
    }
    Ok(records)
}

/// Measures a profile at one load, always on the same images. `forget` empties the caches of an
/// image, and says whether it could.
pub(crate) fn side_by_side(
    peers: Vec<Box<dyn Peer>>,
    profile: Profile,
    load: u32,
    (size_bytes, rounds): (u64, u32),
    scratch: &Path,
    forget: fn(&Path) -> bool,
) -> Result<Vec<Record>> {
    let pace = Pace { start: Instant::now(), budget: BUDGET, share: BUDGET };
    let spans = [Span { peers, seed: None, rounds: 0..rounds }];
    Session { profile, size_bytes, forget, pace }.run(&spans, &[load], scratch)
}
