//! Block devices over NBD, side by side: our server and peers, each on a Unix socket of its own,
//! under the same requests.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tacita_block::FileDevice;

use crate::arguments::NbdOptions;
use crate::harness::promise::{Bound, Promise};
use crate::harness::record::{Record, best_ratio_to, reference, value_of};
use crate::harness::rounds;
use crate::harness::statistics::real;

mod contender;
mod workload;

pub(crate) use contender::Contender;
pub(crate) use workload::{FLUSHED, USUAL, Workload, fill};

/// Our server, over a file.
pub(crate) const MEASURED: &str = "tacita-file";
/// Block length in bytes of the device under our server: the least that all clients can use.
const BLOCK_LEN_BYTES: u32 = 512;

/// Our server over a file beside nbdkit over a file.
pub(crate) fn run(options: &NbdOptions, scratch: &Path) -> Result<Vec<Record>> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
    let contenders = [
        tacita_file(folder.path(), options.size)?,
        Contender::nbdkit_file("nbdkit-file", folder.path(), options.size)?,
    ];
    for contender in &contenders {
        workload::fill(contender, options.size, folder.path())
            .with_context(|| format!("cannot fill {}", contender.name()))?;
    }
    let session = Session {
        profile: "file",
        size_bytes: options.size,
        rounds: options.rounds,
        seconds: options.seconds,
    };
    session.run(&contenders, &USUAL, folder.path())
}

/// Our server over a file: what the server itself costs.
fn tacita_file(folder: &Path, size_bytes: u64) -> Result<Contender> {
    let image = folder.join(MEASURED).with_extension("img");
    let device = FileDevice::create(&image, size_bytes, BLOCK_LEN_BYTES)?;
    Contender::device(MEASURED, folder, std::sync::Arc::new(device))
}

/// Interleaved rounds of workloads over contenders that are in the same state.
pub(crate) struct Session {
    /// What state that is.
    pub(crate) profile: &'static str,
    /// Size of every export.
    pub(crate) size_bytes: u64,
    pub(crate) rounds: u32,
    /// How long each workload runs in each round.
    pub(crate) seconds: u32,
}

impl Session {
    pub(crate) fn run(
        &self,
        contenders: &[Contender],
        workloads: &[Workload],
        scratch: &Path,
    ) -> Result<Vec<Record>> {
        ensure!(self.seconds > 0 && self.rounds > 0, "nothing to measure");
        let mut records = Vec::new();
        for workload in workloads {
            let mut rows: Vec<Record> =
                contenders.iter().map(|contender| self.record(workload, contender)).collect();
            let mut costs: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
            for round in 0..self.rounds {
                rounds::round(round, contenders.len(), |index| {
                    let contender = &contenders[index];
                    let seed = round + 1;
                    settle(scratch)?;
                    let before = contender.written_bytes().filter(|_| workload.is_write());
                    let done =
                        workload.run(contender.uri(), self.size_bytes, self.seconds, seed, scratch);
                    match done {
                        Ok(outcome) => {
                            rows[index].samples.push(workload.speed(&outcome));
                            let written = contender.written_bytes().zip(before);
                            costs[index].extend(
                                written.map(|(after, before)| {
                                    real(after - before) / real(outcome.bytes)
                                }),
                            );
                        }
                        Err(error) => rows[index].note = format!("{error:#}"),
                    }
                    Ok(())
                })?;
            }
            for row in &rows {
                let value = row.value().map(|v| format!("{v:.1} {}", row.unit));
                let value = value.unwrap_or_else(|| row.note.clone());
                eprintln!("{} {} {}: {value}", row.profile, row.workload, row.peer);
            }
            let costs = rows.iter().zip(costs).filter(|(_, costs)| !costs.is_empty());
            let costs: Vec<Record> = costs.map(|(row, costs)| cost_of(row, costs)).collect();
            records.extend(rows);
            records.extend(costs);
        }
        Ok(records)
    }

    fn record(&self, workload: &Workload, contender: &Contender) -> Record {
        Record {
            profile: self.profile.into(),
            workload: workload.name.into(),
            peer: contender.name().into(),
            unit: workload.unit().into(),
            image_bytes: self.size_bytes,
            ..Record::default()
        }
    }
}

/// Name of what a workload has cost.
pub(crate) fn cost_name(workload: &str) -> String {
    format!("{workload}-cost")
}

/// What was written to the device meanwhile.
fn cost_of(row: &Record, samples: Vec<f64>) -> Record {
    Record {
        workload: cost_name(&row.workload),
        unit: "device blocks a block".into(),
        samples,
        ..row.clone()
    }
}

/// What others have left in memory is not written at the expense of who comes next.
fn settle(scratch: &Path) -> Result<()> {
    let folder = std::fs::File::open(scratch)?;
    rustix::fs::syncfs(&folder).context("cannot sync the file system of the images")
}

/// One for each workload: that our server is at least as fast as the reference.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    let base = reference(records);
    let ours = records.iter().filter(|r| r.peer == MEASURED);
    let promise = |record: &Record| {
        let values = (record.value(), value_of(base, record, records));
        let (what, bound) = (record.workload.as_str(), Bound::Least(1.0));
        Promise::ratio(what, bound, base, &record.unit, values)
            .at_best(best_ratio_to(base, record, records))
    };
    ours.map(promise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::promise::lines;

    #[test]
    fn verdicts_are_by_ratio() {
        let record = |peer, workload, samples: &[f64]| Record::sample(peer, workload, 0, samples);
        let records = [
            record(MEASURED, "a", &[2.0, 3.0]),
            record("nbdkit-file", "a", &[2.0, 2.0]),
            record(MEASURED, "b", &[1.0, 3.0, 1.0]),
            record("nbdkit-file", "b", &[2.0, 2.0, 2.0]),
            record(MEASURED, "c", &[1.0]),
            record("nbdkit-file", "c", &[2.0]),
            record(MEASURED, "d", &[]),
        ];
        let text = lines(&promises(&records));
        let words: Vec<&str> = text.lines().map(|l| l.trim().split(':').next().unwrap()).collect();
        assert_eq!(words, ["holds", "unclear", "MISSED", "MISSED"], "{text}");
        assert!(text.contains("1.25x"), "{text}");
    }
}
