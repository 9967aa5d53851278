//! The proof of PD-DM: what an adversary may do, and what users rely on.
//!
//! Every random test prints its seed; the seed reproduces it.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod content;
mod crash;
mod damage;
mod devices;
mod guess;
#[cfg(feature = "leaks")]
mod leaks;
mod levels;
mod model;
mod worlds;
