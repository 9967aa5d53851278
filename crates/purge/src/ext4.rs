//! What ext4's driver has left on the device: read there, for nothing else shows it.
//!
//! Only reading: whatever is found is cleared by calls of the file system (see `crate::fillers`).

pub(crate) mod folder;
pub(crate) mod hash;
pub(crate) mod journal;
mod superblock;
pub(crate) mod values;

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{IFlags, ioctl_getflags};
use rustix::io::Errno;
use tacita_block::AlignedBuf;

use crate::Result;
use crate::error::During;
use crate::faults::is_unreadable;
use hash::Hash;
use superblock::Superblock;

/// Offsets and lengths of direct reading are multiples of it on any device.
const READ_ALIGN: usize = 4096;

/// Bytes of the block group descriptors that are read at once.
const DESCRIPTOR_LEN_MAX: usize = 64;

/// The mark of a folder with an index.
const INDEX_MARK: u32 = 0x1000;

/// The mark of a folder whose names are compared by their folded form.
const CASEFOLD_MARK: u32 = 0x4000_0000;

/// The mark of what the file system encrypts: content, and the names in a folder.
pub(crate) const ENCRYPTED_MARK: u32 = 0x800;

/// The mark of a file or folder whose content lies in the inode.
const INLINE_MARK: u32 = 0x1000_0000;

/// An ext2, ext3 or ext4 whose device can be read.
#[derive(Debug)]
pub(crate) struct Volume<'a> {
    device: &'a File,
    superblock: Superblock,
}

impl<'a> Volume<'a> {
    /// Looks at a device; `None` if there is no ext on it.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn of(device: &'a File) -> Result<Option<Self>> {
        let bytes = read(device, superblock::PLACE, superblock::LEN)?;
        Ok(Superblock::decode(&bytes).map(|superblock| Self { device, superblock }))
    }

    /// What names find their block by in an indexed folder.
    pub(crate) fn hash(&self, hash: Hash, name: &[u8]) -> u32 {
        hash.name(self.superblock.hash_seed, name)
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
        let descriptor = read(self.device, at, len.min(DESCRIPTOR_LEN_MAX))?;
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
        read(self.device, at, self.superblock.inode_len).map(Some)
    }

    /// Reads the device.
    pub(crate) fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        read(self.device, at, len)
    }
}

/// The marks of a file or folder.
fn marks(file: impl AsFd) -> u32 {
    ioctl_getflags(file).unwrap_or(IFlags::empty()).bits()
}

/// Reads the device past every cache.
fn read(device: &File, at: u64, len: usize) -> Result<Vec<u8>> {
    let mut buffer = buffer_for(len);
    read_to(device, at, len, &mut buffer).map(<[u8]>::to_vec)
}

/// A buffer to read so many bytes to, from wherever they begin.
fn buffer_for(len: usize) -> AlignedBuf {
    AlignedBuf::new(len.next_multiple_of(READ_ALIGN) + READ_ALIGN)
}

/// The same to a buffer for that many bytes.
fn read_to<'b>(device: &File, at: u64, len: usize, buffer: &'b mut AlignedBuf) -> Result<&'b [u8]> {
    if is_unreadable(at, len) {
        return Err(Errno::IO).during("reading the device");
    }
    let start = at - at % READ_ALIGN as u64;
    let from = usize::try_from(at - start).unwrap_or(0);
    let wanted = &mut buffer[..(from + len).next_multiple_of(READ_ALIGN)];
    let mut got = 0;
    while got < wanted.len() {
        match device.read_at(&mut wanted[got..], start + got as u64) {
            // The last sectors of a device.
            Ok(0) => break,
            Ok(more) => got += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).during("reading the device"),
        }
    }
    let whole = wanted.get(from..from + len).filter(|_| from + len <= got);
    whole.ok_or_else(|| {
        crate::Error::new(crate::Kind::Io, "the device ends within what was to be read")
    })
}
