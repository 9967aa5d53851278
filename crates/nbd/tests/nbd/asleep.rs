//! A server that stands still for a while, stopped by a signal or frozen: no client pays for that.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tacita_clock::{Clock, Simulated, System};
use tacita_nbd::protocol::{CMD_READ, CMD_WRITE, OPT_LIST};
use tacita_nbd::{Export, Limits};

use crate::client::Served;
use crate::devices::memory;

const NIGHT: Duration = Duration::from_hours(8);

/// More than the kernel holds for whoever receives: where the half of it could be sent, the other half is
/// waited for.
const LONG_LEN_BYTES: usize = 16 << 20;

fn served() -> (Served, Arc<Simulated>) {
    let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
    let exports = vec![Export::new("disk", Arc::new(memory(64 << 20, 4096)))];
    (Served::on(exports, Limits::default(), Arc::<Simulated>::clone(&clock)), clock)
}

#[test]
fn a_payload_that_is_under_way_is_taken() {
    let (served, clock) = served();
    let mut client = served.simple();
    let payload = vec![7; LONG_LEN_BYTES];
    let (first, second) = payload.split_at(LONG_LEN_BYTES / 2);
    client.send(CMD_WRITE, 0, 1, 0, u32::try_from(LONG_LEN_BYTES).unwrap());
    client.put(first);
    clock.advance(NIGHT);
    client.put(second);
    assert_eq!(client.reply(0).errno, 0);
    assert_eq!(client.read(LONG_LEN_BYTES as u64 - 4096, 4096), [7; 4096]);
}

#[test]
fn an_answer_that_is_under_way_is_given() {
    let (served, clock) = served();
    let mut client = served.simple();
    client.send(CMD_READ, 0, 1, 0, u32::try_from(LONG_LEN_BYTES).unwrap());
    // The rest of it does not fit into what the kernel holds.
    client.take(16 + LONG_LEN_BYTES / 2);
    // Each for longer than the kernel lets it wait for room at once.
    System.wait(Duration::from_secs(2));
    clock.advance(NIGHT);
    System.wait(Duration::from_secs(1));
    assert_eq!(client.take(LONG_LEN_BYTES / 2), vec![0; LONG_LEN_BYTES / 2]);
}

#[test]
fn who_has_begun_may_choose() {
    let (served, clock) = served();
    let mut client = served.greeted();
    client.option(OPT_LIST, &[]);
    assert_eq!(client.option_replies().len(), 2);
    clock.advance(NIGHT);
    client.option(OPT_LIST, &[]);
    assert_eq!(client.option_replies().len(), 2);
    client.go("disk");
    assert_eq!(client.read(0, 4096), [0; 4096]);
}
