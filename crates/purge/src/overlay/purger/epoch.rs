//! The end of an epoch: names, attributes and the journal, all together.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tacita_vfs::NodeId;

use super::{Purger, lock};
use crate::medium::Names;
use crate::mutant::{Step, step};
use crate::overlay::table::Node;
use crate::spool::Seq;
use crate::{Kind, Result, attributes, names};

/// What the end of the epoch has to deal with.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) any: bool,
    folders: HashMap<NodeId, Arc<Node>>,
    /// Folders, and files whose attributes were overwritten: their blocks are freed when what
    /// stands in the journal has been put in place, for a freed block is not.
    pub(super) removed: Vec<(Seq, bool)>,
    pub(super) since: Option<Instant>,
}

impl Touched {
    /// Whether there is nothing to deal with.
    pub(super) fn is_empty(&self) -> bool {
        !self.any && self.folders.is_empty() && self.removed.is_empty()
    }
}

impl Purger {
    /// A folder has lost a name, or something else is to be cleared out of the journal.
    pub(in crate::overlay) fn touch(&self, folder: Option<&Arc<Node>>) {
        let mut touched = lock(&self.touched);
        touched.any = true;
        touched.since.get_or_insert_with(Instant::now);
        if let Some(folder) = folder {
            touched.folders.entry(folder.id).or_insert_with(|| Arc::clone(folder));
        }
    }

    /// Lets go of a folder that would be dealt with at the end of the epoch: a planted fault's way.
    pub(in crate::overlay) fn untouch(&self, folder: NodeId) {
        lock(&self.touched).folders.remove(&folder);
    }

    /// A removed folder waits in the spool for the end of the epoch.
    pub(in crate::overlay) fn add_folder(&self, seq: Seq) {
        lock(&self.touched).removed.push((seq, true));
    }

    /// Ends the epoch: names, attributes and the journal.
    ///
    /// # Errors
    /// [`Kind::Io`]; all of it is still to be done then.
    pub(in crate::overlay) fn end_epoch(&self) -> Result<()> {
        let mut touched = std::mem::take(&mut *lock(&self.touched));
        if touched.is_empty() {
            return Ok(());
        }
        let done = self.clear_names(&touched);
        if done.is_err() {
            let mut now = lock(&self.touched);
            now.any = true;
            now.since = touched.since.or(now.since);
            now.removed.append(&mut touched.removed);
            now.folders.extend(touched.folders);
        } else {
            self.statistics.epochs.add(1);
        }
        done
    }

    fn clear_names(&self, touched: &Touched) -> Result<()> {
        for folder in touched.folders.values() {
            flush(folder)?;
        }
        let has_files = touched.removed.iter().any(|(_, folder)| !folder);
        if has_files {
            self.medium.flush_journal(&self.root)?;
        }
        for (seq, folder) in &touched.removed {
            if *folder {
                self.clear_folder(*seq)?;
            } else if let Ok(file) = self.spool.open_entry(*seq, OFlags::RDWR) {
                attributes::clear_names(&File::from(file))?;
            }
        }
        names::flush_folder(self.spool.dir())?;
        step(Step::Flushed);
        self.medium.erase_journal(&self.root)?;
        for (seq, folder) in &touched.removed {
            self.spool.remove(*seq, *folder)?;
            self.statistics.folders.add(u64::from(*folder));
        }
        step(Step::Erased);
        Ok(())
    }

    /// Clears what a removed folder has held.
    fn clear_folder(&self, seq: Seq) -> Result<()> {
        let folder = match self.spool.open_entry(seq, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(e) if e.kind() == Kind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        if self.medium.names == Names::Covered {
            names::fill(&folder);
        }
        let folder = File::from(folder);
        attributes::erase_all(&self.medium, &folder)?;
        names::flush_folder(&folder)
    }
}

/// Writes a folder back; one that is gone has nothing to write.
pub(super) fn flush(folder: &Node) -> Result<()> {
    match names::flush_folder(folder.fd()) {
        Err(e) if e.errno() == Some(Errno::NOENT) => Ok(()),
        other => other,
    }
}
