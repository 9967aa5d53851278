//! Folders that have lost names in the present epoch, so that the next mount knows after a crash
//! which to look at: docs/spec/purge.md, section 1.2.
//!
//! An entry of the spool tells of each; it is made before the first name goes. So nothing has to be
//! flushed for it where a journal keeps changes of names in their order, and where there is none the
//! spool is flushed once for a folder and an epoch. All of them are names of one file, which is
//! there as long as every loss is recorded.

use std::collections::HashMap;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::sync::{MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fsync, linkat, openat2, unlinkat};
use rustix::io::Errno;

use super::{BENEATH, Spool};
use crate::Result;
use crate::error::{During, is_of_medium};
use crate::faults::{Fault, Step, planted, step};

/// Name of the file that all of them are names of.
pub(super) const FOLDERS_NAME: &str = "folders";

/// What the name of each begins with; its handle follows.
const PREFIX: &str = "folder-";

/// The longest handle that fits into a name, and the shortest that there can be.
const HANDLE_LEN_MAX: usize = 120;
const HANDLE_LEN_MIN: usize = 5;

/// The name of the entry that tells of a folder, by the bytes of its handle; `None` if they do not
/// fit.
pub fn name_of(handle: &[u8]) -> Option<String> {
    if !(HANDLE_LEN_MIN..=HANDLE_LEN_MAX).contains(&handle.len()) {
        return None;
    }
    let mut name = PREFIX.to_owned();
    for byte in handle {
        write!(name, "{byte:02x}").ok()?;
    }
    Some(name)
}

/// The handle in the name of an entry; `None` if it is no such name.
pub fn handle_in(name: &[u8]) -> Option<Vec<u8>> {
    let digits = name.strip_prefix(PREFIX.as_bytes())?;
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?));
    let handle: Vec<u8> = bytes.collect::<Option<_>>()?;
    (HANDLE_LEN_MIN..=HANDLE_LEN_MAX).contains(&handle.len()).then_some(handle)
}

/// Which folders are recorded.
#[derive(Debug, Default)]
pub(super) struct LostFolders {
    is_recording: bool,
    /// Whether the spool has to be flushed for each.
    is_flushed: bool,
    /// Names that each has lost, or is about to lose, and that are not dealt with yet.
    losses: HashMap<Vec<u8>, u64>,
}

