//! The inputs of a build, chunk by chunk.

use crate::build::{ITEMS_AT_ONCE, Input, Job, Objects, Pace};
use crate::error::Result;
use crate::geometry::{Generation, Geometry, ITEMS_HEADER_LEN, LABEL_LEN};
use crate::item::{Item, open_item_at};
use crate::keys::GenerationKeys;
use crate::object::Object;

/// Items of a bucket that are read at once.
const ITEMS_READ: u64 = 1024;

/// What is read at once.
pub(super) enum Chunk<'a> {
    /// A bucket of a generation.
    Bucket(Generation, u32, &'a GenerationKeys),
    /// What the log leaves.
    Log(&'a [Item]),
}

/// Chunks of the inputs of `job`, and how new what is in them is: 0, or 1 for what comes from above, which
/// follows.
pub(super) fn chunks(job: &Job) -> Vec<(Chunk<'_>, u8)> {
    let mut chunks = Vec::new();
    let mut add = |generation, keys, age| {
        let buckets = GenerationKeys::shape(keys).buckets;
        chunks.extend((0..buckets).map(|bucket| (Chunk::Bucket(generation, bucket, keys), age)));
    };
    if let (Some(current), Some(keys)) = (job.build.current, &job.current) {
        add(current, keys, 0);
    }
    match &job.batch {
        Input::Full(full, keys) => add(*full, keys, 1),
        Input::Log(items) => chunks.push((Chunk::Log(items), 1)),
    }
    chunks
}

impl Chunk<'_> {
    /// What is real in it.
    pub(super) async fn items(
        &self,
        job: &Job,
        objects: &dyn Objects,
        pace: &dyn Pace,
    ) -> Result<Vec<Item>> {
        match self {
            Self::Bucket(generation, bucket, keys) => {
                items(&job.geometry, (*generation, *bucket), keys, objects, pace).await
            }
            Self::Log(items) => Ok(items.to_vec()),
        }
    }
}

/// What is real among the items of a bucket.
pub(crate) async fn items(
    geometry: &Geometry,
    (generation, bucket): (Generation, u32),
    keys: &GenerationKeys,
    objects: &dyn Objects,
    pace: &dyn Pace,
) -> Result<Vec<Item>> {
    let shape = keys.shape();
    let object = Object::Items { generation, bucket };
    let (slots, item_len) = (u64::from(shape.slots), geometry.item_len() as u64);
    let labels_at = ITEMS_HEADER_LEN as u64;
    let items_at = labels_at + slots * LABEL_LEN as u64;
    let labels = objects.get(object, labels_at, items_at - labels_at).await?;
    let mut labels = labels.as_chunks().0.iter();
    let mut items = Vec::new();
    let mut slot = 0;
    while u64::from(slot) < slots {
        let count = (slots - u64::from(slot)).min(ITEMS_READ);
        let offset = items_at + u64::from(slot) * item_len;
        let piece = objects.get(object, offset, count * item_len).await?;
        let mut opened = 0;
        for (sealed, label) in piece.chunks_exact(geometry.item_len()).zip(&mut labels) {
            items.extend(open_item_at(keys, (bucket, slot), label, sealed)?);
            slot += 1;
            opened += 1;
            if opened == ITEMS_AT_ONCE {
                pace.moved(std::mem::take(&mut opened)).await?;
            }
        }
        pace.moved(opened).await?;
    }
    Ok(items)
}
