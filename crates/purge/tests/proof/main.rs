//! The promise of purge, as games: the adversary has the raw image, and searches it.

#![allow(clippy::unwrap_used, reason = "a failure is a finding")]

mod acts;
#[cfg(feature = "faults")]
mod ahead;
mod attributes;
mod command;
#[cfg(feature = "faults")]
mod crash;
mod encrypted;
#[cfg(feature = "faults")]
mod faults;
mod folders;
#[cfg(feature = "faults")]
mod held;
mod image;
#[cfg(feature = "faults")]
mod interrupted;
#[cfg(feature = "faults")]
mod journals;
mod judges;
mod latecomers;
#[cfg(feature = "faults")]
mod limits;
mod mappings;
mod matrix;
mod memory;
mod model;
mod overlay;
#[cfg(feature = "faults")]
mod recorded;
mod refusals;
mod room;
mod shared;
mod times;
mod unopened;
#[cfg(feature = "faults")]
mod unread;
#[cfg(feature = "faults")]
mod witness;
mod written_back;
