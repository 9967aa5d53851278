//! The claims of `PrivateFS` as games: it does what a file system in memory does, through crashes and with
//! several mounts, and what its server sees depends on nothing but what it may depend on.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod checks;
mod counts;
mod crashes;
mod model;
#[cfg(feature = "faults")]
mod planted;
mod room;
mod second_reader;
mod turns;
mod world;
