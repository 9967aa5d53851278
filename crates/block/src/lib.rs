//! The block device seam ([`BlockDevice`]) and the devices behind it.
//!
//! - [`FileDevice`]: an image file or a raw device of the machine.
//! - [`MemoryDevice`]: sparse, in memory.
//! - [`TraceDevice`]: writes down every request to the device beneath.
//! - [`FaultDevice`]: fails, or loses power, where told to; its [`Recording`] gives every image a
//!   power cut could have left behind.
//! - [`DiskModel`]: a spinning disk on a virtual clock over any device.
//!
//! [`ByteDevice`] lets any of them be read and written at any byte.
//!
//! [`is_zero`] is how they, and what is built on them, tell zeros from content.
//!
//! [`size`] reads and shows their sizes as people write them.
//!
//! [`conformance::check`] holds for all of them, and is there for devices of other crates too.

mod aligned_buf;
mod byte_device;
pub mod conformance;
mod device;
mod disk_model;
mod error;
mod fault;
mod file;
mod loop_device;
mod memory;
mod new_file;
pub mod size;
mod trace;
mod zero;

pub use aligned_buf::AlignedBuf;
pub use byte_device::{ByteDevice, ByteExtent};
pub use device::{Allocation, BlockDevice, BlockNo, BlockRange, Extent, Geometry};
pub use disk_model::{DiskModel, DiskParameters};
pub use error::{Error, Kind, Result};
pub use fault::{Event, Fault, FaultDevice, InFlight, Recording, SECTOR_LEN_BYTES, Sector};
pub use file::{Access, FileDevice, FileOptions, keep_access_time};
pub use memory::MemoryDevice;
pub use new_file::{NewFile, name_beside, remove_left, rename_to_free_name};
pub use trace::{Request, RequestKind, Trace, TraceDevice};
pub use zero::is_zero;
