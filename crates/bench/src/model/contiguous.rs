//! The ideal that ratios on the disk model refer to: files in as few pieces as first fit gives.
//!
//! It has no metadata, journal or secrets to keep, so nothing real can be faster in the long run.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tacita_block::{BlockDevice, BlockNo, DiskModel, Geometry, MemoryDevice};

use super::{FileNo, Modelled};

const BLOCK_LEN_BYTES: u32 = 4096;

/// Longest single request in blocks.
const REQUEST_BLOCKS: u64 = 256;

/// Blocks `start..start + count` of the device.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: u64,
    count: u64,
}

/// Files as lists of extents, overwritten in place.
pub(super) struct Contiguous {
    disk: DiskModel<MemoryDevice>,
    /// Length of free runs by their start; neighbours are merged.
    free: BTreeMap<u64, u64>,
    files: BTreeMap<FileNo, Vec<Extent>>,
    /// Zeros: the model prices places, not content, and memory keeps zeros for nothing.
    buf: Vec<u8>,
}

impl Contiguous {
    pub(super) fn new(size_bytes: u64) -> Result<Self> {
        let geometry = Geometry::within(size_bytes, BLOCK_LEN_BYTES)?;
        Ok(Self {
            disk: DiskModel::new(MemoryDevice::new(geometry)),
            free: BTreeMap::from([(0, geometry.blocks)]),
            files: BTreeMap::new(),
            buf: vec![0; usize::try_from(REQUEST_BLOCKS * u64::from(BLOCK_LEN_BYTES))?],
        })
    }

    /// Takes up to `count` blocks: the first run that is long enough, or else the longest.
    fn allocate(&mut self, count: u64) -> Result<Extent> {
        let fits = self.free.iter().find(|(_, len)| **len >= count);
        let found = fits.or_else(|| self.free.iter().max_by_key(|(_, len)| **len));
        let (&start, &len) = found.context("the modelled disk is full")?;
        let count = count.min(len);
        self.free.remove(&start);
        if count < len {
            self.free.insert(start + count, len - count);
        }
        Ok(Extent { start, count })
    }

    fn release(&mut self, extent: Extent) {
        let Extent { mut start, mut count } = extent;
        if let Some(after) = self.free.remove(&(start + count)) {
            count += after;
        }
        if let Some((&before, &len)) = self.free.range(..start).next_back()
            && before + len == start
        {
            self.free.remove(&before);
            (start, count) = (before, len + count);
        }
        self.free.insert(start, count);
    }

    fn transfer(&mut self, extent: Extent, write: bool) -> Result<()> {
        let end = extent.start + extent.count;
        let mut at = extent.start;
        while at < end {
            let count = REQUEST_BLOCKS.min(end - at);
            let len = usize::try_from(count * u64::from(BLOCK_LEN_BYTES))?;
            let buf = &mut self.buf[..len];
            if write {
                self.disk.write(BlockNo(at), buf)?;
            } else {
                self.disk.read(BlockNo(at), buf)?;
            }
            at += count;
        }
        Ok(())
    }

    /// Reads or writes a part of a file, extent by extent.
    fn access(&mut self, file: FileNo, offset: u64, len_bytes: u64, write: bool) -> Result<()> {
        let extents = self.files.get(&file).context("no such file")?.clone();
        let block = u64::from(BLOCK_LEN_BYTES);
        let (mut skip, mut left) = (offset / block, len_bytes.div_ceil(block));
        for extent in extents {
            if skip >= extent.count {
                skip -= extent.count;
                continue;
            }
            let part =
                Extent { start: extent.start + skip, count: (extent.count - skip).min(left) };
            self.transfer(part, write)?;
            left -= part.count;
            skip = 0;
            if left == 0 {
                return Ok(());
            }
        }
        anyhow::bail!("beyond the end of the file")
    }
}

impl Modelled for Contiguous {
    fn name(&self) -> &'static str {
        "contiguous"
    }

    fn capacity_bytes(&self) -> u64 {
        self.disk.geometry().len_bytes()
    }

    fn append(&mut self, file: FileNo, len_bytes: u64) -> Result<()> {
        let mut left = len_bytes.div_ceil(u64::from(BLOCK_LEN_BYTES));
        self.files.entry(file).or_default();
        while left > 0 {
            let extent = self.allocate(left)?;
            self.transfer(extent, true)?;
            left -= extent.count;
            self.files.entry(file).or_default().push(extent);
        }
        Ok(())
    }

    fn read(&mut self, file: FileNo, offset: u64, len_bytes: u64) -> Result<()> {
        self.access(file, offset, len_bytes, false)
    }

    fn overwrite(&mut self, file: FileNo, offset: u64, len_bytes: u64) -> Result<()> {
        self.access(file, offset, len_bytes, true)
    }

    fn delete(&mut self, file: FileNo) -> Result<()> {
        for extent in self.files.remove(&file).context("no such file")? {
            self.release(extent);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.disk.flush()?;
        Ok(())
    }

    fn elapsed_ns(&self) -> u64 {
        self.disk.elapsed_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_blocks_merge_and_are_used_again() {
        let mut system = Contiguous::new(1 << 20).unwrap();
        for file in 0..4 {
            system.append(FileNo(file), 1 << 18).unwrap();
        }
        assert!(system.append(FileNo(9), 4096).is_err());
        for file in [0, 2, 1, 9] {
            system.delete(FileNo(file)).unwrap();
        }
        assert_eq!(system.free, BTreeMap::from([(0, 192)]));
        system.append(FileNo(5), 3 << 18).unwrap();
        system.read(FileNo(5), 1 << 18, 2 << 18).unwrap();
        assert!(system.read(FileNo(5), 3 << 18, 4096).is_err());
    }
}
