//! The erase-block seam ([`Volume`]): logical erase blocks with pages that are programmed once, and
//! an atomic change of a whole block; and its devices.
//!
//! [`Emulator`] is a NAND chip in a file or in memory with UBI on it, byte for byte as Linux writes
//! it; [`UbiVolume`] is such a volume on a chip of the machine. [`conformance`] holds for all devices.

mod access;
pub mod conformance;
mod dump;
pub mod emulator;
mod error;
pub mod faults;
mod random;
mod ubi_volume;
mod volume;

pub use emulator::{Behaviour, Emulator, EmulatorOptions, EraseMode};
pub use error::{Error, Kind, Result};
pub use ubi_volume::{ChipWear, UbiVolume};
pub use volume::{EraseReport, Geometry, Leb, Volume};
