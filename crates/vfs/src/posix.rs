//! What POSIX says, once for every system: rules over the seam, on plain types.
//!
//! A system stores nodes, entries and content ([`FileSystem`]); [`Posix`] decides what may replace
//! what, when set-id bits fall, which times an operation sets, and when a nameless node dies.
//!
//! Permission bits are left to the kernel: mounts always carry `default_permissions`. What the
//! kernel cannot leave to chance across several names (sticky directories) is checked here again.
//! The group-membership rule of `chmod` (set-gid falls when the caller is not in the group) is the
//! kernel's, but where that is shown other owners or groups (`set_id`). When set-gid without
//! execution falls by anything else, it does not tell who is in the group, and it is looked up.
//!
//! Times: creation stamps the node and its directory; `link`, `unlink` and `rename` stamp the
//! directories' mtime and ctime and the node's ctime (all through the seam's `now`); writing,
//! `fallocate` and changing the size stamp mtime and ctime; any other change of attributes stamps
//! ctime. Reading stamps nothing: atime only changes when a program sets it, because a trace of
//! reading is a trace.
//!
//! Locks: each directory has one over its names, shared by lookups and listings and exclusive for
//! changes, so check and act are one step (`locks`). Whoever works with a node refers to it, so
//! none dies or is evicted meanwhile (`references`). Reading and writing content takes no lock
//! over names. `attributes` makes read-check-change of one node's attributes one step; writing
//! takes it only to append or to clear set-id bits. Order: names, attributes, then whatever the
//! system locks.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tacita_clock::Clock;

use crate::{Attr, FileSystem, FsStats, NodeId, Result, Timestamp, credentials};

mod activity;
mod attributes;
mod content;
mod handles;
mod inode_flags;
mod listing;
mod locks;
mod names;
mod namespace;
mod references;
mod rename;
mod set_id;
mod xattr;

pub use attributes::{SetAttr, SetTime};
pub use content::{OpenMode, WriteMode};
pub use handles::HandleId;
pub use listing::ListedEntry;
pub use names::NAME_LEN_MAX;
pub use namespace::Unlinked;
pub use rename::{RenameMode, Renamed};
pub use xattr::{ACCESS_LIST, DEFAULT_LIST, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX};

use activity::Activity;
use handles::Handles;
use locks::{Changing, Locks};
use references::{Left, References};

/// Largest size of a file in bytes: the largest offset that `off_t` can hold.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// Locks over attributes; more than threads, so that strangers seldom meet.
const ATTRIBUTE_LOCK_COUNT: usize = 64;

/// On whose behalf an operation is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process, 0 if it is outside our view.
    pub pid: u32,
    /// Permission bits that new nodes do not get.
    pub umask: u32,
}

impl Caller {
    /// Whether the caller may disregard ownership. Capabilities are not visible here, so this
    /// stands for `CAP_FOWNER` and `CAP_FSETID`.
    const fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Whether the caller counts as one of a group. Of a process outside our view only its own group
    /// is known.
    fn is_in(self, gid: u32) -> bool {
        self.is_root() || self.gid == gid || credentials::groups(self.pid).contains(&gid)
    }
}

/// The POSIX rules over one file system.
pub struct Posix<F> {
    fs: F,
    clock: Arc<dyn Clock>,
    locks: Locks,
    attributes: [Mutex<()>; ATTRIBUTE_LOCK_COUNT],
    references: References,
    handles: Handles,
    activity: Activity,
    changed_past_us: Mutex<Option<HandOver>>,
}

/// Has whoever is in front of the rules hand over what programs have changed in these files without its having said
/// so, and waits for that.
pub(crate) type HandOver = Arc<dyn Fn(HashSet<NodeId>) + Send + Sync>;

impl<F: FileSystem> Posix<F> {
    /// Rules over `fs`, stamping times by `clock`.
    pub fn new(fs: F, clock: Arc<dyn Clock>) -> Self {
        Self {
            fs,
            clock,
            locks: Locks::default(),
            attributes: std::array::from_fn(|_| Mutex::new(())),
            references: References::default(),
            handles: Handles::default(),
            activity: Activity::default(),
            changed_past_us: Mutex::default(),
        }
    }

