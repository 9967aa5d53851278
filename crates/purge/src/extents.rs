//! Where the content of a file lies.

use std::fs::File;
use std::ops::Range;

use rustix::io::Errno;

use crate::error::During;
use crate::kernel::{self, RawExtent};
use crate::{Error, Result};

/// A piece of a file that lies together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, in bytes.
    pub logical: u64,
    /// Offset on the device, in bytes.
    pub physical: u64,
    /// Length in bytes.
    pub len: u64,
    /// What the file system says of it.
    pub state: State,
}

/// Whether and how an extent is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// On the device, at `physical`.
    Stored,
    /// In memory only; nothing of it has reached the device.
    InMemory,
    /// Promised room on the device that reads as zeros: nothing has been written there, as far as the
    /// file system knows.
    Unwritten,
    /// On the device, but shared with another file.
    Shared,
    /// In the inode, or packed with other data.
    Packed,
    /// Compressed or encrypted by the file system: what is read is not what is stored.
    Encoded,
    /// On the device, at `physical`, encrypted by a file system that does not say so of extents (ext4).
    Encrypted,
}

impl Extent {
    /// Offset in the file behind its last byte.
    pub const fn end(&self) -> u64 {
        self.logical + self.len
    }

    fn of_kernel(raw: &RawExtent) -> Self {
        let has = |flag: u32| raw.flags & flag != 0;
        let state = if has(kernel::EXTENT_DELALLOC) {
            State::InMemory
        } else if has(kernel::EXTENT_SHARED) {
            State::Shared
        } else if has(kernel::EXTENT_INLINE | kernel::EXTENT_TAIL | kernel::EXTENT_NOT_ALIGNED) {
            State::Packed
        } else if has(kernel::EXTENT_ENCODED | kernel::EXTENT_UNKNOWN) {
            State::Encoded
        } else if has(kernel::EXTENT_UNWRITTEN) {
            State::Unwritten
        } else {
            State::Stored
        };
        Self { logical: raw.logical, physical: raw.physical, len: raw.length, state }
    }

    /// The part within `range`, if any.
    pub(crate) fn within(&self, range: &Range<u64>) -> Option<Self> {
        let start = self.logical.max(range.start);
        let end = self.end().min(range.end);
        (start < end).then(|| Self {
            logical: start,
            physical: self.physical + (start - self.logical),
            len: end - start,
            state: self.state,
        })
    }
}

/// The extents of a file, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map {
    /// The extents; adjoining ones of one kind are one.
    pub extents: Vec<Extent>,
}

