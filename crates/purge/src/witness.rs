//! A witness for tests: it is shown what is about to be overwritten, and hears every verdict.
//!
//! Without the feature `faults` there is none, and nothing is read for it.

#[cfg(feature = "faults")]
mod shown;

#[cfg(feature = "faults")]
pub use shown::{Event, Evidence, call_witness};
#[cfg(feature = "faults")]
pub(crate) use shown::{show, told};

/// Nobody is shown anything in a build that people use.
#[cfg(not(feature = "faults"))]
pub(crate) fn show(
    _: &std::fs::File,
    _: u64,
    _: Option<&std::ffi::OsStr>,
    _: Option<std::ops::Range<u64>>,
) {
}

/// Nobody is told anything but by the report in a build that people use.
#[cfg(not(feature = "faults"))]
pub(crate) const fn told(_: &crate::verdict::Verdict) {}
