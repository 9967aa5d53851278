//! What has no name any more: inodes that lost their last one, and contents that were cut off as a whole.
//! They are kept in a directory of their own until they are freed.
//!
//! What is freed is what there may be, rounded up: how many blocks really were there shows nowhere.

use std::sync::PoisonError;

use tacita_vfs::FileType;

use crate::error::Result;
use crate::faults::{Fault, planted};
use crate::ids::{Id, MountId};
use crate::inode::Inode;
use crate::links;
use crate::privatefs::{Core, Need, Pad};
use crate::tree;
use crate::turn::Status;

/// Where something is kept that is to be freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grave {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// The inode.
    pub(crate) inode: Id,
}

/// Blocks whose ids are in memory at once while they are freed.
const AT_ONCE: usize = 4096;

impl Core {
    /// Makes everything durable, and frees all that can be.
    pub(crate) fn settle(&self) -> Result<()> {
        self.flush()?;
        self.reap()?;
        self.finish()
    }

    /// Frees what there is to free, if it is this mount's turn.
    pub(crate) fn reap_if_any(&self) -> Result<()> {
        let has_any = {
            let state = self.lock();
            let any =
                !state.graves.is_empty() || state.look_for_graves || !state.journals.is_empty();
            any && state.failed.is_none() && state.status == Status::Held
        };
        if has_any { self.reap().map(drop) } else { Ok(()) }
    }

    /// Something has no name any more, and nobody has it open.
    pub(crate) fn add_grave(&self, mount: &MountId, inode: Id) {
        let grave = Grave { name: tree::grave(mount, &inode), inode };
        self.lock().graves.push(grave);
    }

    fn reap(&self) -> Result<bool> {
        let _one = self.reaping.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lock().status != Status::Held {
            return Ok(false);
        }
        self.free_journals()?;
        if self.options.read_only {
            return Ok(false);
        }
        let (mut graves, look) = {
            let mut state = self.lock();
            let look = std::mem::take(&mut state.look_for_graves);
            (std::mem::take(&mut state.graves), look)
        };
        let done = self.reap_all(&mut graves, look);
        if done.is_err() {
            // Another time.
            let mut state = self.lock();
            state.graves.extend(graves);
            state.look_for_graves |= look;
        }
        done
    }

    /// Frees the journals of mounts that are gone, which nobody else frees: also where nothing else is changed, and
    /// another time if the store is away.
    fn free_journals(&self) -> Result<()> {
        loop {
            let Some(left) = self.lock().journals.last().copied() else { return Ok(()) };
            self.free_journal(left)?;
            // Until now whoever would come if this mount were killed could find it.
            if self.register()?.slot(&left.0).is_some() {
                self.update_as_owner(|register| register.remove(&left.0))?;
            }
            self.lock().journals.retain(|other| *other != left);
        }
    }

    fn reap_all(&self, graves: &mut Vec<Grave>, look: bool) -> Result<bool> {
        if look {
            self.graves_of_others(graves)?;
        }
        if graves.is_empty() {
            return Ok(false);
        }
        let mut inodes = Vec::new();
        for grave in &*graves {
            let found = self.operate(Need::Nothing, Pad::No, |view| view.inode(&grave.inode));
            match found {
                Ok(inode) => inodes.push(Some(inode)),
                Err(error) if error.kind() == tacita_vfs::Kind::Stale => inodes.push(None),
                Err(error) => return Err(as_own(&error)),
            }
        }
        {
            let mut state = self.lock();
            for inode in inodes.iter().flatten() {
                let covered = inode.ranges.within(0, u64::MAX);
                state.cache.discard(covered.map(|index| self.ids.content(&inode.content, index)));
            }
        }
        // What is freed must be nobody's after a crash.
        self.flush()?;
        while let Some(grave) = graves.last().cloned() {
            if let Some(inode) = inodes.pop().flatten() {
                self.free(&inode)?;
            }
            let forgotten = self
                .operate(Need::Less, Pad::No, |view| tree::forget(view, &grave.name, &grave.inode));
            match forgotten {
                Err(error) if error.kind() != tacita_vfs::Kind::NotFound => {
                    return Err(as_own(&error));
                }
                _ => {}
            }
            graves.pop();
        }
        Ok(true)
    }

    /// Frees a content: each range of blocks that may be there, its length rounded up to a power of two.
    fn free(&self, inode: &Inode) -> Result<()> {
        if inode.kind == FileType::Directory {
            return Ok(());
        }
        let mut asked = 0;
        for range in inode.ranges.all() {
            let len = (range.end - range.start).next_power_of_two();
            let mut at = range.start;
            while at < range.start + len {
                let end = (range.start + len).min(at + AT_ONCE as u64);
                let ids = (at..end).map(|index| self.ids.content(&inode.content, index));
                let mut ids: Vec<Id> = ids.collect();
                if planted(Fault::FreesTheLiving) {
                    let found = self.read(&ids)?;
                    let mut found = found.iter();
                    ids.retain(|_| found.next().is_some_and(Option::is_some));
                }
                asked += self.free_all(&ids)?;
                at = end;
            }
        }
        self.pad(Pad::No, asked)
    }

    /// What mounts have left that are gone.
    fn graves_of_others(&self, graves: &mut Vec<Grave>) -> Result<()> {
        let register = self.register()?;
        let mut next = Some(0);
        while let Some(from) = next {
            let listed = self.operate(Need::Nothing, Pad::No, |view| {
                let graveyard = links::directory(view, &view.ids.graveyard())?;
                links::list(view, &graveyard, from)
            });
            let (listed, after) = listed.map_err(|e| as_own(&e))?;
            for (_, entry) in listed {
                let is_alive = register
                    .slots
                    .iter()
                    .any(|slot| entry.name.starts_with(&tree::grave(&slot.mount, &[0; 32])[..32]));
                let grave = Grave { name: entry.name, inode: entry.inode };
                if !is_alive && !graves.contains(&grave) {
                    graves.push(grave);
                }
            }
            next = after;
        }
        Ok(())
    }
}

/// The error beneath one that programs are told.
pub(crate) fn as_own(error: &tacita_vfs::Error) -> crate::Error {
    let own = std::error::Error::source(error).and_then(|own| own.downcast_ref::<crate::Error>());
    own.cloned().unwrap_or_else(|| crate::Error::new(crate::Kind::Store, error.to_string()))
}
