//! Time, handed in: whoever needs it takes an `Arc<dyn Clock>`, so that runs can be replayed and
//! what lasts a minute is tested in no time.
//!
//! - [`Clock`]: tells the time and waits.
//! - [`System`]: the clock of the machine, and the one place where its time enters.
//! - [`Simulated`]: a clock that stands still until a test lets time pass.
//! - [`Event`] and [`Cancellation`]: what ends a wait before its time.
//! - [`Worker`]: a thread that works whenever an event happens or a time has passed.

mod clock;
mod event;
mod simulated;
mod system;
mod worker;

pub use clock::Clock;
pub use event::{Cancellation, Event};
pub use simulated::Simulated;
pub use system::System;
pub use worker::Worker;