    /// The system beneath.
    pub const fn file_system(&self) -> &F {
        &self.fs
    }

    /// The clock that times are stamped by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn now(&self) -> Timestamp {
        self.clock.wall().into()
    }

    /// The system beneath, back from the rules.
    pub fn into_file_system(self) -> F {
        self.fs
    }

    /// The root directory; it needs no reference.
    pub fn root(&self) -> NodeId {
        self.fs.root()
    }

    /// What `stat` shows of `node`.
    ///
    /// # Errors
    /// [`crate::Kind::Stale`] if there is no such node.
    pub fn attr(&self, node: NodeId) -> Result<Attr> {
        self.fs.attr(node)
    }

    /// What `statfs` shows.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn stats(&self) -> Result<FsStats> {
        self.fs.stats()
    }

    /// Everything is on the medium and nothing is left to do.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn sync(&self) -> Result<()> {
        let count = self.activity.count();
        self.let_go_of_closed();
        self.fs.sync()?;
        self.activity.note_synced(count);
        Ok(())
    }

    /// As [`Posix::sync`], after what programs have changed in mappings of files that are open has been handed over.
    /// Whether all of that could be written is told to them alone.
    ///
    /// # Errors
    /// As [`Posix::sync`].
    pub fn sync_mapped(&self) -> Result<()> {
        self.hand_over_of(|_| true);
        self.sync()
    }

    /// What programs have changed in mappings of one file is handed over to the file system, which is not synced:
    /// nothing of others is waited for. Whether all of it could be written is told to them alone.
    pub fn hand_over_mapped(&self, node: NodeId) {
        self.hand_over_of(|written| written == node);
    }

    fn hand_over_of(&self, is_meant: impl Fn(NodeId) -> bool) {
        let hand_over = self.hand_over().clone();
        if let Some(hand_over) = hand_over {
            let written = self.handles.written();
            hand_over(written.into_iter().filter(|node| is_meant(*node)).collect());
        }
    }

    /// From now on asks `hand_over` for what is changed in mappings.
    pub(crate) fn is_mapped_by(&self, hand_over: HandOver) {
        *self.hand_over() = Some(hand_over);
    }

    fn hand_over(&self) -> MutexGuard<'_, Option<HandOver>> {
        self.changed_past_us.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything that programs have changed has been synced since.
    pub fn is_synced(&self) -> bool {
        self.activity.is_synced()
    }

    /// How often programs have changed something, or tried to: it grows with each change.
    pub(crate) fn changes(&self) -> u64 {
        self.activity.count()
    }

    /// Nameless nodes that nobody has open need not wait for the kernel to forget their numbers,
    /// which it does a moment after the name is gone.
    fn let_go_of_closed(&self) {
        for node in self.references.orphans() {
            if !self.handles.any_on(node) {
                self.fs.unused(node);
            }
        }
    }

    /// Gives back `count` references to `node`, as [`Posix::lookup`] and its like hand out; a
    /// nameless node dies with its last one.
    pub fn forget(&self, node: NodeId, count: u64) {
        if self.references.drop(node, count, || self.fs.evict(node)) == Left::Nameless {
            self.fs.forget(node);
        }
    }

    /// Closes all handles and gives back all references: the user is gone, and nameless nodes die.
    pub fn forget_all(&self) {
        for node in self.handles.clear() {
            self.fs.released(node);
        }
        for node in self.references.drop_all() {
            self.fs.forget(node);
        }
    }

    /// The names of these directories are to change.
    fn change_names<const N: usize>(&self, dirs: [NodeId; N]) -> Changing<'_, N> {
        self.activity.note();
        self.locks.change(dirs)
    }

    fn lock_attributes(&self, node: NodeId) -> MutexGuard<'_, ()> {
        self.activity.note();
        let index = node.0 % ATTRIBUTE_LOCK_COUNT as u64;
        // It guards no data of its own, so a panic under it leaves nothing half done.
        self.attributes[usize::try_from(index).unwrap_or(0)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> fmt::Debug for Posix<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posix").finish_non_exhaustive()
    }
}
