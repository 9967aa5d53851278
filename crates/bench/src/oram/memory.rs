//! What making a store takes, and memory of both sides while one is filled.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tacita_oram::plan::plan;

use super::served::memory_kib;
use super::{Bench, MEASURED, fill, record};
use crate::arguments::OramOptions;
use crate::harness::record::Record;
use crate::harness::runner;
use crate::harness::statistics::real;

/// Blocks of the store that is made.
const BLOCKS: &str = "1048576";
/// Longest time that this may take.
const LIMIT: Duration = Duration::from_mins(4);

/// Makes a store of 2^20 blocks as people do, and sees how long that takes.
pub(super) fn init(options: &OramOptions, folder: &Path) -> Result<Vec<Record>> {
    let mut row = record("init", "2^20-blocks", MEASURED, "s", 0);
    for round in 0..options.rounds {
        runner::check_stop()?;
        let (store, key) = (folder.join(format!("store-{round}")), folder.join("key"));
        let mut command = Command::new(runner::tacita()?);
        command.args(["oram", "init"]).arg(store).arg("--key").arg(key).args(["--blocks", BLOCKS]);
        let begin = Instant::now();
        runner::run(&mut command, LIMIT)?;
        row.samples.push(begin.elapsed().as_secs_f64());
    }
    Ok(vec![row])
}

/// The most memory of the client, beyond what this process had before it, and of the server, while a store
/// is filled; and what the plan says of the client.
pub(super) fn run(options: &OramOptions, folder: &Path) -> Result<Vec<Record>> {
    let own = || memory_kib(std::process::id()).context("this process tells no memory");
    // The most so far is forgotten, where the kernel allows it.
    std::fs::write("/proc/self/clear_refs", "5").context("cannot begin to look at memory")?;
    let before = own()?;
    let bench = Bench::new(folder, options.blocks, Duration::ZERO)?;
    fill(&bench.store, 0..options.blocks)?;
    let client = own()? - before;
    let server = bench.served.memory_kib().context("the server tells no memory")?;
    let planned = real(plan(bench.store.geometry()).client_bytes) / 1024.0;
    let row = |workload: &str, kib: f64| {
        let mut row = record("memory", workload, MEASURED, "MiB", 0);
        row.samples.push(kib / 1024.0);
        row
    };
    Ok(vec![row("client", client), row("client-planned", planned), row("server", server)])
}
