//! A mounted image.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tacita_block::{BlockDevice, BlockNo};
use tacita_clock::Event;
use tacita_vfs::NodeId;

use crate::commit::{self, CommitCost};
use crate::committer::{Committer, Pending, poisoned};
use crate::error::{Error, Kind, Result};
use crate::geometry::Table;
use crate::journal::{self, Plan, Recovery, Sealed, Unread};
use crate::load::{load, read_superblock};
use crate::medium::Medium;
use crate::names::{FileId, Names};
use crate::salvage::draft::Draft;
use crate::salvage::{Losses, salvage};
use crate::superblock::Superblock;
use crate::tree::State;

/// When `fsync` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// When everything is durable and nothing but the new state is left on the medium.
    #[default]
    Strict,
    /// When everything is durable; the journal is erased within the sync interval.
    Durable,
}

/// How an image is opened.
pub struct OpenOptions {
    /// When `fsync` returns.
    pub sync: Sync,
    /// Nothing is written; an image that needs recovery is refused.
    pub read_only: bool,
    /// Source of random ids: for `ids=random`, and for files in use without a name.
    pub random_id: Box<dyn FnMut() -> FileId + Send + std::marker::Sync>,
    /// Significant bits of the hashes that order entries: fewer than 64 force ties in tests.
    #[doc(hidden)]
    pub hash_bits: u32,
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("sync", &self.sync)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        let random_id = Box::new(|| {
            let bytes = tacita_secret::random().expect("the operating system has a random source");
            u128::from_le_bytes(bytes)
        });
        Self { sync: Sync::Strict, read_only: false, random_id, hash_bits: 64 }
    }
}

/// A mounted HIFS image: implements [`tacita_vfs::FileSystem`].
///
/// Locks are taken in this order: `committer`, `state`, then the lock inside `state.in_flight`.
/// Programs hold `state` for a change or a read. A commit holds it to freeze what is pending; while
/// it brings that into the image, programs go on.
pub struct Hifs {
    state: RwLock<State>,
    committer: Mutex<Committer>,
    /// Something has been frozen to make room and is not in the image yet.
    left: Event,
    read_only: bool,
    /// A commit failed after it had become durable, or somebody panicked: memory and image
    /// disagree, and nothing goes on.
    poisoned: AtomicBool,
    sync: Sync,
    recovery: Recovery,
    warning: Option<Error>,
    losses: Losses,
}

impl std::fmt::Debug for Hifs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hifs").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

/// Why a commit is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// What is pending makes room: it need not be in the image.
    Room,
    /// Everything is durable when the commit returns.
    Durable,
    /// And nothing but the new state is left on the medium.
    Erased,
}

impl From<Sync> for Durability {
    fn from(sync: Sync) -> Self {
        match sync {
            Sync::Strict => Self::Erased,
            Sync::Durable => Self::Durable,
        }
    }
}

/// What is pending, if a commit of it still is wanted.
struct Wanted<'a> {
    hifs: &'a Hifs,
    wanted: &'a dyn Fn(&State) -> bool,
}

impl Pending for Wanted<'_> {
    fn freeze(&self) -> Result<Option<(Arc<Plan>, CommitCost)>> {
        if self.hifs.read_only || !(self.wanted)(&self.hifs.shared()) {
            return Ok(None);
        }
        commit::freeze(&mut self.hifs.exclusive())
    }

    fn freeze_with(&self, frozen: &Plan, unread: &[Unread]) -> Result<(Arc<Sealed>, CommitCost)> {
        commit::freeze_with(&mut self.hifs.exclusive(), frozen, unread)
    }
}

