//! Building what does not fit in memory, in two passes.
//!
//! The first reads the inputs chunk by chunk, a bucket each, and spreads what is real over the buckets of
//! the new generation: to each bucket a cell of the same size from each chunk, filled up with padding;
//! what does not fit waits in memory for the next chunk's cells. The second reads for each bucket its
//! cells from all chunks, keeps the newest of each block, and writes the bucket.
//!
//! Cells are 15% larger than what comes on average, so that what waits is short (the tail of its length
//! falls by e^-0.28 an item), and after the last chunk as many cells follow as empty it but once in 2^80.

use std::collections::{BTreeMap, HashSet, VecDeque};

use bytes::Bytes;

use crate::build::{Job, Objects, Pace, bucket, filter_parts, read, source};
use crate::error::{Error, Kind, Result};
use crate::filter::Entry;
use crate::geometry::Geometry;
use crate::item::{Item, forged, open_cell, seal_cell};
use crate::keys::{self, Label};
use crate::object::Object;
use crate::schedule::{Batch, Build};
use tacita_secret::TAG_LEN;

/// Items that may still wait for a bucket after the last chunk.
const WAITING_MAX: u64 = 240;

/// The shape of what lies between the passes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells {
    /// Buckets of the new generation.
    buckets: u32,
    /// Items that each chunk gives to each bucket.
    len: u32,
    /// Objects: a chunk each, and those that empty what waits.
    chunks: u32,
}

impl Cells {
    /// The shape for `build`; `None` if it is built at once.
    pub(super) fn of(geometry: &Geometry, build: &Build) -> Option<Self> {
        let buckets = geometry.shape(build.generation).buckets;
        if buckets == 1 {
            return None;
        }
        let full = match build.batch {
            Batch::Log { .. } => None,
            Batch::Full(full) => Some(full),
        };
        let inputs = build.current.into_iter().chain(full).map(|input| geometry.shape(input));
        let log = if full.is_none() { geometry.period() } else { 0 };
        let mut most = log;
        let mut chunks = u64::from(full.is_none());
        for shape in inputs {
            most = most.max(shape.reals.div_ceil(u64::from(shape.buckets)));
            chunks += u64::from(shape.buckets);
        }
        let len = (most * 115).div_ceil(100 * u64::from(buckets)) + 1;
        chunks += WAITING_MAX.div_ceil(len) + 1;
        let narrow = |n: u64| u32::try_from(n).expect("fewer than slots, which 32 bits number");
        Some(Self { buckets, len: narrow(len), chunks: narrow(chunks) })
    }

    /// Items in one object.
    pub(super) fn object_items(&self) -> u64 {
        u64::from(self.buckets) * u64::from(self.len)
    }

    /// Items in all of them.
    pub(super) fn total(&self) -> u64 {
        u64::from(self.buckets) * u64::from(self.len) * u64::from(self.chunks)
    }
}

/// Builds what is not among `made` of a generation of many buckets.
pub(super) async fn run(
    job: &Job,
    cells: &Cells,
    made: &HashSet<Object>,
    objects: &dyn Objects,
    pace: &dyn Pace,
) -> Result<()> {
    let generation = job.build.generation;
    let is_gathered = |bucket| {
        made.contains(&Object::Items { generation, bucket })
            && made.contains(&Object::Entries { generation, bucket })
    };
    let is_spread = |chunk| made.contains(&Object::Cells { generation, chunk });
    if (0..cells.chunks).all(is_spread) || (0..cells.buckets).all(is_gathered) {
        pace.moved(read(&job.geometry, &job.build) + cells.total()).await?;
    } else {
        spread(job, cells, objects, pace).await?;
    }
    let mut fakes: Vec<Vec<Label>> = vec![Vec::new(); cells.buckets as usize];
    for index in 0..job.keys.shape().fakes {
        let label = job.keys.fake_label(index);
        fakes[job.keys.shape().bucket_of(&label) as usize].push(label);
    }
    for (bucket, fakes) in (0..).zip(&fakes) {
        if is_gathered(bucket) {
            let gathered = u64::from(cells.chunks) * u64::from(cells.len);
            pace.moved(gathered + u64::from(job.keys.shape().slots)).await?;
        } else {
            let _room = pace.room().await?;
            gather(job, cells, (bucket, fakes), objects, pace).await?;
        }
    }
    for turn in filter_parts::turns(job) {
        let _room = pace.room().await?;
        let mut pages = turn.begin();
        for bucket in 0..cells.buckets {
            for entry in entries(job, bucket, objects).await? {
                pages.insert(job, &entry);
            }
        }
        pages.put(job, objects).await?;
    }
    Ok(())
}

/// Removes what was needed between the passes.
pub(super) async fn clear(job: &Job, cells: &Cells, objects: &dyn Objects) -> Result<()> {
    let generation = job.build.generation;
    for chunk in 0..cells.chunks {
        objects.delete(Object::Cells { generation, chunk }).await?;
    }
    for bucket in 0..cells.buckets {
        objects.delete(Object::Entries { generation, bucket }).await?;
    }
    Ok(())
}

/// What waits for the cells of each bucket.
type Waiting = Vec<VecDeque<(Item, u8)>>;

