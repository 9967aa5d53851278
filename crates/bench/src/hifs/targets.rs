//! What is wanted of layout d.

use crate::harness::promise::{Bound, Promise};
use crate::harness::record::{Record, best_ratio_to, value_of};

/// The layout that the targets are for, its rival, and the honest baseline of our own.
const MEASURED: &str = "tacita-d";
const REFERENCE: &str = "fuse2fs";
const BASELINE: &str = "tacita-a";

/// A lower bound for a ratio over some profiles, workloads and loads.
struct Target {
    text: &'static str,
    against: &'static str,
    profiles: &'static [&'static str],
    workloads: &'static [&'static str],
    loads_percent: std::ops::RangeInclusive<u32>,
    ratio_min: f64,
}

const FILES: &[&str] = &["db", "web"];

const TARGETS: [Target; 11] = [
    Target {
        text: "sequential reads from a warm image",
        against: "ram",
        profiles: &["ram"],
        workloads: &["warm-seq-read"],
        loads_percent: 0..=100,
        ratio_min: 0.8,
    },
    Target {
        text: "reads and overwrites",
        against: REFERENCE,
        profiles: FILES,
        workloads: &["seq-read", "rand-read", "seq-overwrite", "rand-overwrite"],
        loads_percent: 0..=90,
        ratio_min: 1.0,
    },
    Target {
        text: "sequential reads",
        against: REFERENCE,
        profiles: &["db"],
        workloads: &["seq-read"],
        loads_percent: 60..=60,
        ratio_min: 1.5,
    },
    Target {
        text: "sequential overwrites",
        against: REFERENCE,
        profiles: &["db"],
        workloads: &["seq-overwrite"],
        loads_percent: 60..=60,
        ratio_min: 1.5,
    },
    Target {
        text: "cold random reads",
        against: REFERENCE,
        profiles: &["db"],
        workloads: &["rand-read"],
        loads_percent: 60..=60,
        ratio_min: 1.2,
    },
    Target {
        text: "sequential reads, 512 KiB files",
        against: REFERENCE,
        profiles: &["web"],
        workloads: &["seq-read"],
        loads_percent: 0..=90,
        ratio_min: 1.2,
    },
    Target {
        text: "new data up to 60%",
        against: REFERENCE,
        profiles: FILES,
        workloads: &["new-data"],
        loads_percent: 0..=60,
        ratio_min: 0.9,
    },
    Target {
        text: "new data up to 90%",
        against: REFERENCE,
        profiles: FILES,
        workloads: &["new-data"],
        loads_percent: 61..=90,
        ratio_min: 0.6,
    },
    Target {
        text: "small files made",
        against: REFERENCE,
        profiles: FILES,
        workloads: &["create-small"],
        loads_percent: 0..=90,
        ratio_min: 1.0,
    },
    Target {
        text: "small files deleted",
        against: REFERENCE,
        profiles: FILES,
        workloads: &["delete-small"],
        loads_percent: 0..=90,
        ratio_min: 1.0,
    },
    Target {
        text: "new data and overwrites from 60%",
        against: BASELINE,
        profiles: FILES,
        workloads: &["new-data", "rand-overwrite"],
        loads_percent: 60..=95,
        ratio_min: 1.0,
    },
];

/// Longest mount of a large image in seconds, and most memory for it in MiB (200 MB).
const MOUNT_MAX_S: f64 = 2.0;
const MOUNT_MEMORY_MAX_MIB: f64 = 190.7;

/// What is wanted of mounting, for layout d.
fn of_mounting(records: &[Record]) -> impl Iterator<Item = Promise> {
    let ours = records.iter().filter(|r| r.peer == MEASURED && r.profile == "mount");
    ours.filter_map(|record| {
        let (what, most) = match record.workload.as_str() {
            "time" => ("mounting a large image", MOUNT_MAX_S),
            "memory" => ("memory of a large image's mount", MOUNT_MEMORY_MAX_MIB),
            _ => return None,
        };
        Some(Promise::value(what, Bound::Most(most), &record.unit, record.value()?))
    })
}

/// One for each target, with the worst ratio met. None if layout d or its rival was not measured.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    TARGETS.iter().filter_map(|target| of(target, records)).chain(of_mounting(records)).collect()
}

fn of(target: &Target, records: &[Record]) -> Option<Promise> {
    let bound = Bound::Least(target.ratio_min);
    let covered = records.iter().filter(|r| {
        r.peer == MEASURED
            && target.profiles.contains(&r.profile.as_str())
            && target.workloads.contains(&r.workload.as_str())
            && target.loads_percent.contains(&r.load_percent)
    });
    let promise = |record: &Record| {
        let Record { profile, workload, load_percent, unit, .. } = record;
        let values = (record.value(), value_of(target.against, record, records));
        Promise::ratio(target.text, bound, target.against, unit, values)
            .at_best(best_ratio_to(target.against, record, records))
            .remarked(format!("{profile} {workload} at {load_percent}%"))
    };
    let covered: Vec<&Record> = covered.collect();
    if let Some(gap) = covered.iter().find(|r| r.value().is_none()) {
        return Some(promise(gap));
    }
    let all = covered.into_iter().map(promise).filter(|promise| promise.reached().is_some());
    all.min_by(|a, b| a.reached().partial_cmp(&b.reached()).expect("ratios are numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::promise::lines;

    fn record(peer: &str, workload: &str, load_percent: u32, value: f64) -> Record {
        Record::sample(peer, workload, load_percent, &[value])
    }

    #[test]
    fn the_worst_ratio_decides() {
        let records = [
            record("tacita-d", "seq-read", 30, 20.0),
            record("fuse2fs", "seq-read", 30, 10.0),
            record("tacita-d", "seq-read", 90, 9.0),
            record("fuse2fs", "seq-read", 90, 10.0),
            record("tacita-d", "new-data", 60, 9.5),
            record("fuse2fs", "new-data", 60, 10.0),
        ];
        let text = lines(&promises(&records));
        assert!(text.contains("MISSED: reads"), "{text}");
        assert!(text.contains("0.90x (db seq-read at 90%)"), "{text}");
        assert!(text.contains(" holds: new data up to 60%"), "{text}");
        let gap = Record { samples: Vec::new(), ..records[0].clone() };
        assert!(lines(&promises(&[gap])).contains("MISSED: reads"));
        let mut noisy = [records[2].clone(), records[3].clone()];
        noisy[0].samples = vec![8.0, 9.0, 12.0];
        noisy[1].samples = vec![10.0, 10.0, 10.0];
        assert!(lines(&promises(&noisy)).contains("unclear: reads"));
        assert_eq!(text.lines().count(), 2, "what was not measured is not judged");
        assert_eq!(promises(&[]), []);
    }
}
