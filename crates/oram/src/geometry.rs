//! The shapes of everything in a store: functions of what was chosen at init, and public.

use crate::error::{Error, Kind, Result};

/// Bytes of the identifier of a block: sparse, chosen by whoever uses the store.
pub const ID_LEN: usize = 32;
/// Bytes of a label, by which the server finds an item.
pub const LABEL_LEN: usize = 16;
/// Bytes of a page of a filter, sealed.
pub const PAGE_LEN: usize = 1024;
/// Bytes around the block in an item: bucket, slot, id, kind, tag.
pub const ITEM_OVERHEAD: usize = 64;
/// Bytes around the block in a record of the query log.
pub const RECORD_OVERHEAD: usize = 256;
/// Bytes around the block in a result.
pub const RESULT_OVERHEAD: usize = 64;
/// Bytes before the labels in an object of items.
pub const ITEMS_HEADER_LEN: usize = 32;
/// Real items for each page of a filter. A page has 8064 bits and each item sets 64 of them, so a page
/// with 88 items answers falsely with probability 2^-64; by Poisson's distribution of loads around
/// 64 a filter does with less than 2^-70.
const ITEMS_PER_PAGE: u64 = 64;
/// Pages in an object of a filter: 8 MiB.
const PAGES_PER_PART: u32 = 8192;
/// Bytes of blocks in a bucket by default.
const BUCKET_LEN: u32 = 32 << 20;
/// Slots in a bucket at least by default: with fewer the slack is more than the content.
const BUCKET_SLOTS_MIN: u32 = 1024;
/// Slots in a bucket at least: slack alone takes so many.
const BUCKET_SLOTS_LEAST: u32 = 256;
/// Levels that a store can have.
pub const LEVELS_MAX: usize = 24;

/// What was chosen at init. Sizes of blocks in bytes; all else counts blocks or queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    block_len: u32,
    period: u32,
    growth: u8,
    capacity: u64,
    bucket_slots: u32,
}

/// A generation: the `number`-th build of `level`, both from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation {
    /// The level, 1 the smallest.
    pub level: u8,
    /// Which build of that level.
    pub number: u64,
}

/// What a generation consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Items that can be real.
    pub reals: u64,
    /// Items that only queries for nothing ask for: one for each query the generation lives through.
    pub fakes: u64,
    /// Objects of items.
    pub buckets: u32,
    /// Items in each of them, padding included.
    pub slots: u32,
    /// Pages of the filter.
    pub pages: u32,
    /// Objects of the filter.
    pub parts: u32,
}

impl Geometry {
    /// Blocks of `block_len` bytes, a log of `period` queries, levels that grow by `growth`, room for
    /// `capacity` blocks.
    ///
    /// # Errors
    /// [`Kind::Parameters`], which names the limit.
    pub fn new(block_len: u32, period: u32, growth: u8, capacity: u64) -> Result<Self> {
        let refuse = |what: &'static str| Err(Error::new(Kind::Parameters, what));
        if !block_len.is_power_of_two() || !(512..=65536).contains(&block_len) {
            return refuse("blocks are of 512 bytes to 64 KiB, a power of two");
        }
        if !period.is_power_of_two() || !(16..=1024).contains(&period) {
            return refuse("a period is of 16 to 1024 queries, a power of two");
        }
        if growth != 2 && growth != 4 {
            return refuse("levels grow by 2 or by 4");
        }
        if capacity == 0 || capacity > 1 << 32 {
            return refuse("a store has 1 to 2^32 blocks");
        }
        let bucket_slots = (BUCKET_LEN / block_len).max(BUCKET_SLOTS_MIN);
        Self { block_len, period, growth, capacity, bucket_slots }.with_buckets(bucket_slots)
    }

    /// The same with buckets of `slots` items at most, which is what a client that builds has in memory,
    /// about three times.
    ///
    /// # Errors
    /// [`Kind::Parameters`] if there are too few, or so many buckets that slots cannot be numbered.
    pub fn with_buckets(self, slots: u32) -> Result<Self> {
        let geometry = Self { bucket_slots: slots, ..self };
        let refuse = |what: &'static str| Err(Error::new(Kind::Parameters, what));
        if slots < BUCKET_SLOTS_LEAST {
            return refuse("a bucket has 256 slots at least");
        }
        let bottom = Generation { level: geometry.levels(), number: u64::MAX >> 32 };
        if u32::try_from(geometry.slots_wanted(bottom)).is_err() {
            return refuse("so many blocks need more slots than can be numbered: 2^31 never do");
        }
        Ok(geometry)
    }

    /// Bytes of a block.
    pub const fn block_len(&self) -> usize {
        self.block_len as usize
    }

    /// Queries that the log holds.
    pub const fn period(&self) -> u64 {
        self.period as u64
    }

    /// How much larger each level is than the one above it.
    pub const fn growth(&self) -> u64 {
        self.growth as u64
    }

    /// Blocks that can be present.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Items in a bucket at most.
    pub const fn bucket_slots(&self) -> u32 {
        self.bucket_slots
    }

    /// Bytes of a sealed item.
    pub const fn item_len(&self) -> usize {
        self.block_len() + ITEM_OVERHEAD
    }

    /// Bytes of a sealed record of the query log.
    pub const fn record_len(&self) -> usize {
        self.block_len() + RECORD_OVERHEAD
    }

    /// Bytes of a sealed result.
    pub const fn result_len(&self) -> usize {
        self.block_len() + RESULT_OVERHEAD
    }

    /// Items that come to `level + 1` at once; `level` 0 is the log.
    pub const fn batch(&self, level: u8) -> u64 {
        self.period() * self.growth().pow(level as u32)
    }

