//! A measured value, and the CSV that keeps it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::provenance::{Provenance, one_cell};
use crate::statistics::median;

/// The peers that ratios refer to: the first one that was measured.
pub(crate) const REFERENCES: [&str; 6] =
    ["fuse2fs", "ram", "contiguous", "nbdkit-file", "aead", "native"];

const HEADER: &str = "profile,workload,load_percent,peer,unit,median,min,max,samples,\
    ratio,reference,image_bytes,cold,note,medium,machine,kernel,commit,date";

/// One workload of one peer at one load.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Record {
    /// Kind of files, such as `db`.
    pub(crate) profile: String,
    /// What was done to them.
    pub(crate) workload: String,
    /// Share of the capacity that was filled before.
    pub(crate) load_percent: u32,
    /// Who did it.
    pub(crate) peer: String,
    /// Of the samples, such as `MiB/s`.
    pub(crate) unit: String,
    /// One value a round; none if it could not be measured.
    pub(crate) samples: Vec<f64>,
    /// Size of the image.
    pub(crate) image_bytes: u64,
    /// Whether all caches were empty before.
    pub(crate) cold: bool,
    /// Why there is no value, or fewer.
    pub(crate) note: String,
}

impl Record {
    /// The median of the samples.
    pub(crate) fn value(&self) -> Option<f64> {
        median(&self.samples)
    }
}

/// The peer that ratios among `records` refer to.
pub(crate) fn reference(records: &[Record]) -> &'static str {
    let measured = |name: &&str| records.iter().any(|r| r.peer == *name);
    REFERENCES.into_iter().find(measured).unwrap_or(REFERENCES[0])
}

/// The value of `record` over that of `peer` for the same work.
pub(crate) fn ratio_to(peer: &str, record: &Record, records: &[Record]) -> Option<f64> {
    Some(record.value()? / same_work(peer, record, records)?.value()?)
}

/// The largest such ratio within a round; rounds differ by what else the machine did.
pub(crate) fn best_ratio_to(peer: &str, record: &Record, records: &[Record]) -> Option<f64> {
    let base = same_work(peer, record, records)?;
    let rounds = record.samples.iter().zip(&base.samples);
    rounds.map(|(value, base)| value / base).reduce(f64::max)
}

fn same_work<'r>(peer: &str, record: &Record, records: &'r [Record]) -> Option<&'r Record> {
    records.iter().find(|r| {
        r.peer == peer
            && r.profile == record.profile
            && r.workload == record.workload
            && r.load_percent == record.load_percent
    })
}

/// Writes all records, samples in the order of the rounds, with where they come from.
pub(crate) fn write_csv(records: &[Record], origin: &Provenance, path: &Path) -> Result<()> {
    let mut text = format!("{HEADER}\n");
    let base = reference(records);
    for record in records {
        let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.4}"));
        let least = record.samples.iter().copied().reduce(f64::min);
        let most = record.samples.iter().copied().reduce(f64::max);
        let samples: Vec<String> = record.samples.iter().map(|v| format!("{v:.4}")).collect();
        let cells = [
            record.profile.clone(),
            record.workload.clone(),
            record.load_percent.to_string(),
            record.peer.clone(),
            record.unit.clone(),
            number(record.value()),
            number(least),
            number(most),
            samples.join(";"),
            number(ratio_to(base, record, records)),
            base.into(),
            record.image_bytes.to_string(),
            record.cold.to_string(),
            one_cell(&record.note),
            origin.medium.clone(),
            origin.machine.clone(),
            origin.kernel.clone(),
            origin.commit.clone(),
            origin.date.clone(),
        ];
        writeln!(text, "{}", cells.join(","))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads records back.
pub(crate) fn read_csv(path: &Path) -> Result<Vec<Record>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse_csv(&text).with_context(|| format!("{} is not a result file", path.display()))
}

fn parse_csv(text: &str) -> Result<Vec<Record>> {
    let mut lines = text.lines();
    anyhow::ensure!(lines.next() == Some(HEADER), "other columns");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        anyhow::ensure!(cells.len() == HEADER.split(',').count(), "bad row: {line}");
        let samples = cells[8].split(';').filter(|s| !s.is_empty()).map(str::parse);
        Ok(Record {
            profile: cells[0].into(),
            workload: cells[1].into(),
            load_percent: cells[2].parse()?,
            peer: cells[3].into(),
            unit: cells[4].into(),
            samples: samples.collect::<Result<_, _>>()?,
            image_bytes: cells[11].parse()?,
            cold: cells[12].parse()?,
            note: cells[13].into(),
        })
    };
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(peer: &str, samples: &[f64]) -> Record {
        Record {
            profile: "db".into(),
            workload: "seq-read".into(),
            load_percent: 60,
            peer: peer.into(),
            unit: "MiB/s".into(),
            samples: samples.into(),
            image_bytes: 1 << 30,
            cold: true,
            note: "a, note".into(),
        }
    }

    #[test]
    fn ratios_are_of_medians() {
        let records = [record("x", &[30.0, 10.0, 20.0]), record("fuse2fs", &[40.0])];
        assert_eq!(ratio_to(reference(&records), &records[0], &records), Some(0.5));
        let records = [record("x", &[30.0, 10.0]), record("fuse2fs", &[60.0, 5.0])];
        assert_eq!(best_ratio_to("fuse2fs", &records[0], &records), Some(2.0));
        let alone = [record("x", &[1.0])];
        assert_eq!(ratio_to(reference(&alone), &alone[0], &alone), None);
    }

    #[test]
    fn csv_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.csv");
        let records = [record("x", &[3.0, 1.0, 2.0]), record("y", &[])];
        write_csv(&records, &Provenance::default(), &path).unwrap();
        let back = read_csv(&path).unwrap();
        assert_eq!(back[0].samples, [3.0, 1.0, 2.0]);
        assert_eq!(back[1].value(), None);
        assert_eq!(back[0].note, "a; note");
        assert!(parse_csv("something,else\n").is_err());
    }
}
