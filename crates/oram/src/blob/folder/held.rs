//! A folder that is held open, and what lies in it, by names from there.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fstatfs, linkat, mkdirat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::found;

/// A folder, reached whatever its name stands for by now: it may be moved, or covered by a mount, even of
/// what is served out of it.
#[derive(Debug)]
pub(super) struct Held {
    /// What it was called, for errors.
    pub(super) name: PathBuf,
    folder: File,
    /// Whether nothing in it is ever read from a disk, but for what was swapped out.
    is_in_memory: bool,
    /// Held by whoever makes a folder in it.
    making: Mutex<()>,
}

impl Held {
    /// The folder of this name.
    pub(super) fn open(name: &Path) -> io::Result<Self> {
        let folder = openat(CWD, name, READ | OFlags::DIRECTORY, Mode::empty())?;
        let is_in_memory = fstatfs(&folder)?.f_type == TMPFS;
        let (name, folder, making) = (name.to_owned(), folder.into(), Mutex::default());
        Ok(Self { name, folder, is_in_memory, making })
    }

    /// A file to be read.
    pub(super) fn file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        Ok(openat(&self.folder, name.as_ref(), READ, Mode::empty())?.into())
    }

    /// A file to be written, which is made if it is not there.
    pub(super) fn file_to_write(&self, name: &str) -> io::Result<File> {
        self.create(name, OFlags::empty())
    }

    /// A file to be written, which has not been there.
    pub(super) fn new_file(&self, name: &str) -> io::Result<File> {
        self.create(name, OFlags::EXCL)
    }

    fn create(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | flags;
        Ok(openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Reads what is in the machine's memory; `false` if some of it would have to be waited for.
    pub(super) fn read_now(&self, file: &File, part: &mut [u8], at: u64) -> bool {
        if self.is_in_memory {
            // tmpfs does not know how to be asked whether it would have to.
            return file.read_exact_at(part, at).is_ok();
        }
        let len = part.len();
        let mut buffers = [io::IoSliceMut::new(part)];
        len == 0 || preadv2(file, &mut buffers, at, ReadWriteFlags::NOWAIT) == Ok(len)
    }

    /// All of a file.
    pub(super) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// What is known of a file, if it is there.
    pub(super) fn stat(&self, name: &str) -> io::Result<Option<Stat>> {
        found(statat(&self.folder, name, AtFlags::empty()).map_err(io::Error::from))
    }

    /// The names in a folder, and whether each is a folder's.
    pub(super) fn list(&self, folder: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let mut names = Vec::new();
        // An empty name is no folder's.
        for entry in Dir::new(self.file(Path::new(".").join(folder))?)? {
            let entry = entry?;
            let Ok(last) = entry.file_name().to_str() else { continue };
            if matches!(last, "." | "..") {
                continue;
            }
            let name = folder.join(last);
            let kind = match entry.file_type() {
                // Some file systems do not say it there.
                FileType::Unknown => {
                    let stat = statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW);
                    // It may have been removed just now.
                    let Some(stat) = found(stat.map_err(io::Error::from))? else { continue };
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            names.push((name, kind == FileType::Directory));
        }
        Ok(names)
    }

    /// Makes a folder and those above it, durably, where they are not there.
    pub(super) fn make_folder(&self, name: &Path) -> io::Result<()> {
        let _one = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_folders(name)
    }

    fn make_folders(&self, name: &Path) -> io::Result<()> {
        let Some(parent) = name.parent() else { return Ok(()) };
        match mkdirat(&self.folder, name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(()),
            Err(Errno::NOENT) if parent != Path::new("") => {
                self.make_folders(parent)?;
                return self.make_folders(name);
            }
            Err(e) => return Err(e.into()),
        }
        self.sync_folder(parent).inspect_err(|_| {
            // Whoever finds it there takes it for durable.
            let _ = self.remove_folder(name);
        })
    }

    /// Makes the names in a folder durable.
    pub(super) fn sync_folder(&self, name: &Path) -> io::Result<()> {
        self.file(Path::new(".").join(name))?.sync_all()
    }

    /// Gives a file another name, if nothing has it.
    pub(super) fn rename_new(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        let folder = &self.folder;
        match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
            // The file system does not know how: links never replace anything.
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(folder, from, folder, to, AtFlags::empty())?;
                unlinkat(folder, from, AtFlags::empty())
            }
            result => result,
        }
    }

    /// Gives a file another name, whatever has had it.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    /// Removes a file that may be gone already.
    pub(super) fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        self.unlink(name.as_ref(), AtFlags::empty())
    }

    /// Removes an empty folder that may be gone already.
    pub(super) fn remove_folder(&self, name: &Path) -> io::Result<()> {
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    fn unlink(&self, name: &Path, flags: AtFlags) -> io::Result<()> {
        found(unlinkat(&self.folder, name, flags).map_err(io::Error::from)).map(|_| ())
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
/// The number of that file system, `TMPFS_MAGIC` of linux/magic.h.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
