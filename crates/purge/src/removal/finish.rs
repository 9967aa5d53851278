//! The end of a removal: folders that have been emptied, journals, and verdicts.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use tacita_clock::{Clock, System};

use super::{Emptied, Looked, Place, Removal, Told, device, list};
use crate::error::During;
use crate::ext4::folder::{Left, Wanted};
use crate::faults::{Fault, planted};
use crate::lower_fs::{Journal, LowerFs, Names};
use crate::verdict::{Content, Part, Verdict};
use crate::xattrs::Owner;
use crate::{Error, Kind, Result, fillers, names, witness, xattrs};

/// How long folders are looked at when the run is to end: whoever ends it waits for that.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is said of names and journals that nobody has waited for.
const UNSEEN: &str = "cleared, but the run was interrupted before its folder was checked";
const UNERASED: &str = "the run was interrupted before it was erased: old names and attributes may stay \
                        in it until the next run on this file system erases it";
const IN_JOURNAL: &str = "overwritten, but old values may stay in the journal";

impl Removal {
    /// Removes emptied folders, writes back what lost names, erases journals, and gives the
    /// verdicts in the order of purging.
    ///
    /// When the run is to end, folders and journals stay, and names are looked at as long as that
    /// takes no longer than a second. Where something cannot be written back, the verdicts of that
    /// file system say so.
    pub fn finish(&mut self) -> Vec<Verdict> {
        self.settle();
        self.erase_journals();
        self.let_go();
        let verdicts = std::mem::take(&mut self.verdicts);
        let judged = verdicts.into_iter().map(|told| {
            let verdict = self.complete(told);
            witness::told(&verdict);
            verdict
        });
        judged.collect()
    }

    /// Removes emptied folders, writes back what lost names, and looks at it: what is left to do then
    /// is the journal.
    pub(super) fn settle(&mut self) {
        self.keep_several();
        while let Some((_, folders)) = self.folders.pop_last() {
            // Their cleared entries have to be in place before they are freed.
            if self.check_wanted().is_ok() {
                self.flush_emptied(&folders);
            }
            for emptied in folders {
                let removed = self.check_wanted().and_then(|()| self.remove_folder(&emptied));
                if let Err(error) = removed {
                    self.keep(&emptied.path, Some(&emptied.stat), &error);
                }
            }
        }
        for place in self.places.values_mut() {
            let flushed = flush_folders(place).and_then(|()| place.put_in_place());
            note(&mut self.failure, place, flushed);
        }
        let looked = self.look_at_places();
        for Told { verdict, device, folder, name, .. } in &mut self.verdicts {
            let place = self.places.get(device).filter(|_| verdict.name == Part::Pending);
            let Some(place) = place else { continue };
            verdict.name = match (&place.unwritten, looked.get(&(*device, *folder))) {
                (Some(why), _) => Part::Left(format!("it may be left in its folder: {why}")),
                (None, Some(left)) => Part::of_name(&place.lower, name, left.as_ref()),
                (None, None) => Part::Left(UNSEEN.to_owned()),
            };
        }
    }

    /// Writes emptied folders back, and puts what has become of them in place.
    fn flush_emptied(&mut self, folders: &[Emptied]) {
        for (device, place) in &mut self.places {
            let is_here = |emptied: &&Emptied| super::device(&emptied.stat) == *device;
            let mut here = folders.iter().filter(is_here).peekable();
            if here.peek().is_some() {
                let flushed = here.try_for_each(|emptied| flush(&emptied.folder));
                note(&mut self.failure, place, flushed.and_then(|()| place.put_in_place()));
            }
        }
    }

    /// Lets go of folders that have been looked at.
    pub(super) fn let_go(&mut self) {
        for place in self.places.values_mut() {
            place.touched.clear();
            place.gone.clear();
        }
    }

    /// A verdict with what is known when everything has been done.
    fn complete(&self, told: Told) -> Verdict {
        let mut verdict = told.verdict;
        let Some(place) = self.places.get(&told.device).filter(|_| verdict.removed) else {
            return verdict;
        };
        verdict.journal = place.journal.clone();
        if let Some(shared) = told.shared.filter(|_| !planted(Fault::SharedUnseen)) {
            verdict.attributes = match shared.look(&place.lower) {
                Ok(overwritten) => Part::of_values(&place.lower, &overwritten),
                Err(e) => Part::Left(format!("other files had the same values: {e}")),
            };
        }
        if verdict.attributes == Part::Done && matches!(verdict.journal, Part::Left(_)) {
            verdict.attributes = Part::Left(IN_JOURNAL.to_owned());
        }
        verdict
    }

