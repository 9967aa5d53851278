//! An open volume.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use tacita_clock::{Clock, Event};
use tacita_dnefs_format::Superblock;
use tacita_dnefs_format::node::Class;
use tacita_dnefs_format::receipt::{Receipt, destroyed};
use tacita_dnefs_format::record::IndexKey;
use tacita_flash::{EraseReport, Volume};
use tacita_secret::Password;

use crate::entries::NameHash;
use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::format::{complete_superblock, unlock};
use crate::inodes::{Inodes, missing, time_of};
use crate::load::{self, Loaded};
use crate::policy::Policy;
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
    /// Erase blocks that garbage collection has emptied since it was opened.
    pub collected: u64,
    /// Room for nodes in bytes.
    pub bytes: u64,
    /// Nodes that are needed, in bytes.
    pub bytes_used: u64,
}

/// An open DNEFS volume; [`tacita_vfs::FileSystem`] is how files in it are used.
#[derive(Debug)]
pub struct Dnefs {
    store: Store,
    inodes: Inodes,
    name_hash: NameHash,
    clock: Arc<dyn Clock>,
    /// Receipts follow one another: one purge that gives one at a time.
    purging: Mutex<()>,
    /// Blocks that were bad by the newest receipt: what went bad since, in attaching the flash too, is for
    /// the next one to tell.
    bad_told: AtomicU32,
    /// The receipt that is not in the index yet, where nobody puts it there.
    last_receipt: Option<Receipt>,
    /// Nodes that were lost when it was opened.
    lost: u64,
    /// A purge since it was opened may have left keys.
    incomplete: AtomicBool,
    /// The last purge has begun.
    closing: AtomicBool,
    /// Sensitive inodes were let go since the last purge of which something may be overwritten: which ones
    /// nobody knows any more.
    overwritten: AtomicBool,
    /// That something could not be erased has been said.
    unerased: Once,
    /// Happens when there is so much to purge.
    due: Event,
    due_at_keys: AtomicU64,
    due_at_bytes: AtomicU64,
}

impl Dnefs {
    /// Opens a volume for reading and writing.
    ///
    /// # Errors
    /// [`crate::Kind::NotAVolume`]; [`crate::Kind::WrongPassword`]; [`crate::Kind::Damaged`]; [`crate::Kind::Device`].
    pub fn open(
        volume: Arc<dyn Volume>,
        password: Option<&Password>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (mut loaded, superblock, name_hash) = read(&volume, password)?;
        if let Some(unread) = loaded.unread {
            return Err(unread);
        }
        // The one that was there may open by another password.
        let is_replaced = complete_superblock(&*volume, &superblock)?;
        let erased = is_replaced.then(|| volume.flush_erases()).transpose()?;
        let parameters = superblock.parameters;
        load::prepare(&mut loaded.core, &*volume)?;
        let (is_clean, receipt) = (loaded.is_clean, loaded.receipt);
        let store = Store::new(volume, parameters, loaded.core)?;
        let dnefs = Self::new(store, name_hash, clock, receipt, loaded.lost);
        dnefs.note_erased(erased.unwrap_or_default());
        dnefs.stretch(loaded.sizes)?;
        dnefs.begin(is_clean, receipt)?;
        Ok(dnefs)
    }

    /// Opens a volume for reading: nothing of it changes, and it shows what there would be after the
    /// recovery that [`Dnefs::open`] makes of one that was not unmounted.
    ///
    /// # Errors
    /// As [`Dnefs::open`].
    pub fn open_read_only(
        volume: Arc<dyn Volume>,
        password: Option<&Password>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        if planted(Fault::ReadersRecover) {
            return Self::open(volume, password, clock);
        }
        let (loaded, superblock, name_hash) = read(&volume, password)?;
        let store = Store::new(volume, superblock.parameters, loaded.core)?;
        store.open_for_reading();
        let dnefs = Self {
            last_receipt: loaded.receipt,
            ..Self::new(store, name_hash, clock, loaded.receipt, loaded.lost)
        };
        dnefs.stretch(loaded.sizes)?;
        Ok(dnefs)
    }

