//! Where the values of attributes lie: in the inode, in a block of attributes, or in an inode of
//! their own.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use memchr::memmem;

use super::Volume;
use crate::Result;

/// What attributes in an inode or a block begin with.
const MAGIC: u32 = 0xEA02_0000;

/// Length of an inode without what came later.
const OLD_INODE_LEN: usize = 128;

/// Length of the head of attributes in the inode, and in a block.
const INODE_HEAD_LEN: usize = 4;
const BLOCK_HEAD_LEN: usize = 32;

/// Where a block says how many files have it: the driver gives equal ones to several.
const REFERENCES_AT: usize = 4;

/// Length of what precedes the name of an attribute.
const HEAD_LEN: usize = 16;

/// Shorter values are looked for at their place alone: anywhere else they could be anything.
const SEARCHED_LEN_MIN: usize = 8;

/// Name spaces by their numbers.
const NAME_SPACES: [(u8, &[u8]); 2] = [(1, b"user."), (4, b"trusted.")];

/// Where a value lies.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// On the device, at that byte.
    Device(u64),
    /// In an inode of its own, which no call overwrites.
    OwnInode,
}

/// What holds attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    Inode,
    Block,
}

/// An attribute as it is on the device.
#[derive(Debug, Clone)]
struct Entry {
    space: u8,
    name: Vec<u8>,
    place: Place,
    value: Vec<u8>,
    in_inode: bool,
}

/// All attributes of a file as they are on the device.
#[derive(Debug)]
pub(crate) struct Values {
    entries: Vec<Entry>,
    /// Where its inode and its block of attributes lie, as far as they hold attributes.
    regions: Vec<(Region, u64, usize)>,
    /// Bytes that a new attribute could take in the inode.
    pub(crate) room: usize,
    /// Whether other files have the same block of attributes.
    is_shared: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes([bytes[0], bytes[1]]))
}

