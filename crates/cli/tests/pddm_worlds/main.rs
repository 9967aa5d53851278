//! The program is the game: worlds without a hidden volume, with an idle and with busy ones see the
//! same public history, by every command and both endpoints. Whoever has the public password and
//! copies of the device, a second reader of its format, a trace of what the daemon writes, and what
//! public commands say, cannot tell them apart.
//!
//! `TACITA_WORLDS=N` plays all worlds with N seeds; without it the two that differ most play once.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod clients;
mod commands;
mod folder;
mod full;
mod interrupted;
mod judge;
mod levels;
mod processes;
mod traced;
mod world;