/// The first pass.
async fn spread(job: &Job, cells: &Cells, objects: &dyn Objects, pace: &dyn Pace) -> Result<()> {
    let mut waiting: Waiting = vec![VecDeque::new(); cells.buckets as usize];
    let mut chunk = 0;
    let route = |waiting: &mut Waiting, items: Vec<Item>, age: u8| {
        for item in items {
            let bucket = job.keys.shape().bucket_of(&job.keys.label(&item.id));
            waiting[bucket as usize].push_back((item, age));
        }
    };
    for (input, age) in source::chunks(job) {
        let _room = pace.room().await?;
        route(&mut waiting, input.items(job, objects, pace).await?, age);
        put_cells(job, cells, (chunk, &mut waiting), objects, pace).await?;
        chunk += 1;
    }
    while chunk < cells.chunks {
        let _room = pace.room().await?;
        put_cells(job, cells, (chunk, &mut waiting), objects, pace).await?;
        chunk += 1;
    }
    if waiting.iter().all(VecDeque::is_empty) { Ok(()) } else { Err(bucket::overfull()) }
}

async fn put_cells(
    job: &Job,
    cells: &Cells,
    (chunk, waiting): (u32, &mut Waiting),
    objects: &dyn Objects,
    pace: &dyn Pace,
) -> Result<()> {
    let total = cells.buckets as usize * cells.len as usize;
    let mut object = Vec::with_capacity(total * job.geometry.item_len());
    for (bucket, waiting) in (0..).zip(waiting) {
        for index in 0..cells.len {
            let item = waiting.pop_front();
            let sealed = item.as_ref().map(|(item, age)| (item, *age));
            let cell = (chunk, bucket * cells.len + index);
            seal_cell(&job.keys, cell, sealed, job.geometry.block_len(), &mut object);
        }
        pace.moved(u64::from(cells.len)).await?;
    }
    let generation = job.build.generation;
    objects.put(Object::Cells { generation, chunk }, Bytes::from(object)).await
}

/// Whoever built the same at the same time has removed it: there is no harm in beginning again.
fn gone(error: Error) -> Error {
    match error.kind() {
        Kind::Hostile => Error::new(Kind::Storage, error.to_string()),
        _ => error,
    }
}

/// The second pass, for one bucket.
async fn gather(
    job: &Job,
    cells: &Cells,
    (bucket, fakes): (u32, &[Label]),
    objects: &dyn Objects,
    pace: &dyn Pace,
) -> Result<()> {
    let generation = job.build.generation;
    let item_len = job.geometry.item_len();
    let cell_len = u64::from(cells.len) * item_len as u64;
    let mut newest: BTreeMap<Label, (Item, u8)> = BTreeMap::new();
    for chunk in 0..cells.chunks {
        let offset = u64::from(bucket) * cell_len;
        let cell = objects.get(Object::Cells { generation, chunk }, offset, cell_len).await;
        let cell = cell.map_err(gone)?;
        for (index, sealed) in (bucket * cells.len..).zip(cell.chunks_exact(item_len)) {
            let Some((item, age)) = open_cell(&job.keys, (chunk, index), sealed)? else { continue };
            let label = job.keys.label(&item.id);
            if newest.get(&label).is_none_or(|other| other.1 <= age) {
                newest.insert(label, (item, age));
            }
        }
        pace.moved(u64::from(cells.len)).await?;
    }
    let reals: Vec<(Label, Item)> = newest
        .into_iter()
        .map(|(label, (item, _))| (label, item))
        .filter(|(_, item)| job.keeps(item))
        .collect();
    let entries: Vec<_> = reals.iter().map(|(_, item)| job.keys.filter_entry(&item.id)).collect();
    bucket::put(job, bucket, reals, fakes, objects, pace).await?;
    put_entries(job, bucket, &entries, objects).await?;
    pace.moved(u64::from(job.keys.shape().slots).div_ceil(2)).await
}

/// Keeps what a bucket gives to the filter: their number, then as many as a bucket can have.
async fn put_entries(
    job: &Job,
    bucket: u32,
    entries: &[Entry],
    objects: &dyn Objects,
) -> Result<()> {
    let slots = job.keys.shape().slots as usize;
    let mut object = Vec::with_capacity(4 + slots * 16 + TAG_LEN);
    let count = u32::try_from(entries.len()).expect("a bucket has fewer");
    object.extend_from_slice(&count.to_le_bytes());
    object.extend(entries.iter().flatten());
    object.resize(4 + slots * 16, 0);
    let place = keys::place(keys::Kind::Entries, bucket, 0);
    let tag = job.keys.places().seal(&place, &[], &mut object);
    object.extend_from_slice(&tag);
    let generation = job.build.generation;
    objects.put(Object::Entries { generation, bucket }, Bytes::from(object)).await
}

async fn entries(job: &Job, bucket: u32, objects: &dyn Objects) -> Result<Vec<Entry>> {
    let damaged = || forged("what a build keeps between its passes");
    let slots = u64::from(job.keys.shape().slots);
    let generation = job.build.generation;
    let len = 4 + slots * 16 + TAG_LEN as u64;
    let object = objects.get(Object::Entries { generation, bucket }, 0, len).await;
    let mut object = object.map_err(gone)?.to_vec();
    let tag = object.split_off(object.len() - TAG_LEN);
    let tag = tag.try_into().map_err(|_| damaged())?;
    let place = keys::place(keys::Kind::Entries, bucket, 0);
    job.keys.places().open(&place, &[], &mut object, &tag).map_err(|_| damaged())?;
    let (count, entries) = object.split_first_chunk::<4>().ok_or_else(damaged)?;
    let count = u32::from_le_bytes(*count) as usize;
    Ok(entries.as_chunks().0.get(..count).ok_or_else(damaged)?.to_vec())
}
