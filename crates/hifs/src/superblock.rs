//! The superblock: constants of the image, nothing that changes.
//!
//! Format: docs/spec/hifs.md, section 2. Paper: HIFS, section 4.1; design note, finding 15.

use crate::error::{Error, Kind, Result, damaged};
use crate::geometry::{BLOCK_LEN, Geometry, Ids, Layout, Parameters, Times};
use crate::placement::Shape;
use tacita_secret::digest;

/// First bytes of an image.
pub(crate) const MAGIC: [u8; 8] = *b"TACITAHI";
/// First bytes of a group descriptor.
const GROUP_MAGIC: [u8; 8] = *b"TACITAGR";
/// Version of the format that new images have.
const VERSION: u32 = 4;
/// The oldest that is read and written: its journal fills no free cells.
const VERSION_MIN: u32 = 2;
const CHECKSUM_AT: usize = BLOCK_LEN - 32;

/// What the superblock tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Version of the format.
    pub version: u32,
    /// Shape and positions.
    pub geometry: Geometry,
    /// Layout.
    pub layout: Layout,
    /// Source of ids.
    pub ids: Ids,
    /// Times kept.
    pub times: Times,
    /// Key of all hashes.
    pub seed: [u8; 32],
}

impl Superblock {
    /// The superblock of a new image.
    ///
    /// # Errors
    /// [`Kind::Geometry`] if the parameters make no image.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        Ok(Self {
            version: VERSION,
            geometry: Geometry::plan(parameters)?,
            layout: parameters.layout,
            ids: parameters.ids,
            times: parameters.times,
            seed: parameters.seed,
        })
    }

    /// Whether new content of large commits goes to free cells at once.
    pub(crate) const fn fills_free_cells(&self) -> bool {
        self.version >= 3
    }

    /// Whether new content of large commits goes to cells that are cleared for it at once.
    pub(crate) const fn clears_cells(&self) -> bool {
        self.version >= 4
    }

    /// Whether the journal leaves out the zeros at the end of each block.
    pub(crate) const fn packs_content(&self) -> bool {
        self.version >= 3
    }

    /// Its block.
    pub fn encode(&self) -> [u8; BLOCK_LEN] {
        let mut block = [0; BLOCK_LEN];
        let g = &self.geometry;
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&self.version.to_le_bytes());
        block[12..16].copy_from_slice(&4096u32.to_le_bytes());
        block[16..20].copy_from_slice(&g.bucket_blocks.to_le_bytes());
        block[20] = match self.layout {
            Layout::A => b'a',
            Layout::B => b'b',
            Layout::C => b'c',
            Layout::D => b'd',
        };
        block[21] = g.order_max;
        block[22] = self.ids as u8;
        block[23] = self.times as u8;
        block[24..28].copy_from_slice(&g.buckets.groups.to_le_bytes());
        block[28..32].copy_from_slice(&g.buckets.cells_per_group.to_le_bytes());
        block[32..36].copy_from_slice(&g.pages.cells_per_group.to_le_bytes());
        block[40..48].copy_from_slice(&g.journal_blocks.to_le_bytes());
        block[48..56].copy_from_slice(&g.image_blocks.to_le_bytes());
        block[64..96].copy_from_slice(&self.seed);
        seal(&mut block);
        block
    }

    /// Reads a superblock.
    ///
    /// # Errors
    /// [`Kind::NotAnImage`] without the magic, [`Kind::Version`] for another version,
    /// [`Kind::Damaged`] if the checksum or a value is wrong.
    pub fn decode(block: &[u8; BLOCK_LEN]) -> Result<Self> {
        if block[..8] != MAGIC {
            return Err(Error::new(Kind::NotAnImage, "no HIFS superblock in the first block"));
        }
        let version = u32_at(block, 8);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            let text = format!(
                "format version {version}; this program reads versions {VERSION_MIN} to {VERSION}"
            );
            return Err(Error::new(Kind::Version, text));
        }
        if !is_sealed(block) {
            return Err(damaged("superblock: wrong checksum"));
        }
        let groups = u32_at(block, 24);
        let this = Self {
            version,
            geometry: Geometry {
                image_blocks: u64_at(block, 48),
                journal_blocks: u64_at(block, 40),
                bucket_blocks: u32_at(block, 16),
                order_max: block[21],
                buckets: Shape { groups, cells_per_group: u32_at(block, 28) },
                pages: Shape { groups, cells_per_group: u32_at(block, 32) },
            },
            layout: match block[20] {
                b'a' => Layout::A,
                b'b' => Layout::B,
                b'c' => Layout::C,
                b'd' => Layout::D,
                _ => return Err(damaged("superblock: unknown layout")),
            },
            ids: match block[22] {
                0 => Ids::Path,
                1 => Ids::Random,
                _ => return Err(damaged("superblock: unknown source of ids")),
            },
            times: match block[23] {
                0 => Times::None,
                1 => Times::User,
                2 => Times::Full,
                _ => return Err(damaged("superblock: unknown times")),
            },
            seed: block[64..96].try_into().expect("32 bytes"),
        };
        if !this.geometry.is_planned(this.layout) || this.encode() != *block {
            return Err(damaged("superblock: impossible geometry"));
        }
        Ok(this)
    }

    /// The descriptor block of a group: constants only.
    pub fn descriptor(&self, group: u32) -> [u8; BLOCK_LEN] {
        let mut block = [0; BLOCK_LEN];
        block[..8].copy_from_slice(&GROUP_MAGIC);
        block[8..12].copy_from_slice(&group.to_le_bytes());
        block[12..16].copy_from_slice(&self.geometry.buckets.cells_per_group.to_le_bytes());
        block[16..20].copy_from_slice(&self.geometry.pages.cells_per_group.to_le_bytes());
        seal(&mut block);
        block
    }
}

/// Whether a block may be taken for a superblock.
pub(crate) fn is_superblock(block: &[u8; BLOCK_LEN]) -> bool {
    block[..8] == MAGIC
}

fn seal(block: &mut [u8; BLOCK_LEN]) {
    let sum = digest(&block[..CHECKSUM_AT]);
    block[CHECKSUM_AT..].copy_from_slice(&sum);
}

fn is_sealed(block: &[u8; BLOCK_LEN]) -> bool {
    digest(&block[..CHECKSUM_AT])[..] == block[CHECKSUM_AT..]
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("16 bytes"))
}
