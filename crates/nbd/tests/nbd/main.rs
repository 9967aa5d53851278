//! The server as its clients see it: byte by byte, through real clients, and through hostile ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod asleep;
mod client;
mod devices;
mod hostile;
mod leaving;
mod listening;
mod programs;
mod serving;
mod specification;
mod stopping;
