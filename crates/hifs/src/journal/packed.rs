//! Content in the journal without the zeros at the end of each block: short files and pages that are
//! not full take less room there, so that more fits in one commit.
//!
//! Format: docs/spec/hifs.md, section 8.

use tacita_block::is_zero;

use crate::content::Block;
use crate::error::{Result, damaged};
use crate::geometry::BLOCK_LEN;

const SECTOR_LEN: usize = 512;
/// Sectors in a block.
pub(crate) const SECTORS: u64 = (BLOCK_LEN / SECTOR_LEN) as u64;
/// Longest run, in blocks: a record has four bits for each.
pub(super) const RUN_BLOCKS_MAX: u32 = 16;

/// Sectors of a block up to the last that is not zero.
pub(crate) fn sectors(block: &[u8; BLOCK_LEN]) -> u64 {
    let empty = block.rchunks_exact(SECTOR_LEN).take_while(|sector| is_zero(sector)).count();
    SECTORS - empty as u64
}

/// Appends a run; what its record says of its lengths.
pub(super) fn push<'a>(out: &mut Vec<u8>, run: impl Iterator<Item = &'a Block>) -> u64 {
    let mut lengths = 0;
    for (i, block) in run.enumerate() {
        let sectors = sectors(block);
        lengths |= sectors << (4 * i);
        out.extend_from_slice(&block[..usize::try_from(sectors).expect("8 at most") * SECTOR_LEN]);
    }
    lengths
}

/// Takes a run of `count` blocks from the front of `data`.
///
/// # Errors
/// [`crate::Kind::Damaged`] if no program writes it so.
pub(super) fn take(data: &mut &[u8], count: u32, lengths: u64) -> Result<Vec<u8>> {
    let impossible = || damaged("journal: impossible lengths");
    if count > RUN_BLOCKS_MAX || count < RUN_BLOCKS_MAX && lengths >> (4 * count) != 0 {
        return Err(impossible());
    }
    let mut content = vec![0; count as usize * BLOCK_LEN];
    for (i, block) in content.chunks_exact_mut(BLOCK_LEN).enumerate() {
        let sectors = usize::try_from(lengths >> (4 * i) & 15).expect("four bits");
        let block = block.get_mut(..sectors * SECTOR_LEN).ok_or_else(impossible)?;
        let (bytes, rest) =
            data.split_at_checked(block.len()).ok_or_else(|| damaged("journal: truncated data"))?;
        block.copy_from_slice(bytes);
        *data = rest;
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_is_taken(lens in prop::collection::vec(0usize..=BLOCK_LEN, 1..=16)) {
            let blocks: Vec<Block> = lens.iter().map(|len| {
                let mut block = [0; BLOCK_LEN];
                block[..*len].fill(7);
                Arc::new(block)
            }).collect();
            let mut out = Vec::new();
            let lengths = push(&mut out, blocks.iter());
            let wanted: usize = lens.iter().map(|len| len.next_multiple_of(SECTOR_LEN)).sum();
            prop_assert_eq!(out.len(), wanted);
            let count = u32::try_from(blocks.len()).unwrap();
            let mut data = &out[..];
            let taken = take(&mut data, count, lengths).unwrap();
            prop_assert!(data.is_empty());
            for (block, taken) in blocks.iter().zip(taken.chunks_exact(BLOCK_LEN)) {
                prop_assert!(block[..] == *taken);
            }
            if let Some(short) = out.len().checked_sub(1) {
                prop_assert!(take(&mut &out[..short], count, lengths).is_err());
            }
        }
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert!(take(&mut &[0; 8192][..], 1, 9).is_err());
        assert!(take(&mut &[0; 8192][..], 1, 1 << 4).is_err());
        assert!(take(&mut &[0; 8192][..], 17, 0).is_err());
        assert!(take(&mut &[0; 8192][..], 2, 8).is_ok());
    }
}