    fn new(
        store: Store,
        name_hash: NameHash,
        clock: Arc<dyn Clock>,
        receipt: Option<Receipt>,
        lost: u64,
    ) -> Self {
        let newest = receipt.or_else(|| store.newest_receipt());
        Self {
            store,
            inodes: Inodes::default(),
            name_hash,
            clock,
            purging: Mutex::new(()),
            bad_told: AtomicU32::new(newest.map_or(u32::MAX, |receipt| receipt.bad_after)),
            last_receipt: None,
            lost,
            incomplete: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            overwritten: AtomicBool::new(false),
            unerased: Once::new(),
            due: Event::default(),
            due_at_keys: AtomicU64::new(u64::MAX),
            due_at_bytes: AtomicU64::new(u64::MAX),
        }
    }

    /// Gives files that are shorter than their content the sizes they need.
    fn stretch(&self, sizes: BTreeMap<u64, u64>) -> Result<()> {
        for (ino, size) in sizes {
            let cell = match self.inodes.get(&self.store, ino) {
                // It has its key in a damaged page: the file is lost, and nothing else. One that cannot be read
                // may be there the next time, with all its content, if nobody writes meanwhile.
                Err(e) if e.kind() == Kind::Damaged => continue,
                Err(e) if e.is_of_medium() && self.is_read_only() => continue,
                found => found?.ok_or_else(|| missing(ino))?,
            };
            let mut node = cell.lock();
            if node.inode.size < size {
                node.inode.size = size;
                node.is_dirty = true;
            }
        }
        Ok(())
    }

    /// From now on the volume is not what it was when it was unmounted: the medium says so before a
    /// key is handed out.
    fn begin(&self, is_clean: bool, receipt: Option<Receipt>) -> Result<()> {
        if is_clean {
            self.store.mark(Class::Mounted)?;
        }
        if let Some(receipt) = receipt {
            self.store.write_receipt(&receipt)?;
        }
        if !is_clean {
            self.purge(PurgeScope::Deleted)?;
        }
        Ok(())
    }

    /// Erases what was replaced until now. What was destroyed, for the receipt.
    fn erase_purged(&self, epoch: u64, scope: PurgeScope) -> Result<Receipt> {
        let mut purged = self.store.core().keys.take_purged();
        let erase = match self.erase_replaced() {
            Ok(erase) => erase,
            Err(e) => {
                self.store.core().keys.add_purged(purged);
                self.unerased.call_once(|| {
                    log::error!(
                        "{}: what was deleted may still be decrypted: see to what the volume lies on, \
                         and purge again",
                        e.cause()
                    );
                });
                return Err(e);
            }
        };
        let bad_told = self.bad_told.swap(erase.bad_after, Ordering::Relaxed);
        let receipt = Receipt {
            epoch,
            time: time_of(&*self.clock),
            of_all: scope == PurgeScope::All,
            key_lebs: purged.lebs,
            keys: purged.destroyed.len() as u64,
            destroyed: destroyed(&mut purged.destroyed),
            bad_before: erase.bad_before.min(bad_told),
            bad_after: erase.bad_after,
            damaged_pages: purged.damaged_pages,
            previous: self.store.core().last_receipt,
        };
        self.incomplete.fetch_or(!receipt.is_complete(), Ordering::Relaxed);
        Ok(receipt)
    }

    /// Before anything was purged something else was erased that nobody is to find.
    pub(crate) fn note_erased(&self, report: EraseReport) {
        self.incomplete.fetch_or(report.bad_after > report.bad_before, Ordering::Relaxed);
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
        let keys = self.due_at_keys.load(Ordering::Relaxed);
        let bytes = self.due_at_bytes.load(Ordering::Relaxed);
        if keys != u64::MAX && self.keys_waiting() >= keys
            || bytes != u64::MAX && self.bytes_waiting() >= bytes
        {
            self.due.notify();
        }
    }

    /// What happens, again and again, when a policy wants a purge for what was deleted.
    pub fn due_by(&self, policy: &Policy) -> Event {
        let at = |limit: Option<u64>| limit.map_or(u64::MAX, |limit| limit.max(1));
        self.due_at_keys.store(at(policy.after_keys), Ordering::Relaxed);
        self.due_at_bytes.store(at(policy.after_bytes), Ordering::Relaxed);
        self.due.clone()
    }

    /// Purges: when it returns, nothing that was deleted before can be decrypted, unless the receipt
    /// is not complete.
    ///
    /// # Errors
    /// [`crate::Kind::Device`]: then what was deleted may still be decrypted; [`crate::Kind::Poisoned`], at
    /// once while it is being closed.
    pub fn purge(&self, scope: PurgeScope) -> Result<Receipt> {
        if self.is_closing() {
            return Err(Error::new(Kind::Poisoned, "it is being unmounted"));
        }
        let _one = self.purging.lock().unwrap_or_else(PoisonError::into_inner);
        self.purge_alone(scope)
    }

