//! Where everything lies in an image, as a function of the parameters of `format` alone.
//!
//! ```text
//! superblock | journal | group 0 | group 1 | ... | group Gn-1 | copy of the superblock
//! group = descriptor | buckets map | inode table map | inode table pages | data buckets
//! ```
//!
//! Paper: HIFS, figure 4. Deviation: D-06 (journal), D-07 (pages) in docs/design/hifs.md.

use tacita_block::BlockNo;

use crate::error::{Error, Kind, Result};
use crate::placement::{Cell, LayoutA, LayoutB, LayoutC, Procedures, RuleD, Shape};

/// Size of a block, the unit of everything on the medium, in bytes: the paper's `ds`.
pub const BLOCK_LEN: usize = 4096;
/// Entries in one block of a map.
pub const MAP_ENTRIES: u32 = 170;
/// Largest bucket, in blocks (1 MiB).
pub const BUCKET_BLOCKS_MAX: u32 = 256;
/// Smallest image, in bytes.
pub const IMAGE_LEN_MIN: u64 = 1 << 20;
/// Largest image, in bytes: cells are numbered by 32 bits.
pub const IMAGE_LEN_MAX: u64 = 16 << 40;
/// Most groups.
pub const GROUPS_MAX: u32 = 4096;

/// Images up to this size get buckets of 16 KiB by default, larger ones of 64 KiB.
const SMALL_IMAGE_LEN: u64 = 16 << 30;
/// One inode table page for so many data blocks.
const DATA_BLOCKS_PER_PAGE: u64 = 32;
/// Share of the image that one commit may change, buckets and pages together.
const COMMIT_SHARE: u64 = 32;
/// Bounds of that share, in blocks: 256 KiB to 64 MiB.
const COMMIT_BLOCKS: (u64, u64) = (64, 16384);
/// One commit may change so many buckets at least: one write may touch several that move, and a
/// bucket that moves and changes is written whole.
const COMMIT_BUCKETS_MIN: u64 = 8;
/// Records of the journal in one block.
const RECORDS_PER_BLOCK: u64 = 128;

/// How owners and cells prefer each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Block group locality (procedure set 2).
    A,
    /// Complete sequential (procedure set 3).
    B,
    /// Locality by user (procedure set 4).
    C,
    /// Rule D of the design note: the default.
    D,
}

/// Where file ids come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// From the path: the image is a function of the visible tree alone; a rename moves data.
    Path,
    /// From a random source at creation: cheap renames, a weaker promise.
    Random,
}

/// Which times are part of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// None; programs see the times of this mount.
    None,
    /// Those that users set.
    User,
    /// All but access times.
    Full,
}

/// What `format` is told.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// Size of the image in bytes.
    pub len_bytes: u64,
    /// Layout.
    pub layout: Layout,
    /// Source of ids.
    pub ids: Ids,
    /// Times kept.
    pub times: Times,
    /// Bucket size in bytes; chosen by size if `None`.
    pub bucket_len_bytes: Option<u32>,
    /// Number of groups; chosen by size if `None`.
    pub groups: Option<u32>,
    /// Key of all hashes.
    pub seed: [u8; 32],
}

/// Shape and positions of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the image, both superblocks included.
    pub image_blocks: u64,
    /// Blocks of the journal.
    pub journal_blocks: u64,
    /// Blocks a bucket: the paper's `dbn`.
    pub bucket_blocks: u32,
    /// Largest size class of rule D.
    pub order_max: u8,
    /// Shape of the buckets map.
    pub buckets: Shape,
    /// Shape of the inode table.
    pub pages: Shape,
}

/// One of the two tables of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// The buckets map and the data buckets.
    Buckets,
    /// The inode table: pages of inodes and of directories.
    Pages,
}

/// The length of a bucket in an image of `len_bytes`, if none is asked for.
pub const fn default_bucket_len_bytes(len_bytes: u64) -> u32 {
    if len_bytes <= SMALL_IMAGE_LEN { 16 << 10 } else { 64 << 10 }
}

