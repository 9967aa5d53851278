//! The erase-block seam ([`Volume`]): logical erase blocks with pages that are programmed once, and
//! an atomic change of a whole block.

mod error;
mod volume;

pub use error::{Error, Kind, Result};
pub use volume::{EraseReport, Geometry, Leb, Volume};
