//! Overwriting a file before the loss of its name is durable.
//!
//! To wait for the journal with every file costs more than to overwrite it. So an *intent* is put on
//! the medium once for a folder and an epoch, ahead of the first file that is overwritten there: all
//! sectors written under it carry tags, by which recovery knows a file that a loss of power has
//! brought back under its name. The intents of an epoch are erased when the loss of all its names
//! is durable.
//!
//! Recovery looks in the folder that the file was deleted from. So a file that another folder has
//! lately lost a name of, which could come back there, is not overwritten in this way.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::{OFlags, fsync};
use tacita_vfs::NodeId;

use super::epoch::flush;
use super::{Job, Purger, lock};
use crate::descriptors::Folder;
use crate::error::During;
use crate::faults::{Fault, Step, planted, step};
use crate::handle::Handle;
use crate::lower_fs::LowerFs;
use crate::spool::intent::Intent;
use crate::spool::tags::Tags;
use crate::spool::{IntentLog, Spool};
use crate::{Error, Kind, Result};

/// Files that are remembered to have lost a name elsewhere; beyond that all count as such.
const MOVED_COUNT_MAX: usize = 1 << 16;

/// The intents of the present epoch, and of those whose names are not durable yet.
#[derive(Debug)]
pub(super) struct Ahead {
    is_offered: bool,
    /// What those who overwrite look at first.
    known: RwLock<Known>,
    log: Mutex<Log>,
    moved: Mutex<Moved>,
}

/// Folders with an intent on the medium.
#[derive(Debug)]
struct Known {
    key: [u8; 32],
    folders: HashSet<Vec<u8>>,
    /// What is flushed instead of the files.
    barrier: Option<Arc<File>>,
}

#[derive(Debug, Default)]
struct Log {
    file: Option<IntentLog>,
    /// There was no room for the file.
    has_failed: bool,
    present: Group,
    /// Of past epochs, with all their slots.
    retired: Vec<Group>,
}

/// The intents of one epoch.
#[derive(Debug, Default)]
struct Group {
    /// The one that folders are added to: it is written to two slots in turn, so that power that is
    /// cut meanwhile leaves the other.
    filling: Option<(Intent, [usize; 2])>,
    slots: Vec<usize>,
    /// To be flushed before it is erased.
    folders: HashMap<NodeId, Folder>,
}

/// Files that have lost a name in one folder and live on in another.
#[derive(Debug, Default)]
struct Moved {
    files: HashSet<u64>,
    folders: HashMap<NodeId, Folder>,
    /// Of past epochs, as long as it is not durable.
    retired: HashSet<u64>,
    are_too_many: bool,
}

impl Ahead {
    pub(super) fn new(lower: &LowerFs, spool: &Spool, asynchronous: bool) -> Self {
        // In the background the journal is waited for once for many files.
        let is_offered = !asynchronous && lower.is_ordered_in_place() && can_open_handles(spool);
        let key = tacita_secret::random();
        Self {
            is_offered: is_offered && key.is_ok(),
            known: RwLock::new(Known {
                key: key.unwrap_or_default(),
                folders: HashSet::new(),
                barrier: None,
            }),
            log: Mutex::default(),
            moved: Mutex::default(),
        }
    }

    /// A folder has lost a name of a file that lives on.
    pub(super) fn note_moved(&self, folder: &Folder, inode: u64) {
        if !self.is_offered || planted(Fault::MovesUnhooked) {
            return;
        }
        let mut moved = lock(&self.moved);
        if moved.files.len() >= MOVED_COUNT_MAX {
            moved.are_too_many = true;
            return;
        }
        moved.files.insert(inode);
        moved.folders.entry(folder.id).or_insert_with(|| folder.clone());
    }

    fn is_moved(&self, inode: u64) -> bool {
        let moved = lock(&self.moved);
        moved.are_too_many || moved.files.contains(&inode) || moved.retired.contains(&inode)
    }

    /// The tags that a file is to be overwritten with, and the file to be flushed then, when an
    /// intent for its folder is on the medium; `None` if the loss of its name has to be durable first.
    pub(super) fn tags_for(
        &self,
        spool: &Spool,
        job: &Job,
        file: &File,
    ) -> Option<(Tags, Arc<File>)> {
        let (folder, _) = job.lost.as_ref().filter(|_| self.is_offered && job.is_unlinked)?;
        if self.is_moved(job.inode) {
            return None;
        }
        let handle = Handle::of(file).ok()?.encode();
        let folder_handle = Handle::of(folder.fd().ok()?).ok()?.encode();
        let (key, barrier) = match self.known(&folder_handle) {
            Some(known) => known,
            None => self
                .intend(spool, folder, &folder_handle)
                .inspect_err(|e| log::debug!("no intent: {e}"))
                .ok()?,
        };
        Some((Tags::new(&key, &handle), barrier))
    }

