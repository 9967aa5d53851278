//! The block device seam ([`BlockDevice`]) and the devices behind it.

mod device;
mod error;

pub use device::{BlockDevice, BlockNo, BlockRange, Geometry};
pub use error::{Error, Kind, Result};
