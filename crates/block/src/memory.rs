//! A device in memory that takes room only for what was written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::device::extent_within;
use crate::{Allocation, BlockDevice, BlockNo, BlockRange, Extent, Geometry, Result, is_zero};

/// Unit of allocation in bytes: a compromise of map entries and waste.
const CHUNK_LEN_BYTES: usize = 64 << 10;

type Chunks = BTreeMap<u64, Box<[u8]>>;

/// A sparse device in memory; what was never written reads as zero.
pub struct MemoryDevice {
    geometry: Geometry,
    chunks: RwLock<Chunks>,
}

impl MemoryDevice {
    /// A device full of zeros.
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry, chunks: RwLock::default() }
    }

    /// A device with this content; bytes beyond the last whole block are left out.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfRange`] for a block length that is none.
    pub fn from_bytes(bytes: &[u8], block_len_bytes: u32) -> Result<Self> {
        let geometry = Geometry::within(bytes.len() as u64, block_len_bytes)?;
        let device = Self::new(geometry);
        let whole = bytes.len() - bytes.len() % block_len_bytes as usize;
        device.write(BlockNo(0), &bytes[..whole])?;
        Ok(device)
    }

    /// The whole content; takes as much memory as the device is long.
    pub fn snapshot(&self) -> Vec<u8> {
        let len = usize::try_from(self.geometry.len_bytes()).expect("a snapshot fits into memory");
        let mut bytes = vec![0; len];
        for (&index, chunk) in &*self.content() {
            let start = usize::try_from(index).expect("checked above") * CHUNK_LEN_BYTES;
            let end = len.min(start + CHUNK_LEN_BYTES);
            bytes[start..end].copy_from_slice(&chunk[..end - start]);
        }
        bytes
    }

    /// A BLAKE3 fingerprint of length and content, equal if and only if these are; zeros cost
    /// nothing, so it is not the hash of [`MemoryDevice::snapshot`].
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.geometry.len_bytes().to_le_bytes());
        for (index, chunk) in &*self.content() {
            // A chunk of zeros that was once written is no different from one that never was.
            if !is_zero(chunk) {
                hasher.update(&index.to_le_bytes());
                hasher.update(chunk);
            }
        }
        *hasher.finalize().as_bytes()
    }

    /// Memory taken by content, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        (self.content().len() * CHUNK_LEN_BYTES) as u64
    }

    // A panic elsewhere leaves whole chunks, so the content stays usable for the test's report.
    fn content(&self) -> RwLockReadGuard<'_, Chunks> {
        self.chunks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn content_mut(&self) -> RwLockWriteGuard<'_, Chunks> {
        self.chunks.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        let bytes = self.geometry.byte_range(at, buf.len())?;
        let chunks = self.content();
        let mut rest = buf;
        for span in spans(bytes.start, bytes.end) {
            let (part, after) = rest.split_at_mut(span.len);
            match chunks.get(&span.chunk) {
                Some(chunk) => part.copy_from_slice(&chunk[span.start..span.start + span.len]),
                None => part.fill(0),
            }
            rest = after;
        }
        Ok(())
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        let bytes = self.geometry.byte_range(at, buf.len())?;
        let mut chunks = self.content_mut();
        let mut rest = buf;
        for span in spans(bytes.start, bytes.end) {
            let (part, after) = rest.split_at(span.len);
            if chunks.contains_key(&span.chunk) || !is_zero(part) {
                let chunk = chunks
                    .entry(span.chunk)
                    .or_insert_with(|| vec![0; CHUNK_LEN_BYTES].into_boxed_slice());
                chunk[span.start..span.start + span.len].copy_from_slice(part);
            }
            rest = after;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Discarded blocks read as zero, and whole chunks of them take no room any more.
    fn discard(&self, range: BlockRange) -> Result<()> {
        let bytes = self.geometry.byte_range_of(range)?;
        let mut chunks = self.content_mut();
        let first = bytes.start.div_ceil(CHUNK_LEN_BYTES as u64);
        let end = bytes.end / CHUNK_LEN_BYTES as u64;
        if first < end {
            let mut after = chunks.split_off(&first);
            chunks.append(&mut after.split_off(&end));
        }
        let ends = [
            (bytes.start, bytes.end.min(first * CHUNK_LEN_BYTES as u64)),
            (bytes.start.max(end * CHUNK_LEN_BYTES as u64), bytes.end),
        ];
        for (start, end) in ends {
            for span in spans(start, end) {
                if let Some(chunk) = chunks.get_mut(&span.chunk) {
                    chunk[span.start..span.start + span.len].fill(0);
                }
            }
        }
        Ok(())
    }

    fn write_zeroes(&self, range: BlockRange) -> Result<()> {
        self.discard(range)
    }

    fn extent(&self, range: BlockRange) -> Result<Extent> {
        let bytes = self.geometry.byte_range_of(range)?;
        let chunks = self.content();
        let chunk_len = CHUNK_LEN_BYTES as u64;
        let covered = bytes.start / chunk_len..bytes.end.div_ceil(chunk_len);
        let first = bytes.start / chunk_len;
        let (allocation, end) = if chunks.contains_key(&first) {
            let held = chunks.range(covered.clone()).zip(covered);
            let run = held.take_while(|((chunk, _), expected)| *chunk == expected).count();
            (Allocation::Data, (first + run as u64) * chunk_len)
        } else {
            let next = chunks.range(covered).next().map(|(chunk, _)| chunk * chunk_len);
            (Allocation::Hole, next.unwrap_or(bytes.end))
        };
        Ok(extent_within(&bytes, end, allocation, self.geometry.block_len_bytes))
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("geometry", &self.geometry)
            .field("allocated_bytes", &self.allocated_bytes())
            .finish_non_exhaustive()
    }
}

