//! The proof of PD-DM: what an adversary may do, and what users rely on.
//!
//! Every random test prints its seed; the seed reproduces it.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]
#![allow(clippy::cast_precision_loss, reason = "counts in statistics are small")]
#![allow(clippy::needless_for_each, reason = "a chain reads better than a loop of one line")]

mod aligned;
mod bad_sectors;
mod content;
mod crash;
mod damage;
mod devices;
mod durations;
mod epochs;
#[cfg(feature = "faults")]
mod faults;
mod gap;
mod gate;
mod guess;
mod heartbeat;
#[cfg(feature = "faults")]
mod hostile;
mod levels;
mod maintenance;
mod model;
#[cfg(feature = "faults")]
mod oracle;
mod stale;
mod worlds;
