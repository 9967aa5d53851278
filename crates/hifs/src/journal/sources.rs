//! What the cells hold that a commit leaves: new content that is the same moves from there.
//!
//! Most new content is the same as nothing: its first block tells, and so for cells whose content goes that
//! block alone is read. What cannot be read is the same as nothing: it goes as it was to go.

use std::collections::{BTreeMap, BTreeSet};

use tacita_block::BlockNo;
use tacita_secret::{Digest, digest, digest_of};

use super::PIECE_BLOCKS;
use crate::content::Block;
use crate::error::Result;
use crate::geometry::BLOCK_LEN;
use crate::medium::Medium;

/// What cells hold that are left.
pub(super) struct Sources<'a> {
    medium: &'a Medium,
    cell_blocks: u32,
    /// Their places by the digest of their first block, ascending. Once something is found to begin in the
    /// same way they are in the next map.
    by_beginning: BTreeMap<Digest, Vec<u64>>,
    /// Their places by the digest of all of it, ascending.
    by_content: BTreeMap<Digest, Vec<u64>>,
    /// What was read whole: the digests of its beginning and of all of it.
    known: BTreeMap<u64, [Digest; 2]>,
}

impl<'a> Sources<'a> {
    /// Looks at the cells of `left`, ascending, and reads those of `whole` to their ends.
    pub(super) fn read(
        medium: &'a Medium,
        cell_blocks: u32,
        left: &[BlockNo],
        whole: &BTreeSet<BlockNo>,
    ) -> Self {
        let (by_beginning, by_content, known) = <_>::default();
        let mut sources = Self { medium, cell_blocks, by_beginning, by_content, known };
        let mut rest = left.iter().copied().peekable();
        let mut pieces = Vec::new();
        while let Some(first) = rest.next() {
            if !whole.contains(&first) {
                pieces.push((first, 1));
                continue;
            }
            let mut read = cell_blocks;
            let follows = |next: &BlockNo, read: u32| {
                next.0 == first.0 + u64::from(read) && whole.contains(next)
            };
            while read < PIECE_BLOCKS && rest.next_if(|next| follows(next, read)).is_some() {
                read += cell_blocks;
            }
            pieces.push((first, read));
        }
        // All of it is asked for before the first is waited for.
        for (first, read) in &pieces {
            medium.will_read(*first, u64::from(*read));
        }
        for (first, read) in pieces {
            if let Ok(content) = read_cell(medium, first, read) {
                sources.take(first, &content);
                continue;
            }
            // Each for itself: what cannot be read moves nowhere.
            let cells = (first.0..first.0 + u64::from(read)).step_by(cell_blocks as usize);
            for from in cells.map(BlockNo) {
                if let Ok(content) = read_cell(medium, from, read.min(cell_blocks)) {
                    sources.take(from, &content);
                }
            }
        }
        sources
    }

    /// Takes what was read of cells in a row: all of them, or the beginning of one.
    fn take(&mut self, first: BlockNo, content: &[u8]) {
        let cell_len = self.cell_blocks as usize * BLOCK_LEN;
        let cells = content.chunks(cell_len);
        for (from, cell) in (first.0..).step_by(self.cell_blocks as usize).zip(cells) {
            let beginning = digest(&cell[..BLOCK_LEN]);
            if cell.len() == cell_len {
                let hash = if cell_len == BLOCK_LEN { beginning } else { digest(cell) };
                self.known.insert(from, [beginning, hash]);
            }
            self.by_beginning.entry(beginning).or_default().push(from);
        }
    }

    /// The digest of a cell that is left, if it was read whole.
    pub(super) fn of(&mut self, from: BlockNo) -> Option<Digest> {
        let [beginning, hash] = self.known.get(&from.0).copied()?;
        self.has_beginning(&beginning);
        Some(hash)
    }

    /// The digest of `content` if a cell that is left holds the same.
    pub(super) fn equal(&mut self, content: &[Block]) -> Option<Digest> {
        if !self.has_beginning(&digest(&content[0][..])) {
            return None;
        }
        let hash = digest_of(content.iter().map(|block| &block[..]));
        Some(hash).filter(|hash| self.by_content.contains_key(hash))
    }

