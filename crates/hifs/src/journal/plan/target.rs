//! What one cell gets, and what of it cannot be read.

use std::sync::{Arc, LazyLock};

use tacita_block::{BlockNo, is_zero};

use super::super::packed::{SECTORS, sectors};
use super::super::sources::read_cell;
use crate::content::{Block, Pending};
use crate::error::{Error, Kind};
use crate::geometry::BLOCK_LEN;
use crate::medium::Medium;

const SECTOR_LEN: usize = 512;

/// The new content of one cell.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Where it goes: first block.
    pub(crate) to: BlockNo,
    /// Nothing lay there: all its blocks are zero.
    pub(crate) fresh: bool,
    /// Where the image holds what `blocks` does not give; zeros if nowhere.
    pub(crate) base: Option<BlockNo>,
    /// Blocks with new content, by ascending index.
    pub(crate) blocks: Vec<(u32, Pending)>,
    /// How many of its blocks lie wholly before the end of the file.
    pub(crate) within: u32,
    /// How many of them may hold something: behind these all is zero.
    pub(crate) held: u32,
}

/// A block that has to move and cannot be read.
#[derive(Debug)]
pub(crate) struct Unread {
    /// Where its cell is to go: first block.
    pub(crate) to: BlockNo,
    /// Which block of the cell it is.
    pub(crate) index: u32,
    /// Where it lies.
    pub(crate) at: BlockNo,
    /// Why it cannot be read.
    pub(super) error: Error,
}

/// Why a plan has not been sealed.
#[derive(Debug)]
pub(crate) enum Unsealed {
    /// Blocks of one table cannot be read.
    Unread(Vec<Unread>),
    /// Anything else.
    Failed(Error),
}

impl From<Unsealed> for Error {
    fn from(unsealed: Unsealed) -> Self {
        match unsealed {
            Unsealed::Unread(unread) => match unread.into_iter().next() {
                Some(first) => first.error,
                None => Self::new(Kind::Unreadable, "what has to move cannot be read"),
            },
            Unsealed::Failed(error) => error,
        }
    }
}

impl From<Error> for Unsealed {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Target {
    /// Whether any mixture of the old sectors and the new ones is some content of the file in its
    /// canonical form: nothing lies at or behind the end of the file, and every new sector holds
    /// something, so that no mixture is an empty bucket.
    pub(super) fn only_overwrites(&self) -> bool {
        self.blocks.iter().all(|(index, block)| {
            *index < self.within
                && block
                    .as_ref()
                    .is_some_and(|block| block.chunks_exact(SECTOR_LEN).all(|s| !is_zero(s)))
        })
    }

    /// Sectors of content that may have to be written: all of a cell that is stored and changes, for
    /// even one that changes where it is may take what another would have moved from.
    pub(super) fn new_sectors_max(&self, cell_blocks: u64) -> u64 {
        match self.base {
            _ if self.blocks.is_empty() => 0,
            Some(_) => cell_blocks * SECTORS,
            None => {
                self.blocks.iter().filter_map(|(_, block)| Some(sectors(block.as_ref()?))).sum()
            }
        }
    }

    /// The whole content. What waits in memory is shared, not copied. What cannot be read and is needed is
    /// told in `unread`.
    pub(super) fn content(
        &self,
        medium: &Medium,
        cell_blocks: u32,
        unread: &mut Vec<Unread>,
    ) -> Vec<Block> {
        let base = match self.base.filter(|_| self.blocks.len() < cell_blocks as usize) {
            Some(base) => read_cell(medium, base, cell_blocks)
                .unwrap_or_else(|_| self.read_needed(medium, base, cell_blocks, unread)),
            None => Vec::new(),
        };
        let mut given = self.blocks.iter().peekable();
        let content = (0..cell_blocks).map(|index| match given.next_if(|(i, _)| *i == index) {
            Some((_, block)) => block_of(block),
            None if base.is_empty() => Block::clone(&ZEROS),
            None => one_block(&base[index as usize * BLOCK_LEN..][..BLOCK_LEN]),
        });
        content.collect()
    }

    /// What the cell at `base` gives to the content, block by block. The others are zero.
    fn read_needed(
        &self,
        medium: &Medium,
        base: BlockNo,
        cell_blocks: u32,
        unread: &mut Vec<Unread>,
    ) -> Vec<u8> {
        let mut content = vec![0; cell_blocks as usize * BLOCK_LEN];
        for (index, block) in (0..self.held).zip(content.chunks_exact_mut(BLOCK_LEN)) {
            let at = BlockNo(base.0 + u64::from(index));
            if self.blocks.iter().all(|(given, _)| *given != index)
                && let Err(error) = medium.read(at, block)
            {
                block.fill(0);
                unread.push(Unread { to: self.to, index, at, error });
            }
        }
        content
    }
}

/// What blocks without content share.
static ZEROS: LazyLock<Block> = LazyLock::new(|| Arc::new([0; BLOCK_LEN]));

pub(super) fn block_of(pending: &Pending) -> Block {
    Block::clone(pending.as_ref().unwrap_or(&ZEROS))
}

fn one_block(bytes: &[u8]) -> Block {
    Arc::new(bytes.try_into().expect("one block"))
}

pub(super) fn blocks_of(bytes: &[u8]) -> Vec<Block> {
    bytes.chunks_exact(BLOCK_LEN).map(one_block).collect()
}
