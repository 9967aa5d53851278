//! Entries of directories, and the buckets that hold those of large ones.
//!
//! Linear hashing: a directory has `buckets` buckets, and the lowest bits of a name's hash say which one
//! its entry is in, so a lookup asks for one block. When the entries outgrow the buckets, one is split.
//! Listings go by the hash with its bits turned around: then a bucket is a range of places, and splitting
//! it moves no place.

use tacita_vfs::FileType;

use crate::error::{Error, Result};
use crate::fields::{Reader, Writer};
use crate::ids::{BLOCK_LEN, Id, PLACES, turned};
use crate::inode::{kind_number, kind_of};

const MAGIC: [u8; 4] = *b"TPFB";
const VERSION: u32 = 1;

/// What stands before a name: its length, its kind, its inode.
const ENTRY_HEAD: usize = 34;

const ENTRIES_AT: usize = 80;

/// Bytes of entries in one block.
pub const PART_LEN: usize = BLOCK_LEN - ENTRIES_AT;

/// Parts that a bucket can have: more names with equal lowest bits of a keyed hash do not happen.
pub const PARTS: u32 = 64;

/// Bytes of entries for each bucket, on average, above which one is split.
pub const FILL: u64 = 2800;

/// A name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub kind: FileType,
    /// Its inode.
    pub inode: Id,
}

impl Entry {
    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        len_of(&self.name)
    }
}

/// Bytes that the entry of a name takes.
pub const fn len_of(name: &[u8]) -> usize {
    ENTRY_HEAD + name.len()
}

/// The bytes of entries.
pub fn encode_entries<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.push(u8::try_from(entry.name.len()).expect("names have 255 bytes at most"));
        bytes.push(kind_number(entry.kind));
        bytes.extend(entry.inode);
        bytes.extend(&entry.name);
    }
    bytes
}

/// Entries from their bytes.
///
/// # Errors
/// [`crate::Kind::Damaged`].
pub fn decode_entries(mut bytes: &[u8]) -> Result<Vec<Entry>> {
    let damaged = || Error::damaged("entries of a directory are none");
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let head = bytes.get(..ENTRY_HEAD).ok_or_else(damaged)?;
        let end = ENTRY_HEAD + usize::from(head[0]);
        let name = bytes.get(ENTRY_HEAD..end).ok_or_else(damaged)?.to_vec();
        let is_name = !name.is_empty() && !name.iter().any(|byte| [0, b'/'].contains(byte));
        if !is_name || name == b"." || name == b".." {
            return Err(damaged());
        }
        let kind = kind_of(head[1]).ok_or_else(damaged)?;
        entries.push(Entry { name, kind, inode: Reader(head).id(2) });
        bytes = &bytes[end..];
    }
    Ok(entries)
}

/// One block of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The content of the directory that it belongs to.
    pub content: Id,
    /// The bucket.
    pub bucket: u64,
    /// Which of its blocks it is.
    pub part: u32,
    /// Whether another one follows.
    pub has_more: bool,
    /// Its entries.
    pub entries: Vec<Entry>,
}

impl Part {
    /// Its bytes, without a stamp.
    ///
    /// # Panics
    /// If there are more entries than fit.
    pub fn encode(&self) -> Vec<u8> {
        let entries = encode_entries(&self.entries);
        let mut block = Writer::new();
        block.bytes(0, &MAGIC);
        block.u32(4, VERSION);
        block.bytes(24, &self.content);
        block.u64(56, self.bucket);
        block.u32(64, self.part);
        block.u32(68, u32::try_from(entries.len()).expect("short"));
        block.u32(72, u32::from(self.has_more));
        block.bytes(ENTRIES_AT, &entries);
        block.0
    }

    /// From its bytes.
    ///
    /// # Errors
    /// [`crate::Kind::Damaged`].
    pub fn decode(block: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("a bucket of a directory is none");
        if block.len() != BLOCK_LEN || block[..4] != MAGIC {
            return Err(damaged());
        }
        let fields = Reader(block);
        let len = fields.u32(68) as usize;
        let more = fields.u32(72);
        if fields.u32(4) != VERSION || len > PART_LEN || more > 1 || !fields.is_zero(76..80) {
            return Err(damaged());
        }
        if !fields.is_zero(ENTRIES_AT + len..BLOCK_LEN) {
            return Err(damaged());
        }
        Ok(Self {
            content: fields.id(24),
            bucket: fields.u64(56),
            part: fields.u32(64),
            has_more: more == 1,
            entries: decode_entries(&block[ENTRIES_AT..ENTRIES_AT + len])?,
        })
    }
}

/// The bucket of a hash among so many.
pub const fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let low = 1 << buckets.ilog2();
    let wide = hash & (2 * low - 1);
    if wide < buckets { wide } else { hash & (low - 1) }
}

/// The places of listings, from its first to before its last, that a bucket among so many holds.
pub const fn places(bucket: u64, buckets: u64) -> (u64, u64) {
    let level = buckets.ilog2();
    let low = 1 << level;
    // A bucket that has been split in this round, or came from that, is told by one bit more.
    let bits = if bucket >= low || bucket < buckets - low { level + 1 } else { level };
    let first = turned(bucket);
    (first, first + (PLACES >> bits))
}
