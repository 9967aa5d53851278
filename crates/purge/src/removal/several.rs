//! Files with several names: they are purged when all of their names are to go.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};

use super::{Removal, Told, device, give_back, has_other_names, is_named};
use crate::error::During;
use crate::{Result, names};

/// A name that is to go, of a file that has others.
#[derive(Debug)]
pub(super) struct Named {
    dir: Rc<OwnedFd>,
    /// Inode number of its folder.
    folder: u64,
    name: OsString,
    path: PathBuf,
    stat: Statx,
}

impl Removal {
    /// A name of a file that has others is to go, too. With the last of them the file is purged.
    ///
    /// # Errors
    /// That its folder cannot be held.
    pub(super) fn gather(
        &mut self,
        dir: &Rc<OwnedFd>,
        name: &OsStr,
        path: &Path,
        stat: &Statx,
    ) -> Result<()> {
        let folder = self.hold(dir, stat)?;
        let key = (device(stat), stat.stx_ino);
        let all = self.several.entry(key).or_default();
        // It may have been given twice.
        if all.iter().any(|other| (other.folder, &*other.name) == (folder, name)) {
            return Ok(());
        }
        let (dir, name, path) = (Rc::clone(dir), name.to_owned(), path.to_owned());
        all.push(Named { dir, folder, name, path, stat: *stat });
        if all.len() as u64 >= u64::from(stat.stx_nlink) {
            let all = self.several.remove(&key).unwrap_or_default();
            self.purge_named(&all);
        }
        Ok(())
    }

    /// Deals with files of which not all names are to go: they stay.
    pub(super) fn keep_several(&mut self) {
        for (_, all) in std::mem::take(&mut self.several) {
            self.purge_named(&all);
        }
    }

    /// Purges a file by all of its names. Where that fails each of them is kept, and its verdict says why.
    fn purge_named(&mut self, all: &[Named]) {
        let Some(first) = all.first() else { return };
        let mut told = Told::new(self.verdict(&first.path, Some(&first.stat)));
        let done = self.try_named(first, all, &mut told);
        let verdict = told.verdict.clone();
        for (at, named) in all.iter().enumerate() {
            let mut verdict = verdict.clone();
            verdict.path = Some(named.path.clone());
            match &done {
                Ok(()) => {
                    let shared = if at == 0 { told.shared.take() } else { None };
                    let told = Told { shared, ..Told::new(verdict) };
                    self.removed((named.folder, &named.name), &named.stat, told);
                }
                Err(error) => self.keep_with(verdict, error),
            }
        }
    }

    fn try_named(&mut self, first: &Named, all: &[Named], told: &mut Told) -> Result<()> {
        self.check_wanted()?;
        let lower = self.place(&first.dir, &first.stat)?;
        let (entry, stat) = super::look_up(&first.dir, &first.name, 1)?;
        if stat.stx_nlink as usize != all.len() {
            return Err(has_other_names(stat.stx_nlink));
        }
        let mut aside = Vec::new();
        let purged = all
            .iter()
            .try_for_each(|named| {
                let other = names::replace(&named.dir, &named.name)?.map(OsString::from);
                aside.push(other.unwrap_or_else(|| named.name.clone()));
                Ok(())
            })
            .and_then(|()| {
                let mut pairs = all.iter().zip(&aside);
                pairs.try_for_each(|(named, name)| is_named(&named.dir, name, &entry))
            })
            .and_then(|()| {
                let stat = statx(&entry, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
                let stat = stat.during("asking for what it is by now")?;
                told.verdict.content = self.overwrite(&lower, &entry, (&stat, all.len()), told)?;
                let mut pairs = all.iter().zip(&aside);
                pairs.try_for_each(|(named, name)| names::remove(&lower, &named.dir, name, false))
            });
        told.verdict.add_risks(&lower);
        let pairs = all.iter().zip(&aside);
        purged.map_err(|error| {
            pairs.filter(|(named, aside)| named.name != **aside).fold(error, |error, pair| {
                let (named, aside) = pair;
                give_back(&named.dir, (aside, &named.name), error)
            })
        })
    }
}
