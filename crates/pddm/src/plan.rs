//! What goes into a unit, before it is sealed.

use std::collections::HashMap;

use tacita_secret::{Key, Tag};

use crate::geometry::{Level, Place, Seq};
use crate::keys::CellNumbers;
use crate::stage::Content;
use crate::tail::Tail;
use crate::unit::Block;

/// Where the content of a slot comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The same block of the tail, number `block` of its unit.
    Carried { block: u32, tag: Tag },
    /// What a user has written.
    Written(Content),
    /// What a block held that the tail has passed.
    Moved(Box<Block>),
    /// A page of the position map.
    Page(Box<Block>),
}

/// What goes into one slot.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) id: u32,
    pub(crate) source: Source,
}

/// What goes into a unit.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seq: Seq,
    pub(crate) durable: Seq,
    pub(crate) sweep_until: Seq,
    pub(crate) salt: [u8; 32],
    pub(crate) noise: Key,
    pub(crate) tail: Option<Tail>,
    /// By level: the slots that are filled; `None` where the level is not open.
    pub(crate) levels: Vec<Option<LevelPlan>>,
}

/// The slots of one level in one unit.
#[derive(Debug)]
pub(crate) struct LevelPlan {
    pub(crate) filled: Vec<Filled>,
    pub(crate) numbers: CellNumbers,
}

/// Blocks and pages that the run being planned moves, or drops after it has moved them: what the maps
/// do not say yet.
pub(crate) type Moved = HashMap<(Level, u32), Place>;
