//! The end of a server.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tacita_clock::Simulated;
use tacita_nbd::protocol::{CMD_DISC, CMD_READ, CMD_WRITE};
use tacita_nbd::{Export, Limits};

use crate::client::{Served, WAIT_MAX};
use crate::devices::{GatedDevice, memory};

#[test]
fn what_is_under_way_is_answered() {
    let device = GatedDevice::new(memory(1 << 20, 512));
    let served = Served::device(device.clone());
    let mut client = served.simple();
    let mut idle = served.simple();
    client.send(CMD_READ, 0, 5, 0, 512);
    device.await_waiting(1);
    let socket = served.socket();
    std::thread::scope(|scope| {
        let stopped = scope.spawn(move || served.server.stop(WAIT_MAX));
        // It has begun to stop once its socket file is gone.
        while socket.exists() {
            std::thread::yield_now();
        }
        assert!(!stopped.is_finished());
        device.open();
        let reply = client.reply(512);
        assert_eq!((reply.cookie, reply.errno), (5, 0));
        assert!(client.is_closed() && idle.is_closed());
        assert!(stopped.join().unwrap());
    });
}

#[test]
fn patience_ends() {
    let device = GatedDevice::new(memory(1 << 20, 512));
    let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
    let exports = vec![Export::new("disk", Arc::new(device.clone()))];
    let served = Served::on(exports, Limits::default(), Arc::<Simulated>::clone(&clock));
    let mut client = served.simple();
    client.send(CMD_READ, 0, 5, 0, 512);
    device.await_waiting(1);
    std::thread::scope(|scope| {
        let stopped = scope.spawn(move || served.server.stop(Duration::from_secs(50)));
        // The patience of the caller, and then what clients get to read their last answers.
        for seconds in [49, 1, 1] {
            clock.await_waiters(1);
            assert!(!stopped.is_finished());
            clock.advance(Duration::from_secs(seconds));
        }
        assert!(!stopped.join().unwrap());
    });
    assert!(client.is_closed());
    device.open();
}

#[test]
fn half_a_request_does_not_keep_it() {
    let served = Served::device(memory(1 << 20, 512));
    let mut client = served.simple();
    client.send(CMD_WRITE, 0, 5, 0, 512);
    client.put(&[1; 100]);
    let mut early = served.connect();
    early.take(18);
    assert!(served.server.stop(WAIT_MAX));
    assert!(client.is_closed() && early.is_closed());
}

#[test]
fn a_client_that_ends_gets_its_answers() {
    let device = GatedDevice::new(memory(1 << 20, 512));
    let served = Served::device(device.clone());
    let mut client = served.simple();
    client.send(CMD_READ, 0, 5, 0, 512);
    client.send(CMD_DISC, 0, 6, 0, 0);
    device.await_waiting(1);
    device.open();
    assert_eq!(client.reply(512).cookie, 5);
    assert!(client.is_closed());
}