    /// The key of a folder with an intent on the medium, and what is flushed there. Both are asked
    /// for at once, for the epoch may come to its end at any moment.
    fn known(&self, folder: &[u8]) -> Option<([u8; 32], Arc<File>)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let barrier = known.barrier.as_ref().filter(|_| known.folders.contains(folder))?;
        Some((known.key, Arc::clone(barrier)))
    }

    /// Puts an intent for a folder on the medium.
    fn intend(
        &self,
        spool: &Spool,
        folder: &Folder,
        handle: &[u8],
    ) -> Result<([u8; 32], Arc<File>)> {
        let mut log = lock(&self.log);
        // Another thread may have come first.
        if let Some(known) = self.known(handle) {
            return Ok(known);
        }
        // No epoch comes to its end as long as the log is locked.
        let key = self.known.read().unwrap_or_else(PoisonError::into_inner).key;
        let barrier = log.file(spool)?.barrier();
        if !planted(Fault::IntentUnwritten) {
            log.write(key, handle)?;
        }
        log.present.folders.insert(folder.id, folder.clone());
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.folders.insert(handle.to_vec());
        known.barrier = Some(Arc::clone(&barrier));
        drop(known);
        step(Step::Intended);
        Ok((key, barrier))
    }

    /// A new epoch begins: what is overwritten from now on has other intents. Returns the folders
    /// that are to be flushed before [`Ahead::forget`].
    fn retire(&self) -> Result<Vec<Folder>> {
        let key = tacita_secret::random().during("asking for random bytes")?;
        let mut log = lock(&self.log);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.key = key;
        known.folders.clear();
        drop(known);
        let mut group = std::mem::take(&mut log.present);
        let mut moved = lock(&self.moved);
        let files = std::mem::take(&mut moved.files);
        moved.retired.extend(files);
        group.folders.extend(std::mem::take(&mut moved.folders));
        drop(moved);
        log.retired.push(group);
        let all = log.retired.iter().flat_map(|group| group.folders.clone());
        Ok(all.collect::<HashMap<_, _>>().into_values().collect())
    }

    /// Whether the intents of a past epoch are still to be erased.
    pub(super) fn is_waiting(&self) -> bool {
        !lock(&self.log).retired.is_empty()
    }

    /// The loss of all names of past epochs is durable: their intents are erased.
    fn forget(&self) -> Result<()> {
        let mut log = lock(&self.log);
        let slots: Vec<usize> = log.retired.iter().flat_map(|group| group.slots.clone()).collect();
        if let Some(file) = &mut log.file
            && !planted(Fault::IntentsStay)
        {
            file.erase(&slots)?;
        }
        log.retired.clear();
        drop(log);
        let mut moved = lock(&self.moved);
        moved.retired.clear();
        moved.are_too_many = moved.files.len() >= MOVED_COUNT_MAX;
        Ok(())
    }
}

impl Log {
    /// The log, which is made when it is needed first.
    fn file(&mut self, spool: &Spool) -> Result<&mut IntentLog> {
        if self.file.is_none() && !self.has_failed {
            let made = spool.make_intents();
            self.has_failed = made.is_err();
            self.file = Some(made?);
        }
        self.file.as_mut().ok_or_else(|| Error::new(Kind::NoSpace, "there is no log of intents"))
    }

    fn write(&mut self, key: [u8; 32], folder: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Err(Error::new(Kind::NoSpace, "there is no log of intents"));
        };
        let full = || Error::new(Kind::NoSpace, "the log of intents is full");
        let more = self.present.filling.as_ref().and_then(|(intent, slots)| {
            intent.with(folder).map(|intent| (intent, [slots[1], slots[0]]))
        });
        let (intent, slots) = if let Some(more) = more {
            more
        } else {
            let intent = Intent::new(key).with(folder).ok_or_else(full)?;
            let slots = [file.take().ok_or_else(full)?, file.take().ok_or_else(full)?];
            self.present.slots.extend(slots);
            (intent, slots)
        };
        file.write(slots[0], &intent)?;
        self.present.filling = Some((intent, slots));
        Ok(())
    }
}

impl Purger {
    /// A folder has lost a name of a file that has others, or has got another one elsewhere.
    pub(crate) fn note_moved(&self, folder: &Folder, inode: u64) {
        self.ahead.note_moved(folder, inode);
    }

    /// Makes the loss of all names durable that files were overwritten ahead of, and erases their
    /// intents. Those of a folder that the medium does not take back stay for another epoch, as all do
    /// where one is known already (`is_durable`).
    pub(super) fn forget_intents(&self, mut is_durable: bool) -> Result<()> {
        if !self.ahead.is_offered {
            return Ok(());
        }
        for folder in self.ahead.retire()? {
            match flush(&folder) {
                Err(e) if e.is_of_medium() => {
                    log::warn!("a folder is not written back: {e}");
                    is_durable = false;
                }
                other => other?,
            }
        }
        fsync(self.spool.dir()).during("writing the spool back")?;
        if is_durable {
            self.ahead.forget()?;
        }
        step(Step::Forgotten);
        Ok(())
    }
}

/// Whether folders can be opened by their handles, which takes a privilege.
pub(super) fn can_open_handles(spool: &Spool) -> bool {
    let opened = Handle::of(spool.dir())
        .and_then(|handle| handle.open(spool.dir(), OFlags::PATH | OFlags::DIRECTORY));
    opened.is_ok()
}
