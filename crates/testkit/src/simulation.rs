//! A process of many threads on a simulated clock: time goes on when all of them sleep.
//!
//! What threads do takes no time then, but what they wait for does, whether they wait for the clock
//! or for one another; and as time stands still while any of them runs, when something happens does
//! not depend on the machine. There must be nothing else in the process: a test that simulates runs
//! in a process of its own.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use tacita_clock::{Clock, Simulated, System};

/// How long it is waited before the next look at threads that run.
const LOOK: Duration = Duration::from_micros(50);

/// Lets time pass until `done`, whenever all other threads of this process sleep.
///
/// # Panics
/// If they sleep and none of them waits for the clock: they wait for one another, and for ever.
pub fn run(clock: &Simulated, done: impl Fn() -> bool) {
    while !done() {
        if !all_sleep() {
            System.wait(LOOK);
        } else if !clock.advance_to_next() {
            assert!(done(), "all threads wait for one another");
        }
    }
}

/// Whether no other thread of this process runs or is about to.
///
/// A thread that sleeps at two looks and has not been switched to in between has slept all the time.
/// So all of them sleep at the moment between the looks, and only who runs can wake another.
fn all_sleep() -> bool {
    let first = look();
    first.is_some() && first == look()
}

/// How many times each of the other threads has been switched away from; `None` if one does not sleep.
fn look() -> Option<BTreeMap<String, String>> {
    let own = fs::read_link("/proc/thread-self").expect("procfs is mounted");
    let own = own.file_name().expect("it ends with the thread");
    let mut switches = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/task").expect("procfs is mounted").flatten() {
        if entry.file_name() == own {
            continue;
        }
        // A thread that has ended meanwhile was running.
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        if !line("State:")?.trim_start().starts_with('S') {
            return None;
        }
        let counts = [line("voluntary_ctxt_switches:")?, line("nonvoluntary_ctxt_switches:")?];
        switches.insert(entry.file_name().to_string_lossy().into_owned(), counts.concat());
    }
    Some(switches)
}
