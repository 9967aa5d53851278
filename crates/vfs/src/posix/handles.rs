//! The table of open files and directories.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::{Kind, NodeId, Result};

/// Shards of the table, so that threads seldom wait for one another.
const SHARD_COUNT: usize = 16;

/// Names an open file or directory; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleId(pub u64);

/// What an open file or directory may be used for.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "independent flags of open, as in the manual")]
pub(super) struct Handle {
    pub(super) node: NodeId,
    pub(super) directory: bool,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) append: bool,
    pub(super) writer: Writer,
}

/// Who has opened it, for when it is open for writing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Writer {
    pub(super) user: u32,
    /// Whether the kernel may write to a lower file without telling.
    pub(super) past_us: bool,
}

/// All open files and directories.
#[derive(Debug, Default)]
pub(super) struct Handles {
    shards: [RwLock<HashMap<HandleId, Handle>>; SHARD_COUNT],
    last: AtomicU64,
}

impl Handles {
    fn shard(&self, id: HandleId) -> &RwLock<HashMap<HandleId, Handle>> {
        &self.shards[usize::try_from(id.0 % SHARD_COUNT as u64).unwrap_or(0)]
    }

    pub(super) fn insert(&self, handle: Handle) -> HandleId {
        let id = HandleId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        self.shard(id).write().unwrap_or_else(PoisonError::into_inner).insert(id, handle);
        id
    }

    pub(super) fn get(&self, id: HandleId) -> Result<Handle> {
        self.shard(id)
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .copied()
            .ok_or_else(|| Kind::BadHandle.into())
    }

    pub(super) fn remove(&self, id: HandleId) -> Result<Handle> {
        self.shard(id)
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id)
            .ok_or_else(|| Kind::BadHandle.into())
    }

    /// Whether any handle is open on the node.
    pub(super) fn any_on(&self, node: NodeId) -> bool {
        self.shards.iter().any(|shard| {
            let handles = shard.read().unwrap_or_else(PoisonError::into_inner);
            handles.values().any(|handle| handle.node == node)
        })
    }

    /// Who has the node open for writing.
    pub(super) fn writers_of(&self, node: NodeId) -> Vec<Writer> {
        let mut writers = Vec::new();
        for shard in &self.shards {
            let handles = shard.read().unwrap_or_else(PoisonError::into_inner);
            let writing = handles.values().filter(|handle| handle.node == node && handle.write);
            writers.extend(writing.map(|handle| handle.writer));
        }
        writers
    }

    /// The files that are open for writing.
    pub(super) fn written(&self) -> HashSet<NodeId> {
        let mut written = HashSet::new();
        for shard in &self.shards {
            let handles = shard.read().unwrap_or_else(PoisonError::into_inner);
            let writing = handles.values().filter(|handle| handle.write);
            written.extend(writing.map(|handle| handle.node));
        }
        written
    }

    /// Closes all; returns the files, once for each handle.
    pub(super) fn clear(&self) -> Vec<NodeId> {
        let mut files = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            let closed = shard.drain().map(|(_, handle)| handle);
            files.extend(closed.filter(|handle| !handle.directory).map(|handle| handle.node));
        }
        files
    }
}
