//! Nodes of the lower tree that somebody refers to.
//!
//! A node is held by a descriptor that can be used for nothing but naming it (`O_PATH`), or by the
//! handle of its file: so no rename below can make it mean another file, nor can its inode number,
//! which is the node's, if that is given to another one.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat2, statx};
use rustix::io::Errno;
use tacita_vfs::{FileType, Kind, NodeId};

use super::conversions::file_type;
use crate::descriptors::{Descriptor, Descriptors, Folder};
use crate::error::tells_nothing;
use crate::faults::{Fault, planted};
use crate::lower_fs::LowerFs;
use crate::overlay::opaque;
use crate::policy::POLICY_ATTRIBUTE;
use crate::purger::Job;
use crate::spool::BENEATH;
use crate::xattrs;

/// Shards of the table, so that threads seldom wait for one another.
const SHARD_COUNT: usize = 16;

/// Folders above one another that a path is looked for.
const DEPTH_MAX: usize = 4096;

/// What of a node changes.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Handles of the seam.
    pub(super) handles: u64,
    /// The lower file while there are handles; whether it can be written; whether the kernel may
    /// have it.
    pub(super) file: Option<(Arc<File>, bool, bool)>,
    /// It has lost its last name and waits to be purged.
    pub(super) job: Option<Job>,
    /// It has lost its last name.
    pub(super) nameless: bool,
    /// Its purge has begun: whoever comes now is too late.
    pub(super) purging: bool,
    /// What latecomers have open in its place.
    pub(super) stand_in: Option<Arc<Node>>,
    /// Whether it has a list for what is about to be made in it, which has just been asked for.
    pub(super) gives_list: Option<bool>,
}

impl State {
    /// Whether it waits to be purged, and has content to be overwritten.
    pub(super) fn leaves_much(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.size != Some(0))
    }

    /// The purge of a node that nobody has open begins, if it is to be purged.
    pub(super) fn begin_purge(&mut self) -> Option<Job> {
        if self.handles > 0 {
            return None;
        }
        self.purging |= self.job.is_some();
        self.job.take()
    }
}

/// Where a node was seen: a folder, and its name there.
pub(super) type Place = (NodeId, OsString);

/// Names of a node that are remembered, which somebody may still be on the way with.
const FORMER_PLACES_MAX: usize = 4;

/// A node of the lower tree.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) id: NodeId,
    /// What programs see.
    pub(super) kind: FileType,
    /// A regular file that stands for a link.
    pub(super) is_opaque: bool,
    descriptor: Arc<Descriptor>,
    /// Where it was last seen, behind its other names.
    places: Mutex<Vec<Place>>,
    state: Mutex<State>,
    /// The value of the attribute that names a method, once it has been asked for.
    policy: Mutex<KnownPolicy>,
    /// Held while values of attributes are changed, which takes steps that nobody is to see.
    values: RwLock<()>,
}

/// What is known of the attribute of a node that names a method.
#[derive(Debug, Clone, Default)]
enum KnownPolicy {
    /// It has not been asked for.
    #[default]
    Nothing,
    /// There is none.
    Absent,
    /// Its value.
    Value(Vec<u8>),
}

impl Node {
    fn new(stat: &Statx, descriptor: Arc<Descriptor>, place: Place, is_opaque: bool) -> Self {
        Self {
            id: NodeId(stat.stx_ino),
            kind: if is_opaque { FileType::Symlink } else { file_type(stat) },
            is_opaque,
            descriptor,
            places: Mutex::new(vec![place]),
            state: Mutex::default(),
            policy: Mutex::default(),
            values: RwLock::default(),
        }
    }

