//! The store of nodes: what is put under an [`IndexKey`] is encrypted under a key of its own and
//! appended to the log; what it replaces is obsolete.
//!
//! Locks are taken in this order: `gate`, `blocks`, `core`. Whoever writes holds the gate open from
//! taking keys to appending; a checkpoint closes it. Whoever reads holds the erase blocks in place;
//! garbage collection does not.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock};

use tacita_dnefs_format::checkpoint::{Location, NodeRef};
use tacita_dnefs_format::node::{self, Class, Header, Record, Standing};
use tacita_dnefs_format::record::{self, IndexKey, Kind as RecordKind, Part, Removal};
use tacita_dnefs_format::{Layout, NODE_ALIGN, Parameters};
use tacita_flash::Volume;
use tacita_secret::{Digest, Traces, digest};

use crate::error::{Error, Kind, Result, damaged};
use crate::faults::{Fault, planted};
use crate::index::Index;
use crate::keys::{KeyId, Keys, State};
use crate::log::{Head, Log, RESERVED_LEBS};
use crate::roots::{self, Roots};

mod reading;

/// Keys that are kept besides those of the next checkpoint: what is written until then changes more of
/// the index.
const RESERVED_KEYS: u32 = 64;

/// The root directory.
pub(crate) const ROOT_INO: u64 = 1;

/// Bytes that are written from one checkpoint to the next, at most: a mount after a power cut reads and
/// decrypts all of them.
const UNCOVERED_MAX: u64 = 64 << 20;

/// A record to be written.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    /// What it is.
    pub(crate) kind: RecordKind,
    /// What it belongs to.
    pub(crate) at: IndexKey,
    /// Its content.
    pub(crate) payload: Cow<'a, [u8]>,
}

/// What is known of the volume, in memory.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) index: Index,
    pub(crate) keys: Keys,
    pub(crate) log: Log,
    pub(crate) roots: Roots,
    pub(crate) next_ino: u64,
    pub(crate) epoch: u64,
    /// What the next receipt follows.
    pub(crate) last_receipt: Digest,
    /// Inodes without names.
    pub(crate) orphans: BTreeSet<u64>,
    /// Bytes of nodes that are not needed any more, since the last purge.
    pub(crate) obsolete_bytes: u64,
    /// Erase blocks that garbage collection has emptied.
    pub(crate) collected: u64,
    /// Keys of records that the next checkpoint makes needless.
    pub(crate) until_checkpoint: Vec<KeyId>,
    /// Nodes of the newest checkpoint that every checkpoint writes anew.
    pub(crate) tables: Vec<NodeRef>,
    pub(crate) root_key: Option<KeyId>,
    /// Nodes with this number and greater are not in the newest checkpoint.
    pub(crate) checkpoint_sqnum: u64,
}

/// The store of nodes.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) parameters: Parameters,
    pub(crate) layout: Layout,
    pub(crate) gate: RwLock<()>,
    pub(crate) blocks: RwLock<()>,
    core: Mutex<Core>,
    /// One purge at a time.
    pub(crate) purging: Mutex<()>,
    stopped: OnceLock<Stopped>,
    /// That something could not be read has been said.
    unread: Once,
}

/// Why nothing more is written.
#[derive(Debug, Clone, Copy)]
enum Stopped {
    Closed,
    /// It was opened for reading.
    ReadOnly,
    /// The file system under the emulator's file is full.
    HostFull,
    Failed,
}

/// What a write has to wait for.
enum Wanting {
    Room,
    Keys,
    Checkpoint,
}

impl Store {
    pub(crate) fn new(volume: Arc<dyn Volume>, parameters: Parameters, core: Core) -> Result<Self> {
        let layout = Layout::new(&parameters).map_err(damaged("the superblock"))?;
        Ok(Self {
            volume,
            parameters,
            layout,
            gate: RwLock::new(()),
            blocks: RwLock::new(()),
            core: Mutex::new(core),
            purging: Mutex::new(()),
            stopped: OnceLock::new(),
            unread: Once::new(),
        })
    }

