//! `tacita oram bench`.

use std::time::Duration;

use serde_json::json;
use tacita_oram::Options;
use tacita_oram::link::Delay;
use tacita_oram::load::{Amount, Load};

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
    let capacity = store.geometry().capacity();
    // Reads alone, which change nothing: to the server they are like all others.
    let read = |number: u64| {
        let mut id = [0; 32];
        // In no order: every block comes once before one comes twice.
        let which = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % capacity;
        id[..8].copy_from_slice(&which.to_le_bytes());
        store.read(id).map(drop)
    };
    let clients = vec![read; usize::from(*clients)];
    let amount = Amount { queries: *queries, time: Duration::MAX };
    let load = Load::measure(clients, amount).map_err(|e| failure(&e))?;
    let millis = |permille| load.at(permille).as_secs_f64() * 1000.0;
    let facts = json!({
        "queries": load.queries(),
        "queries_per_second": load.per_second(),
        "p50_ms": millis(500),
        "p99_ms": millis(990),
        "p999_ms": millis(999),
    });
    output::facts(*json, &facts, &output::lines(&facts))
}
