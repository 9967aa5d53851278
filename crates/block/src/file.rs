//! A regular file or a raw device of the machine.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags, SeekFrom};
use rustix::ioctl;

use crate::device::{extent_within, fill_with_zeroes};
use crate::loop_device::BackingLock;
use crate::new_file::{NewFile, folder_of, has_name};
use crate::{
    AlignedBuf, Allocation, BlockDevice, BlockNo, BlockRange, Error, Extent, Geometry, Kind, Result,
};

/// Longest single transfer through a bounce buffer in bytes; longer ones gain nothing.
const BOUNCE_LEN_MAX_BYTES: usize = 1 << 20;

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Writes, and discards, fail with [`Kind::ReadOnly`]; other readers are let in.
    ReadOnly,
    /// Nobody else is let in.
    ReadWrite,
}

/// How to open a [`FileDevice`].
#[derive(Debug, Clone)]
pub struct FileOptions {
    block_len_bytes: u32,
    direct: bool,
    discard: bool,
    random: bool,
    latecomer: Latecomer,
}

/// What happens to a file that has got the name of a new one since that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Latecomer {
    Stays,
    IsReplaced,
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
    /// [`Kind::Busy`] if another process has it open; [`Kind::Unavailable`] if it is not there,
    /// may not be opened, or cannot be read directly in such blocks; [`Kind::ReadOnly`] if it could be
    /// opened for reading only, also for a raw device that only fails at the first write;
    /// [`Kind::OutOfRange`] for a block length that is none; [`Kind::Io`].
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
        let new = NewFile::create(path).map_err(failed)?;
        new.file().set_len(len_bytes).map_err(failed)?;
        let file = new.file().try_clone().map_err(failed)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| failed(e.into()))?;
        Ok(FileDevice {
            file,
            path: path.to_owned(),
            geometry,
            access: Access::ReadWrite,
            discard: self.discard,
            bounce: None,
            unpublished: Mutex::new(Some(Unpublished { new, before, options: self.clone() })),
            _backing: BackingLock::default(),
        })
    }

    fn open_locked(&self, path: &Path, access: Access, create: bool) -> Result<FileDevice> {
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
        let lock = match access {
            Access::ReadOnly => FlockOperation::NonBlockingLockShared,
            Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        };
        rustix::fs::flock(&file, lock).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => in_use(path),
            e => Error::from_io(format!("cannot lock {}", path.display()), e.into()),
        })?;
        let backing = BackingLock::take(&file, access).map_err(|file| in_use(&file))?;
        // The end of a raw device is found in the same way as that of a file; its metadata says 0.
        let len_bytes = rustix::fs::seek(&file, SeekFrom::End(0))
            .map_err(|e| Error::from_io(format!("no size of {}", path.display()), e.into()))?;
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

/// A regular file or raw device, locked while it is open.
///
/// If its size is not a multiple of the block length, the rest is neither read nor written.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    geometry: Geometry,
    access: Access,
    discard: bool,
    bounce: Option<Bounce>,
    unpublished: Mutex<Option<Unpublished>>,
    // Behind the file, so that it is dropped after it.
    _backing: BackingLock,
}

/// A file without a name.
#[derive(Debug)]
struct Unpublished {
    new: NewFile,
    /// Who had its name when it was begun, locked.
    before: Option<File>,
    options: FileOptions,
}

impl Unpublished {
    /// Gives it its name; whoever had that is returned, still locked.
    fn publish(mut self) -> Result<Option<File>> {
        let path = self.new.path().to_owned();
        let failed = |e| Error::from_io(format!("cannot make {}", path.display()), e);
        loop {
            // Nobody mounts what is locked: it is the file that goes, or the name is another's by now.
            if let Some(before) = self.before.take_if(|before| has_name(before, &path)) {
                self.new.take_name().map_err(failed)?;
                return Ok(Some(before));
            }
            match self.new.take_free_name() {
                Err(e)
                    if e.kind() == io::ErrorKind::AlreadyExists
                        && self.options.latecomer == Latecomer::IsReplaced => {}
                Err(e) => return Err(failed(e)),
                Ok(()) => return Ok(None),
            }
            match self.options.open_locked(&path, Access::ReadWrite, false) {
                Ok(device) if is_raw_device(&path) => {
                    drop(device);
                    let text = format!("{} is a device by now", path.display());
                    return Err(Error::new(Kind::Exists, text));
                }
                Ok(device) => self.before = Some(device.file),
                // It has gone again.
                Err(_) if fs::symlink_metadata(&path).is_err() => {}
                Err(e) => return Err(e),
            }
        }
    }
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
        &self.file
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
    /// [`Kind::Busy`], [`Kind::Exists`] if another file has come since it was begun; [`Kind::Io`],
    /// [`Kind::NoSpace`]: the name is as before. If overwriting fails, which the message says, the new
    /// file has its name.
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
struct Bounce {
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

/// Why it was not opened: busy, or not to be written, or out of reach.
fn cannot_open(path: &Path, access: Access, error: io::Error) -> Error {
    // A pipe without a writer would make everybody wait.
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    let can_be_read = || {
        OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).is_ok()
    };
    match error.kind() {
        io::ErrorKind::ResourceBusy => in_use(path),
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

/// Overwrites a file that nobody can open any more, as far as it has blocks.
fn overwrite_nameless(file: &File, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
    static ZEROES: [u8; BOUNCE_LEN_MAX_BYTES] = [0; BOUNCE_LEN_MAX_BYTES];
    let meta = file.metadata()?;
    if meta.nlink() > 0 {
        return Ok(());
    }
    let mut at = 0;
    while at < meta.len() {
        let end = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            // There is none behind.
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
            Ok(data) => {
                at = data;
                rustix::fs::seek(file, SeekFrom::Hole(data))?.min(meta.len())
            }
        };
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(ZEROES.len()).min(ZEROES.len());
            file.write_all_at(&ZEROES[..len], at)?;
            at += len as u64;
            progress(at, meta.len());
        }
    }
    file.sync_all()
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

fn is_raw_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

#[cfg(test)]
mod tests;
