//! Where a tour puts what it makes, so that nothing of it stays, however it ends.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_daemon::{BeforeEnd, Mount};
use tempfile::TempDir;

use super::ext4;
use crate::exit::Outcome;

/// How long the last changes of a mount have to be written to what is removed next.
const UNMOUNTED_WITHIN: Duration = Duration::from_secs(10);

/// How often is tried to remove what is still being written, and how long is waited in between.
const TRY_COUNT: u32 = 100;
const TRY_PAUSE: Duration = Duration::from_millis(50);

/// Folders that go with this, and with a signal that ends the program; with all that is mounted in them.
pub(super) struct Scratch {
    folder: TempDir,
    /// What is to be kept, where that is wanted.
    kept: Option<PathBuf>,
    /// Mounts that were there before, by their numbers: they are somebody else's.
    others: HashSet<u64>,
    _before_end: BeforeEnd,
}

impl Scratch {
    /// Makes a folder for all that goes, and what is to be kept if that is not there.
    pub(super) fn new(keep: Option<&Path>) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("tacita-tour-").tempdir()?;
        // For folders of sockets, too. The first who asks for it has it, and there is one tour.
        let _ = tempfile::env::override_temp_dir(folder.path());
        let kept = keep.map(Path::canonicalize).transpose()?;
        let others: HashSet<u64> = mounted().iter().map(|mount| mount.id).collect();
        let (gone, also, stay) = (folder.path().to_owned(), kept.clone(), others.clone());
        let before_end = BeforeEnd::new(move || {
            // The chapter goes on until it finds out.
            for _ in 0..TRY_COUNT {
                also.iter().chain([&gone]).for_each(|folder| unmount_all(folder, &stay));
                if fs::remove_dir_all(&gone).is_ok() {
                    break;
                }
                System.wait(TRY_PAUSE);
            }
        })?;
        Ok(Self { folder, kept, others, _before_end: before_end })
    }

    /// The folder of the chapters.
    pub(super) fn chapters(&self) -> &Path {
        self.kept.as_deref().unwrap_or_else(|| self.folder.path())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A chapter that has failed may have left a mount.
        let folders = self.kept.iter().map(PathBuf::as_path).chain([self.folder.path()]);
        folders.for_each(|folder| unmount_all(folder, &self.others));
    }
}

fn mounted() -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    tacita_daemon::mounts(&table).collect()
}

/// Takes away what is mounted in a folder, but for others' mounts: what lies on top first.
fn unmount_all(folder: &Path, others: &HashSet<u64>) {
    let Ok(folder) = folder.canonicalize() else { return };
    let is_ours = |mount: &&Mount| mount.place.starts_with(&folder) && !others.contains(&mount.id);
    for mount in mounted().iter().rev().filter(is_ours) {
        let ends = mount.kind.starts_with("fuse")
            && tacita_vfs::fuse::unmount_within(&mount.place, UNMOUNTED_WITHIN).is_ok();
        if !ends {
            let _ = ext4::quiet("umount", &["-l", &mount.place.to_string_lossy()]);
        }
    }
}
