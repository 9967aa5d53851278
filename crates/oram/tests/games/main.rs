//! Games with whole clients and a whole server: real frames, simulated time.

#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

mod answers;
mod crashes;
mod hostile;
mod proxy;
mod shapes;
mod world;
