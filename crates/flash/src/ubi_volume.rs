//! A volume of UBI on a chip of the machine.

mod chip;
mod request;
mod sysfs;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use self::chip::Chip;
pub use self::chip::ChipWear;
use self::sysfs::Folder;

use crate::access::{self, Access};
use crate::{EraseReport, Error, Geometry, Kind, Leb, Result, Volume};

/// `/dev/ubiX_Y`.
///
/// Its last block is kept back and never written: a request to erase it is the only one that has
/// Linux erase what waits, and returns when that is done.
///
/// Linux lets a page be programmed twice. That it is not is seen to here, for pages programmed before
/// the volume was opened as far as they do not look erased.
#[derive(Debug)]
pub struct UbiVolume {
    file: File,
    path: PathBuf,
    folder: Folder,
    /// Without the block that is kept back.
    geometry: Geometry,
    access: Access,
    /// How far each block has been programmed, as far as that is known.
    programmed: Vec<Mutex<Option<u32>>>,
    /// Held while a block is written: what is written while a change is under way is part of it.
    writing: Mutex<()>,
    /// A change was left unfinished: what is written now would be part of it.
    is_stuck: AtomicBool,
    /// Bad blocks when erases were last flushed.
    bad_reported: AtomicU32,
}

impl UbiVolume {
    /// Opens a volume for this process alone.
    ///
    /// # Errors
    /// [`Kind::Busy`] if another process has it open for writing, or one of ours for reading;
    /// [`Kind::Unavailable`] if it is no volume of UBI, a static one, or may not be opened;
    /// [`Kind::ReadOnly`] if it may be opened for reading only; [`Kind::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let volume = Self::open_for(path.as_ref(), Access::ReadWrite)?;
        request::allow_direct_write(&volume.file).map_err(|e| {
            Error::from_io(format!("cannot write to {}", volume.path.display()), e.into())
        })?;
        Ok(volume)
    }

    /// Opens a volume for reading, beside others who do: nothing of it changes, and what would write
    /// fails with [`Kind::ReadOnly`].
    ///
    /// # Errors
    /// [`Kind::Busy`] if a process of ours has it open for writing; otherwise as [`UbiVolume::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_for(path.as_ref(), Access::ReadOnly)
    }

    fn open_for(path: &Path, access: Access) -> Result<Self> {
        let path = path.to_owned();
        if let Ok(there) = path.metadata() {
            if !there.file_type().is_char_device() {
                let text = format!("{} is no volume of UBI", path.display());
                return Err(Error::new(Kind::Unavailable, text));
            }
            // To open another device may do something: rewind a tape, begin to watch the machine.
            Folder::of(&there)?;
        }
        let file = access::open(&path, access, false)?;
        let unseen = |e| Error::from_io(format!("cannot look at {}", path.display()), e);
        let folder = Folder::of(&file.metadata().map_err(unseen)?)?;
        // Linux lets readers in beside a writer.
        access::lock(&file, &path.display(), access)?;
        let whole = folder.geometry()?;
        if whole.lebs < 2 {
            let text = format!("{} has a single erase block: two are needed", path.display());
            return Err(Error::new(Kind::Unavailable, text));
        }
        let geometry = Geometry { lebs: whole.lebs - 1, ..whole };
        Ok(Self {
            programmed: (0..geometry.lebs).map(|_| Mutex::new(None)).collect(),
            bad_reported: folder.bad_blocks()?.into(),
            file,
            path,
            folder,
            geometry,
            access,
            writing: Mutex::new(()),
            is_stuck: AtomicBool::new(false),
        })
    }

    /// The wear of the chip it lies on, as far as Linux tells it.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn wear(&self) -> Result<ChipWear> {
        ChipWear::of(&self.folder)
    }

    /// Writes every physical block of the chip it lies on as it is, stale and bad ones, too, one after the
    /// other, without the spare bytes of pages. What could not be read is zero there, and returned: in
    /// bytes from the start.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the chip may not be opened; [`Kind::Io`], [`Kind::NoSpace`].
    pub fn dump(&self, out: &mut dyn io::Write) -> Result<Vec<Range<u64>>> {
        Chip::below(&self.folder)?.dump(out)
    }

    /// The block that is kept back.
    fn scratch(&self) -> Leb {
        Leb(self.geometry.lebs)
    }

    /// How far a block has been programmed, for as long as the lock is held.
    fn programmed(&self, leb: Leb) -> MutexGuard<'_, Option<u32>> {
        self.programmed[leb.0 as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same from the block itself: up to the last page that does not look erased.
    fn find_programmed(&self, leb: Leb) -> Result<u32> {
        if !self.is_mapped(leb)? {
            return Ok(0);
        }
        let mut content = vec![0; self.geometry.leb_len_bytes as usize];
        self.read(leb, 0, &mut content)?;
        let page = self.geometry.page_len_bytes;
        let last = content.iter().rposition(|byte| *byte != 0xff);
        let end = last.map_or(0, |last| last + 1);
        Ok(u32::try_from(end).expect("no more than a block").next_multiple_of(page))
    }

    /// Takes the right to write.
    fn writing(&self) -> Result<MutexGuard<'_, ()>> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stuck.load(Ordering::Acquire) {
            let text = format!("a change of {} has failed: open it again", self.path.display());
            return Err(Error::new(Kind::Io, text));
        }
        Ok(writing)
    }

    fn byte_at(&self, leb: Leb, offset: u32) -> u64 {
        u64::from(leb.0) * u64::from(self.geometry.leb_len_bytes) + u64::from(offset)
    }

    fn failed(&self, what: &str, leb: Leb, error: impl Into<io::Error>) -> Error {
        let error = error.into();
        let context = format!("cannot {what} erase block {} of {}", leb.0, self.path.display());
        match error.kind() {
            io::ErrorKind::StorageFull => Error::new(Kind::WornOut, format!("{context}: {error}")),
            _ => Error::from_io(context, error),
        }
    }
}

