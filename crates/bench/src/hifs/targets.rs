//! What is wanted of layout d.

use crate::harness::record::{Record, best_ratio_to, ratio_to};
use crate::harness::targets::{Verdict, tell};

/// The layout that the targets are for, its rival, and the honest baseline of our own.
const MEASURED: &str = "tacita-d";
const REFERENCE: &str = "fuse2fs";
const BASELINE: &str = "tacita-a";

/// A lower bound for a ratio over some workloads and loads.
struct Target {
    text: &'static str,
    against: &'static str,
    workloads: &'static [&'static str],
    loads_percent: std::ops::RangeInclusive<u32>,
    ratio_min: f64,
}

const TARGETS: [Target; 8] = [
    Target {
        text: "sequential reads from a warm image",
        against: "ram",
        workloads: &["warm-seq-read"],
        loads_percent: 0..=100,
        ratio_min: 0.8,
    },
    Target {
        text: "reads and overwrites at every load",
        against: REFERENCE,
        workloads: &["seq-read", "rand-read", "seq-overwrite", "rand-overwrite"],
        loads_percent: 0..=90,
        ratio_min: 1.0,
    },
    Target {
        text: "sequential reads at 60%",
        against: REFERENCE,
        workloads: &["seq-read"],
        loads_percent: 60..=60,
        ratio_min: 1.2,
    },
    Target {
        text: "sequential overwrites at 60%",
        against: REFERENCE,
        workloads: &["seq-overwrite"],
        loads_percent: 60..=60,
        ratio_min: 1.5,
    },
    Target {
        text: "new data up to 60%",
        against: REFERENCE,
        workloads: &["new-data"],
        loads_percent: 0..=60,
        ratio_min: 0.9,
    },
    Target {
        text: "new data up to 90%",
        against: REFERENCE,
        workloads: &["new-data"],
        loads_percent: 61..=90,
        ratio_min: 0.6,
    },
    Target {
        text: "small files made and deleted",
        against: REFERENCE,
        workloads: &["create-small", "delete-small"],
        loads_percent: 0..=90,
        ratio_min: 1.0,
    },
    Target {
        text: "new data and overwrites from 60%",
        against: BASELINE,
        workloads: &["new-data", "rand-overwrite"],
        loads_percent: 60..=95,
        ratio_min: 1.0,
    },
];

/// Longest mount of a large image in seconds, and most memory for it in MiB (200 MB).
const MOUNT_MAX_S: f64 = 2.0;
const MOUNT_MEMORY_MAX_MIB: f64 = 190.7;

/// What is wanted of mounting, for layout d.
pub(crate) fn mount_verdicts(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records.iter().filter(|r| r.peer == MEASURED) {
        let limit = match record.workload.as_str() {
            "time" => MOUNT_MAX_S,
            "memory" => MOUNT_MEMORY_MAX_MIB,
            _ => continue,
        };
        let Some(value) = record.value() else {
            continue;
        };
        let (what, unit) = (&record.workload, &record.unit);
        let what = format!("mount {what}, <= {limit} {unit}: {value:.2} {unit}");
        tell(&mut text, Verdict::of(value <= limit), &what);
    }
    text
}

/// A line a target with the worst ratio met, "unclear" if single rounds reach the target though
/// the medians do not; empty if layout d or its rival was not measured.
pub(crate) fn verdicts(records: &[Record]) -> String {
    let mut text = String::new();
    for target in &TARGETS {
        let covered = records.iter().filter(|r| {
            r.peer == MEASURED
                && target.workloads.contains(&r.workload.as_str())
                && target.loads_percent.contains(&r.load_percent)
        });
        let covered: Vec<&Record> = covered.collect();
        if let Some(gap) = covered.iter().find(|r| r.value().is_none()) {
            let what = format!(
                "{}: no value for {} {} at {}%",
                target.text, gap.profile, gap.workload, gap.load_percent
            );
            tell(&mut text, Verdict::Missed, &what);
            continue;
        }
        let ratio = |r: &&Record| ratio_to(target.against, r, records);
        let ratios = covered.into_iter().filter_map(|r| Some((ratio(&r)?, r)));
        let Some((worst, at)) = ratios.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            continue;
        };
        let best = best_ratio_to(target.against, at, records);
        let verdict = Verdict::of_ratio(Some(worst), best, target.ratio_min);
        let what = format!(
            "{}, >= {}x of {}: at worst {worst:.2}x ({} {} at {}%)",
            target.text, target.ratio_min, target.against, at.profile, at.workload, at.load_percent
        );
        tell(&mut text, verdict, &what);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = verdicts(&records);
        assert!(text.contains("MISSED: reads"), "{text}");
        assert!(text.contains("0.90x (db seq-read at 90%)"), "{text}");
        assert!(text.contains(" holds: new data up to 60%"), "{text}");
        let gap = Record { samples: Vec::new(), ..records[0].clone() };
        assert!(verdicts(&[gap]).contains("MISSED: reads"));
        let mut noisy = [records[2].clone(), records[3].clone()];
        noisy[0].samples = vec![8.0, 9.0, 12.0];
        noisy[1].samples = vec![10.0, 10.0, 10.0];
        assert!(verdicts(&noisy).contains("unclear: reads"));
        assert_eq!(text.lines().count(), 2, "what was not measured is not judged");
        assert_eq!(verdicts(&[]), "");
    }
}