impl Hifs {
    /// Opens an image: recovers it if need be, reads and verifies its tree, erases what was in use
    /// without a name.
    ///
    /// # Errors
    /// [`Kind::NotAnImage`], [`Kind::Version`], [`Kind::Damaged`] with the place, [`Kind::Interrupted`]
    /// for reading only, [`Kind::Device`].
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self> {
        let medium = Medium::new(device)?;
        let (superblock, damage) = read_superblock(&medium)?;
        let (recovery, unread) = if options.read_only || damage.is_some() {
            let found = journal::inspect(&medium, &superblock)?;
            match &damage {
                _ if found.0 == Recovery::Clean => found,
                None => {
                    let text = "journal: a commit was interrupted";
                    return Err(Error::new(Kind::Interrupted, text));
                }
                // Nobody opens it for writing.
                Some(damage) => {
                    let text = format!("{damage}; journal: a commit was interrupted");
                    return Err(Error::new(Kind::Damaged, text));
                }
            }
        } else {
            journal::recover(&medium, &superblock)?
        };
        let warning = damage.or(unread);
        let read_only = options.read_only || warning.is_some();
        let names = Names::new(superblock.seed).with_hash_bits(options.hash_bits);
        let mut state = load(superblock, medium, names, options.random_id)?;
        if !read_only {
            for node in state.nameless_after_load() {
                state.erase(node);
            }
        }
        let this = Self { sync: options.sync, recovery, warning, ..Self::of(state, read_only) };
        match this.commit() {
            // Whoever has it open can do something about that.
            Err(e) if e.kind() == Kind::Unreadable => {}
            done => done?,
        }
        Ok(this)
    }

    fn of(state: State, read_only: bool) -> Self {
        let committer =
            Committer::new(state.medium.clone(), state.superblock.clone(), state.in_flight.clone());
        Self {
            state: RwLock::new(state),
            committer: Mutex::new(committer),
            left: Event::default(),
            read_only,
            poisoned: AtomicBool::new(false),
            sync: Sync::default(),
            recovery: Recovery::Clean,
            warning: None,
            losses: Losses::default(),
        }
    }