    // What it protects is whole between any two steps, or the store is poisoned.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After an error that leaves memory and medium apart, nothing more is written. That is said here, once:
    /// whoever asked may have gone, or be nobody.
    pub(crate) fn poison<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result
            && !matches!(e.kind(), Kind::NoSpace | Kind::NoKeys | Kind::TooLarge)
        {
            let (why, remedy) = match e.device().map(tacita_flash::Error::kind) {
                Some(tacita_flash::Kind::NoSpace) => {
                    (Stopped::HostFull, "make room in the file system of the volume's file")
                }
                _ => (Stopped::Failed, "see to what it lies on"),
            };
            // The first counts.
            if self.stopped.set(why).is_ok() {
                log::error!(
                    "{}: this has stopped all writing: {remedy}, unmount, and mount again",
                    e.cause()
                );
            }
        }
        result
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.stopped.get() {
            None => Ok(()),
            Some(Stopped::ReadOnly) => {
                let what = "it is open for reading";
                Err(tacita_flash::Error::new(tacita_flash::Kind::ReadOnly, what).into())
            }
            Some(Stopped::HostFull) => {
                let what = "the file system of the volume's file was full, which has stopped all \
                            writing: make room there, unmount, and mount again";
                Err(tacita_flash::Error::new(tacita_flash::Kind::NoSpace, what).into())
            }
            Some(Stopped::Closed) => Err(Error::new(Kind::Poisoned, "it is being unmounted")),
            Some(Stopped::Failed) => {
                let what = "an earlier error has stopped all writing; unmount, and mount again";
                Err(Error::new(Kind::Poisoned, what))
            }
        }
    }

    /// Nothing more is written.
    pub(crate) fn close(&self) {
        let _ = self.stopped.set(Stopped::Closed);
    }

    /// Nothing is ever written.
    pub(crate) fn open_for_reading(&self) {
        let _ = self.stopped.set(Stopped::ReadOnly);
    }

    /// Whether it was opened for reading.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.stopped.get(), Some(Stopped::ReadOnly))
    }

    /// A new inode number.
    pub(crate) fn new_ino(&self) -> u64 {
        let mut core = self.core();
        core.next_ino += 1;
        core.next_ino - 1
    }

    /// Writes records; all of them count after a power cut, or none.
    pub(crate) fn write_group(&self, writes: &[Write<'_>]) -> Result<()> {
        self.write(Head::Meta, writes, true)
    }

    /// Writes blocks of files, each for itself.
    pub(crate) fn write_data(&self, writes: &[Write<'_>]) -> Result<()> {
        self.write(Head::Data, writes, false)
    }

    fn write(&self, head: Head, writes: &[Write<'_>], grouped: bool) -> Result<()> {
        let most: usize = writes.iter().map(|write| write.payload.len() + node::OVERHEAD).sum();
        for attempt in 0.. {
            self.check()?;
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            let wanting = match self.write_with_gate_open(head, writes, most, grouped) {
                Ok(None) => return Ok(()),
                Ok(Some(wanting)) => wanting,
                Err(e) => return self.poison(Err(e)),
            };
            drop(gate);
            if attempt > 2 {
                return Err(match wanting {
                    Wanting::Room => Error::new(Kind::NoSpace, "no room is left on the volume"),
                    Wanting::Keys | Wanting::Checkpoint => Error::new(
                        Kind::NoKeys,
                        "the key storage area is full: every node needs a key",
                    ),
                });
            }
            match wanting {
                Wanting::Room => self.make_room()?,
                Wanting::Keys => drop(self.purge_keys(false)?),
                Wanting::Checkpoint => self.checkpoint()?,
            }
        }
        unreachable!("it returns");
    }

    fn write_with_gate_open(
        &self,
        head: Head,
        writes: &[Write<'_>],
        most: usize,
        grouped: bool,
    ) -> Result<Option<Wanting>> {
        let authenticates = self.parameters.cipher.authenticates();
        let mut keys = Vec::with_capacity(writes.len());
        let first = {
            let mut core = self.core();
            if let Some(wanting) = core.wanting(head, writes, most)? {
                return Ok(Some(wanting));
            }
            for _ in writes {
                let (key, fresh) = core.keys.take(&*self.volume)?;
                keys.push((key, core.keys.position(key), fresh));
            }
            core.log.take_sqnums(writes.len() as u64)
        };
        let mut nodes = Vec::with_capacity(writes.len() * (128 + writes[0].payload.len()));
        let mut placed = Vec::with_capacity(writes.len());
        let mut traces = Traces::new();
        for ((sqnum, write), (key, position, fresh)) in (first..).zip(writes).zip(keys) {
            let standing = Standing {
                class: Class::Record,
                more_of_group: grouped && placed.len() + 1 < writes.len(),
                sqnum,
                key: position,
            };
            let record = Record {
                kind: write.kind,
                at: write.at,
                compression: self.parameters.compression,
                payload: &write.payload,
            };
            let start = nodes.len();
            node::seal(&mut nodes, standing, fresh, &mut traces, authenticates, &record);
            placed.push((key, start..nodes.len()));
        }
        drop(traces);
        if planted(Fault::NamesInClear) {
            let names = writes.iter().filter(|write| write.kind == RecordKind::Dentry);
            names.for_each(|write| nodes.extend_from_slice(&write.payload));
            nodes.resize(nodes.len().next_multiple_of(NODE_ALIGN as usize), 0);
        }
        let mut core = self.core();
        let (locations, result) = core.append(&*self.volume, head, &nodes, &placed, grouped);
        let appended = locations.len();
        for ((write, (key, _)), location) in writes.iter().zip(&placed).zip(locations) {
            core.apply(write.kind, write.at, &write.payload, *key, location, &self.parameters)?;
        }
        for (key, _) in &placed[appended..] {
            core.keys.obsolete(*key);
        }
        match result {
            // What was written by then is written again, under other keys.
            Err(e) if e.kind() == Kind::NoSpace => Ok(Some(Wanting::Room)),
            result => result.map(|()| None),
        }
    }

    /// What is in the index within a range, at most `most` of it.
    pub(crate) fn list(&self, range: Range<IndexKey>, most: usize) -> Vec<IndexKey> {
        self.core().index.range(range).take(most).map(|(at, _)| at).collect()
    }

    /// Takes all that belongs to an inode without a name out of the index. No record of it is needed:
    /// after a power cut an orphan goes anyway, with what is written of it from now on. Returns whether
    /// there was anything.
    pub(crate) fn erase(&self, ino: u64) -> bool {
        let mut core = self.core();
        let before = core.index.len();
        core.drop_range(IndexKey::inode(ino)..IndexKey::end_of(ino));
        core.index.len() < before
    }

    /// Nothing is written of an inode without a name any more.
    pub(crate) fn forget(&self, ino: u64) {
        self.core().orphans.remove(&ino);
    }

    /// Takes the blocks of a file from `first` on out of the index; whether there were any. After a power cut
    /// they are there again, unless a record says that they are not.
    pub(crate) fn erase_blocks(&self, ino: u64, first: u64) -> bool {
        let mut core = self.core();
        let before = core.index.len();
        core.drop_range(IndexKey::data(ino, first)..IndexKey::dentry(ino, 0));
        core.index.len() < before
    }

    /// Writes a checkpoint.
    fn checkpoint(&self) -> Result<()> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let written = self.core().checkpoint(&*self.volume, &self.parameters);
        self.poison(written)
    }

    /// Puts a mark behind the root.
    pub(crate) fn mark(&self, class: Class) -> Result<()> {
        let mut core = self.core();
        let mark = roots::mark(class, core.log.take_sqnums(1));
        let marked = core.roots.write(&*self.volume, &mark);
        self.poison(marked)
    }

    /// Everything written until now survives a power cut.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check()?;
        let synced = self.core().log.sync(&*self.volume);
        self.poison(synced)
    }
}

type Placed = (KeyId, Range<usize>);

impl Core {
    /// What a write has to wait for, if anything.
    fn wanting(&self, head: Head, writes: &[Write<'_>], most: usize) -> Result<Option<Wanting>> {
        let full = self.log.live_bytes() + most as u64 > self.log.capacity_bytes();
        let may_on_full = self.may_on_full(writes);
        if full && !may_on_full {
            return Err(Error::new(Kind::NoSpace, "no room is left on the volume"));
        }
        if self.log.uncovered_bytes() > UNCOVERED_MAX {
            return Ok(Some(Wanting::Checkpoint));
        }
        let begun = if self.log.has_room(head, most) { 0 } else { self.log.lebs_for(most) };
        // What may be written on a full volume changes little of the index.
        let kept = if may_on_full {
            RESERVED_LEBS / 2 + self.checkpoint_lebs() + 1
        } else {
            self.kept_lebs()
        };
        if self.log.free_lebs() < kept + begun {
            return Ok(Some(Wanting::Room));
        }
        let keys = u32::try_from(writes.len()).unwrap_or(u32::MAX);
        let reserved = if may_on_full { RESERVED_KEYS / 2 } else { RESERVED_KEYS };
        if self.keys.fresh() < keys.saturating_add(reserved + self.checkpoint_keys()) {
            return Ok(Some(Wanting::Keys));
        }
        Ok(None)
    }

    /// Erase blocks that stay free whatever files are written.
    fn kept_lebs(&self) -> u32 {
        RESERVED_LEBS + self.checkpoint_lebs_max()
    }

    /// How many nodes of `len` bytes of files there is room for.
    pub(crate) fn room_for(&self, len: usize) -> u64 {
        let within = self.log.capacity_bytes().saturating_sub(self.log.live_bytes());
        let len = len + node::OVERHEAD;
        let begun = self.log.lebs_for(len);
        (within / len as u64).min(self.log.room_for(len, self.kept_lebs() + begun))
    }

    /// Whether records may be written where there is no room for more: they free some, or replace
    /// inodes that are there, or tell of a purge.
    fn may_on_full(&self, writes: &[Write<'_>]) -> bool {
        let frees = |write: &Write<'_>| {
            matches!(write.kind, RecordKind::Removal | RecordKind::Truncation | RecordKind::Receipt)
        };
        let replaces = |write: &Write<'_>| {
            write.kind == RecordKind::Inode && self.index.get(write.at).is_some()
        };
        writes.iter().any(frees) || writes.iter().all(replaces)
    }

    /// Appends sealed nodes; where they lie, as far as they do.
    fn append(
        &mut self,
        volume: &dyn Volume,
        head: Head,
        nodes: &[u8],
        placed: &[Placed],
        grouped: bool,
    ) -> (Vec<Location>, Result<()>) {
        let mut locations = Vec::with_capacity(placed.len());
        let mut start = None;
        for (_, range) in placed {
            let (leb, offset) = if let Some((leb, offset)) = start.filter(|_| grouped) {
                (leb, offset + u32::try_from(range.start).expect("a group is shorter"))
            } else {
                let together = if grouped { nodes } else { &nodes[range.clone()] };
                match self.log.append(volume, head, together) {
                    Ok(at) => at,
                    Err(e) => return (locations, Err(e)),
                }
            };
            start.get_or_insert((leb, offset));
            let header =
                Header::parse(&nodes[range.clone()]).ok().flatten().expect("it was just made");
            locations.push(Location { leb, offset, len_bytes: header.len_bytes });
        }
        (locations, Ok(()))
    }

    /// What a record that now lies at `location` means: the same when it is written and when the log is
    /// replayed.
    pub(crate) fn apply(
        &mut self,
        kind: RecordKind,
        at: IndexKey,
        payload: &[u8],
        key: KeyId,
        location: Location,
        parameters: &Parameters,
    ) -> Result<()> {
        self.log.count(location);
        if kind == RecordKind::Receipt {
            self.last_receipt = digest(payload);
        }
        let what = || damaged("a record");
        match kind {
            RecordKind::Removal => {
                let removal = Removal::decode(payload).map_err(what())?;
                for at in removal.removed {
                    if let Some(old) = self.index.remove(at) {
                        self.obsolete(old);
                    }
                }
                self.orphans.extend(removal.orphans);
                self.keys.is_at(key, State::Passing, location);
                self.until_checkpoint.push(key);
            }
            RecordKind::Truncation => {
                let size = record::decode_truncation(payload).map_err(what())?;
                let block = size.div_ceil(u64::from(parameters.node_len_bytes));
                self.drop_range(IndexKey::data(at.ino, block)..IndexKey::dentry(at.ino, 0));
                self.keys.is_at(key, State::Passing, location);
                self.until_checkpoint.push(key);
            }
            _ => {
                self.keys.is_at(key, State::Used, location);
                if let Some(old) = self.index.insert(at, key) {
                    self.obsolete(old);
                }
            }
        }
        Ok(())
    }

    /// The node of a key is not needed any more.
    pub(crate) fn obsolete(&mut self, key: KeyId) {
        let location = self.keys.location(key);
        self.obsolete_bytes += u64::from(location.len_bytes);
        self.log.uncount(location);
        self.keys.obsolete(key);
    }

    pub(crate) fn drop_range(&mut self, range: Range<IndexKey>) {
        for key in self.index.remove_range(range) {
            self.obsolete(key);
        }
    }

    /// Whether keys are used as the index says: no other key is used, and no two nodes have one.
    /// For tests and checks.
    pub(crate) fn key_state_map_is_sound(&self) -> bool {
        let mut has_node = vec![false; self.keys.count() as usize];
        for (_, key) in self.index.entries() {
            if std::mem::replace(&mut has_node[key.0 as usize], true) {
                return false;
            }
        }
        let is_used = |key| self.keys.state(key) == State::Used;
        (0..self.keys.count()).map(KeyId).zip(has_node).all(|(key, has)| is_used(key) == has)
    }
}

/// The block of a file that an index entry stands for.
pub(crate) fn block_of(at: IndexKey) -> Option<u64> {
    match at.part()? {
        Part::Data(block) => Some(block),
        _ => None,
    }
}
