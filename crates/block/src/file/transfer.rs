//! Reading and writing, through the page cache or past it.

use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Advice, FallocateFlags, SeekFrom};

use super::{Access, FileDevice};
use crate::device::{extent_within, fill_with_zeroes};
use crate::{
    AlignedBuf, Allocation, BlockDevice, BlockNo, BlockRange, Error, Extent, Geometry, Kind, Result,
};

/// Longest single transfer through a bounce buffer in bytes; longer ones gain nothing.
pub(super) const BOUNCE_LEN_MAX_BYTES: usize = 1 << 20;

impl FileDevice {
    fn failed(&self, what: &str, offset: u64, error: io::Error) -> Error {
        let context = format!("cannot {what} {} at byte {offset}", self.path.display());
        Error::from_io(context, error)
    }

    fn check_writable(&self) -> Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Error::new(
                Kind::ReadOnly,
                format!("{} is open for reading only", self.path.display()),
            )),
        }
    }

    /// Makes a hole; `false` if the file system has none.
    fn punch(&self, bytes: &Range<u64>) -> io::Result<bool> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, mode, bytes.start, bytes.end - bytes.start) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.bounce {
            Some(bounce) if !AlignedBuf::is_aligned(buf) => bounce.with(|aligned| {
                let mut offset = offset;
                for part in buf.chunks_mut(BOUNCE_LEN_MAX_BYTES) {
                    self.file.read_exact_at(&mut aligned[..part.len()], offset)?;
                    part.copy_from_slice(&aligned[..part.len()]);
                    offset += part.len() as u64;
                }
                Ok(())
            }),
            _ => self.file.read_exact_at(buf, offset),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        match &self.bounce {
            Some(bounce) if !AlignedBuf::is_aligned(buf) => bounce.with(|aligned| {
                let mut offset = offset;
                for part in buf.chunks(BOUNCE_LEN_MAX_BYTES) {
                    aligned[..part.len()].copy_from_slice(part);
                    self.file.write_all_at(&aligned[..part.len()], offset)?;
                    offset += part.len() as u64;
                }
                Ok(())
            }),
            _ => self.file.write_all_at(buf, offset),
        }
    }

    fn write_all_gathered_at(&self, bufs: &[&[u8]], mut offset: u64) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
        let mut rest = &mut slices[..];
        // Drops those that are empty.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            // Of many buffers it takes as many as the kernel does.
            match rustix::io::pwritev(&self.file, rest, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(done) => {
                    offset += done as u64;
                    IoSlice::advance_slices(&mut rest, done);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn rest(&self) -> Result<Vec<u8>> {
        let end = self.geometry.len_bytes();
        let mut rest = AlignedBuf::new(self.geometry.block_len_bytes as usize);
        let mut len = 0;
        while len < rest.len() {
            match self.file.read_at(&mut rest[len..], end + len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                // Direct reads go no further from where a file has ended.
                Err(_) if len > 0 => break,
                Err(e) => return Err(self.failed("read", end, e)),
            }
        }
        // A whole block is no rest: it belongs to a device of which only the beginning is used.
        Ok(if len < rest.len() { rest[..len].to_vec() } else { Vec::new() })
    }

    fn zero_rest(&self) -> Result<()> {
        self.check_writable()?;
        let (len, end) = (self.rest()?.len(), self.geometry.len_bytes());
        let zeros = AlignedBuf::new(self.geometry.block_len_bytes as usize);
        self.write_at(&zeros[..len], end).map_err(|e| self.failed("zero", end, e))
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        let offset = self.geometry.byte_range(at, buf.len())?.start;
        self.read_at(buf, offset).map_err(|e| self.failed("read", offset, e))
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        let offset = self.geometry.byte_range(at, buf.len())?.start;
        self.check_writable()?;
        self.write_at(buf, offset).map_err(|e| self.failed("write", offset, e))
    }

    fn write_gathered(&self, at: BlockNo, bufs: &[&[u8]]) -> Result<()> {
        if self.bounce.is_some() {
            // Who goes past the page cache copies anyway.
            return self.write(at, &bufs.concat());
        }
        let offset = self.geometry.byte_range(at, bufs.iter().map(|buf| buf.len()).sum())?.start;
        self.check_writable()?;
        self.write_all_gathered_at(bufs, offset).map_err(|e| self.failed("write", offset, e))
    }

    fn will_read(&self, range: BlockRange) {
        let Ok(bytes) = self.geometry.byte_range_of(range) else { return };
        let len = NonZeroU64::new(bytes.end - bytes.start);
        // A hint: what refuses it reads as before.
        let _ = rustix::fs::fadvise(&self.file, bytes.start, len, Advice::WillNeed);
    }

    fn forget_cached(&self) {
        super::cache::forget(&self.file, self.geometry.len_bytes());
    }

    fn will_flush(&self, range: BlockRange) {
        let Ok(bytes) = self.geometry.byte_range_of(range) else { return };
        if bytes.is_empty() {
            // To the kernel that would be everything from there on.
            return;
        }
        let place = |at: u64| i64::try_from(at).expect("within a file");
        let (offset, len) = (place(bytes.start), place(bytes.end - bytes.start));
        // JUSTIFICATION: no safe wrapper of sync_file_range exists.
        // SAFETY: the descriptor is open; the call takes numbers only. Its result does not matter, for
        // the flush tells what has failed.
        #[allow(unsafe_code)]
        unsafe {
            libc::sync_file_range(self.file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    fn flush(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.file
            .sync_data()
            .map_err(|e| Error::from_io(format!("cannot flush {}", self.path.display()), e))
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        let bytes = self.geometry.byte_range_of(range)?;
        self.check_writable()?;
        if !self.discard || bytes.is_empty() {
            return Ok(());
        }
        // A file system without holes keeps the blocks as they are, which a discard allows.
        self.punch(&bytes).map(drop).map_err(|e| self.failed("discard", bytes.start, e))
    }

    /// Makes holes where discards are handed on; else zeros, for holes tell what a discard tells.
    fn write_zeroes(&self, range: BlockRange) -> Result<()> {
        let bytes = self.geometry.byte_range_of(range)?;
        self.check_writable()?;
        let punched = self.discard
            && !bytes.is_empty()
            && self.punch(&bytes).map_err(|e| self.failed("zero", bytes.start, e))?;
        if punched { Ok(()) } else { fill_with_zeroes(self, range) }
    }

    fn extent(&self, range: BlockRange) -> Result<Extent> {
        let bytes = self.geometry.byte_range_of(range)?;
        let next = |from| match rustix::fs::seek(&self.file, from) {
            // There is none, up to the end of the file.
            Err(rustix::io::Errno::NXIO) => Ok(bytes.end),
            result => result.map_err(|e| self.failed("map", bytes.start, e.into())),
        };
        let data = next(SeekFrom::Data(bytes.start))?;
        let (allocation, end) = if data > bytes.start || bytes.is_empty() {
            (Allocation::Hole, data)
        } else {
            (Allocation::Data, next(SeekFrom::Hole(bytes.start))?)
        };
        Ok(extent_within(&bytes, end, allocation, self.geometry.block_len_bytes))
    }
}

/// Aligned buffers for callers whose memory is not, one for every call under way at once.
#[derive(Debug, Default)]
pub(super) struct Bounce {
    idle: Mutex<Vec<AlignedBuf>>,
}

impl Bounce {
    fn with<R>(&self, transfer: impl FnOnce(&mut AlignedBuf) -> R) -> R {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut buf = taken.unwrap_or_else(|| AlignedBuf::new(BOUNCE_LEN_MAX_BYTES));
        let result = transfer(&mut buf);
        idle().push(buf);
        result
    }
}