impl Values {
    /// Looks at the attributes of a file, which have been put in place; `None` where its inode
    /// cannot be found.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn of(volume: &Volume<'_>, number: u64) -> Result<Option<Self>> {
        let (Some(at), Some(inode)) = (volume.inode_place(number)?, volume.inode(number)?) else {
            return Ok(None);
        };
        let mut values =
            Self { entries: Vec::new(), regions: Vec::new(), room: 0, is_shared: false };
        let extra = u16_at(&inode, OLD_INODE_LEN).map_or(0, usize::from);
        let start = OLD_INODE_LEN + extra;
        if inode.len() > start + INODE_HEAD_LEN {
            values.regions.push((Region::Inode, at + start as u64, inode.len() - start));
            let first = start + INODE_HEAD_LEN;
            values.room = if u32_at(&inode, start) == Some(MAGIC) {
                values.take(&inode, first, (at, first), true)
            } else {
                (inode.len() - first).saturating_sub(4)
            };
        }
        let low = u32_at(&inode, 0x68).map_or(0, u64::from);
        let high = u16_at(&inode, 0x76).map_or(0, u64::from);
        let block = (high << 32 | low) * volume.block_len();
        if block != 0 {
            let len = usize::try_from(volume.block_len()).unwrap_or(0);
            let bytes = volume.read(block, len)?;
            values.regions.push((Region::Block, block, len));
            if u32_at(&bytes, 0) == Some(MAGIC) {
                values.is_shared = u32_at(&bytes, REFERENCES_AT).is_some_and(|files| files > 1);
                values.take(&bytes, BLOCK_HEAD_LEN, (block, 0), false);
            }
        }
        Ok(Some(values))
    }

    /// Takes in the attributes that begin at `first`; places of values count from `base`. Returns
    /// the room that is left between them and their values.
    fn take(
        &mut self,
        bytes: &[u8],
        first: usize,
        (at, base): (u64, usize),
        in_inode: bool,
    ) -> usize {
        let (mut entry, mut values) = (first, bytes.len());
        while let (Some(1..), Some(head)) =
            (u32_at(bytes, entry), bytes.get(entry..entry + HEAD_LEN))
        {
            let name_len = usize::from(head[0]);
            let own = u32_at(head, 4).unwrap_or(0) != 0;
            let offset = base + u16_at(head, 2).map_or(0, usize::from);
            let len = u32_at(head, 8).map_or(0, |len| usize::try_from(len).unwrap_or(0));
            let (Some(name), value) = (
                bytes.get(entry + HEAD_LEN..entry + HEAD_LEN + name_len),
                bytes.get(offset..offset + len).filter(|_| !own),
            ) else {
                break;
            };
            if len > 0 && !own {
                values = values.min(offset);
            }
            self.entries.push(Entry {
                space: head[1],
                name: name.to_vec(),
                place: if own { Place::OwnInode } else { Place::Device(at + offset as u64) },
                value: value.unwrap_or_default().to_vec(),
                in_inode,
            });
            entry += HEAD_LEN + name_len.next_multiple_of(4);
        }
        values.saturating_sub(entry + 4)
    }

    fn entry(&self, name: &OsStr) -> Option<&Entry> {
        let name = name.as_bytes();
        NAME_SPACES.iter().find_map(|(space, prefix)| {
            let rest = name.strip_prefix(*prefix)?;
            self.entries.iter().find(|entry| entry.space == *space && entry.name == rest)
        })
    }

    /// Whether a new value of the same length would be put into the inode, and the old one left
    /// where it is.
    pub(crate) fn would_move(&self, name: &OsStr) -> bool {
        let need = |entry: &Entry| {
            HEAD_LEN + entry.name.len().next_multiple_of(4) + entry.value.len().next_multiple_of(4)
        };
        self.is_in_block(name) && self.entry(name).is_some_and(|entry| need(entry) <= self.room)
    }

    /// Whether the value of an attribute lies in a block of attributes.
    pub(crate) fn is_in_block(&self, name: &OsStr) -> bool {
        let entry = self.entry(name);
        entry.is_some_and(|entry| !entry.in_inode && entry.place != Place::OwnInode)
    }

    /// Whether what is left there other files had as well.
    pub(crate) fn is_shared(&self, left: Region) -> bool {
        self.is_shared && left == Region::Block
    }

    /// Whether the value of an attribute is in an inode of its own.
    pub(crate) fn has_own_inode(&self, name: &OsStr) -> bool {
        self.entry(name).is_some_and(|entry| entry.place == Place::OwnInode)
    }

    /// Where the value that an attribute had when this was looked at is on the device still, but for
    /// values that are there `now`.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn left(
        &self,
        volume: &Volume<'_>,
        name: &OsStr,
        now: Option<&Self>,
    ) -> Result<Option<Region>> {
        let Some(entry) = self.entry(name) else {
            return Ok(None);
        };
        let own = if entry.in_inode { Region::Inode } else { Region::Block };
        let Place::Device(at) = entry.place else {
            return Ok(Some(own));
        };
        if tacita_block::is_zero(&entry.value) {
            // What is cleared looks the same.
            return Ok(None);
        }
        let living = now.map_or_else(Vec::new, Self::places);
        let is_free = |range: &Range<u64>| {
            living.iter().all(|other| other.end <= range.start || range.end <= other.start)
        };
        let len = entry.value.len();
        if is_free(&(at..at + len as u64)) && volume.read(at, len)? == entry.value {
            return Ok(Some(own));
        }
        if len < SEARCHED_LEN_MIN {
            return Ok(None);
        }
        let finder = memmem::Finder::new(&entry.value);
        for (region, at, region_len) in &self.regions {
            let bytes = volume.read(*at, *region_len)?;
            let mut searched = 0;
            while let Some(next) = finder.find(&bytes[searched..]) {
                let begin = at + (searched + next) as u64;
                if is_free(&(begin..begin + len as u64)) {
                    return Ok(Some(*region));
                }
                searched += next + 1;
            }
        }
        Ok(None)
    }

    /// Where values lie on the device.
    fn places(&self) -> Vec<Range<u64>> {
        let place = |entry: &Entry| match entry.place {
            Place::Device(at) => Some(at..at + entry.value.len() as u64),
            Place::OwnInode => None,
        };
        self.entries.iter().filter_map(place).collect()
    }
}

/// Length of the value of an attribute with a name of `name_len` bytes that takes all of `room`.
pub(crate) fn value_len_for(room: usize, name_len: usize) -> Option<usize> {
    let len = room.checked_sub(HEAD_LEN + name_len.next_multiple_of(4))?;
    Some(len - len % 4)
}
