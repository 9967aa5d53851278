//! PD-ORAM by itself and beside plain stores of blobs, all on one machine: the paper's figures 9 to 11,
//! delays and what a query costs.
//!
//! Each part makes a store of its own, so that parts can be measured one at a time.

mod growth;
mod memory;
mod rival;
pub(crate) mod served;
pub(crate) mod targets;
mod under_load;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tacita_oram::geometry::Geometry;
use tacita_oram::keys::Id;
use tacita_oram::link::Delay;
use tacita_oram::load::{Amount, Load};
use tacita_oram::record::Operation;
use tacita_oram::{AnchorAt, Options, Store, Way};
use tacita_secret::Key;

use crate::arguments::OramOptions;
use crate::harness::record::Record;
use crate::harness::runner;
use served::Served;

/// What can be measured; any other number of milliseconds will do, too.
const PARTS: &str = "init, 0ms, 40ms, 80ms, 160ms, growth, progress and memory";
/// Who is measured.
const MEASURED: &str = "pd-oram";
/// The plain store that ratios refer to.
const PLAIN: &str = "blob";
const BLOCK_LEN: u32 = 4096;
/// Queries under way while a store is filled.
const FILLING: usize = 40;

/// Measures a part.
pub(crate) fn run(part: &str, options: &OramOptions, scratch: &Path) -> Result<Vec<Record>> {
    runner::check_stop()?;
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    match part {
        "init" => memory::init(options, folder.path()),
        "growth" => growth::run(options, folder.path()),
        "progress" => growth::progress(options, folder.path()),
        "memory" => memory::run(options, folder.path()),
        _ => match part.strip_suffix("ms").map(str::parse) {
            Some(Ok(round_trip_ms)) => under_load::run(options, round_trip_ms, folder.path()),
            _ => bail!("no part is called {part}: {PARTS} are possible"),
        },
    }
}

/// A store that is served by the program itself, and its only client, in this process.
struct Bench {
    // Before the server, so that it is closed while that is there.
    store: Store,
    served: Served,
}

impl Bench {
    /// A new store of so many blocks, over a line with this round trip.
    fn new(folder: &Path, blocks: u64, round_trip: Duration) -> Result<Self> {
        let geometry = Geometry::new(BLOCK_LEN, 256, 4, blocks).context("shapes")?;
        let key = Key::take(&mut tacita_secret::random::<32>()?);
        let place = tacita_oram::server::Place::Folder(folder.join("store"));
        Store::init(&place, &key, geometry)?;
        let served = Served::start(folder)?;
        let anchor = AnchorAt::File(folder.join("anchor"));
        // Filled without the delay.
        let store = Store::open(Way::Server(served.address()), &key, &anchor, &Options::default())?;
        if round_trip.is_zero() {
            return Ok(Self { store, served });
        }
        fill(&store, 0..blocks)?;
        drop(store);
        let delay = Some(Delay::of(round_trip / 2));
        let options = Options { delay, ..Options::default() };
        let store = Store::open(Way::Server(served.address()), &key, &anchor, &options)?;
        Ok(Self { store, served })
    }
}

/// Writes blocks with content of their own.
fn fill(store: &Store, blocks: std::ops::Range<u64>) -> Result<Load> {
    let first = blocks.start;
    let write = |number| {
        let block = first + number;
        store.query(id(block), Operation::Write(content(block, 1).into())).map(drop)
    };
    let amount = Amount { queries: blocks.end - blocks.start, time: Duration::MAX };
    Ok(Load::measure(vec![write; FILLING], amount)?)
}

fn id(block: u64) -> Id {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&block.to_le_bytes());
    id
}

/// What a block has, which cannot be compressed.
fn content(block: u64, version: u64) -> Vec<u8> {
    let mut content = vec![0; BLOCK_LEN as usize];
    crate::harness::content::Stream::new(block ^ version << 40).fill(&mut content);
    content
}

/// A record of what is measured.
fn record(profile: &str, workload: &str, peer: &str, unit: &str, at: u32) -> Record {
    Record {
        profile: profile.into(),
        workload: workload.into(),
        load_percent: at,
        peer: peer.into(),
        unit: unit.into(),
        ..Record::default()
    }
}
