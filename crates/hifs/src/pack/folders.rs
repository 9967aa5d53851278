//! Folders by what they are, not by their paths.
//!
//! A folder is opened from the one above it, without following a link, and what is in it is reached by way of it. So
//! it does not matter how long a path is, nor that somebody renames a folder meanwhile, or puts a link in its place
//! that leads to what only the caller may read or write.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

/// Folders that are held open beside the first, the lowest ones. Others are found again from below.
const HELD_MAX: usize = 64;

/// What the kernel shows open files in.
const OPEN_FILES: &str = "/proc/self/fd";

/// A folder that is held open.
#[derive(Debug)]
pub(super) struct Folder {
    held: OwnedFd,
    /// What system calls are given.
    place: PathBuf,
}

impl Folder {
    /// A folder by its path, to which a link may lead.
    ///
    /// # Errors
    /// If it cannot be opened; [`io::ErrorKind::Unsupported`] without `/proc`.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        Self::reached(path, OFlags::empty())
    }

    /// The folder that has a path, to which no link may lead.
    ///
    /// # Errors
    /// As [`Folder::at`]; [`io::ErrorKind::NotADirectory`] for a link.
    pub(super) fn exactly_at(path: &Path) -> io::Result<Self> {
        Self::reached(path, OFlags::NOFOLLOW)
    }

    fn reached(path: &Path, more: OFlags) -> io::Result<Self> {
        let folder = Self::open(CWD, path, more)?;
        if folder.place.exists() {
            return Ok(folder);
        }
        let text = format!("{OPEN_FILES} does not show what is open: mount /proc");
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// The folder of a name in this one.
    ///
    /// # Errors
    /// If it cannot be opened; [`io::ErrorKind::NotADirectory`] also for a link.
    pub(super) fn below(&self, name: &OsStr) -> io::Result<Self> {
        Self::open(&self.held, Path::new(name), OFlags::NOFOLLOW)
    }

    fn open(from: impl AsFd, path: &Path, more: OFlags) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
        let held = openat(from, path, flags, Mode::empty())?;
        let place = Path::new(OPEN_FILES).join(held.as_raw_fd().to_string());
        Ok(Self { held, place })
    }

    /// What system calls are given for a name in this folder.
    pub(super) fn child(&self, name: &OsStr) -> PathBuf {
        self.place.join(name)
    }

    /// What system calls are given for the folder itself, those that follow no links, too.
    pub(super) fn itself(&self) -> PathBuf {
        self.place.join(".")
    }

    /// Which one it is.
    fn id(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.held)?;
        Ok((stat.st_dev, stat.st_ino))
    }
}

/// A folder on the way, and what is known of it.
struct Level<T> {
    /// None is held open for the moment.
    folder: Option<Folder>,
    id: (u64, u64),
    known: T,
}

/// The way from a folder down to the one that is worked on. It is here, and not on the thread's stack, for folders
/// may lie in one another as deep as they like.
pub(super) struct Descent<T> {
    path: PathBuf,
    levels: Vec<Level<T>>,
}

impl<T> Descent<T> {
    /// Begins at the folder of a path.
    ///
    /// # Errors
    /// If the folder cannot be looked at.
    pub(super) fn from(path: &Path, folder: Folder, known: T) -> io::Result<Self> {
        let mut descent = Self { path: path.to_owned(), levels: Vec::new() };
        descent.push(folder, known)?;
        Ok(descent)
    }

    /// The folder that is worked on, its path as it is called, and what is known of it; none when all is done.
    pub(super) fn current(&mut self) -> Option<(&Folder, &Path, &mut T)> {
        let level = self.levels.last_mut()?;
        Some((level.folder.as_ref()?, &self.path, &mut level.known))
    }

    /// The folder that it began at.
    pub(super) fn first(&self) -> Option<&Folder> {
        self.levels.first()?.folder.as_ref()
    }

    /// Goes on in a folder of the one that is worked on.
    ///
    /// # Errors
    /// If the folder cannot be looked at.
    pub(super) fn descend(&mut self, name: &OsStr, folder: Folder, known: T) -> io::Result<()> {
        self.push(folder, known)?;
        self.path.push(name);
        Ok(())
    }

    fn push(&mut self, folder: Folder, known: T) -> io::Result<()> {
        let id = folder.id()?;
        self.levels.push(Level { folder: Some(folder), id, known });
        // The first stays: nothing leads back to it by a name.
        if let Some(far) = self.levels.len().checked_sub(HELD_MAX + 1).filter(|&far| far > 0) {
            self.levels[far].folder = None;
        }
        Ok(())
    }

    /// Leaves the folder that is worked on, for the one above it, and returns what is known of it.
    ///
    /// # Errors
    /// If the one above it has to be opened again, and it does not lie in that any more.
    pub(super) fn leave(&mut self) -> io::Result<Option<T>> {
        let Some(left) = self.levels.pop() else { return Ok(None) };
        let Some(above) = self.levels.last_mut() else { return Ok(Some(left.known)) };
        self.path.pop();
        if let (None, Some(folder)) = (&above.folder, &left.folder) {
            let again = folder.below(OsStr::new(".."))?;
            if again.id()? != above.id {
                return Err(io::Error::other("a folder below it was moved elsewhere meanwhile"));
            }
            above.folder = Some(again);
        }
        Ok(Some(left.known))
    }
}
