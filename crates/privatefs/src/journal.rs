//! Blocks of the journal: headers that list what a commit changes, and after them the blocks as they will
//! be, in the order of the list.

use crate::error::{Error, Result};
use crate::faults::{Fault, planted};
use crate::fields::{Reader, Stamp, Writer};
use crate::ids::{BLOCK_LEN, Id, MountId};

const MAGIC: [u8; 8] = *b"tacitaPJ";

const ENTRIES_AT: usize = 64;
const ENTRY_LEN: usize = 40;

/// Entries of a header.
pub const ENTRIES: usize = (BLOCK_LEN - ENTRIES_AT) / ENTRY_LEN;

/// The two places in a mount's journal where commits begin, in turn.
pub const FIRST: [u32; 2] = [0, 1 << 31];

/// Where the journal of a commit begins: not where that of the one before does, which may still be needed.
pub fn first(commit: u64) -> u32 {
    if planted(Fault::JournalOverwritten) {
        return FIRST[0];
    }
    FIRST[usize::from(!commit.is_multiple_of(2))]
}

/// What a commit makes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The block.
    pub id: Id,
    /// Whether there is an image of it; otherwise there is no such block from then on.
    pub has_image: bool,
}

/// Headers that so many entries need.
pub const fn headers(entries: usize) -> usize {
    entries.div_ceil(ENTRIES)
}

/// One header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Whose journal it is.
    pub mount: MountId,
    /// The commit.
    pub stamp: Stamp,
    /// Which header of the commit it is.
    pub number: u32,
    /// Its entries.
    pub entries: Vec<Entry>,
}

impl Header {
    /// Its bytes.
    ///
    /// # Panics
    /// With more entries than fit.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Writer::new();
        block.bytes(0, &MAGIC);
        self.stamp.stamp(&mut block.0);
        block.bytes(24, &self.mount);
        block.u32(40, self.number);
        block.u32(44, u32::try_from(self.entries.len()).expect("a block holds few"));
        for (number, entry) in self.entries.iter().enumerate() {
            let at = ENTRIES_AT + number * ENTRY_LEN;
            block.bytes(at, &entry.id);
            block.u32(at + 32, if entry.has_image { 1 } else { 2 });
        }
        block.0
    }

    /// From its bytes.
    ///
    /// # Errors
    /// [`crate::Kind::Damaged`].
    pub fn decode(block: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("a header of the journal is none");
        if block.len() != BLOCK_LEN || block[..8] != MAGIC {
            return Err(damaged());
        }
        let fields = Reader(block);
        let count = fields.u32(44) as usize;
        if count > ENTRIES
            || !fields.is_zero(48..ENTRIES_AT)
            || !fields.is_zero(ENTRIES_AT + count * ENTRY_LEN..BLOCK_LEN)
        {
            return Err(damaged());
        }
        let entries = (0..count).map(|number| {
            let at = ENTRIES_AT + number * ENTRY_LEN;
            let has_image = match (fields.u32(at + 32), fields.u32(at + 36)) {
                (1, 0) => true,
                (2, 0) => false,
                _ => return Err(damaged()),
            };
            Ok(Entry { id: fields.id(at), has_image })
        });
        Ok(Self {
            mount: fields.array(24),
            stamp: Stamp::of(block),
            number: fields.u32(40),
            entries: entries.collect::<Result<_>>()?,
        })
    }
}
