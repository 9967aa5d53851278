//! An open volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tacita_clock::Event;
use tacita_dnefs_format::node::Class;
use tacita_dnefs_format::record::IndexKey;
use tacita_flash::{EraseReport, Volume};
use tacita_secret::Password;

use crate::entries::NameHash;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::format::read_superblock;
use crate::inodes::{Inodes, missing};
use crate::load;
use crate::purge::Purge;
use crate::store::Store;

/// What the master key is used for besides sealing keys: the hash of names.
const NAME_HASH: u8 = 2;

/// Which erase blocks of keys a purge changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PurgeScope {
    /// Those with deleted keys. Paper: lazy purging.
    #[default]
    Deleted,
    /// All: who saw the medium before knows no key that will be used from now on.
    All,
}

/// What a purge did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeReport {
    /// The purging epoch that it began.
    pub epoch: u64,
    /// Erase blocks of keys that were changed.
    pub key_lebs: u32,
    /// Keys that were destroyed.
    pub keys: u64,
    /// Physical blocks that are out of use, before and after.
    pub erase: EraseReport,
}

/// What an open volume holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The purging epoch.
    pub epoch: u64,
    /// Nodes in the index.
    pub nodes: u64,
    /// Keys in the key storage area.
    pub keys: u64,
    /// Those that can be handed out.
    pub keys_fresh: u64,
    /// Those that the next purge destroys.
    pub keys_waiting: u64,
    /// Room for nodes in bytes.
    pub bytes: u64,
    /// Nodes that are needed, in bytes.
    pub bytes_used: u64,
}

impl PurgeReport {
    fn of(purge: Purge, erase: EraseReport) -> Self {
        let Purge { epoch, purged } = purge;
        Self { epoch, key_lebs: purged.lebs, keys: purged.destroyed.len() as u64, erase }
    }
}

/// An open DNEFS volume; [`tacita_vfs::FileSystem`] is how files in it are used.
#[derive(Debug)]
pub struct Dnefs {
    store: Store,
    inodes: Inodes,
    name_hash: NameHash,
    /// Happens when there are so many keys to purge.
    due: Event,
    due_at: AtomicU64,
}

impl Dnefs {
    /// Opens a volume for reading and writing.
    ///
    /// # Errors
    /// [`Kind::NotAVolume`]; [`Kind::WrongPassword`]; [`Kind::Damaged`]; [`Kind::Device`].
    pub fn open(volume: Arc<dyn Volume>, password: Option<&Password>) -> Result<Self> {
        let superblock = read_superblock(&*volume)?;
        let parameters = superblock.parameters;
        let unlocked = superblock
            .unlock(password)
            .map_err(|e| Error::new(Kind::WrongPassword, e.to_string()))?;
        let name_hash = NameHash::new(unlocked.master.value(NAME_HASH, &[]));
        let mut loaded = load::load(&volume, unlocked)?;
        load::prepare(&mut loaded.core, &*volume)?;
        let store = Store::new(volume, parameters, loaded.core)?;
        let dnefs = Self {
            store,
            inodes: Inodes::default(),
            name_hash,
            due: Event::default(),
            due_at: AtomicU64::new(u64::MAX),
        };
        for (ino, size) in loaded.sizes {
            let cell = dnefs.inodes.get(&dnefs.store, ino)?.ok_or_else(|| missing(ino))?;
            let mut node = cell.lock();
            if node.inode.size < size {
                node.inode.size = size;
                node.is_dirty = true;
            }
        }
        dnefs.begin(loaded.is_clean)?;
        Ok(dnefs)
    }

    /// From now on the volume is not what it was when it was unmounted: the medium says so before a
    /// key is handed out.
    fn begin(&self, is_clean: bool) -> Result<()> {
        if is_clean {
            return self.store.mark(Class::Mounted);
        }
        self.inodes.write_all(&self.store)?;
        self.store.purge_keys(false)?;
        self.erase_replaced()?;
        Ok(())
    }

    /// What was replaced is gone from then on.
    fn erase_replaced(&self) -> Result<EraseReport> {
        if planted(Fault::EraseSkipped) {
            return Ok(EraseReport::default());
        }
        Ok(self.store.volume.flush_erases()?)
    }

    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) const fn inodes(&self) -> &Inodes {
        &self.inodes
    }

    pub(crate) const fn name_hash(&self) -> &NameHash {
        &self.name_hash
    }

    /// Something may have been deleted.
    pub(crate) fn after_deletion(&self) {
        let due_at = self.due_at.load(Ordering::Relaxed);
        if due_at != u64::MAX && self.keys_waiting() >= due_at {
            self.due.notify();
        }
    }

    /// What happens, again and again, when there are `keys` or more to purge.
    pub fn due_after(&self, keys: u64) -> Event {
        self.due_at.store(keys.max(1), Ordering::Relaxed);
        self.due.clone()
    }

    /// Purges: when it returns, nothing that was deleted before can be decrypted.
    ///
    /// # Errors
    /// [`Kind::Device`]: then what was deleted may still be decrypted.
    pub fn purge(&self, scope: PurgeScope) -> Result<PurgeReport> {
        self.inodes.write_all(&self.store)?;
        let purge = self.store.purge_keys(scope == PurgeScope::All)?;
        let erase = self.erase_replaced()?;
        Ok(PurgeReport::of(purge, erase))
    }

    /// Purges, and says on the medium that nothing was written since. Nothing is to be written from then
    /// on: that fails.
    ///
    /// # Errors
    /// As [`Self::purge`].
    pub fn close(&self) -> Result<PurgeReport> {
        self.inodes.write_all(&self.store)?;
        let purge = self.store.purge_last()?;
        let erase = self.erase_replaced()?;
        self.store.mark(Class::Unmounted)?;
        Ok(PurgeReport::of(purge, erase))
    }

    /// Nodes that there are, and room for them in bytes: all, and in use.
    pub fn usage(&self) -> Usage {
        let core = self.store.core();
        Usage {
            epoch: core.epoch,
            nodes: core.index.len() as u64,
            keys: core.keys.count().into(),
            keys_fresh: core.keys.fresh().into(),
            keys_waiting: core.keys.waiting(),
            bytes: core.log.capacity_bytes(),
            bytes_used: core.log.live_bytes(),
        }
    }

    /// Keys that the next purge destroys.
    pub fn keys_waiting(&self) -> u64 {
        self.store.core().keys.waiting()
    }

    /// Whether the states of keys are what the index says: for tests and checks.
    pub fn is_sound(&self) -> bool {
        self.store.core().key_state_map_is_sound()
    }

    /// Whether an inode is there, in use or not: for tests.
    pub fn has_inode(&self, ino: u64) -> bool {
        self.store.core().index.get(IndexKey::inode(ino)).is_some()
    }
}
