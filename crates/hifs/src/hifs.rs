//! A mounted image.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tacita_block::BlockDevice;

use crate::commit::{self, CommitCost};
use crate::error::{Error, Kind, Result};
use crate::geometry::Table;
use crate::journal::{self, Recovery, Sealed};
use crate::load::{load, read_superblock};
use crate::medium::Medium;
use crate::names::{FileId, Names};
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
pub struct Hifs {
    pub(crate) inner: RwLock<Inner>,
    sync: Sync,
    recovery: Recovery,
    warning: Option<Error>,
}

impl std::fmt::Debug for Hifs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hifs").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

/// Why a commit is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// What is pending makes room: it need not be durable.
    Room,
    /// Everything is durable when the commit returns.
    Durable,
    /// And nothing but the new state is left on the medium.
    Erased,
}

impl From<Sync> for Goal {
    fn from(sync: Sync) -> Self {
        match sync {
            Sync::Strict => Self::Erased,
            Sync::Durable => Self::Durable,
        }
    }
}

/// How the last commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    /// It failed before it was durable: the journal may hold part of it.
    Littered,
    /// It failed after it had become durable: memory and image disagree.
    Poisoned,
}

pub(crate) struct Inner {
    pub(crate) state: State,
    read_only: bool,
    /// A commit that is durable, but whose journal is not erased yet.
    unfinished: Option<Sealed>,
    /// Content was overwritten without a journal since the last flush.
    unflushed: bool,
    health: Health,
    cost: CommitCost,
}

impl Hifs {
    /// Opens an image: recovers it if need be, reads and verifies its tree, erases what was in use
    /// without a name.
    ///
    /// # Errors
    /// [`Kind::NotAnImage`], [`Kind::Version`], [`Kind::Damaged`] with the place, [`Kind::Device`].
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self> {
        let medium = Medium::new(device)?;
        let (superblock, warning) = read_superblock(&medium)?;
        let read_only = options.read_only || warning.is_some();
        let recovery = if read_only {
            let found = journal::inspect(&medium, &superblock.geometry)?;
            if found != Recovery::Clean {
                return Err(Error::new(
                    Kind::Damaged,
                    "journal: a commit was interrupted; open the image for writing once",
                ));
            }
            found
        } else {
            journal::recover(&medium, &superblock.geometry)?
        };
        let names = Names::new(superblock.seed).with_hash_bits(options.hash_bits);
        let mut state = load(superblock, medium, names, options.random_id)?;
        if !read_only {
            for node in state.nameless_after_load() {
                state.erase(node);
            }
        }
        let inner = Inner {
            state,
            read_only,
            unfinished: None,
            unflushed: false,
            health: Health::Well,
            cost: CommitCost::default(),
        };
        let this = Self { inner: RwLock::new(inner), sync: options.sync, recovery, warning };
        if !read_only {
            this.exclusive().commit(Goal::Erased)?;
        }
        Ok(this)
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
    pub fn is_read_only(&self) -> bool {
        self.shared().read_only
    }

    /// Parameters and geometry.
    pub fn superblock(&self) -> Superblock {
        self.shared().state.superblock.clone()
    }

    /// Brings everything pending into the image; when this returns it is durable and the journal is
    /// zero.
    ///
    /// # Errors
    /// [`Kind::Device`], [`Kind::NoSpace`], [`Kind::Poisoned`].
    pub fn commit(&self) -> Result<()> {
        self.exclusive().commit(Goal::Erased)
    }

    /// What `fsync` does: a commit with the promise chosen at opening.
    pub(crate) fn commit_for_fsync(&self) -> Result<()> {
        self.exclusive().commit(self.sync.into())
    }

    /// What all commits since opening have cost.
    pub fn cost(&self) -> CommitCost {
        self.shared().cost
    }

    /// Cells in use and all cells of a table, as the image is.
    pub fn load(&self, table: Table) -> (u64, u64) {
        let inner = self.shared();
        let State { superblock, buckets, pages, .. } = &inner.state;
        let used = if table == Table::Buckets { buckets.stored() } else { pages.stored() };
        (used, superblock.geometry.shape(table).cells().into())
    }

    // A panic while the lock is held leaves bookkeeping that may be half done: `poisoned` keeps such
    // a state from ever reaching the image.
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn exclusive(&self) -> RwLockWriteGuard<'_, Inner> {
        let poisoned = self.inner.is_poisoned();
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if poisoned {
            inner.health = Health::Poisoned;
        }
        inner
    }
}

impl Inner {
    /// Refuses changes to what cannot be changed.
    ///
    /// # Errors
    /// [`tacita_vfs::Kind::ReadOnly`]; [`tacita_vfs::Kind::Io`] after a failure.
    pub(crate) fn writable(&self) -> tacita_vfs::Result<()> {
        self.usable()?;
        if self.read_only { Err(tacita_vfs::Kind::ReadOnly.into()) } else { Ok(()) }
    }

    /// Refuses everything once memory and image disagree.
    ///
    /// # Errors
    /// [`tacita_vfs::Kind::Io`].
    pub(crate) fn usable(&self) -> tacita_vfs::Result<()> {
        if self.health == Health::Poisoned { Err(poisoned().into()) } else { Ok(()) }
    }

    /// Commits what is pending, as far as `goal` asks for.
    pub(crate) fn commit(&mut self, goal: Goal) -> Result<()> {
        if self.health == Health::Poisoned {
            return Err(poisoned());
        }
        if goal == Goal::Erased || !self.state.pending.is_empty() {
            self.finish()?;
        }
        if self.read_only {
            return Ok(());
        }
        match commit::commit(&mut self.state) {
            Ok(None) => {}
            Ok(Some((sealed, cost))) => {
                self.cost.add(&cost);
                self.health = Health::Well;
                if sealed.is_loose() {
                    self.unflushed = true;
                } else {
                    // Writing the journal has flushed all that went before it, but not what it led to.
                    self.unflushed = sealed.has_loose();
                    self.unfinished = Some(sealed);
                }
            }
            Err(failure) => {
                self.health = if failure.durable { Health::Poisoned } else { Health::Littered };
                return Err(failure.error);
            }
        }
        match goal {
            Goal::Room => Ok(()),
            Goal::Durable => self.flush(),
            Goal::Erased => self.finish(),
        }
    }

    /// Makes overwritten content durable.
    fn flush(&mut self) -> Result<()> {
        if self.unflushed {
            self.state.medium.flush()?;
            self.unflushed = false;
        }
        Ok(())
    }

    /// Erases the journal of the last commit.
    fn finish(&mut self) -> Result<()> {
        let State { medium, superblock, .. } = &self.state;
        if self.health == Health::Littered {
            journal::erase(medium, &superblock.geometry)?;
            self.health = Health::Well;
        }
        if let Some(sealed) = &self.unfinished {
            sealed.finish(medium, &superblock.geometry)?;
            self.unfinished = None;
            self.unflushed = false;
        }
        self.flush()
    }
}

fn poisoned() -> Error {
    let text =
        "an earlier write failed in the middle of a commit; unmount and mount again to recover";
    Error::new(Kind::Poisoned, text)
}
