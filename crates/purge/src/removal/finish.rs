//! The end of a removal: folders that have been emptied, journals, and verdicts.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::{Emptied, Looked, Removal, Told, device, list};
use crate::error::During;
use crate::ext4::folder::{Left, Wanted};
use crate::lower_fs::{LowerFs, Names};
use crate::verdict::{Content, Part, Verdict};
use crate::{Error, Kind, Result, fillers, names, witness, xattrs};

impl Removal {
    /// Removes emptied folders, writes back what lost names, erases journals, and gives the
    /// verdicts in the order of purging.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn finish(&mut self) -> Result<Vec<Verdict>> {
        while let Some((_, folders)) = self.folders.pop_last() {
            // Their cleared entries have to be in place before they are freed.
            self.flush_places(false)?;
            for emptied in folders {
                self.remove_folder(&emptied)?;
            }
        }
        self.flush_places(false)?;
        let looked = self.look_at_places()?;
        self.flush_places(true)?;
        for place in self.places.values_mut() {
            place.touched.clear();
        }
        let verdicts = std::mem::take(&mut self.verdicts);
        let judged = verdicts.into_iter().map(|mut told| {
            if told.verdict.removed
                && let Some(place) = self.places.get(&told.device)
            {
                told.verdict.journal = place.journal.clone();
                let left = looked.get(&(told.device, told.folder)).and_then(Option::as_ref);
                told.verdict.name = Part::of_name(&place.lower, &told.name, left);
            }
            witness::told(&told.verdict);
            told.verdict
        });
        Ok(judged.collect())
    }

    /// Looks at all folders that lost names, and clears them; whether nothing is left in each.
    fn look_at_places(&self) -> Result<Looked> {
        let mut looked = HashMap::new();
        for (device, place) in &self.places {
            for (ino, (folder, wanted)) in &place.touched {
                looked.insert((*device, *ino), clear_of_names(&place.lower, folder, wanted)?);
            }
        }
        Ok(looked)
    }

    fn remove_folder(&mut self, emptied: &Emptied) -> Result<()> {
        let Some(place) = self.places.get(&device(&emptied.stat)) else {
            return Ok(());
        };
        let lower = Rc::clone(&place.lower);
        // Something in it was kept: so are its attributes.
        if list(&emptied.folder).is_ok_and(|names| !names.is_empty()) {
            let error = Error::new(Kind::Unpurgeable, "not empty");
            self.keep(&emptied.path, Some(&emptied.stat), &error);
            return Ok(());
        }
        let (mut left, mut attributes) = (None, Part::None);
        if lower.names == Names::Covered {
            names::fill(&emptied.folder);
        }
        if let Ok(file) = names::reopen_folder(&emptied.folder) {
            let file = File::from(file);
            let any = Wanted { any: true, ..Wanted::default() };
            if clear_of_names(&lower, &file, &any)?.is_some_and(|left| !left.is_nothing()) {
                left = Some("parts of the names in it are left, where nothing clears them");
            }
            attributes = Part::of_values(&lower, xattrs::erase_all(&lower, &file)?);
        }
        if let Err(error) = names::remove(&lower, &*emptied.parent, &emptied.name, true) {
            let error = match error.errno() {
                Some(Errno::NOTEMPTY) => Error::new(Kind::Unpurgeable, "not empty"),
                _ => error,
            };
            self.keep(&emptied.path, Some(&emptied.stat), &error);
            return Ok(());
        }
        let folder = self.touch(&emptied.parent, &emptied.name, &emptied.stat)?;
        let shown = Some(emptied.path.clone());
        let method = self.options.method.to_string();
        let mut verdict = Verdict::new(shown, emptied.stat.stx_ino, 0, method);
        verdict.content = match left {
            None => Content::NothingStored,
            Some(why) => Content::NotInPlace(why.to_owned()),
        };
        verdict.attributes = attributes;
        verdict.removed = true;
        verdict.name = Part::Done;
        self.verdicts.push(Told {
            device: device(&emptied.stat),
            folder,
            name: emptied.name.clone(),
            verdict,
        });
        Ok(())
    }

    fn flush_places(&mut self, erase: bool) -> Result<()> {
        for place in self.places.values_mut() {
            for (dir, _) in place.touched.values() {
                match names::flush_folder(dir) {
                    // It is gone, after it was flushed.
                    Err(e) if e.errno() == Some(Errno::NOENT) => {}
                    other => other?,
                }
            }
            if erase {
                let erased = place.lower.erase_journal(&place.any)?;
                place.journal = Part::of_journal(&place.lower, erased);
            } else {
                place.lower.flush_journal(&place.any)?;
            }
        }
        Ok(())
    }
}

/// Clears a folder of names; what is left of them, `None` where nobody can tell.
fn clear_of_names(lower: &LowerFs, folder: &File, wanted: &Wanted) -> Result<Option<Left>> {
    let linked = folder.metadata().is_ok_and(|meta| meta.nlink() > 0);
    if !linked {
        // It has been removed as well, and was dealt with as a whole.
        return Ok(Some(Left::default()));
    }
    let Some(volume) = lower.volume()? else {
        return Ok(None);
    };
    // A file without a name of its own.
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut source = || {
        let file = openat(folder, ".", flags, Mode::RUSR | Mode::WUSR).map(File::from);
        file.during("making a file to fill a folder with")
    };
    let settle = || lower.flush_journal(folder);
    fillers::clear(&volume, folder, wanted, &mut source, &settle)
}