impl Geometry {
    /// The geometry that `parameters` ask for.
    ///
    /// # Errors
    /// [`Kind::Geometry`] with the reason, if they make no image.
    pub fn plan(parameters: &Parameters) -> Result<Self> {
        let len = parameters.len_bytes;
        if !(IMAGE_LEN_MIN..=IMAGE_LEN_MAX).contains(&len) {
            return Err(refuse("an image has 1 MiB to 16 TiB"));
        }
        let default_bucket = default_bucket_len_bytes(len);
        let bucket = parameters.bucket_len_bytes.unwrap_or(default_bucket);
        if !bucket.is_power_of_two()
            || !(BLOCK_LEN as u64..=u64::from(BUCKET_BLOCKS_MAX) << 12).contains(&bucket.into())
        {
            return Err(refuse("a bucket is a power of two from 4K to 1M"));
        }
        let groups = parameters.groups.unwrap_or_else(|| clamp_u32(len >> 27, 4, 64)).max(1);
        if groups > GROUPS_MAX || parameters.groups == Some(0) {
            return Err(refuse("an image has 1 to 4096 groups"));
        }
        let bucket_blocks = bucket >> 12;
        let image_blocks = len >> 12;
        let journal_blocks = journal_blocks(image_blocks, bucket_blocks, groups);
        let room =
            image_blocks.checked_sub(2 + journal_blocks).map_or(0, |room| room / u64::from(groups));
        Self::fill_groups(parameters, bucket_blocks, groups, room).map(|(order_max, bn, pn)| Self {
            image_blocks,
            journal_blocks,
            bucket_blocks,
            order_max,
            buckets: Shape { groups, cells_per_group: bn },
            pages: Shape { groups, cells_per_group: pn },
        })
    }

    /// How many buckets and pages fit in `room` blocks of a group.
    fn fill_groups(
        parameters: &Parameters,
        bucket_blocks: u32,
        groups: u32,
        room: u64,
    ) -> Result<(u8, u32, u32)> {
        let per_bucket = u64::from(bucket_blocks);
        let blocks = |buckets: u64| {
            let pages = (buckets * per_bucket).div_ceil(DATA_BLOCKS_PER_PAGE).max(4);
            let maps = buckets.div_ceil(MAP_ENTRIES.into()) + pages.div_ceil(MAP_ENTRIES.into());
            (1 + maps + pages + buckets * per_bucket, pages)
        };
        let mut buckets = room / per_bucket;
        while buckets > 0 && blocks(buckets).0 > room {
            buckets -= (blocks(buckets).0 - room).div_ceil(per_bucket).max(1).min(buckets);
        }
        let mut order_max = 0u8;
        if parameters.layout == Layout::D {
            let wanted = if bucket_blocks <= 16 { 6 } else { 4 };
            while order_max < wanted && buckets >> (order_max + 1) >= 8 {
                order_max += 1;
            }
            buckets = buckets >> order_max << order_max;
        }
        let pages = blocks(buckets).1;
        let cells = (buckets.max(pages)).saturating_mul(groups.into());
        if buckets < 4 || cells >= u64::from(u32::MAX) {
            return Err(refuse(
                "these sizes leave too few or too many buckets a group; choose another --size, --bucket or --groups",
            ));
        }
        let narrow = |x: u64| u32::try_from(x).map_err(|_| refuse("too many cells"));
        Ok((order_max, narrow(buckets)?, narrow(pages)?))
    }

    /// Most blocks of buckets and pages that one commit may change; what only moves does not count.
    pub fn commit_blocks(&self) -> u64 {
        commit_blocks(self.image_blocks, self.bucket_blocks)
    }

    /// First block of the journal.
    pub const fn journal(&self) -> BlockNo {
        BlockNo(1)
    }

    /// The copy of the superblock.
    pub const fn superblock_copy(&self) -> BlockNo {
        BlockNo(self.image_blocks - 1)
    }

    /// The shape of a table.
    pub const fn shape(&self, table: Table) -> Shape {
        match table {
            Table::Buckets => self.buckets,
            Table::Pages => self.pages,
        }
    }

    /// Blocks of a table's map in one group.
    pub fn map_blocks(&self, table: Table) -> u64 {
        u64::from(self.shape(table).cells_per_group.div_ceil(MAP_ENTRIES))
    }

    fn group_blocks(&self) -> u64 {
        self.data_offset() + u64::from(self.buckets.cells_per_group) * u64::from(self.bucket_blocks)
    }

