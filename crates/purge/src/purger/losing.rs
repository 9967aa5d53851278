//! Folders that are about to lose a name: they are recorded in the spool first, so that the next
//! mount knows after a crash where to look for what names leave behind.

use crate::descriptors::Folder;
use crate::handle::Handle;
use crate::lower_fs::LowerFs;
use crate::spool::{Opened, Spool};

use super::Purger;
use super::ahead::can_open_handles;

/// A folder that is about to lose a name. Dropped, it has not lost it after all.
#[derive(Debug)]
#[must_use]
pub(crate) struct Losing<'a> {
    spool: &'a Spool,
    handle: Option<Vec<u8>>,
}

impl Losing<'_> {
    /// It has lost the name: its handle, if it is recorded.
    pub(super) fn settle(mut self) -> Option<Vec<u8>> {
        self.handle.take()
    }
}

impl Drop for Losing<'_> {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            self.spool.settle_losses(handle, 1);
        }
    }
}

impl Purger {
    /// Records a folder that is about to lose a name.
    ///
    /// # Errors
    /// That there is no room to record it, and the like.
    pub(crate) fn about_to_lose(&self, folder: &Folder) -> rustix::io::Result<Losing<'_>> {
        let mut losing = Losing { spool: &self.spool, handle: None };
        if self.spool.is_recording() {
            let handle = Handle::of(folder.fd()?)?.encode();
            self.spool.lose(&handle)?;
            losing.handle = Some(handle);
        }
        Ok(losing)
    }

    /// The same of one that cannot be recorded.
    pub(crate) fn lose_unrecorded(&self) -> Losing<'_> {
        self.spool.stop_recording();
        Losing { spool: &self.spool, handle: None }
    }
}

/// Begins to record where folders are looked at on the device at all. Not beside entries of which
/// nobody knows the folders: the next mount would take all for known.
pub(crate) fn begin(lower: &LowerFs, opened: &Opened) {
    let is_looked_at = lower.is_ext() && lower.puts_in_place() && lower.raw().is_some();
    let (known, are_all) = &opened.lost_folders;
    if is_looked_at && (*are_all || opened.left_over.is_empty()) && can_open_handles(&opened.spool)
    {
        opened.spool.record_folders(known, lower.is_ordered);
    }
}
