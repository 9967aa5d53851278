//! What is wanted of `PrivateFS`, beside the paper.

use crate::harness::promise::{Bound, Promise};
use crate::harness::record::{Record, value_of};

const MEASURED: &str = "privatefs";
/// PD-ORAM itself, asked for as many blocks.
const STORE: &str = "store";
/// Paper: figure 10's axis ends at 140 KB/s; ten times of that is wanted without latency.
const THROUGHPUT_MIN: f64 = 1400.0;
/// Least share of what the store gives by itself.
const SHARE_MIN: f64 = 0.8;
/// Most memory of a mount at 2^20 blocks, in MiB.
const MEMORY_MAX: f64 = 256.0;

/// One for each target that was measured.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    let mut promises = Vec::new();
    let ours = || records.iter().filter(|record| record.peer == MEASURED);
    for workload in ["write", "read"] {
        let all = ours().filter(|r| r.profile == "0ms" && r.workload == workload);
        promises.extend(all.filter_map(Record::value).reduce(f64::max).map(|best| {
            let what = format!("0ms, {workload}, with the best number of clients");
            Promise::value(what, Bound::Least(THROUGHPUT_MIN), "KB/s", best)
        }));
    }
    for record in ours().filter(|r| r.workload == "write" || r.workload == "read") {
        let Record { profile, workload, load_percent: clients, unit, .. } = record;
        let values = (record.value(), value_of(STORE, record, records));
        if let (Some(_), Some(_)) = values {
            let what = format!("{profile}, {clients} clients, {workload}");
            promises.push(Promise::ratio(what, Bound::Least(SHARE_MIN), STORE, unit, values));
        }
    }
    let memory = ours().find(|r| r.profile == "memory").and_then(Record::value);
    promises.extend(memory.map(|memory| {
        let what = "memory of a mount at 2^20 blocks";
        Promise::value(what, Bound::Most(MEMORY_MAX), "MiB", memory)
    }));
    promises
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::promise::lines;

    #[test]
    fn targets_are_judged() {
        let of = |profile: &str, peer: &str, workload: &str, value: f64| Record {
            profile: profile.into(),
            ..Record::sample(peer, workload, 10, &[value])
        };
        let records = [
            of("0ms", MEASURED, "write", 2000.0),
            of("0ms", STORE, "write", 4000.0),
            of("memory", MEASURED, "mount", 100.0),
        ];
        let text = lines(&promises(&records));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("holds") && lines[2].contains("holds"), "{text}");
        assert!(lines[1].contains("MISSED") && lines[1].contains("0.50x"), "{text}");
    }
}