    /// Opens what is left of a damaged image, for reading: [`Hifs::losses`] tells what is not. An undamaged one is
    /// shown as [`Hifs::open`] shows it, also where a commit was interrupted, which is recovered in memory.
    ///
    /// # Errors
    /// As [`Hifs::open`], if neither superblock is there; [`Kind::Device`].
    pub fn salvage(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self> {
        let medium = Medium::new(device.clone())?;
        let (superblock, damage) = match read_superblock(&medium) {
            // Of one that is truncated the beginning is there.
            Err(error) if error.kind() == Kind::Damaged => {
                let first = medium.read_block(BlockNo(0));
                match first.and_then(|block| Superblock::decode(&block)) {
                    Ok(first) => (first, Some(error)),
                    Err(_) => return Err(error),
                }
            }
            read => read?,
        };
        let mut damage: Vec<Error> = damage.into_iter().collect();
        let draft = Medium::new(Arc::new(Draft::new(device)))?;
        let (medium, recovery) = match journal::recover(&draft, &superblock) {
            Ok((recovery, unread)) => {
                damage.extend(unread);
                (draft, Some(recovery))
            }
            // It is taken as it is found, in the middle of a commit.
            Err(error) => {
                damage.push(error);
                (medium, None)
            }
        };
        let names = Names::new(superblock.seed).with_hash_bits(options.hash_bits);
        let (state, mut losses) =
            salvage(superblock, medium, names, options.random_id, recovery.is_some());
        losses.damage.splice(..0, damage.iter().map(Error::to_string));
        let recovery = recovery.unwrap_or(Recovery::Clean);
        Ok(Self { recovery, losses, ..Self::of(state, true) })
    }

    /// What was damaged and is lost of an image that was opened by [`Hifs::salvage`].
    pub const fn losses(&self) -> &Losses {
        &self.losses
    }

    /// What recovery found when the image was opened.
    pub const fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Damage that does not keep the image from being read: it is open read-only.
    pub const fn warning(&self) -> Option<&Error> {
        self.warning.as_ref()
    }

    /// Whether changes are refused.
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Parameters and geometry.
    pub fn superblock(&self) -> Superblock {
        self.shared().superblock.clone()
    }

    /// Brings everything pending into the image; when this returns it is durable and the journal is
    /// zero.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::NoSpace`], [`Kind::Poisoned`].
    pub fn commit(&self) -> Result<()> {
        self.commit_for(Durability::Erased, &|_| true)
    }

    /// Takes both superblocks away until [`Hifs::publish`]: what is interrupted before leaves no
    /// image. For whoever fills an image that is nobody's yet, on a raw device.
    ///
    /// # Errors
    /// [`Kind::Device`].
    pub fn withhold(&self) -> Result<()> {
        let state = self.shared();
        for at in [BlockNo(0), state.superblock.geometry.superblock_copy()] {
            state.medium.zero(at, 1)?;
        }
        state.medium.flush()
    }

    /// Commits, and puts the superblocks back.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::NoSpace`].
    pub fn publish(&self) -> Result<()> {
        self.commit()?;
        let state = self.shared();
        let block = state.superblock.encode();
        state.medium.write(state.superblock.geometry.superblock_copy(), &block)?;
        state.medium.write(BlockNo(0), &block)?;
        state.medium.flush()
    }

    /// What `fsync` does: a commit with the promise chosen at opening.
    pub(crate) fn commit_for_fsync(&self) -> Result<()> {
        self.commit_for(self.sync.into(), &|_| true)
    }

    /// Commits what is pending if a change of so many blocks does not fit in beside it.
    pub(crate) fn make_room(&self, blocks: u64) -> Result<()> {
        self.commit_for(Durability::Room, &|state| state.is_loaded(blocks))
    }

    /// Brings what is pending into the image, as far as `durability` asks for, if it still is `wanted`
    /// when no other commit is on its way.
    pub(crate) fn commit_for(
        &self,
        durability: Durability,
        wanted: &dyn Fn(&State) -> bool,
    ) -> Result<()> {
        // A panic in a commit leaves memory and image in disagreement.
        let Ok(mut committer) = self.committer.lock() else {
            self.poisoned.store(true, Ordering::Release);
            return Err(poisoned());
        };
        let done = self
            .check_usable()
            .and_then(|()| committer.bring(durability, &Wanted { hifs: self, wanted }));
        if committer.is_poisoned() {
            self.poisoned.store(true, Ordering::Release);
        }
        if done.is_ok() && committer.is_behind() {
            self.left.notify();
        }
        if !matches!(&done, Err(e) if e.kind() == Kind::Unreadable)
            && !self.shared().in_the_way.is_empty()
        {
            self.exclusive().in_the_way.clear();
        }
        done
    }

    /// Paths of the files of which something has to move and cannot be read, so that the last commit could not be
    /// made; of those that have no name, an empty one.
    pub fn in_the_way(&self) -> Vec<PathBuf> {
        let state = self.shared();
        let path = |id| match state.nodes.get(id).and_then(|node| node.owner_link()) {
            Some((dir, name)) => OsString::from_vec(state.path(*dir, name)).into(),
            None => PathBuf::new(),
        };
        state.in_the_way.iter().map(|id| path(*id)).collect()
    }

    /// Whether the last commit could not be made because something of this file has to move and cannot be read:
    /// who takes that away needs no room.
    pub(crate) fn is_in_the_way(&self, node: NodeId) -> bool {
        self.shared().in_the_way.contains(&node)
    }

    /// What is notified when something has been frozen that is not in the image yet.
    pub(crate) fn left(&self) -> Event {
        self.left.clone()
    }

    /// What all commits since opening have cost.
    pub fn cost(&self) -> CommitCost {
        self.committer.lock().unwrap_or_else(PoisonError::into_inner).cost()
    }

    /// Cells in use and all cells of a table, as the image is.
    pub fn load(&self, table: Table) -> (u64, u64) {
        let State { superblock, buckets, pages, .. } = &*self.shared();
        let used = if table == Table::Buckets { buckets.stored() } else { pages.stored() };
        (used, superblock.geometry.shape(table).cells().into())
    }

    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    // A panic while the lock is held leaves bookkeeping that may be half done: `poisoned` keeps such
    // a state from ever reaching the image.
    pub(crate) fn exclusive(&self) -> RwLockWriteGuard<'_, State> {
        if self.state.is_poisoned() {
            self.poisoned.store(true, Ordering::Release);
        }
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses changes to what cannot be changed.
    ///
    /// # Errors
    /// [`tacita_vfs::Kind::ReadOnly`]; [`tacita_vfs::Kind::Io`] after a failure.
    pub(crate) fn check_writable(&self) -> tacita_vfs::Result<()> {
        self.check_usable()?;
        if self.read_only { Err(tacita_vfs::Kind::ReadOnly.into()) } else { Ok(()) }
    }

    /// Refuses everything once memory and image disagree.
    ///
    /// # Errors
    /// [`Kind::Poisoned`].
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) || self.state.is_poisoned() {
            return Err(poisoned());
        }
        Ok(())
    }
}