    /// Purges if anything is to be purged. A purge that is under way is waited for: what it has replaced
    /// may not be erased yet.
    pub(crate) fn purge_what_waits(&self) -> Result<()> {
        let _one = self.purging.lock().unwrap_or_else(PoisonError::into_inner);
        if self.keys_waiting() > 0 {
            self.purge_alone(PurgeScope::Deleted)?;
        }
        Ok(())
    }

    /// A sensitive inode was let go of which something may be overwritten.
    pub(crate) fn note_overwritten(&self) {
        self.overwritten.store(true, Ordering::Relaxed);
    }

    /// Whether there was such a one since the last purge.
    pub(crate) fn has_let_go_of_overwritten(&self) -> bool {
        self.overwritten.load(Ordering::Relaxed)
    }

    /// Purges; no other purge is under way.
    fn purge_alone(&self, scope: PurgeScope) -> Result<Receipt> {
        let overwritten = self.overwritten.swap(false, Ordering::Relaxed);
        self.purge_now(scope).inspect_err(|_| {
            self.overwritten.fetch_or(overwritten, Ordering::Relaxed);
        })
    }

    fn purge_now(&self, scope: PurgeScope) -> Result<Receipt> {
        self.inodes.write_all(&self.store)?;
        let epoch = self.store.purge_keys(scope == PurgeScope::All)?;
        let receipt = self.erase_purged(epoch, scope)?;
        self.store.write_receipt(&receipt)?;
        self.store.sync()?;
        Ok(receipt)
    }

    /// Whether a purge may have left keys since the volume was opened, that of opening it included.
    pub fn was_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }

    /// How many nodes were lost when the volume was opened: they were written after the newest checkpoint,
    /// and their keys are in damaged pages. What they were part of is as it was before, or not there.
    pub const fn lost_nodes(&self) -> u64 {
        self.lost
    }

    /// The receipts of purges that are kept, the oldest first.
    ///
    /// # Errors
    /// [`crate::Kind::Damaged`] if they are no chain; [`crate::Kind::Device`].
    pub fn receipts(&self) -> Result<Vec<Receipt>> {
        let _one = self.purging.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.receipts(self.last_receipt)
    }

    /// Purges, and says on the medium that nothing was written since. Nothing is to be written from then
    /// on: that fails.
    ///
    /// # Errors
    /// As [`Self::purge`].
    pub fn close(&self) -> Result<Receipt> {
        self.closing.store(true, Ordering::Relaxed);
        let _one = self.purging.lock().unwrap_or_else(PoisonError::into_inner);
        self.inodes.write_all(&self.store)?;
        let epoch = self.store.purge_last()?;
        let receipt = self.erase_purged(epoch, PurgeScope::Deleted)?;
        self.store.end(&receipt)?;
        Ok(receipt)
    }

    /// Whether it was opened for reading.
    pub fn is_read_only(&self) -> bool {
        self.store.is_read_only()
    }

    /// Whether nothing can be written any more before it is opened again.
    pub fn has_stopped(&self) -> bool {
        self.store.check().is_err()
    }

    /// Whether the last purge has begun, or is over: there is no other one.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Refuses changes to what was opened for reading. Once writing has stopped, records say so.
    ///
    /// # Errors
    /// [`tacita_vfs::Kind::ReadOnly`].
    pub(crate) fn check_writable(&self) -> tacita_vfs::Result<()> {
        if self.is_read_only() { Err(tacita_vfs::Kind::ReadOnly.into()) } else { Ok(()) }
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
            collected: core.collected,
            bytes: core.log.capacity_bytes(),
            bytes_used: core.log.live_bytes(),
        }
    }

    /// Bytes of nodes whose keys the next purge destroys, as they lie on the medium.
    pub fn bytes_waiting(&self) -> u64 {
        let core = self.store.core();
        core.obsolete_bytes + core.keys.purged_bytes()
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

/// Reads a volume, and changes nothing on it.
fn read(
    volume: &Arc<dyn Volume>,
    password: Option<&Password>,
) -> Result<(Loaded, Superblock, NameHash)> {
    let unlocked = unlock(&**volume, password)?;
    let superblock = unlocked.superblock.clone();
    let name_hash = NameHash::new(unlocked.master.value(NAME_HASH, &[]));
    Ok((load::load(volume, unlocked)?, superblock, name_hash))
}
