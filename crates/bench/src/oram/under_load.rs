//! Queries a second and delays by the number of clients, at one round trip: figure 10, and what a query
//! costs, beside plain stores.
//!
//! Paper: `PrivateFS`, figure 10.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tacita_oram::load::{Amount, Load};

use super::rival::{Plain, Redis, Rival};
use super::{BLOCK_LEN, Bench, MEASURED, fill, id, record};
use crate::arguments::OramOptions;
use crate::harness::record::Record;
use crate::harness::statistics::real;
use crate::harness::{rounds, runner};

/// Blocks that plain stores have: it does not matter to them.
const PLAIN_BLOCKS: u64 = 4096;

/// Longest run of a program that measures another store, making that store included.
const RIVAL_LIMIT: Duration = Duration::from_mins(4);

/// What is told of each number of clients: workload and unit.
const TOLD: [(&str, &str); 9] = [
    ("queries", "queries/s"),
    ("throughput", "KB/s"),
    ("p50", "ms"),
    ("p99", "ms"),
    ("p99.9", "ms"),
    ("p99.9-of-p50", "x"),
    ("round-trips", "a query"),
    ("bytes", "KB a query"),
    ("server-processor", "us a query"),
];
/// Those of them that plain stores are told of, too.
const PLAIN_TOLD: usize = 6;

pub(super) fn run(options: &OramOptions, round_trip_ms: u64, folder: &Path) -> Result<Vec<Record>> {
    let round_trip = Duration::from_millis(round_trip_ms);
    let bench = Bench::new(folder, options.blocks, round_trip)?;
    if round_trip.is_zero() {
        fill(&bench.store, 0..options.blocks)?;
    }
    let plain = Plain::new(bench.served.socket(), *bench.store.geometry(), PLAIN_BLOCKS)?;
    let redis = Redis::new(folder, PLAIN_BLOCKS);
    let mut rivals: Vec<&dyn Rival> = vec![&plain];
    match &redis {
        Ok(redis) => rivals.push(redis),
        Err(error) => eprintln!("without redis: {error:#}"),
    }
    let profile = format!("{round_trip_ms}ms");
    let amount = Amount { queries: u64::MAX, time: Duration::from_secs(options.seconds.into()) };
    let mut rows = Rows { profile, records: Vec::new() };
    for round in 0..options.rounds {
        rounds::round(round, options.clients.len(), |index| {
            let clients = options.clients[index];
            rows.add(MEASURED, clients, &ours(&bench, clients, amount)?);
            for rival in &rivals {
                let asking = (0..clients).map(|_| rival.client(round_trip));
                let load = Load::measure(asking.collect::<Result<Vec<_>>>()?, amount)?;
                rows.add(rival.name(), clients, &of_load(&load));
            }
            Ok(())
        })?;
    }
    if round_trip.is_zero() {
        for program in &options.rival {
            rows.records.push(by_itself(program, options)?);
        }
    }
    Ok(rows.records)
}

/// What a program says of another store: one client, without latency.
fn by_itself(program: &Path, options: &OramOptions) -> Result<Record> {
    let name = program.file_name().context("the rival has no name")?.to_string_lossy();
    let mut row = record("0ms", "queries", &name, "queries/s", 1);
    for _ in 0..options.rounds {
        let mut command = Command::new(program);
        command.arg(options.blocks.to_string()).arg(options.seconds.to_string());
        let told = runner::run(&mut command, RIVAL_LIMIT)?;
        row.samples.push(told.trim().parse().with_context(|| format!("{name} said {told}"))?);
    }
    Ok(row)
}

/// All that is told of our store.
fn ours(bench: &Bench, clients: u32, amount: Amount) -> Result<Vec<f64>> {
    let capacity = bench.store.geometry().capacity();
    let before = bench.served.counts()?;
    let read = |number: u64| {
        // In no order, and every block once before one comes twice.
        let block = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % capacity;
        bench.store.read(id(block)).map(drop)
    };
    let load = Load::measure(vec![read; clients as usize], amount)?;
    let each = bench.served.counts()?.since(&before);
    let mut told = of_load(&load);
    // The append, then one step after the other; the result is not waited for.
    told.extend([1.0 + each.fetches, each.bytes / 1000.0, each.processor.as_secs_f64() * 1e6]);
    Ok(told)
}

fn of_load(load: &Load) -> Vec<f64> {
    let millis = |permille| load.at(permille).as_secs_f64() * 1000.0;
    let (half, most) = (millis(500), millis(999));
    vec![
        load.per_second(),
        load.per_second() * real(BLOCK_LEN.into()) / 1000.0,
        half,
        millis(990),
        most,
        most / half.max(f64::MIN_POSITIVE),
    ]
}

/// What has been told so far.
struct Rows {
    profile: String,
    records: Vec<Record>,
}

impl Rows {
    fn add(&mut self, peer: &str, clients: u32, told: &[f64]) {
        debug_assert!(told.len() == TOLD.len() || told.len() == PLAIN_TOLD);
        eprintln!("{} {peer}, {clients} clients: {:.1} queries/s", self.profile, told[0]);
        for ((workload, unit), value) in TOLD.iter().zip(told) {
            let found = self.records.iter_mut().find(|record| {
                record.workload == *workload
                    && record.peer == peer
                    && record.load_percent == clients
            });
            if let Some(found) = found {
                found.samples.push(*value);
            } else {
                let mut new = record(&self.profile, workload, peer, unit, clients);
                new.samples.push(*value);
                self.records.push(new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_samples() {
        let mut rows = Rows { profile: "0ms".into(), records: Vec::new() };
        rows.add(MEASURED, 10, &[1.0; TOLD.len()]);
        rows.add("redis", 10, &[3.0; PLAIN_TOLD]);
        rows.add(MEASURED, 10, &[2.0; TOLD.len()]);
        assert_eq!(rows.records.len(), TOLD.len() + PLAIN_TOLD);
        assert_eq!(rows.records[0].samples, [1.0, 2.0]);
    }
}
