//! Inodes in memory: read when they are needed, written when they are synced or let go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use tacita_clock::Clock;
use tacita_dnefs_format::record::{IndexKey, Inode, Kind as RecordKind, Time};

use crate::error::{Error, Kind, Result, damaged};
use crate::store::{Store, Write};

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number.
    pub(crate) ino: u64,
    /// What is known of it.
    pub(crate) inode: Inode,
    /// The volume does not have it like this.
    pub(crate) is_dirty: bool,
    /// How often it was written to while it was sensitive: what was there may be overwritten.
    pub(crate) overwrites: u64,
    /// So many of them were purged.
    pub(crate) overwrites_purged: u64,
}

impl Node {
    /// An inode as the volume has it.
    pub(crate) const fn new(ino: u64, inode: Inode) -> Self {
        Self { ino, inode, is_dirty: false, overwrites: 0, overwrites_purged: 0 }
    }

    /// As a record, for a group that changes it.
    pub(crate) fn record(&self) -> Write<'static> {
        let at = IndexKey::inode(self.ino);
        Write { kind: RecordKind::Inode, at, payload: self.inode.encode().into() }
    }
}

/// What was to be let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// Nothing is to be known of it any more.
    Whole,
    /// It is sensitive, and what was there may be overwritten and not purged.
    Overwritten,
    /// It has no name, and was not let go.
    Nameless,
}

/// An inode that one thread at a time changes.
#[derive(Debug)]
pub(crate) struct Cell(Mutex<Node>);

impl Cell {
    // A change is made in one step, after what it needs has succeeded.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Node> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All inodes in memory.
#[derive(Debug, Default)]
pub(crate) struct Inodes(Mutex<BTreeMap<u64, Arc<Cell>>>);

impl Inodes {
    fn map(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Cell>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An inode; `None` if there is none with this number.
    pub(crate) fn get(&self, store: &Store, ino: u64) -> Result<Option<Arc<Cell>>> {
        if let Some(cell) = self.map().get(&ino) {
            return Ok(Some(Arc::clone(cell)));
        }
        let Some(payload) = store.get(IndexKey::inode(ino))? else { return Ok(None) };
        let inode = Inode::decode(&payload).map_err(damaged(format!("inode {ino}")))?;
        let mut map = self.map();
        let new = || Arc::new(Cell(Mutex::new(Node::new(ino, inode))));
        Ok(Some(Arc::clone(map.entry(ino).or_insert_with(new))))
    }

    /// A new inode, which the volume has already.
    pub(crate) fn add(&self, ino: u64, inode: Inode) {
        self.map().insert(ino, Arc::new(Cell(Mutex::new(Node::new(ino, inode)))));
    }

    /// Writes an inode that has a name, if it is not on the volume as it is, and lets it go.
    pub(crate) fn evict(&self, store: &Store, ino: u64) -> Result<Evicted> {
        let Some(cell) = self.map().get(&ino).map(Arc::clone) else {
            return Ok(Evicted::Whole);
        };
        let mut node = cell.lock();
        if node.inode.nlink == 0 {
            return Ok(Evicted::Nameless);
        }
        write(store, &mut node)?;
        self.map().remove(&ino);
        let is_overwritten = node.overwrites > node.overwrites_purged;
        Ok(if is_overwritten { Evicted::Overwritten } else { Evicted::Whole })
    }

    /// Lets an inode go that is no more.
    pub(crate) fn forget(&self, ino: u64) {
        self.map().remove(&ino);
    }

    /// Writes all inodes that are not on the volume as they are, in the order of their numbers.
    pub(crate) fn write_all(&self, store: &Store) -> Result<()> {
        let cells: Vec<_> = self.map().values().map(Arc::clone).collect();
        cells.iter().try_for_each(|cell| write(store, &mut cell.lock()))
    }
}

/// Writes an inode, if it is not on the volume as it is. One without names is not kept anyway.
pub(crate) fn write(store: &Store, node: &mut Node) -> Result<()> {
    if node.is_dirty && node.inode.nlink > 0 {
        store.write_group(&[node.record()])?;
        node.is_dirty = false;
    }
    Ok(())
}

/// The time by a clock.
pub(crate) fn time_of(clock: &dyn Clock) -> Time {
    let since = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

/// There is no such inode although something names it.
pub(crate) fn missing(ino: u64) -> Error {
    Error::new(Kind::Damaged, format!("inode {ino} is not there, but something names it"))
}
