//! When a purge comes by itself: by time, by keys, by bytes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, UNIX_EPOCH};

use tacita_clock::{Clock, Simulated, System, Worker};
use tacita_dnefs::{Dnefs, Policy, PurgeScope, Receipt};
use tacita_vfs::{FileSystem, NodeId, Stamps};

use crate::deletion::make;
use crate::volumes::{fresh, open};

/// Longer than any purge takes on any machine.
const LONG: Duration = Duration::from_mins(2);

fn start(clock: Arc<dyn Clock>, policy: Policy) -> (Arc<Dnefs>, NodeId, Worker, Receiver<Receipt>) {
    let chip = fresh(200, 0);
    let fs = Arc::new(open(&chip));
    let node = make(&fs, "file", &[1; 4096]);
    fs.purge(PurgeScope::Deleted).unwrap();
    let (sender, receiver) = channel();
    let of = Arc::clone(&fs);
    let purge = move || {
        if of.keys_waiting() > 0 {
            sender.send(of.purge(PurgeScope::Deleted).unwrap()).unwrap();
        }
    };
    let purger = Worker::start("purge", clock, fs.due_by(&policy), policy.every, purge);
    (fs, node, purger.unwrap(), receiver)
}

fn overwrite(fs: &Dnefs, node: NodeId, times: u32) {
    for value in 0..times {
        fs.write(node, 0, &value.to_le_bytes(), Stamps::NONE).unwrap();
    }
}

#[test]
fn so_many_keys_are_purged_and_fewer_are_not() {
    let policy = Policy { after_keys: Some(50), ..Policy::default() };
    let (fs, node, _purger, purged) = start(Arc::new(System), policy);
    overwrite(&fs, node, 49);
    assert!(purged.try_recv().is_err());
    assert_eq!(fs.keys_waiting(), 49);
    overwrite(&fs, node, 1);
    assert!(purged.recv_timeout(LONG).unwrap().keys >= 50);
}

#[test]
fn so_many_bytes_are_purged_and_fewer_are_not() {
    let policy = Policy { after_bytes: Some(1 << 16), ..Policy::default() };
    let (fs, node, _purger, purged) = start(Arc::new(System), policy);
    while fs.bytes_waiting() < (1 << 16) - 5000 {
        overwrite(&fs, node, 1);
    }
    assert!(purged.try_recv().is_err());
    while fs.bytes_waiting() > 0 && purged.try_recv().is_err() {
        overwrite(&fs, node, 1);
    }
}

#[test]
fn after_so_long_it_is_purged_and_not_before() {
    let clock = Arc::new(Simulated::at(UNIX_EPOCH));
    let policy = Policy { every: Some(Duration::from_secs(30)), ..Policy::default() };
    let (fs, node, _purger, purged) = start(clock.clone(), policy);
    // Whatever the time of day is set to meanwhile, forth and back.
    for days in [0, 9, 8] {
        overwrite(&fs, node, 3);
        clock.await_waiters(1);
        clock.advance(Duration::from_secs(20));
        clock.set_wall(UNIX_EPOCH + Duration::from_hours(24 * days));
        clock.advance(Duration::from_secs(9));
        assert!(purged.try_recv().is_err(), "day {days}");
        clock.advance(Duration::from_secs(1));
        assert!(purged.recv_timeout(LONG).unwrap().keys >= 3, "day {days}");
        assert_eq!(fs.keys_waiting(), 0, "day {days}");
    }
}
