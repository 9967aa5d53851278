//! The proof of HIFS: an adversary's games on whole images.
//!
//! Every random test prints its seed; the seed reproduces it.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod crash;
mod images;
mod metamorphic;
#[cfg(feature = "mutants")]
mod mutants;
mod paper;
mod permutation;
