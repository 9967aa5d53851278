//! `tacita oram bench`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tacita_clock::{Clock, System};
use tacita_oram::Options;
use tacita_oram::link::Delay;

use super::{failure, open};
use crate::arguments::Oram as Command;
use crate::exit::Outcome;
use crate::output;

pub(super) fn run(command: &Command) -> Outcome<()> {
    let Command::Bench { address, client, clients, latency, queries, json } = command else {
        unreachable!("called for bench");
    };
    let delay = (*latency > 0).then(|| Delay::of(Duration::from_millis(*latency)));
    let store = open(address, client, &Options { delay, ..Options::default() })?;
    let geometry = *store.geometry();
    let next = AtomicU64::new(0);
    let begin = System.monotonic();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let ask = || -> Outcome<Vec<Duration>> {
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= *queries {
                    return Ok(times);
                }
                let mut id = [0; 32];
                // In no order: every block comes once before one comes twice.
                let which = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % geometry.capacity();
                id[..8].copy_from_slice(&which.to_le_bytes());
                let begin = System.monotonic();
                // Reads alone, which change nothing: to the server they are like all others.
                store.read(id).map_err(|e| failure(&e))?;
                times.push(System.elapsed(begin));
            }
        };
        let threads: Vec<_> = (0..(*clients).max(1)).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().try_fold(Vec::new(), |mut all, thread| -> Outcome<_> {
            all.extend(thread.join().expect("a measuring thread does not panic")?);
            Ok(all)
        })
    })?;
    let took = System.elapsed(begin);
    times.sort_unstable();
    let at =
        |share: usize| times.get((times.len() * share / 1000).min(times.len().saturating_sub(1)));
    let millis = |share| at(share).map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    let facts = json!({
        "queries": times.len(),
        "queries_per_second": f64::from(u32::try_from(times.len()).unwrap_or(u32::MAX)) / took.as_secs_f64(),
        "p50_ms": millis(500),
        "p99_ms": millis(990),
        "p999_ms": millis(999),
    });
    output::facts(*json, &facts, &output::lines(&facts))
}