impl Volume for UbiVolume {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, leb: Leb, offset: u32, buf: &mut [u8]) -> Result<()> {
        self.geometry.check_read(leb, offset, buf.len())?;
        self.file
            .read_exact_at(buf, self.byte_at(leb, offset))
            .map_err(|e| self.failed("read", leb, e))
    }

    fn append(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<()> {
        self.geometry.check_write(leb, offset, data.len())?;
        self.access.check_writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let mut programmed = self.programmed(leb);
        let before = match *programmed {
            Some(before) => before,
            None => *programmed.insert(self.find_programmed(leb)?),
        };
        if offset < before {
            let text = format!("erase block {} is programmed up to {before}, not {offset}", leb.0);
            return Err(Error::new(Kind::Programmed, text));
        }
        let _writing = self.writing()?;
        *programmed = Some(offset + u32::try_from(data.len()).expect("no more than a block"));
        self.file
            .write_all_at(data, self.byte_at(leb, offset))
            .map_err(|e| self.failed("append to", leb, e))
    }

    fn change(&self, leb: Leb, data: &[u8]) -> Result<()> {
        self.geometry.check_write(leb, 0, data.len())?;
        self.access.check_writable()?;
        let mut programmed = self.programmed(leb);
        let _writing = self.writing()?;
        // UBI believes a lone block without a look at its content: an empty one is to be the old one.
        self.map(leb)?;
        let len = i32::try_from(data.len()).expect("no more than a block");
        request::begin_change(&self.file, number_of(leb), len).map_err(|e| match e {
            Errno::BUSY => access::in_use(&self.path.display()),
            e => self.failed("change", leb, e),
        })?;
        if !data.is_empty() {
            match self.file.write_at(data, self.byte_at(leb, 0)) {
                Ok(written) if written == data.len() => {}
                result => {
                    self.is_stuck.store(true, Ordering::Release);
                    let error = result.err().unwrap_or(io::ErrorKind::WriteZero.into());
                    return Err(self.failed("change", leb, error));
                }
            }
        }
        *programmed = Some(len.cast_unsigned());
        Ok(())
    }

    fn map(&self, leb: Leb) -> Result<()> {
        self.geometry.check_read(leb, 0, 0)?;
        self.access.check_writable()?;
        match request::map(&self.file, number_of(leb)) {
            // It is mapped.
            Ok(()) | Err(Errno::BADMSG) => Ok(()),
            Err(e) => Err(self.failed("map", leb, e)),
        }
    }

    fn unmap(&self, leb: Leb) -> Result<()> {
        self.geometry.check_read(leb, 0, 0)?;
        self.access.check_writable()?;
        let mut programmed = self.programmed(leb);
        request::unmap(&self.file, number_of(leb)).map_err(|e| self.failed("unmap", leb, e))?;
        *programmed = Some(0);
        Ok(())
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool> {
        self.geometry.check_read(leb, 0, 0)?;
        request::is_mapped(&self.file, number_of(leb)).map_err(|e| self.failed("look at", leb, e))
    }

    fn sync(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.file
            .sync_all()
            .map_err(|e| Error::from_io(format!("cannot sync {}", self.path.display()), e))
    }

    fn flush_erases(&self) -> Result<EraseReport> {
        self.access.check_writable()?;
        self.sync()?;
        let scratch = self.scratch();
        request::unmap_and_flush(&self.file, number_of(scratch))
            .map_err(|e| self.failed("flush erases through", scratch, e))?;
        let bad_after = self.folder.bad_blocks()?;
        let bad_before = self.bad_reported.swap(bad_after, Ordering::AcqRel);
        Ok(EraseReport { bad_before, bad_after })
    }
}

/// The number as Linux takes it.
fn number_of(leb: Leb) -> i32 {
    i32::try_from(leb.0).expect("UBI has fewer blocks")
}
