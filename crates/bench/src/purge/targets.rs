//! What is wanted of Purgefs: beside the file system below, a FUSE pass-through, and itself with nothing to
//! purge.

use crate::harness::promise::{Bound, Promise};
use crate::harness::record::{Record, best_ratio_to, value_of};

/// Least ratios of speeds: who, the workload, of whom, and how much.
const WANTED: [(&str, &str, &str, f64); 11] = [
    ("async-clear", "warm-read", "native", 0.95),
    ("async-clear", "warm-overwrite", "native", 0.95),
    ("async-clear", "warm-mmap-read", "native", 0.95),
    ("async-clear", "warm-read", "bindfs", 2.0),
    ("async-clear", "warm-overwrite", "bindfs", 2.0),
    // In 1.03 and 1.10 of the time.
    ("async-clear", "build", "native", 1.0 / 1.03),
    ("async-e", "build", "native", 1.0 / 1.10),
    // In 1.25 of the time where round trips allow, else within 3% of what they leave; in four times.
    ("async-clear", "postmark", "native", 1.0 / 1.25),
    ("async-clear", "postmark", "purge-off", 0.97),
    ("async-e", "postmark", "native", 0.25),
    // In twice the time.
    ("async-clear", "tree-deleted", "bindfs", 0.5),
];

/// One for each ratio that was measured.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    let promise = |(peer, workload, of, least): (&str, &str, &str, f64)| {
        let record = records.iter().find(|r| r.peer == peer && r.workload == workload)?;
        let values = (record.value(), value_of(of, record, records));
        let (Some(_), Some(_)) = values else { return None };
        let (what, bound) = (format!("{workload}, {peer}"), Bound::Least(least));
        let promise = Promise::ratio(what, bound, of, &record.unit, values);
        Some(promise.at_best(best_ratio_to(of, record, records)))
    };
    WANTED.into_iter().filter_map(promise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::promise::lines;

    #[test]
    fn what_was_measured_is_judged() {
        let of = |peer, workload, value: f64| Record::sample(peer, workload, 0, &[value]);
        let records = [
            of("native", "postmark", 100.0),
            of("purge-off", "postmark", 60.0),
            of("async-clear", "postmark", 59.0),
            of("bindfs", "tree-deleted", 50.0),
            of("async-clear", "tree-deleted", 40.0),
        ];
        let text = lines(&promises(&records));
        for line in [
            "MISSED: postmark, async-clear, >= 0.8x of native: 0.59x",
            "holds: postmark, async-clear, >= 0.97x of purge-off: 0.98x",
            "holds: tree-deleted, async-clear, >= 0.5x of bindfs: 0.80x",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.lines().count(), 3, "what was not measured is not judged");
    }
}
