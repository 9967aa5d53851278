//! A measured value, and its ratio to another.

use super::statistics::median;

/// The peers that ratios refer to: the first one that was measured.
pub(crate) const REFERENCES: [&str; 9] = [
    "fuse2fs",
    "ram",
    "contiguous",
    "nbdkit-file",
    "aead",
    "native",
    "gocryptfs",
    "blob",
    "ext4-loop",
];

/// What values are shown by: what it is called, its unit, and its end where that is always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) end: Option<u32>,
}

impl Axis {
    /// What `load_percent` is in a profile: the share of an image that was filled, but for stores that many
    /// ask at once, that grow, or that are built.
    pub(crate) fn of(profile: &str) -> Self {
        let is_round_trip = profile.strip_suffix("ms").is_some_and(|n| n.parse::<u64>().is_ok());
        match profile {
            _ if is_round_trip => Self { name: "clients", unit: "", end: None },
            "growth" => Self { name: "MiB", unit: "", end: None },
            "progress" => Self { name: "time", unit: "%", end: Some(100) },
            _ => Self { name: "load", unit: "%", end: Some(100) },
        }
    }

    /// Its name, with the unit.
    pub(crate) fn label(&self) -> String {
        if self.unit.is_empty() {
            self.name.into()
        } else {
            format!("{} in {}", self.name, self.unit)
        }
    }
}

/// One workload of one peer at one load.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Record {
    /// Kind of files, such as `db`.
    pub(crate) profile: String,
    /// What was done to them.
    pub(crate) workload: String,
    /// Share of the capacity that was filled before, or what else [`Axis`] says.
    pub(crate) load_percent: u32,
    /// Who did it.
    pub(crate) peer: String,
    /// Of the samples, such as `MiB/s`.
    pub(crate) unit: String,
    /// One value a round; none if it could not be measured.
    pub(crate) samples: Vec<f64>,
    /// The seed of HIFS's images in the round of each, where that is fixed; else none.
    pub(crate) seeds: Vec<u64>,
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

    /// Whether it tells of the same work, whoever did it.
    pub(crate) fn is_same_work(&self, other: &Self) -> bool {
        self.profile == other.profile
            && self.workload == other.workload
            && self.load_percent == other.load_percent
    }

    /// A record as tests need it.
    #[cfg(test)]
    pub(crate) fn sample(peer: &str, workload: &str, load_percent: u32, samples: &[f64]) -> Self {
        Self {
            profile: "db".into(),
            workload: workload.into(),
            load_percent,
            peer: peer.into(),
            unit: "MiB/s".into(),
            samples: samples.into(),
            ..Self::default()
        }
    }
}

/// The peer that ratios among `records` refer to.
pub(crate) fn reference(records: &[Record]) -> &'static str {
    let measured = |name: &&str| records.iter().any(|r| r.peer == *name);
    REFERENCES.into_iter().find(measured).unwrap_or(REFERENCES[0])
}

/// The value of `peer` for the same work.
pub(crate) fn value_of(peer: &str, record: &Record, records: &[Record]) -> Option<f64> {
    same_work(peer, record, records)?.value()
}

/// The value of `record` over that of `peer` for the same work.
pub(crate) fn ratio_to(peer: &str, record: &Record, records: &[Record]) -> Option<f64> {
    Some(record.value()? / value_of(peer, record, records)?)
}

/// The largest such ratio within a round; rounds differ by what else the machine did.
pub(crate) fn best_ratio_to(peer: &str, record: &Record, records: &[Record]) -> Option<f64> {
    let base = same_work(peer, record, records)?;
    let rounds = record.samples.iter().zip(&base.samples);
    rounds.map(|(value, base)| value / base).reduce(f64::max)
}

fn same_work<'r>(peer: &str, record: &Record, records: &'r [Record]) -> Option<&'r Record> {
    records.iter().find(|r| r.peer == peer && r.is_same_work(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(peer: &str, samples: &[f64]) -> Record {
        Record::sample(peer, "seq-read", 60, samples)
    }

    #[test]
    fn axes_are_of_profiles() {
        assert_eq!(Axis::of("db").label(), "load in %");
        assert_eq!(Axis::of("40ms").label(), "clients");
        assert_eq!((Axis::of("growth").end, Axis::of("forms").name), (None, "load"));
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
}
