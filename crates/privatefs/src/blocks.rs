//! The seam to the store: blocks by their ids, each operation one query.

mod memory;
mod oblivious;

use std::fmt::Debug;

use tacita_oram::log_view::Outcome;
use tacita_oram::record::Operation;

pub use memory::{Memory, Way};
pub use oblivious::Oblivious;

use crate::error::Result;
use crate::ids::Id;

/// How much there is room for, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What the store was made for.
    pub capacity: u64,
    /// Blocks that are there after all operations that were done.
    pub present: u64,
}

/// Blocks of a store. Whoever keeps them sees how many operations there are, and nothing else.
pub trait Blocks: Debug + Send + Sync + 'static {
    /// Does operations at once, in no particular order. What was done is durable.
    ///
    /// # Errors
    /// The first one; others may have been done.
    fn all(&self, operations: Vec<(Id, Operation)>) -> Result<Vec<Outcome>>;

    /// Operations that are under way at once, at most; others of [`Blocks::all`] wait for them.
    fn at_once(&self) -> usize;

    /// How much room there is; asks for no block.
    ///
    /// # Errors
    /// As the store has them.
    fn room(&self) -> Result<Room>;
}
