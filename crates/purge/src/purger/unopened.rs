//! Links, pipes, sockets and devices with attributes: no call needs them to be opened for that.

use std::ffi::OsString;

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fsync, statx};

use super::epoch::flush;
use super::{Purger, lock};
use crate::descriptors::Folder;
use crate::error::During;
use crate::faults::{Fault, planted};
use crate::method::Method;
use crate::spool::Seq;
use crate::verdict::{Content, Part, Verdict};
use crate::xattrs::{Overwritten, Owner};
use crate::{Error, Kind, Result, xattrs};

/// An entry whose attributes could not be purged yet.
#[derive(Debug)]
pub(super) struct Unopened {
    seq: Seq,
    lost: Option<(Folder, OsString)>,
    method: Method,
}

impl Purger {
    /// Erases the attributes of an entry that is never opened, and removes it. What fails is told, and
    /// tried again at the end of the epoch.
    pub(crate) fn purge_unopened(
        &self,
        seq: Seq,
        lost: Option<&(Folder, OsString)>,
        method: &Method,
    ) {
        if let Err(e) = self.try_unopened(seq, lost, method) {
            log::warn!("the attributes of a link, pipe, socket or device are not purged yet: {e}");
            let unopened = Unopened { seq, lost: lost.cloned(), method: method.clone() };
            let mut touched = lock(&self.touched);
            touched.begin(self.clock.monotonic());
            touched.unopened.push(unopened);
        }
    }

    /// Tries again what has failed; the first failure.
    pub(super) fn purge_unopened_again(&self) -> Option<Error> {
        let again = std::mem::take(&mut lock(&self.touched).unopened);
        let mut failure = None;
        for unopened in again {
            let Unopened { seq, lost, method } = &unopened;
            if let Err(e) = self.try_unopened(*seq, lost.as_ref(), method) {
                failure.get_or_insert(e);
                lock(&self.touched).unopened.push(unopened);
            }
        }
        failure
    }

    fn try_unopened(
        &self,
        seq: Seq,
        lost: Option<&(Folder, OsString)>,
        method: &Method,
    ) -> Result<()> {
        let entry = match self.spool.open_entry(seq, OFlags::PATH) {
            Ok(entry) => entry,
            Err(e) if e.kind() == Kind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let stat = statx(&entry, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .during("asking for an entry of the spool")?;
        let has_data = xattrs::has_data(&entry).during("listing attributes")?;
        // With a second name it is alive: a rename that was to replace it has not happened.
        if !has_data || stat.stx_nlink > 1 {
            return self.spool.remove(seq, false);
        }
        fsync(self.spool.dir()).during("writing the spool back")?;
        if let Some((folder, _)) = lost {
            flush(folder)?;
        }
        let overwritten = if planted(Fault::AttributesUnhooked) {
            Overwritten::Nothing
        } else {
            xattrs::erase_all(&self.lower, Owner::unopened(&entry, &self.spool.dir()))?
        };
        self.spool.remove(seq, false)?;
        self.statistics.attributes.add(1);
        let mut verdict = Verdict::new(None, stat.stx_ino, stat.stx_size, method.to_string());
        verdict.content = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::Symlink => Content::of_target(&self.lower, &stat),
            _ => Content::NothingStored,
        };
        verdict.attributes = self.values_pending(&overwritten);
        verdict.name = Part::Pending;
        verdict.journal = self.journal_pending();
        verdict.removed = true;
        verdict.add_risks(&self.lower);
        self.judge_later(lost, verdict, (overwritten.into_shared(), None));
        Ok(())
    }
}