/// A part of one chunk.
struct Span {
    chunk: u64,
    start: usize,
    len: usize,
}

/// The parts of chunks that bytes `start..end` of the device cover.
fn spans(start: u64, end: u64) -> impl Iterator<Item = Span> {
    let chunk_len = CHUNK_LEN_BYTES as u64;
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let until = end.min((at / chunk_len + 1) * chunk_len);
        let small = |n: u64| usize::try_from(n).expect("less than a chunk");
        let span =
            Span { chunk: at / chunk_len, start: small(at % chunk_len), len: small(until - at) };
        at = until;
        Some(span)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn conforms() {
        conformance::check(|geometry| Box::new(MemoryDevice::new(geometry)));
    }

    #[test]
    fn a_tebibyte_costs_what_was_written() {
        let device = MemoryDevice::new(Geometry::within(1 << 40, 4096).unwrap());
        device.write(BlockNo(0), &[0; 4096]).unwrap();
        assert_eq!(device.allocated_bytes(), 0);
        device.write(BlockNo((1 << 28) - 1), &[1; 4096]).unwrap();
        assert_eq!(device.allocated_bytes(), CHUNK_LEN_BYTES as u64);
        let mut block = [9; 4096];
        device.read(BlockNo(1 << 20), &mut block).unwrap();
        assert_eq!(block, [0; 4096]);
        device.hash();
    }

    #[test]
    fn what_was_never_written_is_a_hole() {
        for block_len_bytes in [512, 4096, 131_072] {
            let device = MemoryDevice::new(Geometry::within(1 << 20, block_len_bytes).unwrap());
            let per_chunk = (CHUNK_LEN_BYTES as u64 / u64::from(block_len_bytes)).max(1);
            let blocks = device.geometry.blocks;
            let at = |start: u64| {
                let range = BlockRange { start: BlockNo(start), count: blocks - start };
                device.extent(range).unwrap()
            };
            assert_eq!(at(0), Extent { count: blocks, allocation: Allocation::Hole });
            let block = vec![1; block_len_bytes as usize];
            device.write(BlockNo(per_chunk), &block).unwrap();
            assert_eq!(at(0), Extent { count: per_chunk, allocation: Allocation::Hole });
            assert_eq!(at(per_chunk), Extent { count: per_chunk, allocation: Allocation::Data });
            let whole = BlockRange { start: BlockNo(0), count: blocks };
            device.write_zeroes(whole).unwrap();
            assert_eq!(device.extent(whole).unwrap().allocation, Allocation::Hole);
        }
    }

    #[test]
    fn hash_and_snapshot_depend_on_the_content_alone() {
        let geometry = Geometry::within(200_000, 512).unwrap();
        let (a, b) = (MemoryDevice::new(geometry), MemoryDevice::new(geometry));
        a.write(BlockNo(3), &[1; 512]).unwrap();
        b.write(BlockNo(150), &[2; 512]).unwrap();
        b.write(BlockNo(3), &[1; 512]).unwrap();
        assert_ne!(a.hash(), b.hash());
        b.write(BlockNo(150), &[0; 512]).unwrap();
        assert_eq!(a.hash(), b.hash());
        assert_eq!(a.snapshot(), b.snapshot());
        let c = MemoryDevice::from_bytes(&a.snapshot(), 512).unwrap();
        assert_eq!(a.hash(), c.hash());
    }

    #[test]
    fn discarded_blocks_read_as_zero_and_others_stay() {
        let device = MemoryDevice::from_bytes(&vec![5; 512 * 1024], 512).unwrap();
        for (start, count) in [(0, 1), (100, 60), (127, 2), (130, 513), (1000, 24), (4, 0)] {
            let (from, to) = (start * 512, (start + count) * 512);
            let before = device.snapshot();
            device
                .discard(BlockRange { start: BlockNo(start as u64), count: count as u64 })
                .unwrap();
            let after = device.snapshot();
            assert!(is_zero(&after[from..to]));
            assert_eq!(before[..from], after[..from]);
            assert_eq!(before[to..], after[to..]);
        }
        assert!(device.allocated_bytes() < 512 * 1024);
    }
}
