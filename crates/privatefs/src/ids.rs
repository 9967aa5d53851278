//! Which block of the store holds what: ids are made by a PRF, so that nobody without the key can tell
//! one from another, and nothing has to be allocated.
//!
//! Paper: section 7 (blocks of files at the hash of inode and index). Deviation: F-01 in
//! docs/design/privatefs.md.

use tacita_secret::Key;

/// Length of a block in bytes.
pub const BLOCK_LEN: usize = 4096;

/// Name of a block, an inode or a content.
pub type Id = [u8; 32];

/// Name of a mount: random.
pub type MountId = [u8; 16];

/// What the store's key is used for here; the store itself uses smaller numbers.
const PRIVATEFS: u8 = 64;

const REGISTER: u8 = 1;
const ROOT: u8 = 2;
const GRAVEYARD: u8 = 3;
const INODE: u8 = 4;
const CONTENT: u8 = 5;
const BUCKET: u8 = 6;
const JOURNAL: u8 = 7;
const NAME: u8 = 8;

/// Bits of a name's place in its directory.
const PLACE_BITS: u32 = 62;

/// Makes ids under a key.
#[derive(Debug)]
pub struct Ids(Key);

impl Ids {
    /// Those under the key of a store.
    pub fn new(store: &Key) -> Self {
        Self(store.derive(PRIVATEFS, &[]))
    }

    /// The block that says what is there and whose turn it is.
    pub fn register(&self) -> Id {
        self.0.value(REGISTER, &[])
    }

    /// The inode of the root directory.
    pub fn root(&self) -> Id {
        self.0.value(ROOT, &[])
    }

    /// The inode of the directory of those that have no name left.
    pub fn graveyard(&self) -> Id {
        self.0.value(GRAVEYARD, &[])
    }

    /// The block of an inode.
    pub fn inode(&self, inode: &Id) -> Id {
        self.0.value(INODE, &[inode])
    }

    /// Block `index` of a content.
    pub fn content(&self, content: &Id, index: u64) -> Id {
        self.0.value(CONTENT, &[content, &index.to_le_bytes()])
    }

    /// Part `part` of bucket `bucket` of a directory with this content.
    pub fn bucket(&self, content: &Id, bucket: u64, part: u32) -> Id {
        self.0.value(BUCKET, &[content, &bucket.to_le_bytes(), &part.to_le_bytes()])
    }

    /// Block `index` of the journal of a mount.
    pub fn journal(&self, mount: &MountId, index: u32) -> Id {
        self.0.value(JOURNAL, &[mount, &index.to_le_bytes()])
    }

    /// The hash of a name: 62 bits. The lowest ones say which bucket it is in.
    pub fn name(&self, name: &[u8]) -> u64 {
        let value = self.0.value(NAME, &[name]);
        let mut first = [0; 8];
        first.copy_from_slice(&value[..8]);
        u64::from_le_bytes(first) >> (u64::BITS - PLACE_BITS)
    }
}

/// Turns the bits of a hash of a name, which are in the order of buckets, into those of its place in the
/// order of listings, or back.
pub const fn turned(hash: u64) -> u64 {
    hash.reverse_bits() >> (u64::BITS - PLACE_BITS)
}

/// The places that there are.
pub const PLACES: u64 = 1 << PLACE_BITS;