    /// The lowest level, which holds everything.
    pub fn levels(&self) -> u8 {
        let holds_all = |level: &u8| self.batch(*level) >= self.capacity;
        (1..=u8::MAX).find(holds_all).expect("levels grow beyond any capacity")
    }

    /// Whether there can be such a generation: what else is asked of it is asked only then.
    pub fn has(&self, generation: Generation) -> bool {
        (1..=self.levels()).contains(&generation.level)
            && (1..=u64::MAX >> 32).contains(&generation.number)
    }

    /// Whether the generation takes no more batches and goes to the next level as one itself.
    pub fn is_full(&self, generation: Generation) -> bool {
        generation.level < self.levels() && generation.number.is_multiple_of(self.growth())
    }

    /// What `generation` consists of.
    pub fn shape(&self, generation: Generation) -> Shape {
        let reals = self.reals(generation);
        let wanted = self.slots_wanted(generation);
        let slots_max = u64::from(self.bucket_slots);
        let mut buckets = 1;
        if wanted > slots_max {
            // As few as leave each of them its slack. A query asks for shapes: nothing is counted up to.
            buckets = wanted.div_ceil(mean_within(slots_max));
        }
        let slots = if buckets == 1 { wanted } else { with_slack(wanted.div_ceil(buckets)) };
        let pages = reals.div_ceil(ITEMS_PER_PAGE);
        let narrow = |n: u64| u32::try_from(n).expect("checked when the geometry was made");
        Shape {
            reals,
            fakes: self.fakes(generation),
            buckets: narrow(buckets),
            slots: narrow(slots),
            pages: narrow(pages),
            parts: narrow(pages.div_ceil(u64::from(PAGES_PER_PART))),
        }
    }

    fn slots_wanted(&self, generation: Generation) -> u64 {
        self.reals(generation) + self.fakes(generation)
    }

    fn reals(&self, generation: Generation) -> u64 {
        let batch = self.batch(generation.level - 1);
        if generation.level == self.levels() {
            // What is created while the count of blocks is on its way: three logs at most.
            return batch.saturating_mul(generation.number).min(self.capacity + 3 * self.period());
        }
        batch * ((generation.number - 1) % self.growth() + 1)
    }

    fn fakes(&self, generation: Generation) -> u64 {
        let level = if self.is_full(generation) { generation.level } else { generation.level - 1 };
        self.batch(level)
    }
}

impl Shape {
    /// The bucket that `label` belongs to.
    pub fn bucket_of(&self, label: &[u8; LABEL_LEN]) -> u32 {
        let prefix = u32::from_be_bytes([label[0], label[1], label[2], label[3]]);
        ((u64::from(prefix) * u64::from(self.buckets)) >> 32) as u32
    }

    /// The object of the filter that has `page`, and the offset of the page within it, in bytes.
    pub fn part_of(&self, page: u32) -> (u32, u64) {
        (page / PAGES_PER_PART, u64::from(page % PAGES_PER_PART) * PAGE_LEN as u64)
    }

    /// Pages in `part` of the filter.
    pub fn pages_in(&self, part: u32) -> u32 {
        self.pages.saturating_sub(part.saturating_mul(PAGES_PER_PART)).min(PAGES_PER_PART)
    }

    /// Bytes of an object of items, which are `item_len` long each.
    pub fn items_len(&self, item_len: usize) -> u64 {
        ITEMS_HEADER_LEN as u64 + u64::from(self.slots) * (LABEL_LEN + item_len) as u64
    }
}

/// What an object of so many items, each `item_len` long, begins with.
pub(crate) fn items_header(slots: u32, item_len: usize) -> [u8; ITEMS_HEADER_LEN] {
    let item_len = u32::try_from(item_len).expect("items are short");
    let mut header = [0; ITEMS_HEADER_LEN];
    header[..8].copy_from_slice(b"TACITEMS");
    header[8..12].copy_from_slice(&slots.to_le_bytes());
    header[12..16].copy_from_slice(&item_len.to_le_bytes());
    header
}

/// The greatest mean that, with its slack, is `slots` at most.
fn mean_within(slots: u64) -> u64 {
    let (mut within, mut beyond) = (1, slots);
    while beyond - within > 1 {
        let middle = u64::midpoint(within, beyond);
        if with_slack(middle) <= slots { within = middle } else { beyond = middle }
    }
    within
}

/// `mean` and as much more as chance exceeds with a probability below 2^-80 (Chernoff: exp(-d^2 / (2 m
/// + 2 d / 3)) at d = 11 sqrt(m) + 40).
pub fn with_slack(mean: u64) -> u64 {
    mean + 11 * (mean.isqrt() + 1) + 40
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each query asks for shapes, so what they cost must not grow with the store.
    #[test]
    fn buckets_are_as_few_as_chance_allows_and_found_at_once() {
        for capacity in [5_000, 1 << 20, 77_777_777, 3_000_000_000] {
            for slots_max in [256, 1_000, 8_192] {
                let Ok(geometry) = Geometry::new(4096, 256, 4, capacity)
                    .and_then(|geometry| geometry.with_buckets(slots_max))
                else {
                    continue;
                };
                let bottom = Generation { level: geometry.levels(), number: u64::MAX >> 32 };
                let Shape { buckets, slots, .. } = geometry.shape(bottom);
                let wanted = geometry.slots_wanted(bottom);
                let needed = |buckets: u32| with_slack(wanted.div_ceil(buckets.into()));
                assert_eq!(u64::from(slots), needed(buckets));
                assert!(slots <= slots_max, "{slots} slots of {slots_max}");
                assert!(needed(buckets - 1) > slots_max.into(), "{buckets} are more than needed");
                for _ in 0..1_000 {
                    assert_eq!(geometry.shape(bottom).buckets, buckets);
                }
            }
        }
    }
}
