//! A regular file or a raw device of the machine.

mod cache;
mod locked;
mod naming;
mod opening;
mod transfer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use locked::Locked;
use naming::{Unpublished, overwrite_nameless};
pub use opening::{FileOptions, keep_access_time};
use transfer::Bounce;

use crate::loop_device::BackingLock;
use crate::{BlockDevice, Error, Geometry, Result};

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Writes, and discards, fail with [`crate::Kind::ReadOnly`]; other readers are let in.
    ReadOnly,
    /// Nobody else is let in.
    ReadWrite,
}

/// A regular file or raw device, locked while it is open.
///
/// If its size is not a multiple of the block length, the rest is neither read nor written.
#[derive(Debug)]
pub struct FileDevice {
    file: Locked,
    path: PathBuf,
    geometry: Geometry,
    access: Access,
    discard: bool,
    bounce: Option<Bounce>,
    unpublished: Mutex<Option<Unpublished>>,
    // Behind the file, so that it is dropped after it.
    _backing: BackingLock,
}

impl FileDevice {
    /// [`FileOptions::open`] with defaults.
    ///
    /// # Errors
    /// As there.
    pub fn open(path: impl AsRef<Path>, access: Access, block_len_bytes: u32) -> Result<Self> {
        FileOptions::new(block_len_bytes).open(path, access)
    }

    /// [`FileOptions::create`] with defaults.
    ///
    /// # Errors
    /// As there.
    pub fn create(path: impl AsRef<Path>, len_bytes: u64, block_len_bytes: u32) -> Result<Self> {
        FileOptions::new(block_len_bytes).create(path, len_bytes)
    }

    /// The file, for whoever keeps something else than blocks in it.
    pub const fn file(&self) -> &File {
        &self.file.0
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes everything durable, and gives the file its name if it has none yet. What had the name is
    /// overwritten with zeros then, where it has no other: its blocks go to the free space of the file
    /// system, which keeps what is in them. `progress` is told the bytes overwritten and their total.
    ///
    /// # Errors
    /// [`crate::Kind::Busy`], [`crate::Kind::Exists`] if another file has come since it was begun; [`crate::Kind::Io`],
    /// [`crate::Kind::NoSpace`]: the name is as before. If making the name durable fails, or overwriting, which the
    /// message says, the new file has its name.
    pub fn publish(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.flush()?;
        let unpublished = self.unpublished.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(unpublished) = unpublished else {
            return Ok(());
        };
        let Some(before) = unpublished.publish()? else {
            return Ok(());
        };
        overwrite_nameless(&before, progress).map_err(|e| {
            let context = format!(
                "{} has been made, but what it has replaced could not be overwritten",
                self.path.display()
            );
            Error::from_io(context, e)
        })
    }
}

#[cfg(test)]
mod tests;