    /// Whether cells begin so.
    fn has_beginning(&mut self, beginning: &Digest) -> bool {
        let Some(cells) = self.by_beginning.get_mut(beginning) else { return false };
        for from in std::mem::take(cells) {
            let hash = match self.known.get(&from) {
                Some([_, hash]) => *hash,
                None => match read_cell(self.medium, BlockNo(from), self.cell_blocks) {
                    Ok(content) => digest(&content),
                    Err(_) => continue,
                },
            };
            self.by_content.entry(hash).or_default().push(from);
        }
        true
    }

    /// The places of what was looked at to its end, by its digest.
    pub(super) fn looked_at(self) -> BTreeMap<Digest, Vec<u64>> {
        self.by_content
    }
}

pub(super) fn read_cell(medium: &Medium, at: BlockNo, blocks: u32) -> Result<Vec<u8>> {
    let mut content = vec![0; blocks as usize * BLOCK_LEN];
    medium.read(at, &mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tacita_block::MemoryDevice;

    use super::*;

    const CELL: u32 = 2;

    fn cell((first, last): (u8, u8)) -> Vec<Block> {
        [first, last].map(|byte| Arc::new([byte; BLOCK_LEN])).to_vec()
    }

    fn places(count: usize) -> Vec<BlockNo> {
        (0..count as u64).map(|n| BlockNo(n * u64::from(CELL))).collect()
    }

    fn medium(cells: &[(u8, u8)]) -> Medium {
        let blocks: Vec<Block> = cells.iter().flat_map(|content| cell(*content)).collect();
        let bytes: Vec<u8> = blocks.iter().flat_map(|block| **block).collect();
        Medium::new(Arc::new(MemoryDevice::from_bytes(&bytes, 4096).unwrap())).unwrap()
    }

    proptest! {
        /// All that is equal is found, in its order, whichever cells were read whole and asked for before.
        #[test]
        fn what_is_equal_is_found(
            cells in prop::collection::vec((0_u8..3, 0_u8..3), 1..12),
            whole in prop::collection::vec(any::<bool>(), 12),
            asked in prop::collection::vec((0_u8..4, 0_u8..4), 1..12),
        ) {
            let (medium, left) = (medium(&cells), places(cells.len()));
            let whole = left.iter().zip(whole).filter_map(|(at, whole)| whole.then_some(*at));
            let whole: BTreeSet<BlockNo> = whole.collect();
            let mut sources = Sources::read(&medium, CELL, &left, &whole);
            let digest = |content| digest_of(cell(content).iter().map(|block| &block[..]));
            for content in &asked {
                let equal = cells.contains(content).then(|| digest(*content));
                prop_assert_eq!(sources.equal(&cell(*content)), equal);
            }
            for (at, content) in left.iter().zip(&cells) {
                let known = whole.contains(at).then(|| digest(*content));
                prop_assert_eq!(sources.of(*at), known);
            }
            let found = sources.looked_at();
            let read = left.iter().zip(&cells).filter(|(at, _)| whole.contains(at));
            for content in asked.into_iter().chain(read.map(|(_, content)| *content)) {
                let same = left.iter().zip(&cells).filter(|(_, cell)| **cell == content);
                let same: Vec<u64> = same.map(|(at, _)| at.0).collect();
                prop_assert_eq!(found.get(&digest(content)).cloned().unwrap_or_default(), same);
            }
        }
    }

    #[test]
    fn what_begins_otherwise_is_not_read() {
        let cells = [(1, 1), (1, 2), (2, 1)];
        let (medium, left) = (medium(&cells), places(3));
        let mut sources = Sources::read(&medium, CELL, &left, &BTreeSet::new());
        assert_eq!(sources.equal(&cell((3, 1))), None);
        assert!(sources.by_content.is_empty());
        assert_eq!(sources.equal(&cell((1, 3))), None);
        assert_eq!(sources.looked_at().into_values().flatten().count(), 2);
    }
}
