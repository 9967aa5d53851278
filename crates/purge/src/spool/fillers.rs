//! The file that fillers of folders are names of: see `crate::fillers`.
//!
//! It says which folder is being filled, so that the next mount can take out what a crash has left
//! there.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat2, unlinkat};
use rustix::io::Errno;

use super::{BENEATH, Spool};
use crate::error::During;
use crate::faults::{Fault, planted};
use crate::handle::Handle;
use crate::{Result, names};

/// Its name in the spool.
pub(super) const FILLERS_NAME: &str = "fillers";

/// The longest that is kept there.
const HANDLE_LEN_MAX: usize = 256;

impl Spool {
    /// The file, which says by now that `folder` is filled.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::NoSpace`].
    pub(crate) fn fillers_for(&self, folder: impl AsFd) -> Result<File> {
        let handle = Handle::of(folder).during("asking for the handle of a folder")?.encode();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat2(&self.dir, FILLERS_NAME, flags, Mode::RUSR | Mode::WUSR, BENEATH)
            .during("opening the file of fillers")?;
        let file = File::from(file);
        // Whatever folder it tells of would be forgotten.
        self.take_out(&file)?;
        file.set_len(0).during("writing the file of fillers")?;
        file.write_all_at(&handle, 0).during("writing the file of fillers")?;
        // Before any of its names can be on the medium.
        file.sync_all().during("writing the file of fillers back")?;
        let ino = file.metadata().during("asking for the file of fillers")?.ino();
        self.fillers.store(ino, Ordering::Release);
        Ok(file)
    }

    /// Whether an inode number is that of the file of fillers, whose names are not shown.
    pub(crate) fn is_filler(&self, ino: u64) -> bool {
        ino == self.fillers.load(Ordering::Acquire)
    }

    /// Takes out the fillers that a crash has left, or that could not be removed, and forgets of them.
    pub(super) fn recover_fillers(&self) {
        if !planted(Fault::RecoveryUnhooked) && self.take_out_fillers() {
            self.remove_fillers();
        }
    }

    /// Takes out the fillers that could not be removed; false if there are none, or if they stay even so.
    pub(crate) fn take_out_fillers(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = openat2(&self.dir, FILLERS_NAME, flags, Mode::empty(), BENEATH) else {
            return false;
        };
        let file = File::from(file);
        let taken = self.take_out(&file);
        if let Err(e) = &taken {
            log::warn!("spool: fillers of a folder are left there: {e}");
            // They are not shown.
            let ino = file.metadata().map_or(0, |meta| meta.ino());
            self.fillers.store(ino, Ordering::Release);
        }
        taken.is_ok()
    }

    fn take_out(&self, file: &File) -> Result<()> {
        let meta = file.metadata().during("asking for the file of fillers")?;
        if meta.nlink() <= 1 {
            return Ok(());
        }
        let mut bytes = [0; HANDLE_LEN_MAX];
        let len = file.read_at(&mut bytes, 0).during("reading the file of fillers")?;
        let Some(handle) = Handle::decode(&bytes[..len]) else {
            return Ok(());
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = match handle.open(&self.dir, flags) {
            // It is gone, with all names in it.
            Err(Errno::STALE | Errno::NOENT) => return Ok(()),
            opened => opened.during("opening a folder by its handle")?,
        };
        let listed = names::reopen_folder(&folder).and_then(Dir::new).during("listing a folder")?;
        for entry in listed {
            let entry = entry.during("listing a folder")?;
            if entry.ino() == meta.ino() {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                unlinkat(&folder, name, AtFlags::empty()).during("removing a filler")?;
            }
        }
        Ok(())
    }

    /// Nothing is filled any more.
    fn remove_fillers(&self) {
        // Where it was never made there is nothing to remove.
        let _ = unlinkat(&self.dir, FILLERS_NAME, AtFlags::empty());
    }
}
