//! Descriptors of nodes: no more of them are open at a time than the process may have.
//!
//! The kernel remembers as many nodes as it likes. Those that have not been used for longest are
//! closed, and opened again by their handle, which means the same file or none: it has a number
//! that changes when an inode is given to another file. Only root may open handles; for others, and
//! where there are none, descriptors stay open.
//!
//! So do those of what has lost its last name: they keep its inode number, which is the node's, from
//! being given to another file while the kernel remembers the node.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::{Errno, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::faults::{Fault, planted};
use tacita_vfs::NodeId;

use crate::handle::Handle;
use crate::lower_fs::LowerFs;
use crate::names;

/// What a descriptor of a node is opened for: nothing but naming it.
const NAMING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// The part of the limit that is for nodes; the rest is for open files and work on them.
const SHARE: u64 = 2;

/// More than that gain nothing: opening by a handle is quick.
const COUNT_MAX: u64 = 1 << 16;

/// Open files that would be good to have: for those of programs, and for files and folders that are
/// held, which can be closed and opened again, or be dealt with.
const FILES_WANTED: u64 = 1 << 20;

/// How many descriptors of nodes may be open, and which they are.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// Open on the file system, for opening by handles; `None` where they cannot be opened.
    mount: Option<OwnedFd>,
    count_max: usize,
    /// In the order of opening; those that were used since come to the end.
    open: Mutex<VecDeque<Weak<Descriptor>>>,
}

/// What a node is held by.
#[derive(Debug)]
pub(crate) struct Descriptor {
    all: Arc<Descriptors>,
    held: Mutex<Held>,
    is_used: AtomicBool,
    is_kept: AtomicBool,
}

/// A folder, whatever its name is: its number, and what it is held by.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub(crate) id: NodeId,
    descriptor: Arc<Descriptor>,
}

#[derive(Debug)]
enum Held {
    Open(Arc<OwnedFd>),
    Closed(Handle),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is whole before anything can fail.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks for as many open files as may be had.
pub(crate) fn raise_limit() {
    let now = getrlimit(Resource::Nofile);
    let raised = |maximum: u64| {
        let maximum = Some(now.maximum.map_or(maximum, |m| m.max(maximum)));
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    };
    if now.current.is_some_and(|current| current < FILES_WANTED)
        && raised(FILES_WANTED).is_err()
        && let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now })
    {
        log::debug!("the limit of open files stays: {e}");
    }
}

impl Descriptors {
    /// For nodes of the file system of `root`, within the limit of open files as it is now.
    pub(crate) fn new(root: impl AsFd, lower: &LowerFs) -> Arc<Self> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let count_max = (limit / SHARE).min(COUNT_MAX);
        let mount = names::reopen_folder(&root).and_then(|mount| {
            if !lower.has_lasting_handles() {
                return Err(Errno::OPNOTSUPP);
            }
            Handle::of(&mount)?.open(&mount, NAMING)?;
            Ok(mount)
        });
        if let Err(e) = &mount {
            log::debug!("nodes stay open, for there are no handles: {e}");
        }
        Arc::new(Self {
            mount: mount.ok(),
            count_max: usize::try_from(count_max).unwrap_or(usize::MAX),
            open: Mutex::default(),
        })
    }

    /// Holds a node that has been opened.
    pub(crate) fn hold(self: &Arc<Self>, fd: Arc<OwnedFd>) -> Arc<Descriptor> {
        let descriptor = Arc::new(Descriptor {
            all: Arc::clone(self),
            held: Mutex::new(Held::Open(fd)),
            is_used: AtomicBool::new(true),
            is_kept: AtomicBool::new(false),
        });
        self.admit(&descriptor);
        descriptor
    }

    /// A descriptor has been opened: others are closed for it, if there are too many.
    fn admit(&self, descriptor: &Arc<Descriptor>) {
        if self.mount.is_none() {
            return;
        }
        let mut open = lock(&self.open);
        open.push_back(Arc::downgrade(descriptor));
        // Each is looked at twice at most: the first time it may have been used.
        for _ in 0..2 * open.len() {
            if open.len() <= self.count_max {
                break;
            }
            let Some(oldest) = open.pop_front() else {
                break;
            };
            let stays = oldest.upgrade().is_some_and(|oldest| !oldest.close());
            if stays {
                open.push_back(oldest);
            }
        }
    }
}

impl Folder {
    pub(crate) const fn new(id: NodeId, descriptor: Arc<Descriptor>) -> Self {
        Self { id, descriptor }
    }

    /// What names it to the lower file system.
    ///
    /// # Errors
    /// [`Errno::STALE`] if it is gone there; that too many files are open.
    pub(crate) fn fd(&self) -> Result<Arc<OwnedFd>> {
        self.descriptor.get()
    }
}

impl Descriptor {
    /// The descriptor, opened again if it has been closed; it stays open as long as it is held.
    ///
    /// # Errors
    /// [`Errno::STALE`] if what it stood for is gone; that the limit is reached.
    pub(crate) fn get(self: &Arc<Self>) -> Result<Arc<OwnedFd>> {
        let mut held = lock(&self.held);
        self.is_used.store(true, Ordering::Relaxed);
        let (handle, mount) = match (&*held, &self.all.mount) {
            (Held::Open(fd), _) => return Ok(Arc::clone(fd)),
            (Held::Closed(_), None) => return Err(Errno::STALE),
            (Held::Closed(handle), Some(mount)) => (handle, mount),
        };
        let fd = Arc::new(handle.open(mount, NAMING)?);
        *held = Held::Open(Arc::clone(&fd));
        drop(held);
        self.all.admit(self);
        Ok(fd)
    }

    /// Takes a new descriptor of the same file, if it has been closed; whether it is the same file.
    pub(crate) fn adopt(self: &Arc<Self>, fd: &Arc<OwnedFd>) -> bool {
        let mut held = lock(&self.held);
        let Held::Closed(handle) = &*held else {
            return true;
        };
        if Handle::of(fd).as_ref() != Ok(handle) {
            return false;
        }
        *held = Held::Open(Arc::clone(fd));
        self.is_used.store(true, Ordering::Relaxed);
        drop(held);
        self.all.admit(self);
        true
    }

    /// Never closes it again; the caller holds it open.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Closes it, unless it has been used lately or could not be opened again; whether it did.
    fn close(&self) -> bool {
        // Whoever has it locked is using it.
        let Ok(mut held) = self.held.try_lock() else {
            return false;
        };
        let Held::Open(fd) = &*held else {
            return true;
        };
        if planted(Fault::DescriptorsStay) {
            return false;
        }
        let is_kept = self.is_kept.load(Ordering::Relaxed) || !has_name(fd);
        let is_kept = is_kept && !planted(Fault::NumbersUsedAgain);
        let in_use = Arc::strong_count(fd) > 1 || self.is_used.swap(false, Ordering::Relaxed);
        if is_kept || in_use {
            return false;
        }
        let Ok(handle) = Handle::of(fd) else {
            return false;
        };
        *held = Held::Closed(handle);
        true
    }
}

/// Whether it has a name, in the spool at least: without any only the descriptor keeps it.
fn has_name(fd: &OwnedFd) -> bool {
    statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK).is_ok_and(|stat| stat.stx_nlink > 0)
}
