//! Opening what is there, or making it, locked.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{Advice, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::ioctl;
use rustix::process::{Resource, getrlimit};

use super::locked::Locked;
use super::naming::{Latecomer, Unpublished};
use super::transfer::Bounce;
use super::{Access, FileDevice};
use crate::loop_device::{BackingLock, refuse_held};
use crate::new_file::{NewFile, folder_of, remove_left};
use crate::{AlignedBuf, BlockDevice, BlockNo, Error, Geometry, Kind, Result};

/// How to open a [`FileDevice`].
#[derive(Debug, Clone)]
pub struct FileOptions {
    block_len_bytes: u32,
    direct: bool,
    discard: bool,
    random: bool,
    pub(super) latecomer: Latecomer,
}

impl FileOptions {
    /// Blocks of this length, through the page cache, with discards ignored.
    pub fn new(block_len_bytes: u32) -> Self {
        Self {
            block_len_bytes,
            direct: false,
            discard: false,
            random: false,
            latecomer: Latecomer::Stays,
        }
    }

    /// Goes past the page cache (`O_DIRECT`).
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Says that blocks are asked for in no order, so that the system reads no others beside them.
    /// What is wanted ahead is told by [`BlockDevice::will_read`].
    #[must_use]
    pub fn random(mut self, random: bool) -> Self {
        self.random = random;
        self
    }

    /// Hands discards on: holes in a file, TRIM on a device.
    ///
    /// Off by default: which blocks are holes, or trimmed, tells an examiner which ones were ever
    /// given up, and a function of the past is what an image must not hold.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Self {
        self.discard = discard;
        self
    }

    /// Lets a new file take the place of one that has come since it was begun, if nobody uses that.
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.latecomer = if replace { Latecomer::IsReplaced } else { Latecomer::Stays };
        self
    }

    /// Opens an existing file or raw device and locks it; of a loop device the file behind it, too.
    ///
    /// # Errors
    /// [`Kind::Busy`] if another process has it open, or the kernel swaps to it; [`Kind::Unavailable`] if it is not
    /// there, may not be opened, or cannot be read directly in such blocks; [`Kind::ReadOnly`] if it could be
    /// opened for reading only, also for a raw device that only fails at the first write;
    /// [`Kind::OutOfRange`] for a block length that is none; [`Kind::Io`], also for a file that is longer than what
    /// this process may write.
    pub fn open(&self, path: impl AsRef<Path>, access: Access) -> Result<FileDevice> {
        let path = path.as_ref();
        let device = self.open_locked(path, access, false)?;
        if self.direct && device.geometry.blocks > 0 {
            self.probe_direct(&device)?;
        }
        if self.random {
            // A hint: what refuses it reads as before.
            let _ = rustix::fs::fadvise(&device.file, 0, None, Advice::Random);
        }
        Ok(device)
    }

    /// Makes a file of `len_bytes`, all zero and sparse, for its owner alone, or empties the one there
    /// is, and locks it.
    ///
    /// A raw device is opened as it is, and must be long enough. The lock is taken before anything
    /// is changed, so a mounted image survives.
    ///
    /// # Errors
    /// As [`FileOptions::open`]; [`Kind::OutOfRange`] for a raw device that is too short;
    /// [`Kind::NoSpace`].
    pub fn create(&self, path: impl AsRef<Path>, len_bytes: u64) -> Result<FileDevice> {
        let path = path.as_ref();
        let wanted = Geometry::within(len_bytes, self.block_len_bytes)?;
        let mut device = self.open_locked(path, Access::ReadWrite, true)?;
        if is_raw_device(path) {
            if device.geometry.blocks < wanted.blocks {
                return Err(Error::new(
                    Kind::OutOfRange,
                    format!("{} is shorter than {len_bytes} bytes", path.display()),
                ));
            }
        } else {
            let failed = |e| Error::from_io(format!("cannot size {}", path.display()), e);
            device.file.set_len(0).map_err(failed)?;
            device.file.set_len(len_bytes).map_err(failed)?;
            device.file.sync_all().map_err(failed)?;
            File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        device.geometry = wanted;
        if self.direct && wanted.blocks > 0 {
            self.probe_direct(&device)?;
        }
        Ok(device)
    }

    /// Makes a file of `len_bytes`, all zero and sparse, that has no name yet: it gets the one asked
    /// for with [`FileDevice::publish`], in place of the file that has it now, and vanishes with the
    /// process otherwise. That file is locked meanwhile, so that nobody mounts it. One that comes
    /// later keeps the name, unless [`FileOptions::replace`] was told otherwise.
    ///
    /// # Errors
    /// As [`FileOptions::create`].
    pub fn create_unpublished(&self, path: impl AsRef<Path>, len_bytes: u64) -> Result<FileDevice> {
        let path = path.as_ref();
        let geometry = Geometry::within(len_bytes, self.block_len_bytes)?;
        let before = match fs::metadata(path) {
            Ok(_) => Some(self.open_locked(path, Access::ReadWrite, false)?.file),
            Err(_) => None,
        };
        let failed = |e| Error::from_io(format!("cannot make {}", path.display()), e);
        remove_left(path);
        let new = NewFile::create(path).map_err(failed)?;
        new.file().set_len(len_bytes).map_err(failed)?;
        let file = new.file().try_clone().map_err(failed)?;
        keep_access_time(&file);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| failed(e.into()))?;
        Ok(FileDevice {
            file: Locked(file),
            path: path.to_owned(),
            geometry,
            access: Access::ReadWrite,
            discard: self.discard,
            bounce: None,
            unpublished: Mutex::new(Some(Unpublished { new, before, options: self.clone() })),
            _backing: BackingLock::default(),
        })
    }

    /// Opens it, as it is, and locks it.
    pub(super) fn open_locked(
        &self,
        path: &Path,
        access: Access,
        create: bool,
    ) -> Result<FileDevice> {
        // A pipe without a writer would make everybody wait.
        let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
        if self.direct {
            flags |= OFlags::DIRECT;
        }
        if is_raw_device(path) && access == Access::ReadWrite {
            // On a device this is the kernel's own lock: it fails while a file system is mounted.
            flags |= OFlags::EXCL;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(access == Access::ReadWrite)
            // For a device that is there, creating exclusively would mean that it must not be.
            .create(create && !is_raw_device(path))
            .mode(0o600)
            .truncate(false)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
            .map_err(|e| cannot_open(path, access, e))?;
        let kind = file.metadata().map(|meta| meta.file_type());
        if !kind.is_ok_and(|kind| kind.is_file() || kind.is_block_device()) {
            let text = format!("{} is neither a file nor a block device", path.display());
            return Err(Error::new(Kind::Unavailable, text));
        }
        if access == Access::ReadWrite && is_write_protected(&file) {
            let text = format!("{} is a read-only device", path.display());
            return Err(Error::new(Kind::ReadOnly, text));
        }
        keep_access_time(&file);
        let lock = match access {
            Access::ReadOnly => FlockOperation::NonBlockingLockShared,
            Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        };
        rustix::fs::flock(&file, lock).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => in_use(path),
            e => Error::from_io(format!("cannot lock {}", path.display()), e.into()),
        })?;
        let file = Locked(file);
        let backing = BackingLock::take(&file, access).map_err(|file| in_use(&file))?;
        // The end of a raw device is found in the same way as that of a file; its metadata says 0.
        let len_bytes = rustix::fs::seek(&file, SeekFrom::End(0))
            .map_err(|e| Error::from_io(format!("no size of {}", path.display()), e.into()))?;
        if access == Access::ReadWrite {
            refuse_held(&file, path)?;
            refuse_beyond_limit(path, len_bytes)?;
        }
        Ok(FileDevice {
            file,
            path: path.to_owned(),
            geometry: Geometry::within(len_bytes, self.block_len_bytes)?,
            access,
            discard: self.discard,
            bounce: self.direct.then(Bounce::default),
            unpublished: Mutex::new(None),
            _backing: backing,
        })
    }

    /// Fails at once, not at the first use, where blocks are smaller than the device's sectors.
    fn probe_direct(&self, device: &FileDevice) -> Result<()> {
        let mut block = AlignedBuf::new(self.block_len_bytes as usize);
        device.read(BlockNo(0), &mut block).map_err(|_| {
            Error::new(
                Kind::Unavailable,
                format!(
                    "{} cannot be read directly in blocks of {} bytes",
                    device.path.display(),
                    self.block_len_bytes
                ),
            )
        })
    }
}

