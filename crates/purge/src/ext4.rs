//! What ext4's driver has left on the device: read there, for nothing else shows it.
//!
//! Only reading: whatever is found is cleared by calls of the file system (see [`fillers`]).

pub(crate) mod fillers;
pub(crate) mod folder;
mod hash;
pub(crate) mod journal;
mod superblock;
pub(crate) mod values;

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{IFlags, ioctl_getflags};
use tacita_block::AlignedBuf;

use crate::Result;
use crate::error::During;
use crate::lower_fs::LowerFs;
use superblock::Superblock;

/// Offsets and lengths of direct reading are multiples of it on any device.
const READ_ALIGN: u64 = 4096;

/// Bytes of the block group descriptors that are read at once.
const DESCRIPTOR_LEN_MAX: usize = 64;

/// The mark of a folder with an index.
const INDEX_MARK: u32 = 0x1000;

/// The mark of a folder whose names are compared by their folded form.
const CASEFOLD_MARK: u32 = 0x4000_0000;

/// The mark of a file or folder whose content lies in the inode.
const INLINE_MARK: u32 = 0x1000_0000;

/// An ext2, ext3 or ext4 whose device can be read.
#[derive(Debug)]
pub(crate) struct Volume<'a> {
    lower: &'a LowerFs,
    superblock: Superblock,
}

impl<'a> Volume<'a> {
    /// Looks at the device of a medium; `None` where it is no ext, may not be read, or does not
    /// show what stands in the journal.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn of(lower: &'a LowerFs) -> Result<Option<Self>> {
        let is_current = lower.is_ext() && lower.puts_in_place();
        if is_current { Self::of_device(lower) } else { Ok(None) }
    }

    /// The same whatever the journal holds; `None` where the device may not be read, or is no ext's.
    fn of_device(lower: &'a LowerFs) -> Result<Option<Self>> {
        if lower.raw().is_none() {
            return Ok(None);
        }
        let bytes = read(lower, superblock::PLACE, superblock::LEN)?;
        Ok(Superblock::decode(&bytes).map(|superblock| Self { lower, superblock }))
    }

    /// Bytes of a block.
    pub(crate) const fn block_len(&self) -> u64 {
        self.superblock.block_len
    }

    /// Where the inode of that number lies; `None` where nobody can tell.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn inode_place(&self, number: u64) -> Result<Option<u64>> {
        let Some((at, len)) = self.superblock.descriptor(number) else {
            return Ok(None);
        };
        let descriptor = read(self.lower, at, len.min(DESCRIPTOR_LEN_MAX))?;
        Ok(Some(self.superblock.inode(number, &descriptor)))
    }

    /// The inode of that number as it is on the device; `None` where its place is not known.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn inode(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let Some(at) = self.inode_place(number)? else {
            return Ok(None);
        };
        read(self.lower, at, self.superblock.inode_len).map(Some)
    }

    /// Reads the device.
    pub(crate) fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        read(self.lower, at, len)
    }
}

/// The marks of a file or folder.
fn marks(file: impl AsFd) -> u32 {
    ioctl_getflags(file).unwrap_or(IFlags::empty()).bits()
}

/// Reads the device past every cache.
fn read(lower: &LowerFs, at: u64, len: usize) -> Result<Vec<u8>> {
    let Some(device) = lower.raw() else {
        return Ok(Vec::new());
    };
    let start = at - at % READ_ALIGN;
    let end = (at + len as u64).next_multiple_of(READ_ALIGN);
    let mut buffer = AlignedBuf::new(usize::try_from(end - start).unwrap_or(0));
    let mut got = 0;
    while got < buffer.len() {
        match device.read_at(&mut buffer[got..], start + got as u64) {
            // The last sectors of a device.
            Ok(0) => break,
            Ok(more) => got += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).during("reading the device"),
        }
    }
    let from = usize::try_from(at - start).unwrap_or(0);
    let to = from + len;
    let whole = buffer.get(from..to).filter(|_| to <= got);
    whole.map(<[u8]>::to_vec).ok_or_else(|| {
        crate::Error::new(crate::Kind::Io, "the device ends within what was to be read")
    })
}
