//! Going through folders: what is in one is purged before it, however deep they lie in each other and
//! however many there are.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat2, statx};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::{Removal, list};
use crate::{Error, Kind, Result};

/// The part of the limit of open files that may be taken by folders that wait: to be removed, or to
/// be looked at. The rest is for those that are gone through, and for work on them.
const WAITING_SHARE: u64 = 4;

/// A folder that is being gone through.
#[derive(Debug)]
pub(super) struct Visit {
    parent: Rc<OwnedFd>,
    folder: Rc<OwnedFd>,
    name: OsString,
    path: PathBuf,
    stat: Statx,
    depth: usize,
    /// What is in it and has not been purged yet.
    names: std::vec::IntoIter<OsString>,
}

/// A folder that has been gone through, and waits for its removal.
#[derive(Debug)]
pub(super) struct Emptied {
    pub(super) parent: Rc<OwnedFd>,
    pub(super) folder: Rc<OwnedFd>,
    pub(super) name: OsString,
    pub(super) path: PathBuf,
    pub(super) stat: Statx,
}

impl Removal {
    /// Purges an entry of a folder, and what is in it.
    pub(super) fn walk(&mut self, dir: &Rc<OwnedFd>, name: &OsStr, path: &Path) {
        let mut open: Vec<Visit> = self.purge_entry(dir, name, path, 0).into_iter().collect();
        while let Some(visit) = open.last_mut() {
            // What is left in it is not told of one by one then, but by the folder's own verdict.
            let is_wanted = self.check_wanted().is_ok();
            if let Some(name) = visit.names.next().filter(|_| is_wanted) {
                let (folder, path) = (Rc::clone(&visit.folder), visit.path.join(&name));
                let depth = visit.depth + 1;
                open.extend(self.purge_entry(&folder, &name, &path, depth));
            } else if let Some(Visit { parent, folder, name, path, stat, depth, .. }) = open.pop() {
                let emptied = Emptied { parent, folder, name, path, stat };
                self.folders.entry(depth).or_default().push(emptied);
                self.settle_if_many();
            }
        }
    }

    /// Begins to go through a folder.
    pub(super) fn enter(
        &mut self,
        parent: &Rc<OwnedFd>,
        (folder, name): (OwnedFd, &OsStr),
        path: &Path,
        (stat, depth): (Statx, usize),
    ) -> Option<Visit> {
        let names = match list(&folder) {
            Ok(names) => names.into_iter(),
            Err(errno) => {
                self.keep(path, Some(&stat), &Error::of_kernel(errno, "listing it"));
                return None;
            }
        };
        let (parent, folder, name) = (Rc::clone(parent), Rc::new(folder), name.to_owned());
        Some(Visit { parent, folder, name, path: path.to_owned(), stat, depth, names })
    }

    /// Deals with the folders that wait, if they hold much of what may be open.
    fn settle_if_many(&mut self) {
        let touched: usize = self.places.values().map(|place| place.touched.len()).sum();
        let waiting = touched + self.folders.values().map(Vec::len).sum::<usize>();
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if waiting as u64 >= limit / WAITING_SHARE && self.check_wanted().is_ok() {
            self.settle();
            self.let_go();
        }
    }
}

/// Opens an entry of a folder to name it by, and asks what it is.
pub(super) fn look_up(dir: &OwnedFd, name: &OsStr, depth: usize) -> Result<(OwnedFd, Statx)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let opened = openat2(dir, name, flags, Mode::empty(), resolve).and_then(|entry| {
        let stat = statx(&entry, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        Ok((entry, stat))
    });
    opened.map_err(|errno| match errno {
        Errno::XDEV if depth > 0 => {
            let text = "another file system is mounted here: name what is in it by itself";
            Error::new(Kind::Unpurgeable, text)
        }
        Errno::XDEV => {
            let text = "a file system is mounted here, and its root cannot be removed: name what \
                        is in it";
            Error::new(Kind::Unpurgeable, text)
        }
        errno => Error::of_kernel(errno, "opening it"),
    })
}