    fn data_offset(&self) -> u64 {
        1 + self.map_blocks(Table::Buckets)
            + self.map_blocks(Table::Pages)
            + u64::from(self.pages.cells_per_group)
    }

    /// The descriptor of a group: its first block.
    pub fn descriptor(&self, group: u32) -> BlockNo {
        BlockNo(1 + self.journal_blocks + u64::from(group) * self.group_blocks())
    }

    /// First block of a table's map in a group.
    pub fn map_start(&self, table: Table, group: u32) -> BlockNo {
        let offset = match table {
            Table::Buckets => 1,
            Table::Pages => 1 + self.map_blocks(Table::Buckets),
        };
        BlockNo(self.descriptor(group).0 + offset)
    }

    /// The map block that holds a cell's entry, and the entry's index in it.
    pub fn map_entry(&self, table: Table, cell: Cell) -> (BlockNo, u32) {
        let shape = self.shape(table);
        let index = cell.0 % shape.cells_per_group;
        let start = self.map_start(table, shape.group(cell)).0;
        (BlockNo(start + u64::from(index / MAP_ENTRIES)), index % MAP_ENTRIES)
    }

    /// First block of a cell.
    pub fn cell_start(&self, table: Table, cell: Cell) -> BlockNo {
        let shape = self.shape(table);
        let (group, index) = (shape.group(cell), u64::from(cell.0 % shape.cells_per_group));
        let base = self.descriptor(group).0;
        BlockNo(match table {
            Table::Buckets => base + self.data_offset() + index * u64::from(self.bucket_blocks),
            Table::Pages => {
                base + self.data_offset() - u64::from(self.pages.cells_per_group) + index
            }
        })
    }

    /// The cell that begins at a block.
    pub(crate) fn cell_at(&self, table: Table, start: BlockNo) -> Option<Cell> {
        let shape = self.shape(table);
        let next = |group: u32| self.cell_start(table, Cell(group * shape.cells_per_group));
        let group = (0..shape.groups).rev().find(|group| next(*group).0 <= start.0)?;
        let index = (start.0 - next(group).0) / u64::from(self.cell_blocks(table));
        let cell = Cell(group * shape.cells_per_group + u32::try_from(index).ok()?);
        (self.cell_start(table, cell) == start).then_some(cell)
    }

    /// Blocks of a cell.
    pub const fn cell_blocks(&self, table: Table) -> u32 {
        match table {
            Table::Buckets => self.bucket_blocks,
            Table::Pages => 1,
        }
    }

    /// Bucket size in bytes.
    pub const fn bucket_len_bytes(&self) -> u64 {
        self.bucket_blocks as u64 * BLOCK_LEN as u64
    }

    /// Most cells of a table that may be in use: 97% of them, and of the inode table so few that
    /// deletion has room too, which can move an inode to another page. A fixed limit, so that
    /// running out of room is a function of the state.
    pub fn cells_max(&self, table: Table) -> u64 {
        let cells = u64::from(self.shape(table).cells());
        let share = cells * 97 / 100;
        match table {
            Table::Buckets => share,
            Table::Pages => share.min(cells - cells.isqrt()),
        }
    }

    /// Whether `plan` would choose this shape for an image of these sizes and this layout.
    pub fn is_planned(&self, layout: Layout) -> bool {
        let parameters = Parameters {
            len_bytes: self.image_blocks.saturating_mul(BLOCK_LEN as u64),
            layout,
            ids: Ids::Path,
            times: Times::None,
            bucket_len_bytes: self.bucket_blocks.checked_mul(1 << 12),
            groups: Some(self.buckets.groups),
            seed: [0; 32],
        };
        parameters.bucket_len_bytes.is_some() && Self::plan(&parameters).is_ok_and(|g| g == *self)
    }

    /// The customisable procedures of a table under a layout.
    pub fn procedures(&self, layout: Layout, table: Table) -> Box<dyn Procedures> {
        let shape = self.shape(table);
        match (layout, table) {
            (Layout::D, Table::Buckets) => Box::new(RuleD::new(shape, self.order_max)),
            (Layout::D, Table::Pages) => Box::new(RuleD::new(shape, 0)),
            (_, Table::Pages) | (Layout::A, _) => Box::new(LayoutA { shape }),
            (Layout::B, _) => Box::new(LayoutB { shape }),
            (Layout::C, _) => Box::new(LayoutC { shape }),
        }
    }
}

