//! Queries a second while a store gets its data, and how builds go on meanwhile.
//!
//! Paper: `PrivateFS`, figures 9 and 11.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tacita_oram::Store;
use tacita_oram::geometry::Generation;

use super::{BLOCK_LEN, Bench, MEASURED, fill, record};
use crate::arguments::OramOptions;
use crate::harness::record::Record;
use crate::harness::runner;

/// Points of the figure.
const STEPS: u64 = 20;
/// How often builds are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Throughput by how much has been written.
pub(super) fn run(options: &OramOptions, folder: &Path) -> Result<Vec<Record>> {
    let blocks = options.grow_to / u64::from(BLOCK_LEN);
    let bench = Bench::new(folder, blocks.max(1), Duration::ZERO)?;
    let mut records = Vec::new();
    for step in 0..STEPS {
        runner::check_stop()?;
        let (from, to) = (blocks * step / STEPS, blocks * (step + 1) / STEPS);
        let load = fill(&bench.store, from..to)?;
        let at = u32::try_from((to * u64::from(BLOCK_LEN)) >> 20).unwrap_or(u32::MAX);
        for (workload, unit, value) in [
            ("queries", "queries/s", load.per_second()),
            ("throughput", "KB/s", load.per_second() * f64::from(BLOCK_LEN) / 1000.0),
            ("p99.9", "ms", load.at(999).as_secs_f64() * 1000.0),
        ] {
            let mut row = record("growth", workload, MEASURED, unit, at);
            row.samples.push(value);
            records.push(row);
        }
    }
    Ok(records)
}

/// How far a build was.
struct Look {
    at: Duration,
    reported: f64,
    enforced: f64,
}

/// Reported, enforced and actual progress of the largest build that begins and ends while a store is filled.
pub(super) fn progress(options: &OramOptions, folder: &Path) -> Result<Vec<Record>> {
    let bench = Bench::new(folder, options.blocks, Duration::ZERO)?;
    let geometry = *bench.store.geometry();
    // The last level that is built while so many queries come: its first build.
    let begins_and_ends = |level: &u8| {
        let build = geometry.build(Generation { level: *level, number: 1 });
        build.until <= options.blocks
    };
    let level = (1..=geometry.levels()).rev().find(begins_and_ends).context("too few blocks")?;
    let build = geometry.build(Generation { level, number: 1 });
    fill(&bench.store, 0..build.from.saturating_sub(1))?;
    let is_over = AtomicBool::new(false);
    let (filled, looks) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&bench.store, build.generation, &is_over));
        let filled = fill(&bench.store, build.from.saturating_sub(1)..build.until + 1);
        is_over.store(true, Ordering::Relaxed);
        (filled, watching.join().expect("looking does not panic"))
    });
    filled?;
    Ok(curves(&looks))
}

fn watch(store: &Store, generation: Generation, is_over: &AtomicBool) -> Vec<Look> {
    let begin = Instant::now();
    let mut looks = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let builds = store.status().map(|status| status.builds).unwrap_or_default();
        if let Some(build) = builds.into_iter().find(|b| b.generation == generation) {
            let (reported, enforced) = (build.reported, build.enforced);
            looks.push(Look { at: begin.elapsed(), reported, enforced });
        } else if !looks.is_empty() {
            break;
        }
        thread::sleep(LOOK);
    }
    looks
}

/// A row for every second percent of the time that the build took: how far it was at its end.
fn curves(looks: &[Look]) -> Vec<Record> {
    let [Some(first), Some(last)] = [looks.first(), looks.last()] else { return Vec::new() };
    let whole = last.at.saturating_sub(first.at).as_secs_f64().max(f64::MIN_POSITIVE);
    let mut records = Vec::new();
    for percent in (0..=100).step_by(2) {
        let share = f64::from(percent) / 100.0;
        let passed = |look: &&Look| look.at.saturating_sub(first.at).as_secs_f64() <= share * whole;
        let look = looks.iter().rev().find(passed).unwrap_or(first);
        for (peer, value) in
            [("reported", look.reported), ("enforced", look.enforced), ("actual", share)]
        {
            let mut row = record("progress", "build", peer, "%", percent);
            row.samples.push(value * 100.0);
            records.push(row);
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_told_by_its_time() {
        let look = |ms, reported| Look {
            at: Duration::from_millis(ms),
            reported,
            enforced: reported / 2.0,
        };
        let rows = curves(&[look(100, 0.0), look(150, 0.8), look(200, 1.0)]);
        let value = |percent, peer: &str| {
            let row = rows.iter().find(|r| r.load_percent == percent && r.peer == peer);
            row.unwrap().value().unwrap()
        };
        assert_eq!(rows.len(), 153);
        assert!((value(48, "reported") - 0.0).abs() < 1e-9);
        assert!((value(50, "reported") - 80.0).abs() < 1e-9);
        assert!((value(50, "enforced") - 40.0).abs() < 1e-9);
        assert!((value(100, "actual") - 100.0).abs() < 1e-9);
        assert!(curves(&[]).is_empty());
    }
}
