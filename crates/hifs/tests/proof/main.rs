//! The proof of HIFS: an adversary's games on whole images.
//!
//! Every random test prints its seed; the seed reproduces it.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

#[cfg(feature = "faults")]
mod accepted;
#[cfg(feature = "faults")]
mod beside;
#[cfg(feature = "faults")]
mod bound;
mod cost;
mod crash;
mod damage;
mod faults;
mod fills;
mod full;
mod hostile;
mod images;
mod large;
mod metamorphic;
mod pack_alive;
mod paper;
mod permutation;
#[cfg(feature = "faults")]
mod planted;
mod salvage;
mod second_reader;
mod strict;
mod unreadable;
mod unreadable_moves;
mod unreadable_pages;
