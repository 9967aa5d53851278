//! What is wanted of PD-ORAM.

use super::{MEASURED, PLAIN};
use crate::harness::record::Record;
use crate::harness::targets::{Verdict, tell};

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

/// A line a target that was measured.
pub(crate) fn verdicts(records: &[Record]) -> String {
    let mut text = String::new();
    let ours = || records.iter().filter(|record| record.peer == MEASURED);
    let best = ours().filter(|r| r.profile == "0ms" && r.workload == "queries");
    let best = best.filter_map(Record::value).reduce(f64::max);
    if let Some(best) = best {
        let what = format!("0ms, >= {QUERIES_MIN} queries/s: {best:.0} with the best clients");
        tell(&mut text, Verdict::of(best >= QUERIES_MIN), &what);
    }
    for record in ours().filter(|record| record.workload == "queries") {
        let Some(share) = share_of_ideal(records, record) else { continue };
        let what = format!(
            "{}, {} clients, >= {SHARE_MIN}x of clients over round trips: {share:.2}x",
            record.profile, record.load_percent
        );
        tell(&mut text, Verdict::of(share >= SHARE_MIN), &what);
    }
    for record in ours().filter(|record| record.workload == "p99.9-of-p50") {
        let Some(spread) = record.value() else { continue };
        let plain = records.iter().find(|r| r.peer == PLAIN && r.is_same_work(record));
        // The machine has a part in it that a plain store shows.
        let plain = plain.and_then(Record::value).map(|plain| format!(" ({PLAIN}: {plain:.1}x)"));
        let what = format!(
            "{}, {} clients, p99.9 <= {SPREAD_MAX}x of p50: {spread:.1}x{}",
            record.profile,
            record.load_percent,
            plain.unwrap_or_default()
        );
        tell(&mut text, Verdict::of(spread <= SPREAD_MAX), &what);
    }
    if let Some(seconds) = value(records, "init", "2^20-blocks", 0) {
        let what = format!("2^20 blocks made, <= {INIT_MAX} s: {seconds:.2} s");
        tell(&mut text, Verdict::of(seconds <= INIT_MAX), &what);
    }
    let memory = |workload| value(records, "memory", workload, 0);
    if let (Some(client), Some(planned)) = (memory("client"), memory("client-planned")) {
        let most = planned + CLIENT_MORE;
        let what = format!("client's memory, <= {most:.0} MiB: {client:.0} MiB");
        tell(&mut text, Verdict::of(client <= most), &what);
    }
    text
}

/// What was reached of clients over round trips times the time of one; `None` without latency.
fn share_of_ideal(records: &[Record], queries: &Record) -> Option<f64> {
    let round_trip_ms: f64 = queries.profile.strip_suffix("ms")?.parse().ok()?;
    let clients = queries.load_percent;
    let round_trips = value(records, &queries.profile, "round-trips", clients)?;
    let ideal = f64::from(clients) * 1000.0 / (round_trips * round_trip_ms);
    (round_trip_ms > 0.0).then_some(queries.value()? / ideal)
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
        let text = verdicts(&records);
        for line in [
            "holds: 0ms, >= 600 queries/s: 700 with the best clients",
            "holds: 40ms, 40 clients, >= 0.8x of clients over round trips: 0.90x",
            "MISSED: 0ms, 40 clients, p99.9 <= 5x of p50: 7.0x (blob: 6.0x)",
            "holds: 40ms, 40 clients, p99.9 <= 5x of p50: 2.0x",
            "holds: 2^20 blocks made, <= 60 s: 0.10 s",
            "MISSED: client's memory, <= 160 MiB: 300 MiB",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.lines().count(), 6, "what was not measured is not judged");
    }
}
