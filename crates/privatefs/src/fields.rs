//! Numbers and arrays at places in a block, little-endian.

use crate::ids::{BLOCK_LEN, Id};

/// A block that is being written.
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// All zeros.
    pub(crate) fn new() -> Self {
        Self(vec![0; BLOCK_LEN])
    }

    pub(crate) fn bytes(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn u16(&mut self, at: usize, value: u16) {
        self.bytes(at, &value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, at: usize, value: u32) {
        self.bytes(at, &value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, at: usize, value: u64) {
        self.bytes(at, &value.to_le_bytes());
    }
}

/// A block, or a part of one, that is being read; it is long enough for all that is asked of it.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.0[at..at + N]);
        array
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(crate) fn id(&self, at: usize) -> Id {
        self.array(at)
    }

    /// Whether nothing but zeros is in these places.
    pub(crate) fn is_zero(&self, places: std::ops::Range<usize>) -> bool {
        self.0[places].iter().all(|byte| *byte == 0)
    }
}

/// Which commit a block of metadata comes from: later ones are greater, and none comes twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// The turn.
    pub epoch: u64,
    /// The commit.
    pub commit: u64,
}

/// Where a stamp is in each block of metadata.
const STAMP_AT: usize = 8;

impl Stamp {
    /// That of a block.
    pub fn of(block: &[u8]) -> Self {
        let fields = Reader(block);
        Self { epoch: fields.u64(STAMP_AT), commit: fields.u64(STAMP_AT + 8) }
    }

    /// Puts it into a block.
    pub fn stamp(self, block: &mut [u8]) {
        block[STAMP_AT..STAMP_AT + 8].copy_from_slice(&self.epoch.to_le_bytes());
        block[STAMP_AT + 8..STAMP_AT + 16].copy_from_slice(&self.commit.to_le_bytes());
    }

    /// Whether two blocks are the same but for their stamps.
    pub(crate) fn is_all_that_differs(one: &[u8], two: &[u8]) -> bool {
        one[..STAMP_AT] == two[..STAMP_AT] && one[STAMP_AT + 16..] == two[STAMP_AT + 16..]
    }
}
