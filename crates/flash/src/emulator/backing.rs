//! What an image is kept in.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

/// Zeros where a file system has no holes.
static ZEROS: [u8; 65_536] = [0; 65_536];

/// A file; in tests also one on a disk whose machine crashes.
#[derive(Debug)]
pub(super) enum Backing {
    File(File),
    #[cfg(feature = "faults")]
    Disk(std::sync::Arc<super::disk::Disk>),
}

impl Backing {
    pub(super) fn len_bytes(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            #[cfg(feature = "faults")]
            Self::Disk(disk) => Ok(disk.len_bytes()),
        }
    }

    /// Empties it and gives it a length.
    pub(super) fn reset(&self, len_bytes: u64) -> io::Result<()> {
        match self {
            Self::File(file) => {
                file.set_len(0)?;
                file.set_len(len_bytes)
            }
            #[cfg(feature = "faults")]
            Self::Disk(disk) => {
                disk.reset(len_bytes);
                Ok(())
            }
        }
    }

    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(buf, at),
            #[cfg(feature = "faults")]
            Self::Disk(disk) => disk.read(buf, at),
        }
    }

    pub(super) fn write(&self, data: &[u8], at: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all_at(data, at),
            #[cfg(feature = "faults")]
            Self::Disk(disk) => {
                disk.write(data, at);
                Ok(())
            }
        }
    }

    /// Makes zeros, which take no room if the file system can.
    pub(super) fn punch(&self, from: u64, end: u64) -> io::Result<()> {
        if from == end {
            return Ok(());
        }
        match self {
            Self::File(file) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                match retry_on_intr(|| rustix::fs::fallocate(file, mode, from, end - from)) {
                    Err(Errno::OPNOTSUPP) => self.write_zeros(from, end),
                    result => result.map_err(io::Error::from),
                }
            }
            #[cfg(feature = "faults")]
            Self::Disk(_) => self.write_zeros(from, end),
        }
    }

    fn write_zeros(&self, from: u64, end: u64) -> io::Result<()> {
        let mut at = from;
        while at < end {
            let part = usize::try_from(end - at).unwrap_or(usize::MAX).min(ZEROS.len());
            self.write(&ZEROS[..part], at)?;
            at += part as u64;
        }
        Ok(())
    }

    /// Where something other than a hole begins, at `from` or behind it; `None` to the end.
    pub(super) fn data_from(&self, from: u64) -> io::Result<Option<u64>> {
        match self {
            Self::File(file) => match rustix::fs::seek(file, SeekFrom::Data(from)) {
                Err(Errno::NXIO) => Ok(None),
                found => Ok(Some(found?)),
            },
            #[cfg(feature = "faults")]
            Self::Disk(_) => Ok(Some(from)),
        }
    }

    /// Makes its content durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.sync_data(),
            #[cfg(feature = "faults")]
            Self::Disk(disk) => {
                disk.sync();
                Ok(())
            }
        }
    }
}