impl Spool {
    fn lost_folders(&self) -> MutexGuard<'_, LostFolders> {
        // Every change under this lock is whole before anything can fail.
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folders that an earlier mount has recorded, and whether they are all.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(super) fn read_folders(&self) -> Result<(Vec<Vec<u8>>, bool)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let are_all = match openat2(&self.dir, FOLDERS_NAME, flags, Mode::empty(), BENEATH) {
            Ok(_) => true,
            Err(Errno::NOENT) => false,
            Err(e) if is_of_medium(e) => {
                log::warn!("spool: nobody knows whether all folders are recorded: {e}");
                false
            }
            Err(e) => return Err(crate::Error::of_kernel(e, "opening the record of folders")),
        };
        let dir = crate::names::reopen_folder(&self.dir).during("opening the spool")?;
        let mut handles = Vec::new();
        for entry in Dir::new(dir).during("listing the spool")? {
            let entry = entry.during("listing the spool")?;
            handles.extend(handle_in(entry.file_name().to_bytes()));
        }
        Ok((handles, are_all))
    }

    /// From now on the loss of names is recorded; `handles` are of folders that an earlier mount has
    /// left. Where that cannot be, it is not.
    pub(crate) fn record_folders(&self, handles: &[Vec<u8>], is_ordered: bool) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat2(&self.dir, FOLDERS_NAME, flags, Mode::RUSR | Mode::WUSR, BENEATH)
            .and_then(|_: OwnedFd| if is_ordered { Ok(()) } else { fsync(&self.dir) });
        if let Err(e) = made {
            log::debug!("spool: folders are not recorded: {e}");
            return;
        }
        let mut lost = self.lost_folders();
        lost.is_recording = true;
        lost.is_flushed = !is_ordered;
        lost.losses.extend(handles.iter().map(|handle| (handle.clone(), 1)));
    }

    /// Whether the loss of names is recorded.
    pub(crate) fn is_recording(&self) -> bool {
        self.lost_folders().is_recording
    }

    /// A folder is about to lose a name: it is recorded before it does.
    ///
    /// # Errors
    /// That there is no room for it, and the like: then nothing is noted.
    pub(crate) fn lose(&self, handle: &[u8]) -> rustix::io::Result<()> {
        let mut lost = self.lost_folders();
        if !lost.is_recording {
            return Ok(());
        }
        if let Some(losses) = lost.losses.get_mut(handle) {
            *losses += 1;
            return Ok(());
        }
        if !planted(Fault::FoldersForgotten) {
            let name = name_of(handle).ok_or(Errno::NAMETOOLONG)?;
            match linkat(&self.dir, FOLDERS_NAME, &self.dir, name.as_str(), AtFlags::empty()) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
            if lost.is_flushed {
                fsync(&self.dir)?;
            }
        }
        lost.losses.insert(handle.to_vec(), 1);
        drop(lost);
        step(Step::Recorded);
        Ok(())
    }

    /// Names that a folder has lost have been dealt with, or it has not lost them after all.
    pub(crate) fn settle_losses(&self, handle: &[u8], count: u64) {
        let mut lost = self.lost_folders();
        if let Some(losses) = lost.losses.get_mut(handle) {
            *losses = losses.saturating_sub(count);
            if *losses > 0 {
                return;
            }
        }
        lost.losses.remove(handle);
        // Under the lock, so that it is not taken from under another loss.
        if let Some(name) = name_of(handle)
            && let Err(e) = unlinkat(&self.dir, name.as_str(), AtFlags::empty())
            && e != Errno::NOENT
        {
            log::debug!("spool: a folder stays recorded: {e}");
        }
    }

    /// A loss cannot be recorded: after a crash nobody is to believe that all are.
    pub(crate) fn stop_recording(&self) {
        let mut lost = self.lost_folders();
        if std::mem::take(&mut lost.is_recording) {
            log::warn!("spool: after a crash it will not be known which folders have lost names");
            self.remove_folders();
            if lost.is_flushed
                && let Err(e) = fsync(&self.dir)
            {
                log::warn!("spool: {e}");
            }
        }
    }

    /// Nothing is recorded any more.
    pub(super) fn remove_folders(&self) {
        // Where it was never made there is nothing to remove.
        let _ = unlinkat(&self.dir, FOLDERS_NAME, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_handle_is_read_back() {
        for len in HANDLE_LEN_MIN..=HANDLE_LEN_MAX {
            let handle: Vec<u8> = (0..len).map(|n| u8::try_from(n * 7 % 256).unwrap()).collect();
            let name = name_of(&handle).unwrap();
            assert!(name.len() <= 255);
            assert_eq!(handle_in(name.as_bytes()), Some(handle));
        }
        assert_eq!(name_of(&[1; HANDLE_LEN_MIN - 1]), None);
        assert_eq!(name_of(&[1; HANDLE_LEN_MAX + 1]), None);
    }

    #[test]
    fn other_names_are_none() {
        let names: [&[u8]; 8] = [
            b"",
            b"7",
            b"folders",
            b"folder-",
            b"folder-0102030",
            b"folder-010203040A",
            b"folder-01 2030405",
            b"Folder-0102030405",
        ];
        for name in names {
            assert_eq!(handle_in(name), None, "{}", String::from_utf8_lossy(name));
        }
        assert!(handle_in(b"folder-0102030405").is_some());
    }

    #[test]
    fn losses_are_recorded_until_one_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        let root = File::open(folder.path()).unwrap();
        let opened = Spool::open(root.as_fd()).unwrap();
        assert_eq!(opened.lost_folders, (Vec::new(), false));
        let (spool, handle) = (opened.spool, vec![7; 12]);
        spool.record_folders(&[], true);
        spool.lose(&handle).unwrap();
        spool.lose(&handle).unwrap();
        spool.settle_losses(&handle, 1);
        let seen = spool.read_folders().unwrap();
        assert_eq!(seen, (vec![handle.clone()], true), "it has another loss");
        spool.settle_losses(&handle, 1);
        assert_eq!(spool.read_folders().unwrap(), (Vec::new(), true));
        assert!(spool.lose(&[7; HANDLE_LEN_MAX + 1]).is_err());
        spool.stop_recording();
        spool.lose(&handle).unwrap();
        let seen = spool.read_folders().unwrap();
        assert_eq!(seen, (Vec::new(), false), "nobody is to believe that all are");
        spool.leave(root.as_fd());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    proptest! {
        #[test]
        fn any_name_is_read_or_refused(name in "folder-[0-9a-f]{0,20}|.{0,40}") {
            if let Some(handle) = handle_in(name.as_bytes()) {
                prop_assert_eq!(name_of(&handle), Some(name));
            }
        }
    }
}
