//! The shape of a NAND chip, and where UBI puts its headers on it.

use crate::{Error, Kind, Result};

/// Pages shorter than this have no room for both headers of UBI.
const PAGE_LEN_MIN_BYTES: u32 = 512;
/// The longest pages of chips that are made.
const PAGE_LEN_MAX_BYTES: u32 = 16_384;
/// One page of headers, and more of data than of headers.
const PAGES_MIN: u32 = 4;
/// The most pages a block of chips that are made has, nearly.
const PAGES_MAX: u32 = 1024;
/// Room for what UBI keeps to itself and some blocks besides.
const BLOCKS_MIN: u32 = 8;
/// What is known of each block is kept in memory.
const BLOCKS_MAX: u32 = 1 << 20;
/// The shortest part of a page that is programmed by itself.
const SUB_PAGE_LEN_MIN_BYTES: u32 = 256;

/// Number of a physical erase block (PEB), from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Peb(pub(super) u32);

/// Shape of a chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) page_len_bytes: u32,
    pub(super) pages_per_block: u32,
    pub(super) blocks: u32,
}

impl Shape {
    /// Checks the limits.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`], naming the limit.
    pub(super) fn new(page_len_bytes: u32, pages_per_block: u32, blocks: u32) -> Result<Self> {
        let refused = |text: String| Err(Error::new(Kind::OutOfRange, text));
        let pages = PAGE_LEN_MIN_BYTES..=PAGE_LEN_MAX_BYTES;
        if !page_len_bytes.is_power_of_two() || !pages.contains(&page_len_bytes) {
            return refused(format!(
                "pages of {page_len_bytes} bytes: a power of two from {PAGE_LEN_MIN_BYTES} to \
                 {PAGE_LEN_MAX_BYTES} is possible"
            ));
        }
        if !(PAGES_MIN..=PAGES_MAX).contains(&pages_per_block) {
            return refused(format!(
                "erase blocks of {pages_per_block} pages: {PAGES_MIN} to {PAGES_MAX} are possible"
            ));
        }
        if !(BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks) {
            return refused(format!(
                "{blocks} erase blocks: {BLOCKS_MIN} to {BLOCKS_MAX} are possible"
            ));
        }
        Ok(Self { page_len_bytes, pages_per_block, blocks })
    }

    /// Length of a physical erase block.
    pub(super) const fn block_len_bytes(self) -> u32 {
        self.page_len_bytes * self.pages_per_block
    }

    /// Length of all physical erase blocks.
    pub(super) fn len_bytes(self) -> u64 {
        u64::from(self.block_len_bytes()) * u64::from(self.blocks)
    }

    /// The part of a page that is programmed by itself: a quarter, as nandsim has it.
    pub(super) fn sub_page_len_bytes(self) -> u32 {
        (self.page_len_bytes / 4).max(SUB_PAGE_LEN_MIN_BYTES)
    }

    /// Where the VID header begins: in the second sub-page, behind the EC header in the first.
    pub(super) fn vid_offset(self) -> u32 {
        self.sub_page_len_bytes()
    }

    /// Where the content of a logical erase block begins.
    pub(super) const fn data_offset(self) -> u32 {
        self.page_len_bytes
    }

    /// Length of a logical erase block.
    pub(super) const fn leb_len_bytes(self) -> u32 {
        self.block_len_bytes() - self.data_offset()
    }

    /// All blocks.
    pub(super) fn pebs(self) -> impl Iterator<Item = Peb> {
        (0..self.blocks).map(Peb)
    }
}
