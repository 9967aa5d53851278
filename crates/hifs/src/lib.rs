//! HIFS, the history-independent file system (Bajaj and Sion, CCS 2013), with the design note's
//! placement rule D, batch commit and redo journal.
#![forbid(unsafe_code)]

pub mod placement;