/// From now on reading leaves the time of access as it is: when somebody has looked at a device is a
/// trace, too. The kernel grants it to the file's owner and to root; for others it stays as it was.
pub fn keep_access_time(file: &File) {
    if let Ok(flags) = rustix::fs::fcntl_getfl(file) {
        let _ = rustix::fs::fcntl_setfl(file, flags | OFlags::NOATIME);
    }
}

/// Why it was not opened: busy, or not to be written, or out of reach.
fn cannot_open(path: &Path, access: Access, error: io::Error) -> Error {
    // A pipe without a writer would make everybody wait.
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    let can_be_read = || {
        OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).is_ok()
    };
    match error.kind() {
        io::ErrorKind::ResourceBusy => in_use(path),
        // A program that runs.
        io::ErrorKind::ExecutableFileBusy => in_use(path).because(error),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            if access == Access::ReadWrite && can_be_read() =>
        {
            let text = format!("cannot open {} for writing", path.display());
            Error::new(Kind::ReadOnly, text).because(error)
        }
        _ => Error::from_io(format!("cannot open {}", path.display()), error),
    }
}

fn in_use(path: &Path) -> Error {
    let context = format!("{} is in use by another process", path.display());
    Error::new(Kind::Busy, context)
}

/// Whether a raw device is set read-only: the kernel lets it be opened for writing all the same, takes
/// what is written, and loses it on the way to the medium.
fn is_write_protected(file: &File) -> bool {
    /// `_IO(0x12, 94)` in linux/fs.h: writes an int.
    const BLKROGET: ioctl::Opcode = ioctl::opcode::none(0x12, 94);
    if !file.metadata().is_ok_and(|meta| meta.file_type().is_block_device()) {
        return false;
    }
    // JUSTIFICATION: no safe wrapper of this request exists.
    // SAFETY: it is asked of a block device, and writes the int that it is given room for.
    #[allow(unsafe_code)]
    let asked = unsafe { ioctl::ioctl(file, ioctl::Getter::<BLKROGET, i32>::new()) };
    asked.is_ok_and(|is_read_only| is_read_only != 0)
}

pub(super) fn is_raw_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// Fails at once, not in the middle of the first commit, where this process may write only the beginning of a file.
fn refuse_beyond_limit(path: &Path, len_bytes: u64) -> Result<()> {
    let limit = getrlimit(Resource::Fsize).current;
    if is_raw_device(path) || limit.is_none_or(|limit| len_bytes <= limit) {
        return Ok(());
    }
    Err(Error::from_io(format!("cannot write all of {}", path.display()), Errno::FBIG.into()))
}
