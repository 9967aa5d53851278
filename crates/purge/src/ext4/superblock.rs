//! The superblock of ext2, ext3 and ext4: as much of it as leads to an inode.

/// Where it lies on the device.
pub(super) const PLACE: u64 = 1024;

/// Its length.
pub(super) const LEN: usize = 1024;

/// What it begins with, at 0x38.
const MAGIC: u16 = 0xEF53;

/// Descriptors of groups lie with their groups, not together.
const META_GROUPS: u32 = 0x10;

/// Blocks are numbered with 64 bits.
const WIDE: u32 = 0x80;

/// Blocks of folders end in a checksum.
const CHECKSUMS: u32 = 0x400;

/// Small changes may go to an area of the journal for fast commits.
const FAST_COMMITS: u32 = 0x400;

/// Length of a descriptor without [`WIDE`].
const NARROW_DESCRIPTOR_LEN: usize = 32;

/// Length of an inode before there was a field for it.
const OLD_INODE_LEN: usize = 128;

/// What is needed of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) block_len: u64,
    pub(super) inode_len: usize,
    /// Whether blocks of folders end in a checksum.
    pub(super) has_checksums: bool,
    /// What hashes of names begin with.
    pub(super) hash_seed: [u32; 4],
    /// The inode of the journal; 0 where it has none here.
    pub(super) journal_inode: u64,
    /// Whether small changes may go to an area of it for fast commits.
    pub(super) has_fast_commits: bool,
    inodes_per_group: u64,
    descriptor_len: usize,
    descriptors_together: bool,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Superblock {
    /// Reads it; `None` if it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < LEN || u16_at(bytes, 0x38) != MAGIC {
            return None;
        }
        let block_len = 1024_u64.checked_shl(u32_at(bytes, 0x18)).filter(|len| *len <= 1 << 16)?;
        let incompat = u32_at(bytes, 0x60);
        let is_dynamic = u32_at(bytes, 0x4C) >= 1;
        let inode_len = if is_dynamic { u16_at(bytes, 0x58).into() } else { OLD_INODE_LEN };
        let descriptor_len = if incompat & WIDE == 0 {
            NARROW_DESCRIPTOR_LEN
        } else {
            usize::from(u16_at(bytes, 0xFE)).max(NARROW_DESCRIPTOR_LEN)
        };
        let inodes_per_group = u64::from(u32_at(bytes, 0x28));
        (inodes_per_group > 0 && inode_len >= OLD_INODE_LEN).then(|| Self {
            block_len,
            inode_len,
            has_checksums: u32_at(bytes, 0x64) & CHECKSUMS != 0,
            hash_seed: [0xEC, 0xF0, 0xF4, 0xF8].map(|at| u32_at(bytes, at)),
            journal_inode: u64::from(u32_at(bytes, 0xE0)),
            has_fast_commits: u32_at(bytes, 0x5C) & FAST_COMMITS != 0,
            inodes_per_group,
            descriptor_len,
            descriptors_together: incompat & META_GROUPS == 0,
        })
    }

    /// Where the descriptor of an inode's group lies, and its length.
    pub(super) fn descriptor(&self, inode: u64) -> Option<(u64, usize)> {
        let group = inode.checked_sub(1)? / self.inodes_per_group;
        // Behind the block that has the superblock, which is not the first one of data where blocks
        // of 1 KiB are in clusters.
        let first = PLACE / self.block_len + 1;
        let at = first * self.block_len + group * self.descriptor_len as u64;
        self.descriptors_together.then_some((at, self.descriptor_len))
    }

    /// Where an inode lies, by the descriptor of its group.
    pub(super) fn inode(&self, inode: u64, descriptor: &[u8]) -> u64 {
        let low = u64::from(u32_at(descriptor, 8));
        let high = if descriptor.len() >= 0x2C { u64::from(u32_at(descriptor, 0x28)) } else { 0 };
        let index = (inode - 1) % self.inodes_per_group;
        (high << 32 | low) * self.block_len + index * self.inode_len as u64
    }
}