/// The least length of an image of which one commit may change so many blocks, in bytes; of one that may change the
/// most of all, if that is fewer.
pub(crate) fn len_for_commit(blocks: u64) -> u64 {
    (blocks.min(COMMIT_BLOCKS.1) * COMMIT_SHARE) << 12
}

fn commit_blocks(image_blocks: u64, bucket_blocks: u32) -> u64 {
    let (min, max) = COMMIT_BLOCKS;
    let min = min.max(COMMIT_BUCKETS_MIN * u64::from(bucket_blocks));
    (image_blocks / COMMIT_SHARE).clamp(min, max)
}

/// Room for the largest commit: all maps, what it may change, a record for each of these blocks and
/// each cell, a header, and a bucket that waits until a cycle of moves has been walked.
fn journal_blocks(image_blocks: u64, bucket_blocks: u32, groups: u32) -> u64 {
    let groups = u64::from(groups);
    let cells =
        image_blocks / u64::from(bucket_blocks) + image_blocks / DATA_BLOCKS_PER_PAGE + 5 * groups;
    let maps = cells.div_ceil(MAP_ENTRIES.into()) + 2 * groups;
    let changed = commit_blocks(image_blocks, bucket_blocks);
    // Cells that move in a circle of two have three records.
    let records = cells + cells / 2 + maps + changed;
    1 + records.div_ceil(RECORDS_PER_BLOCK) + maps + changed + u64::from(bucket_blocks)
}

fn refuse(reason: &'static str) -> Error {
    Error::new(Kind::Geometry, reason)
}

fn clamp_u32(x: u64, min: u32, max: u32) -> u32 {
    u32::try_from(x).unwrap_or(max).clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(len_bytes: u64) -> Parameters {
        Parameters {
            len_bytes,
            layout: Layout::D,
            ids: Ids::Path,
            times: Times::None,
            bucket_len_bytes: None,
            groups: None,
            seed: [0; 32],
        }
    }

    #[test]
    fn regions_do_not_overlap_and_fill_the_image() {
        for len in [1 << 20, 8 << 20, 100 << 20, 1 << 30, 10 << 30, 1 << 40] {
            let g = Geometry::plan(&parameters(len)).unwrap();
            assert!(g.is_planned(Layout::D), "{g:?}");
            let last = g.buckets.groups - 1;
            assert_eq!(g.map_start(Table::Buckets, 0).0, g.descriptor(0).0 + 1);
            let end = g.cell_start(Table::Buckets, Cell(g.buckets.cells() - 1)).0
                + u64::from(g.bucket_blocks);
            assert!(end <= g.superblock_copy().0);
            if last > 0 {
                let end_of_first =
                    g.cell_start(Table::Buckets, Cell(g.buckets.cells_per_group - 1)).0;
                assert_eq!(end_of_first + u64::from(g.bucket_blocks), g.descriptor(1).0);
            }
            let data = u64::from(g.buckets.cells()) * u64::from(g.bucket_blocks);
            let share = if len < 8 << 20 { 50 } else { 60 };
            assert!(data * 100 >= g.image_blocks * share, "{data} of {}", g.image_blocks);
        }
    }

    #[test]
    fn absurd_parameters_are_refused() {
        let refused = |change: fn(&mut Parameters)| {
            let mut p = parameters(64 << 20);
            change(&mut p);
            Geometry::plan(&p).expect_err("absurd").kind() == Kind::Geometry
        };
        assert!(refused(|p| p.len_bytes = 4096));
        assert!(refused(|p| p.len_bytes = u64::MAX));
        assert!(refused(|p| p.bucket_len_bytes = Some(5000)));
        assert!(refused(|p| p.bucket_len_bytes = Some(2 << 20)));
        assert!(refused(|p| p.groups = Some(0)));
        assert!(refused(|p| p.groups = Some(4096)));
        assert!(refused(|p| p.groups = Some(u32::MAX)));
    }
}
