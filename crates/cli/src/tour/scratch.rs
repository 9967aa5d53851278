//! Where a tour puts what it makes, so that nothing of it stays, however it ends.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
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
        let kept = keep.map(Path::canonicalize).transpose()?;
        let others: HashSet<u64> = mounted().iter().map(|mount| mount.id).collect();
        // A signal that comes while it is made waits until it is known.
        let made: Arc<Mutex<Option<PathBuf>>> = Arc::default();
        let mut made_here = made.lock().unwrap_or_else(PoisonError::into_inner);
        let (gone, also, stay) = (Arc::clone(&made), kept.clone(), others.clone());
        let before_end = BeforeEnd::new(move || {
            let gone = gone.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(gone) = gone {
                clear(&gone, also.as_deref(), &stay);
            }
        })?;
        let folder = tempfile::Builder::new().prefix("tacita-tour-").tempdir();
        *made_here = folder.as_ref().ok().map(|folder| folder.path().to_owned());
        drop(made_here);
        let folder = folder?;
        // For folders of sockets, too. The first who asks for it has it, and there is one tour.
        let _ = tempfile::env::override_temp_dir(folder.path());
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

/// Makes a folder where there is none, and none above it: what a tour had before a signal came is not to come back.
pub(super) fn new_folder(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes a folder with all that goes on in it, and what is mounted in the one that is kept.
fn clear(gone: &Path, kept: Option<&Path>, others: &HashSet<u64>) {
    // The chapter goes on until it finds out, and may have removed it by then.
    for _ in 0..TRY_COUNT {
        end_commands(gone);
        kept.into_iter().chain([gone]).for_each(|folder| unmount_all(folder, others));
        if fs::remove_dir_all(gone).is_ok() || !gone.exists() {
            break;
        }
        System.wait(TRY_PAUSE);
    }
    end_commands(gone);
}

/// Ends this program where it works for the tour as another process, or is about to: a mount would wait for its
/// server, which is gone with the tour. What they work on goes, too.
fn end_commands(folder: &Path) {
    let Ok(program) = std::env::current_exe() else { return };
    let begins = [program.as_os_str().as_bytes(), b"\0"].concat();
    let folder = folder.as_os_str().as_bytes();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(process) = number.and_then(Pid::from_raw) else { continue };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let names_it = words.windows(folder.len()).any(|window| window == folder);
        if words.starts_with(&begins) && names_it && process != rustix::process::getpid() {
            // It may have ended meanwhile.
            let _ = kill_process(process, Signal::KILL);
        }
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
