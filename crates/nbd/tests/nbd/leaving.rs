//! Clients that leave, and clients of other exports: nobody waits for them.

use std::sync::Arc;
use std::time::Duration;

use tacita_nbd::protocol::{CMD_FLUSH, CMD_READ};
use tacita_nbd::{Export, Limits};

use crate::client::{Client, Served, WAIT_MAX};
use crate::devices::{GatedDevice, PanickingDevice, memory};

const LIMITS: Limits = Limits {
    connections: 3,
    content_len_bytes: 2 << 20,
    negotiation: Duration::from_mins(1),
    request: Duration::from_mins(1),
};

/// An export whose flushes and first block wait at a gate, and one that waits for nothing.
fn served() -> (Served, GatedDevice) {
    let gated = GatedDevice::new(memory(8 << 20, 4096));
    let exports = vec![
        Export::new("gated", Arc::new(gated.clone())),
        Export::new("other", Arc::new(memory(8 << 20, 4096))),
    ];
    (Served::with_limits(exports, LIMITS), gated)
}

fn client(served: &Served, export: &str) -> Client {
    let mut client = served.greeted();
    client.go(export);
    client
}

fn assert_served(served: &Served, export: &str) {
    let mut client = client(served, export);
    assert_eq!(client.write(0, 1 << 20, &[7; 4096]), 0);
    assert_eq!(client.read(1 << 20, 4096), [7; 4096]);
}

#[test]
fn clients_of_one_export_take_no_place_from_another() {
    let (served, _gated) = served();
    let clients: Vec<Client> = (0..3).map(|_| client(&served, "gated")).collect();
    assert_served(&served, "other");
    let mut refused = client(&served, "gated");
    assert!(refused.is_closed());
    drop(clients);
}

#[test]
fn who_has_left_takes_no_place() {
    let (served, gated) = served();
    for round in 1..5 {
        let mut clients: Vec<Client> = (0..3).map(|_| client(&served, "gated")).collect();
        for client in &mut clients {
            client.send(CMD_FLUSH, 0, 0, 0, 0);
        }
        gated.await_waiting(3 * round);
        drop(clients);
        served.await_connections(0);
    }
    assert_served(&served, "gated");
    gated.open();
}

#[test]
fn memory_of_one_export_is_none_of_another() {
    let (served, gated) = served();
    let mut clients: Vec<Client> = (0..3).map(|_| client(&served, "gated")).collect();
    for client in &mut clients {
        for _ in 0..4 {
            client.send(CMD_READ, 0, 0, 0, 1 << 20);
        }
    }
    // Two of them take all the memory that there is.
    gated.await_waiting(2);
    assert_served(&served, "other");
    // The others wait for it, and give up when their client has left.
    drop(clients);
    served.await_connections(0);
    gated.open();
}

#[test]
fn what_nobody_wants_to_know_is_not_read() {
    let (served, gated) = served();
    let mut client = client(&served, "gated");
    for _ in 0..40 {
        client.send(CMD_READ, 0, 0, 0, 4096);
    }
    gated.await_waiting(16);
    drop(client);
    served.await_connections(0);
    gated.open();
    assert!(served.server.stop(WAIT_MAX));
    assert_eq!(gated.waited(), 16);
}

#[test]
fn a_device_that_panics_ends_the_connection() {
    let served = Served::device(PanickingDevice(memory(8 << 20, 4096)));
    let mut other = served.simple();
    let mut client = served.simple();
    client.send(CMD_READ, 0, 1, 0, 1 << 20);
    assert!(client.is_closed());
    served.await_connections(1);
    assert_eq!(other.write(0, 0, &[7; 4096]), 0);
}
