//! What is wanted of PD-ORAM.

use super::{MEASURED, PLAIN};
use crate::harness::promise::{Bound, Promise};
use crate::harness::record::{Record, value_of};

/// Least queries a second without latency, with as many clients as are best.
const QUERIES_MIN: f64 = 600.0;
/// Least share of clients over round trips and their time, with latency.
const SHARE_MIN: f64 = 0.8;
/// Most that the slowest query of a thousand takes of a usual one, while levels are rebuilt.
const SPREAD_MAX: f64 = 5.0;
/// Longest time to make a store of 2^20 blocks, in seconds.
const INIT_MAX: f64 = 60.0;
/// Memory of a client beside what its largest build needs, in MiB.
const CLIENT_MORE: f64 = 64.0;

/// One for each target that was measured.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    let mut promises = Vec::new();
    let ours = || records.iter().filter(|record| record.peer == MEASURED);
    let best = ours().filter(|r| r.profile == "0ms" && r.workload == "queries");
    let best = best.filter_map(Record::value).reduce(f64::max);
    promises.extend(best.map(|best| {
        let what = "0ms, with the best number of clients";
        Promise::value(what, Bound::Least(QUERIES_MIN), "queries/s", best)
    }));
    for record in ours().filter(|record| record.workload == "queries") {
        let Some(ideal) = ideal(records, record) else { continue };
        let (what, values) = (of_clients(record), (record.value(), Some(ideal)));
        let bound = Bound::Least(SHARE_MIN);
        promises.push(Promise::ratio(
            what,
            bound,
            "clients over round trips",
            &record.unit,
            values,
        ));
    }
    for record in ours().filter(|record| record.workload == "p99.9-of-p50") {
        let Some(spread) = record.value() else { continue };
        let what = format!("{}, p99.9", of_clients(record));
        let promise = Promise::value(what, Bound::Most(SPREAD_MAX), "medians", spread);
        // The machine has a part in it that a plain store shows.
        let plain = value_of(PLAIN, record, records);
        promises.push(
            promise.remarked(
                plain.map_or(String::new(), |plain| format!("{PLAIN}: {plain:.1} medians")),
            ),
        );
    }
    promises
        .extend(value(records, "init", "2^20-blocks", 0).map(|seconds| {
            Promise::value("2^20 blocks made", Bound::Most(INIT_MAX), "s", seconds)
        }));
    let memory = |workload| value(records, "memory", workload, 0);
    promises.extend(memory("client").zip(memory("client-planned")).map(|(client, planned)| {
        let most = Bound::Most((planned + CLIENT_MORE).round());
        Promise::value("memory of a client", most, "MiB", client)
    }));
    promises
}

fn of_clients(record: &Record) -> String {
    format!("{}, {} clients", record.profile, record.load_percent)
}

/// Clients over round trips times the time of one; `None` without latency.
fn ideal(records: &[Record], queries: &Record) -> Option<f64> {
    let round_trip_ms: f64 = queries.profile.strip_suffix("ms")?.parse().ok()?;
    let clients = queries.load_percent;
    let round_trips = value(records, &queries.profile, "round-trips", clients)?;
    (round_trip_ms > 0.0).then(|| f64::from(clients) * 1000.0 / (round_trips * round_trip_ms))
}

fn value(records: &[Record], profile: &str, workload: &str, at: u32) -> Option<f64> {
    let is_it = |r: &&Record| {
        (r.profile == profile && r.workload == workload)
            && (r.peer == MEASURED && r.load_percent == at)
    };
    records.iter().find(is_it)?.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::promise::lines;
    use crate::oram::record;

    #[test]
    fn what_was_measured_is_judged() {
        let of = |profile, workload, clients, value: f64| Record {
            samples: vec![value],
            ..record(profile, workload, MEASURED, "", clients)
        };
        let records = [
            of("0ms", "queries", 10, 500.0),
            of("0ms", "queries", 40, 700.0),
            of("0ms", "p99.9-of-p50", 40, 7.0),
            of("0ms", "round-trips", 40, 10.0),
            Record { peer: PLAIN.into(), ..of("0ms", "p99.9-of-p50", 40, 6.0) },
            of("40ms", "queries", 40, 90.0),
            of("40ms", "round-trips", 40, 10.0),
            of("40ms", "p99.9-of-p50", 40, 2.0),
            of("init", "2^20-blocks", 0, 0.1),
            of("memory", "client", 0, 300.0),
            of("memory", "client-planned", 0, 96.0),
        ];
        let text = lines(&promises(&records));
        for line in [
            "holds: 0ms, with the best number of clients, >= 600 queries/s: 700 queries/s",
            "holds: 40ms, 40 clients, >= 0.8x of clients over round trips: 0.90x",
            "MISSED: 0ms, 40 clients, p99.9, <= 5 medians: 7.00 medians (blob: 6.0 medians)",
            "holds: 40ms, 40 clients, p99.9, <= 5 medians: 2.00 medians",
            "holds: 2^20 blocks made, <= 60 s: 0.10 s",
            "MISSED: memory of a client, <= 160 MiB: 300 MiB",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.lines().count(), 6, "what was not measured is not judged");
    }
}
