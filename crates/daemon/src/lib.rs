//! What every daemon of Tacita needs and no system should write again: going into the background
//! ([`serve`]), a lock that tells who serves what and how it ended ([`ServingLock`]), signals
//! ([`Interrupts`]), a voice that is heard without a terminal ([`voice`]), one control channel
//! ([`control`]), and the kernel's tables of what is mounted ([`mounts`]).
//!
//! Nothing here knows what is served.

// It ends the process when whoever reads has gone: see `voice::say`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod control;
mod core_dumps;
mod error;
mod failure;
mod fork;
mod fuse_device;
mod heap;
mod interrupts;
mod kernel_table;
mod process_state;
mod runtime_folder;
mod service_manager;
mod serving_lock;
pub mod voice;

pub use core_dumps::leave_no_core_dumps;
pub use error::{Error, Kind, Result};
pub use failure::{
    Failure, code_for, exit, refusal_of, remedy_for, remedy_where_refused, with_causes,
};
pub use fork::{Daemonised, Reporter, daemonise, serve};
pub use fuse_device::FuseDevice;
pub use interrupts::{BeforeEnd, Heeding, Interrupts, outlive_file_size_limit};
pub use kernel_table::{Mount, mounts, unescaped};
pub use serving_lock::{Ending, Leaving, ServingLock, Watch};