impl Map {
    /// Asks the file system where `file` lies; `None` if it cannot tell.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn of(file: &File) -> Result<Option<Self>> {
        let mut raw = Vec::new();
        let mut start = 0;
        loop {
            let got = match kernel::extents(file, start, u64::MAX - start) {
                Ok(got) => got,
                Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::BADR) => {
                    return Self::of_blocks(file);
                }
                Err(e) => return Err(Error::of_kernel(e, "asking where a file lies")),
            };
            let Some(last) = got.last().copied() else {
                break;
            };
            raw.extend(got);
            let end = last.logical.saturating_add(last.length);
            if last.flags & kernel::EXTENT_LAST != 0 || end <= start {
                break;
            }
            start = end;
        }
        let mut map = Self::default();
        for raw in &raw {
            map.push(Extent::of_kernel(raw));
        }
        Ok(Some(map))
    }

    /// The same block by block, where the file system has no map of extents (FAT); root only.
    fn of_blocks(file: &File) -> Result<Option<Self>> {
        let meta = file.metadata().during("asking for a file's size")?;
        let Ok(unit) = kernel::block_len_bytes(file) else {
            return Ok(None);
        };
        // It does not know of what is only in memory.
        match rustix::fs::fdatasync(file) {
            Ok(()) | Err(Errno::ROFS) => {}
            Err(e) => return Err(Error::of_kernel(e, "writing a file back")),
        }
        let mut map = Self::default();
        for number in 0..meta.len().div_ceil(unit) {
            match kernel::block(file, number) {
                Ok(0) => {}
                Ok(block) => map.push(Extent {
                    logical: number * unit,
                    physical: block * unit,
                    len: unit,
                    state: State::Stored,
                }),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(map))
    }

    /// What is not a hole, asked of the file itself; where it lies stays unknown.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn of_data(file: &File) -> Result<Self> {
        use rustix::fs::{SeekFrom, seek};
        let size = file.metadata().during("asking for a file's size")?.len();
        let mut map = Self::default();
        let mut at = 0;
        while at < size {
            let start = match seek(file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL) => at,
                Err(e) => return Err(Error::of_kernel(e, "looking for data")),
            };
            let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
            if end <= start {
                break;
            }
            let state = State::Stored;
            map.push(Extent { logical: start, physical: 0, len: end - start, state });
            at = end;
        }
        Ok(map)
    }

    fn push(&mut self, extent: Extent) {
        if let Some(last) = self.extents.last_mut()
            && last.end() == extent.logical
            && last.state == extent.state
            && (last.physical + last.len == extent.physical || extent.state == State::InMemory)
        {
            last.len += extent.len;
            return;
        }
        self.extents.push(extent);
    }

    /// The parts within `range`.
    #[must_use]
    pub fn within(&self, range: &Range<u64>) -> Self {
        let mut map = Self::default();
        for extent in &self.extents {
            if let Some(part) = extent.within(range) {
                map.push(part);
            }
        }
        map
    }

    /// The parts that lie within extents of `other` too.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let mut map = Self::default();
        for extent in &other.extents {
            for part in self.within(&(extent.logical..extent.end())).extents {
                map.push(part);
            }
        }
        map
    }

    /// The extents of one state, without the others.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(State) -> bool) -> Self {
        Self { extents: self.extents.iter().filter(|e| wanted(e.state)).copied().collect() }
    }

    /// Whether any extent is of that state.
    pub fn any(&self, state: State) -> bool {
        self.extents.iter().any(|extent| extent.state == state)
    }

    /// Bytes in all extents.
    pub fn len_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.len).sum()
    }

    /// Whether every byte of `self` lies at the same place in `later`.
    pub fn is_kept_by(&self, later: &Self) -> bool {
        self.extents.iter().all(|extent| {
            let range = extent.logical..extent.end();
            let found = later.within(&range);
            found.len_bytes() == extent.len
                && found
                    .extents
                    .iter()
                    .all(|part| part.physical == extent.physical + (part.logical - extent.logical))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(list: &[(u64, u64, u64)]) -> Map {
        let mut map = Map::default();
        for &(logical, physical, len) in list {
            map.push(Extent { logical, physical, len, state: State::Stored });
        }
        map
    }

    #[test]
    fn adjoining_extents_are_one() {
        assert_eq!(map(&[(0, 100, 10), (10, 110, 10)]), map(&[(0, 100, 20)]));
        assert_eq!(map(&[(0, 100, 10), (10, 200, 10)]).extents.len(), 2);
    }

    #[test]
    fn a_map_is_kept_if_every_byte_stays() {
        let before = map(&[(0, 100, 10), (50, 300, 10)]);
        assert!(before.is_kept_by(&map(&[(0, 100, 5), (5, 105, 5), (50, 300, 20)])));
        assert!(!before.is_kept_by(&map(&[(0, 100, 10)])), "a part is gone");
        assert!(!before.is_kept_by(&map(&[(0, 100, 10), (50, 700, 10)])), "a part has moved");
        assert!(Map::default().is_kept_by(&before));
    }

    #[test]
    fn parts_know_their_place() {
        let part = map(&[(0, 1000, 100)]).within(&(30..40));
        assert_eq!(part, map(&[(30, 1030, 10)]));
        assert!(part.within(&(0..30)).extents.is_empty());
    }
}
