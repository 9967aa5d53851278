//! Building a generation from its inputs: which bytes are read and written follows from the schedule
//! alone; which item comes where follows from the keys, anew for each generation.
//!
//! A build is a function of its inputs: whoever repeats it writes the same bytes, and whoever goes on
//! with another's leaves out what is there. Small generations are built at once (`one_pass`); large
//! ones in two passes over parts that fit in memory (`two_pass`), so that an item's new place has nothing
//! to do with its old one.
//!
//! Note: oram.md 1.9, completion.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Error, Kind, Result};
use crate::geometry::{Generation, Geometry};
use crate::item::Item;
use crate::keys::GenerationKeys;
use crate::object::Object;
use crate::schedule::{Batch, Build};

mod bucket;
mod filter_parts;
mod one_pass;
mod source;
mod two_pass;

/// Items that are sealed or opened before others get the processor.
const ITEMS_AT_ONCE: u64 = 256;

pub(crate) use source::items;

/// Where builds read and write.
#[async_trait]
pub trait Objects: Send + Sync {
    /// `len` bytes of `object` from `offset` on.
    ///
    /// # Errors
    /// As of whatever keeps them; [`crate::Kind::Hostile`] if there is no such object.
    async fn get(&self, object: Object, offset: u64, len: u64) -> Result<Bytes>;

    /// Keeps `bytes` as `object`; that it is there already is no error.
    ///
    /// # Errors
    /// As of whatever keeps them.
    async fn put(&self, object: Object, bytes: Bytes) -> Result<()>;

    /// Removes `object`.
    ///
    /// # Errors
    /// As of whatever keeps them.
    async fn delete(&self, object: Object) -> Result<()>;

    /// What there is of `generation`.
    ///
    /// # Errors
    /// As of whatever keeps them.
    async fn made(&self, generation: Generation) -> Result<HashSet<Object>>;
}

/// Who is told of the progress of a build, and says when to go on.
#[async_trait]
pub trait Pace: Send + Sync {
    /// So many more items have been read or written; returns when there may be more.
    ///
    /// # Errors
    /// Whatever ends the build.
    async fn moved(&self, items: u64) -> Result<()>;

    /// Waits until there is room in memory for a part of a large build: a few buckets.
    ///
    /// # Errors
    /// Whatever ends the build.
    async fn room(&self) -> Result<Room>;
}

/// Parts of large builds that a client has in memory at once: as many as threads work on them.
pub const ROOMS: usize = 2;

/// Room in memory, until it is dropped.
#[derive(Debug)]
pub struct Room {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// One of those that there are.
    pub const fn one(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: Some(permit) }
    }

    /// There is enough, whoever else needs some.
    pub const fn unbounded() -> Self {
        Self { _permit: None }
    }
}

/// What comes from above.
#[derive(Debug)]
pub enum Input {
    /// What the log of a period leaves.
    Log(Vec<Item>),
    /// A full generation.
    Full(Generation, Arc<GenerationKeys>),
}

/// A build, and the keys of all that has part in it.
#[derive(Debug)]
pub struct Job {
    /// The shapes of the store.
    pub geometry: Geometry,
    /// What is built from what.
    pub build: Build,
    /// Keys of what is built.
    pub keys: Arc<GenerationKeys>,
    /// Keys of the generation that goes into it.
    pub current: Option<Arc<GenerationKeys>>,
    /// The other input.
    pub batch: Input,
}

/// Items that `build` reads and writes: what its progress is measured by.
pub fn work(geometry: &Geometry, build: &Build) -> u64 {
    let between = two_pass::Cells::of(geometry, build).map_or(0, |cells| 2 * cells.total());
    read(geometry, build) + between + slots(geometry, build.generation)
}

/// Items of the generations that go into `build`.
fn read(geometry: &Geometry, build: &Build) -> u64 {
    let batch = match build.batch {
        Batch::Log { .. } => None,
        Batch::Full(full) => Some(full),
    };
    build.current.into_iter().chain(batch).map(|input| slots(geometry, input)).sum()
}

fn slots(geometry: &Geometry, generation: Generation) -> u64 {
    let shape = geometry.shape(generation);
    u64::from(shape.slots) * u64::from(shape.buckets)
}

/// Bytes of an object between the passes at most: what a server takes.
pub const CELLS_LEN_MAX: u64 = 256 << 20;

/// All generations of a store of these shapes can be built: the cells of the largest fit into objects.
///
/// # Errors
/// [`Kind::Parameters`] if they do not.
pub fn must_build(geometry: &Geometry) -> Result<()> {
    let level = geometry.levels();
    let can_build = [u64::MAX >> 32, geometry.growth()].into_iter().all(|number| {
        let build = geometry.build(Generation { level, number });
        two_pass::Cells::of(geometry, &build)
            .is_none_or(|cells| cells.object_items() * geometry.item_len() as u64 <= CELLS_LEN_MAX)
    });
    if can_build {
        return Ok(());
    }
    Err(Error::new(Kind::Parameters, "so many blocks of this length cannot be built"))
}

impl Job {
    /// Builds what of the generation is not there, and removes what was needed between passes.
    ///
    /// # Errors
    /// [`crate::Kind::Hostile`] if an input is not what was sealed; [`crate::Kind::NoSpace`] if there are
    /// more blocks than the store was made for; errors of `objects`. The build can be begun again.
    pub async fn run(&self, objects: &dyn Objects, pace: &dyn Pace) -> Result<()> {
        let made = objects.made(self.build.generation).await?;
        let cells = two_pass::Cells::of(&self.geometry, &self.build);
        if self.is_made(&made) {
            pace.moved(work(&self.geometry, &self.build)).await?;
        } else if let Some(cells) = &cells {
            two_pass::run(self, cells, &made, objects, pace).await?;
        } else {
            one_pass::run(self, objects, pace).await?;
        }
        match &cells {
            Some(cells) => two_pass::clear(self, cells, objects).await,
            None => Ok(()),
        }
    }

    /// Whether all is there that lasts.
    fn is_made(&self, made: &HashSet<Object>) -> bool {
        let (generation, shape) = (self.build.generation, self.keys.shape());
        (0..shape.buckets).all(|bucket| made.contains(&Object::Items { generation, bucket }))
            && (0..shape.parts).all(|part| made.contains(&Object::Filter { generation, part }))
    }

    /// Whether `item` goes into the generation: at the bottom there is nothing below that what is not there
    /// would have to hide.
    fn keeps(&self, item: &Item) -> bool {
        item.block.is_some() || self.build.generation.level != self.geometry.levels()
    }
}

#[cfg(test)]
mod tests;
