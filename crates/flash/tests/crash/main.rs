//! What a power cut or a failure leaves, at every program and erase of a workload and in every way.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod cuts;
mod damage;
#[cfg(feature = "faults")]
mod faults;
#[cfg(feature = "faults")]
mod machine;
mod pages;
#[cfg(feature = "faults")]
mod unreadable;
mod workload;
