//! The promise of purge, as games: the adversary has the raw image, and searches it.

#![allow(clippy::unwrap_used, reason = "a failure is a finding")]

mod acts;
#[cfg(feature = "mutants")]
mod ahead;
mod attributes;
mod command;
#[cfg(feature = "mutants")]
mod crash;
mod folders;
mod image;
#[cfg(feature = "mutants")]
mod journals;
mod judges;
mod latecomers;
#[cfg(feature = "mutants")]
mod limits;
mod matrix;
mod memory;
mod model;
#[cfg(feature = "mutants")]
mod mutants;
mod overlay;
#[cfg(feature = "mutants")]
mod recorded;
mod refusals;
mod room;
mod times;
#[cfg(feature = "mutants")]
mod witness;
