//! The proof of PD-DM: what an adversary may do, and what users rely on.
//!
//! Every random test prints its seed; the seed reproduces it.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod devices;
mod model;
mod worlds;
