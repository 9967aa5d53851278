//! A page of the inode table: one leaf of the trie of inodes or of a directory.
//!
//! Format: docs/spec/hifs.md, section 5.

use tacita_secret::digest;

use crate::error::{Result, damaged};
use crate::geometry::BLOCK_LEN;
use crate::names::FileId;
use crate::superblock::{u64_at, u128_at};
use crate::trie::LeafKey;

const HEADER_LEN: usize = 48;
const CHECKSUM_AT: usize = 32;
/// Bytes of entries that fit in a page.
#[expect(clippy::cast_possible_truncation, reason = "4048")]
pub(crate) const PAYLOAD_LEN: u32 = (BLOCK_LEN - HEADER_LEN) as u32;

/// What a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageKey {
    /// The directory's id, or the id of the trie of all inodes.
    pub trie: FileId,
    /// The leaf.
    pub leaf: LeafKey,
}

/// A page being written.
#[derive(Debug)]
pub(crate) struct PageWriter {
    block: Box<[u8; BLOCK_LEN]>,
    len: usize,
    count: u16,
}

impl PageWriter {
    /// An empty page of `key`.
    pub(crate) fn new(key: PageKey) -> Self {
        let mut block = Box::new([0; BLOCK_LEN]);
        block[..16].copy_from_slice(&key.trie.to_le_bytes());
        block[16..24].copy_from_slice(&key.leaf.start.to_le_bytes());
        block[24] = key.leaf.depth;
        Self { block, len: 0, count: 0 }
    }

    /// Appends an encoded entry.
    pub(crate) fn push(&mut self, entry: &[u8]) {
        let at = HEADER_LEN + self.len;
        self.block[at..at + entry.len()].copy_from_slice(entry);
        self.len += entry.len();
        self.count += 1;
    }

    /// The finished block.
    pub(crate) fn finish(mut self) -> Box<[u8; BLOCK_LEN]> {
        let len = u16::try_from(self.len).expect("less than a page");
        self.block[26..28].copy_from_slice(&self.count.to_le_bytes());
        self.block[28..30].copy_from_slice(&len.to_le_bytes());
        let sum = digest(&self.block[..]);
        self.block[CHECKSUM_AT..HEADER_LEN].copy_from_slice(&sum[..16]);
        self.block
    }
}

/// Reads a page: its key, the number of entries and their bytes.
///
/// # Errors
/// [`crate::error::Kind::Damaged`] if the checksum, a length or a byte that must be zero is wrong.
pub(crate) fn read_page(block: &[u8; BLOCK_LEN]) -> Result<(PageKey, u16, &[u8])> {
    let mut plain = *block;
    plain[CHECKSUM_AT..HEADER_LEN].fill(0);
    if digest(&plain)[..16] != block[CHECKSUM_AT..HEADER_LEN] {
        return Err(damaged("wrong checksum"));
    }
    let leaf = LeafKey { start: u64_at(block, 16), depth: block[24] };
    let count = u16::from_le_bytes([block[26], block[27]]);
    let len = usize::from(u16::from_le_bytes([block[28], block[29]]));
    let aligned = leaf.depth <= 64 && leaf.start & (leaf.hashes().end() ^ leaf.start) == 0;
    if block[25] != 0 || block[30..32] != [0, 0] || len > PAYLOAD_LEN as usize || !aligned {
        return Err(damaged("impossible header"));
    }
    if block[HEADER_LEN + len..].iter().any(|&b| b != 0) {
        return Err(damaged("bytes behind the last entry"));
    }
    let key = PageKey { trie: u128_at(block, 0), leaf };
    Ok((key, count, &block[HEADER_LEN..HEADER_LEN + len]))
}
