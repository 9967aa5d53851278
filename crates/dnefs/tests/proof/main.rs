//! The proof of DNEFS: a model, power cuts, deletions that are looked for in raw dumps.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod checkpoints;
mod crash;
mod damaged_keys;
mod damaged_nodes;
mod deletion;
mod ephemeral;
mod model;
mod nameless;
#[cfg(feature = "faults")]
mod planted;
mod policies;
mod receipts;
mod room;
mod second_reader;
mod sensitive;
mod superblocks;
mod unreadable;
mod volumes;
