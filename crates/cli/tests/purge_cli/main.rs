//! `tacita purge` as scripts use it.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod access_lists;
mod commands;
mod image;
mod lower;
mod methods;
mod runs;
mod signals;
mod users;
