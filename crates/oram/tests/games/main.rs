//! Games with whole clients and a whole server: real frames, simulated time.

#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod answers;
mod crashes;
mod forks;
mod hostile;
mod proxy;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod shapes;
mod stores;
mod together;
mod uniform;
mod world;