    /// Looks at all folders that lost names, and clears them; whether nothing is left in each.
    fn look_at_places(&mut self) -> Looked {
        let mut looked = HashMap::new();
        let begin = System.monotonic();
        for (device, place) in &self.places {
            for (ino, (folder, wanted)) in &place.touched {
                // The kernel and the disk live in the time of the machine.
                if self.check_wanted().is_err() && System.elapsed(begin) >= PATIENCE {
                    self.is_cut_short = true;
                    return looked;
                }
                let left = if folder.metadata().is_ok_and(|meta| meta.nlink() > 0) {
                    clear_of_names(&place.lower, folder, wanted).unwrap_or_else(|e| {
                        log::debug!("a folder is not cleared of names: {e}");
                        Some(Left::unseen())
                    })
                } else {
                    // It was looked at as a whole before it went, or not at all.
                    place.gone.get(ino).cloned().flatten()
                };
                looked.insert((*device, *ino), left);
            }
        }
        looked
    }

    /// Removes a folder that has been emptied.
    ///
    /// # Errors
    /// Why it is kept.
    fn remove_folder(&mut self, emptied: &Emptied) -> Result<()> {
        let Emptied { parent, folder, name, path, stat } = emptied;
        let not_empty = || Error::new(Kind::Unpurgeable, "not empty");
        let Some(place) = self.places.get(&device(stat)) else {
            return Ok(());
        };
        if let Some(why) = &place.unwritten {
            return Err(Error::new(Kind::Io, why.clone()));
        }
        let lower = Rc::clone(&place.lower);
        // Something in it was kept: so are its attributes.
        if list(folder).is_ok_and(|names| !names.is_empty()) {
            return Err(not_empty());
        }
        let above = self.hold(parent, stat)?;
        let mut left = None;
        let mut told = Told::new(self.verdict(path, Some(stat)));
        if lower.names == Names::Covered {
            names::fill(folder);
        }
        if let Ok(file) = names::reopen_folder(folder) {
            let file = File::from(file);
            let any = Wanted { any: true, ..Wanted::default() };
            left = clear_of_names(&lower, &file, &any)?;
            told.take_values(&lower, xattrs::erase_all(&lower, Owner::open(&file))?);
        }
        names::remove(&lower, &**parent, name, true).map_err(|error| match error.errno() {
            Some(Errno::NOTEMPTY) => not_empty(),
            _ => error,
        })?;
        told.verdict.size = Some(0);
        told.verdict.content = Content::of_folder(&lower, left.as_ref());
        told.verdict.add_risks(&lower);
        if let Some(place) = self.places.get_mut(&device(stat)) {
            place.gone.insert(stat.stx_ino, left);
        }
        self.removed((above, name), stat, told);
        Ok(())
    }

    fn erase_journals(&mut self) {
        for place in self.places.values_mut() {
            let flushed = flush_folders(place);
            note(&mut self.failure, place, flushed);
            let is_erasable = place.lower.journal == Journal::Erasable;
            if is_erasable && self.options.stop.is_cancelled() && !planted(Fault::StopUnheeded) {
                // It may be long, and the kernel erases all of it in one call.
                place.journal = Part::Left(UNERASED.to_owned());
                self.is_cut_short = true;
                continue;
            }
            place.journal = match place.lower.erase_journal(&place.any) {
                Ok(erased) => Part::of_journal(&place.lower, erased),
                // What else has come of it is to be told all the same.
                Err(e) => {
                    self.failure.get_or_insert((e.kind(), e.errno()));
                    Part::Left(format!("it could not be erased: {e}"))
                }
            };
        }
    }
}

impl Place {
    /// Puts what was written back in place.
    fn put_in_place(&self) -> Result<()> {
        self.lower.flush_journal(&self.any)
    }
}

/// What has come of writing something back: verdicts of that file system say so where it has failed.
fn note(failure: &mut Option<(Kind, Option<Errno>)>, place: &mut Place, written: Result<()>) {
    if let Err(e) = written {
        failure.get_or_insert((e.kind(), e.errno()));
        place.unwritten.get_or_insert(e.to_string());
    }
}

fn flush_folders(place: &Place) -> Result<()> {
    place.touched.values().try_for_each(|(dir, _)| flush(dir))
}

/// Writes a folder back; one that is gone was written before.
fn flush(folder: impl AsFd) -> Result<()> {
    match names::flush_folder(folder) {
        Err(e) if e.errno() == Some(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Clears a folder of names; what is left of them, `None` where nobody can tell.
fn clear_of_names(lower: &LowerFs, folder: &File, wanted: &Wanted) -> Result<Option<Left>> {
    // A file without a name of its own.
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut source = || {
        let file = openat(folder, ".", flags, Mode::RUSR | Mode::WUSR).map(File::from);
        file.during("making a file to fill a folder with")
    };
    let settle = || lower.flush_journal(folder);
    fillers::clear(lower, folder, wanted, &mut source, &settle)
}
