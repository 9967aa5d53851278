//! The block device seam ([`BlockDevice`]) and the devices behind it.
//!
//! - [`FileDevice`]: an image file or a raw device of the machine.
//! - [`MemoryDevice`]: sparse, in memory.
//! - [`TraceDevice`]: writes down every request to the device beneath.
//! - [`FaultDevice`]: fails, or loses power, where told to; its [`Recording`] gives every image a
//!   power cut could have left behind.
//! - [`DiskModel`]: a spinning disk on a virtual clock over any device.
//!
//! [`conformance::check`] holds for all of them, and is there for devices of other crates too.

mod aligned_buf;
pub mod conformance;
mod device;
mod disk_model;
mod error;
mod fault;
mod file;
mod memory;
mod trace;

pub use aligned_buf::AlignedBuf;
pub use device::{BlockDevice, BlockNo, BlockRange, Geometry};
pub use disk_model::{DiskModel, DiskParameters};
pub use error::{Error, Kind, Result};
pub use fault::{Event, Fault, FaultDevice, InFlight, Recording, SECTOR_LEN_BYTES, Sector};
pub use file::{Access, FileDevice, FileOptions};
pub use memory::MemoryDevice;
pub use trace::{Request, RequestKind, Trace, TraceDevice};