    pub(super) fn values_to_read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if planted(Fault::ValuesTorn) {
            return None;
        }
        Some(self.values.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn values_to_change(&self) -> RwLockWriteGuard<'_, ()> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_policy(&self) -> MutexGuard<'_, KnownPolicy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of the attribute that names a method. It is asked for once, for it changes through
    /// the mount alone.
    ///
    /// # Errors
    /// Those after which nobody knows whether there is one.
    pub(super) fn policy(&self) -> rustix::io::Result<Option<Vec<u8>>> {
        let mut known = self.known_policy();
        if matches!(*known, KnownPolicy::Nothing) {
            *known = match self.fd().and_then(|fd| xattrs::value(fd, OsStr::new(POLICY_ATTRIBUTE)))
            {
                Ok(value) => KnownPolicy::Value(value),
                Err(Errno::NODATA | Errno::OPNOTSUPP) => KnownPolicy::Absent,
                Err(e) if tells_nothing(e) => return Err(e),
                Err(_) => KnownPolicy::Nothing,
            };
        }
        Ok(match &*known {
            KnownPolicy::Value(value) => Some(value.clone()),
            KnownPolicy::Absent | KnownPolicy::Nothing => None,
        })
    }

    /// The attribute has changed and is to be asked for again.
    pub(super) fn forget_policy(&self) {
        *self.known_policy() = KnownPolicy::Nothing;
    }

    /// It has just been made, and nobody can have set the attribute.
    pub(super) fn has_no_policy(&self) {
        *self.known_policy() = KnownPolicy::Absent;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Every change under this lock is whole before anything can fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is on the lower file system.
    pub(super) fn lower_kind(&self) -> FileType {
        if self.is_opaque { FileType::File } else { self.kind }
    }

    /// What names it to the lower file system.
    ///
    /// # Errors
    /// [`Errno::STALE`] if it is gone there; that too many files are open.
    pub(super) fn fd(&self) -> rustix::io::Result<Arc<OwnedFd>> {
        self.descriptor.get()
    }

    /// It as a folder that has lost names.
    pub(super) fn folder(&self) -> Folder {
        Folder::new(self.id, Arc::clone(&self.descriptor))
    }

    /// It has lost its last name: nothing but its descriptor keeps its number from being used again.
    pub(super) fn stays_open(&self) {
        self.descriptor.keep();
    }

    pub(super) fn stat(&self) -> rustix::io::Result<Statx> {
        statx(self.fd()?, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
    }

    pub(super) fn set_place(&self, dir: NodeId, name: &OsStr) {
        let mut places = self.places();
        let is_here = |place: &Place| place.0 == dir && place.1 == name;
        if !places.last().is_some_and(is_here) {
            places.retain(|place| !is_here(place));
            if places.len() == FORMER_PLACES_MAX {
                places.remove(0);
            }
            places.push((dir, name.to_owned()));
        }
    }

    /// One of its names has been moved: nobody can look for it under the old one any more.
    pub(super) fn move_place(&self, from: (&Node, &OsStr), to: (&Node, &OsStr)) {
        self.places().retain(|place| place.0 != from.0.id || place.1 != from.1);
        self.set_place(to.0.id, to.1);
    }

    pub(super) fn place(&self) -> Place {
        self.places().last().cloned().unwrap_or_else(|| (self.id, OsString::new()))
    }

    /// Where it was seen, the last place first.
    pub(super) fn places_seen(&self) -> Vec<Place> {
        self.places().iter().rev().cloned().collect()
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All nodes that somebody refers to.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) root: Arc<Node>,
    /// Whether files that stand for links are shown as such.
    pub(super) has_opaque: bool,
    shards: [RwLock<HashMap<NodeId, Arc<Node>>>; SHARD_COUNT],
    descriptors: Arc<Descriptors>,
}

impl Table {
    pub(super) fn new(
        root: OwnedFd,
        lower: &LowerFs,
        has_opaque: bool,
    ) -> rustix::io::Result<Self> {
        let stat = statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let id = NodeId(stat.stx_ino);
        let descriptors = Descriptors::new(&root, lower);
        let descriptor = descriptors.hold(Arc::new(root));
        let root = Arc::new(Node::new(&stat, descriptor, (id, OsString::new()), false));
        let shards = Default::default();
        let table = Self { root: Arc::clone(&root), has_opaque, shards, descriptors };
        table.shard(id).write().unwrap_or_else(PoisonError::into_inner).insert(id, root);
        Ok(table)
    }

    fn shard(&self, id: NodeId) -> &RwLock<HashMap<NodeId, Arc<Node>>> {
        &self.shards[usize::try_from(id.0 % SHARD_COUNT as u64).unwrap_or(0)]
    }

    /// The node of that number.
    pub(super) fn get(&self, id: NodeId) -> Result<Arc<Node>, tacita_vfs::Error> {
        let shard = self.shard(id).read().unwrap_or_else(PoisonError::into_inner);
        shard.get(&id).cloned().ok_or_else(|| Kind::Stale.into())
    }

    /// The node of that name in `dir`.
    pub(super) fn find(&self, dir: &Node, name: &OsStr) -> rustix::io::Result<(Arc<Node>, Statx)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat2(dir.fd()?, name, flags, Mode::empty(), BENEATH) {
            // What is mounted below the lower tree is not part of it.
            Err(Errno::XDEV) => return Err(Errno::NOENT),
            other => Arc::new(other?),
        };
        let stat = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let id = NodeId(stat.stx_ino);
        // A node that has been closed takes the descriptor, if it is the same file.
        let is_it = |node: &&Arc<Node>| node.descriptor.adopt(&fd);
        let known = self.shard(id).read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        let node = known.filter(|node| is_it(&node)).unwrap_or_else(|| {
            let is_opaque = self.has_opaque && opaque::is(&fd, &stat);
            let mut shard = self.shard(id).write().unwrap_or_else(PoisonError::into_inner);
            shard.get(&id).filter(is_it).cloned().unwrap_or_else(|| {
                let descriptor = self.descriptors.hold(Arc::clone(&fd));
                let place = (dir.id, name.to_owned());
                let fresh = Arc::new(Node::new(&stat, descriptor, place, is_opaque));
                shard.insert(id, Arc::clone(&fresh));
                fresh
            })
        });
        node.set_place(dir.id, name);
        Ok((node, stat))
    }

    /// Lets go of a node, unless latecomers of another one have it open.
    pub(super) fn remove(&self, id: NodeId) {
        let is_open = self.get(id).is_ok_and(|node| node.state().handles > 0);
        if id != self.root.id && !is_open {
            self.shard(id).write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
    }

    /// The path of a name in a folder, below the root.
    pub(super) fn path(&self, dir: &Node, name: &OsStr) -> PathBuf {
        let mut parts = vec![name.to_owned()];
        let (mut at, mut place) = (dir.id, dir.place());
        while at != self.root.id && parts.len() < DEPTH_MAX {
            parts.push(place.1);
            at = place.0;
            match self.get(at) {
                Ok(above) => place = above.place(),
                Err(_) => break,
            }
        }
        parts.iter().rev().collect()
    }
}
