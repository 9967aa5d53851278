//! A block of the buckets map, or of the map of the inode table.
//!
//! An entry is the owner key of its cell, or all zero when the cell is free; a block whose cells are
//! all free is all zero. Format: docs/spec/hifs.md, section 4. Paper: HIFS, section 4.5.1.

use tacita_block::is_zero;
use tacita_secret::digest;

use crate::error::{Result, damaged};
use crate::geometry::{BLOCK_LEN, MAP_ENTRIES};
use crate::names::FileId;
use crate::superblock::{u32_at, u128_at};

const ENTRY_LEN: usize = 24;
const CHECKSUM_AT: usize = MAP_ENTRIES as usize * ENTRY_LEN;

/// Encodes a block from the occupants of its cells.
pub(crate) fn encode(occupant: impl Fn(u32) -> Option<(FileId, u32)>) -> Box<[u8; BLOCK_LEN]> {
    let mut block = Box::new([0; BLOCK_LEN]);
    let mut used = false;
    for (index, entry) in (0..MAP_ENTRIES).zip(block.chunks_exact_mut(ENTRY_LEN)) {
        if let Some((owner, bucket)) = occupant(index) {
            entry[..16].copy_from_slice(&owner.to_le_bytes());
            entry[16..20].copy_from_slice(&bucket.to_le_bytes());
            used = true;
        }
    }
    if used {
        let sum = digest(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..].copy_from_slice(&sum[..BLOCK_LEN - CHECKSUM_AT]);
    }
    block
}

/// Reads a block: index, owner and logical bucket of each occupied cell.
///
/// # Errors
/// [`crate::error::Kind::Damaged`] if the checksum or an entry is wrong.
pub(crate) fn decode(block: &[u8]) -> Result<Vec<(u32, FileId, u32)>> {
    if is_zero(block) {
        return Ok(Vec::new());
    }
    if digest(&block[..CHECKSUM_AT])[..BLOCK_LEN - CHECKSUM_AT] != block[CHECKSUM_AT..BLOCK_LEN] {
        return Err(damaged("wrong checksum"));
    }
    let mut entries = Vec::new();
    for (index, entry) in (0..MAP_ENTRIES).zip(block.chunks_exact(ENTRY_LEN)) {
        if entry.iter().any(|&b| b != 0) {
            let owner = u128_at(entry, 0);
            if owner == 0 || entry[20..24] != [0; 4] {
                return Err(damaged("impossible entry"));
            }
            entries.push((index, owner, u32_at(entry, 16)));
        }
    }
    Ok(entries)
}
