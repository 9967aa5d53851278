//! `tacita privatefs`, as it is typed: real mounts over a server on this machine.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod bench;
mod killed;
mod limits;
mod programs;
mod refused;
mod sealed;
mod stores;
mod traces;
mod two;
