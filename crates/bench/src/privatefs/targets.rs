//! What is wanted of `PrivateFS`, beside the paper.

use crate::harness::record::Record;
use crate::harness::targets::{Verdict, tell};

const MEASURED: &str = "privatefs";
/// Paper: figure 10's axis ends at 140 KB/s; ten times of that is wanted without latency.
const THROUGHPUT_MIN: f64 = 1400.0;
/// Least share of what the store gives by itself.
const SHARE_MIN: f64 = 0.8;
/// Most memory of a mount at 2^20 blocks, in MiB.
const MEMORY_MAX: f64 = 256.0;

/// A line a target that was measured.
pub(crate) fn verdicts(records: &[Record]) -> String {
    let mut text = String::new();
    let ours = || records.iter().filter(|record| record.peer == MEASURED);
    for workload in ["write", "read"] {
        let all = ours().filter(|r| r.profile == "0ms" && r.workload == workload);
        if let Some(best) = all.filter_map(Record::value).reduce(f64::max) {
            let what = format!("0ms, {workload} >= {THROUGHPUT_MIN} KB/s: {best:.0}");
            tell(&mut text, Verdict::of(best >= THROUGHPUT_MIN), &what);
        }
    }
    for record in ours().filter(|r| r.workload == "write" || r.workload == "read") {
        let raw = records.iter().find(|r| r.peer == "store" && r.is_same_work(record));
        let (Some(value), Some(raw)) = (record.value(), raw.and_then(Record::value)) else {
            continue;
        };
        let what = format!(
            "{}, {} clients, {} >= {SHARE_MIN}x of the store: {:.2}x",
            record.profile,
            record.load_percent,
            record.workload,
            value / raw
        );
        tell(&mut text, Verdict::of(value >= SHARE_MIN * raw), &what);
    }
    let memory = ours().find(|r| r.profile == "memory").and_then(Record::value);
    if let Some(memory) = memory {
        let what = format!("memory of a mount, <= {MEMORY_MAX} MiB: {memory:.0} MiB");
        tell(&mut text, Verdict::of(memory <= MEMORY_MAX), &what);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged() {
        let of = |profile: &str, peer: &str, workload: &str, value: f64| Record {
            profile: profile.into(),
            ..Record::sample(peer, workload, 10, &[value])
        };
        let records = [
            of("0ms", MEASURED, "write", 2000.0),
            of("0ms", "store", "write", 4000.0),
            of("memory", MEASURED, "mount", 100.0),
        ];
        let text = verdicts(&records);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("holds") && lines[2].contains("holds"), "{text}");
        assert!(lines[1].contains("MISSED") && lines[1].contains("0.50x"), "{text}");
    }
}
