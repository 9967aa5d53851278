//! The proof of HIFS: an adversary's games on whole images.
//!
//! Every random test prints its seed; the seed reproduces it.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

#[cfg(feature = "mutants")]
mod beside;
#[cfg(feature = "mutants")]
mod bound;
mod crash;
mod damage;
mod faults;
mod full;
mod hostile;
mod images;
mod large;
mod metamorphic;
#[cfg(feature = "mutants")]
mod mutants;
mod paper;
mod permutation;
mod second_reader;
mod strict;
