//! Ids and hashes of everything that has a name: all pseudo-random under the image's seed.

use std::ops::RangeInclusive;

use tacita_secret::Prf;

/// Identity of a file or directory: the paper's `fp`, never zero.
pub(crate) type FileId = u128;

const DOMAIN_ROOT: u8 = 1;
const DOMAIN_INODE_TABLE: u8 = 2;
const DOMAIN_NAME: u8 = 3;
const DOMAIN_PAGE: u8 = 4;

/// The image's hash functions.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prf: Prf,
    /// Significant bits of trie hashes: 64, fewer only in tests that force ties.
    hash_bits: u32,
}

impl Names {
    /// The functions under an image's seed.
    pub(crate) const fn new(seed: [u8; 32]) -> Self {
        Self { prf: Prf::new(seed), hash_bits: 64 }
    }

    /// The same with hashes of `bits` bits: equal hashes become common. For tests.
    #[doc(hidden)]
    #[must_use]
    pub(crate) const fn with_hash_bits(mut self, bits: u32) -> Self {
        self.hash_bits = bits;
        self
    }

    /// Id of the root directory.
    pub(crate) fn root(&self) -> FileId {
        id_of(&self.prf.value(DOMAIN_ROOT, &[]))
    }

    /// Id of the trie of all inodes.
    pub(crate) fn inode_table(&self) -> FileId {
        id_of(&self.prf.value(DOMAIN_INODE_TABLE, &[]))
    }

    /// Path-derived id of a name in a directory, and the name's hash in the directory's trie.
    ///
    /// Source: design note, section 3.5 (`ids=path`) and section 4.
    pub(crate) fn entry(&self, dir: FileId, name: &[u8]) -> (FileId, u64) {
        let value = self.prf.value(DOMAIN_NAME, &[&dir.to_le_bytes(), name]);
        let hash = u64::from_le_bytes(value[16..24].try_into().expect("8 bytes"));
        (id_of(&value), self.truncate(hash))
    }

    /// Hash of a file in the trie of all inodes.
    pub(crate) fn inode(&self, id: FileId) -> u64 {
        self.truncate((id >> 64) as u64)
    }

    /// The ids of all files whose hashes lie in a range: ids begin with their hash.
    pub(crate) const fn inodes(&self, hashes: &RangeInclusive<u64>) -> RangeInclusive<FileId> {
        let cut = if self.hash_bits == 64 { 0 } else { u64::MAX >> self.hash_bits };
        let (first, last) = (*hashes.start() as FileId, (*hashes.end() | cut) as FileId);
        first << 64..=last << 64 | u64::MAX as FileId
    }

    /// Identity of a page: the trie, the first hash of its prefix and the prefix's length in bits.
    pub(crate) fn page(&self, trie: FileId, start: u64, depth: u8) -> FileId {
        let value =
            self.prf.value(DOMAIN_PAGE, &[&trie.to_le_bytes(), &start.to_le_bytes(), &[depth]]);
        id_of(&value)
    }

    fn truncate(&self, hash: u64) -> u64 {
        if self.hash_bits == 64 { hash } else { hash & !(u64::MAX >> self.hash_bits) }
    }
}

/// Zero marks a free map entry, so no id is zero.
fn id_of(value: &[u8; 32]) -> FileId {
    u128::from_le_bytes(value[..16].try_into().expect("16 bytes")).max(1)
}
