//! Placement: which cell of a table holds which bucket, as a function of what is stored alone.
//!
//! A table has `Gn * Bn` cells in `Gn` groups. What wants room is a [`Piece`]: `2^order`
//! consecutive logical buckets of one owner. Every cell ranks all pieces alike ([`Rank`]), so the
//! stable matching of the paper (section 4.2) is unique and equals a serial dictatorship: take the
//! pieces from the most to the least preferred, give each its first free frame. That sentence is
//! the [`oracle`]; [`Engine`] reaches the same result from any earlier state by touching only what
//! changes.
//!
//! The layouts differ in the customisable procedures alone ([`Procedures`]): layouts A, B, C and
//! the inode table are the paper's procedure sets 2 to 5, layout D is the design note's rule. The
//! same seam serves the buckets map and the inode table.
//!
//! Nothing here does I/O, takes a lock or reads a clock.

mod engine;
mod oracle;
mod piece;
mod procedure_set_1;
mod procedures;
mod rule_d;

pub use engine::{Change, Engine, Entry, Relocation, Work};
pub use oracle::oracle;
pub use piece::{Cell, Owner, Piece, Rank, Shape, pieces_of_chunk};
pub use procedure_set_1::{Delete, HashTable};
pub use procedures::{LayoutA, LayoutB, LayoutC, Procedures};
pub use rule_d::RuleD;
