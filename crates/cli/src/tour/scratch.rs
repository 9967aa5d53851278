//! Where a tour puts what it makes, so that nothing of it stays, however it ends.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tacita_clock::{Clock, System};
use tacita_daemon::{BeforeEnd, Mount};

use super::ext4;
use crate::exit::Outcome;

/// How long the last changes of a mount have to be written to what is removed next.
const UNMOUNTED_WITHIN: Duration = Duration::from_secs(10);

/// How often is tried to remove what is still being written, and how long is waited in between.
const TRY_COUNT: u32 = 100;
const TRY_PAUSE: Duration = Duration::from_millis(50);

/// How long is waited for the end of a process that was killed.
const KILLED_WITHIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Mounts by their numbers, which are given anew once they are free, and where they are.
type Others = HashSet<(u64, PathBuf)>;

/// A folder that goes with this, and with a signal that ends the program; with all that is mounted there.
pub(super) struct Scratch {
    folder: PathBuf,
    made: Arc<Mutex<Option<Made>>>,
    _before_end: BeforeEnd,
}

/// What is to be cleared away, once.
struct Made {
    folder: PathBuf,
    /// What is to be kept, where that is wanted, but for mounts.
    kept: Option<PathBuf>,
    /// Mounts that were there before: they are somebody else's.
    others: Others,
    /// What works in it.
    guest: Option<OwnedFd>,
}

impl Scratch {
    /// Makes a folder for all that goes.
    pub(super) fn new(keep: Option<&Path>) -> Outcome<Self> {
        let kept = keep.map(Path::canonicalize).transpose()?;
        let others: Others = mounted().into_iter().map(|mount| (mount.id, mount.place)).collect();
        // A signal that comes while it is made waits until it is known.
        let made: Arc<Mutex<Option<Made>>> = Arc::default();
        let mut made_here = made.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::clone(&made);
        let before_end = BeforeEnd::new(move || clear_once(&known))?;
        let folder = tempfile::Builder::new().prefix("tacita-tour-").tempdir();
        let folder = folder.map(tempfile::TempDir::keep);
        *made_here =
            folder.as_ref().ok().cloned().map(|folder| Made { folder, kept, others, guest: None });
        drop(made_here);
        Ok(Self { folder: folder?, made, _before_end: before_end })
    }

    /// The folder for all that goes.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts what works in it, and waits for its end. Once a signal has come nothing starts any more.
    pub(super) fn run(&self, command: &mut Command) -> io::Result<ExitStatus> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = made.as_mut() else {
            drop(made);
            loop {
                // The signal ends this process.
                std::thread::park();
            }
        };
        let mut guest = command.spawn()?;
        known.guest = pidfd_open(Pid::from_child(&guest), PidfdFlags::empty()).ok();
        drop(made);
        guest.wait()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        clear_once(&self.made);
    }
}

/// Clears away what is known, if nobody has; else waits until that is done.
fn clear_once(made: &Mutex<Option<Made>>) {
    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
    made.take().iter().for_each(Made::clear);
}

impl Made {
    /// Removes the folder with all that goes on in it, and what is mounted in the one that is kept.
    fn clear(&self) {
        // It may not be among those that are found, as long as it has just begun.
        end_all(self.guest.as_slice());
        for _ in 0..TRY_COUNT {
            let commands = working_in(&self.folder);
            end_all(&commands);
            let folders = self.kept.iter().chain([&self.folder]);
            folders.for_each(|folder| unmount_all(folder, &self.others));
            let is_gone = fs::remove_dir_all(&self.folder).is_ok() || !self.folder.exists();
            // What one of them has begun meanwhile is ended next.
            if is_gone && commands.is_empty() {
                break;
            }
            if !is_gone {
                System.wait(TRY_PAUSE);
            }
        }
    }
}

/// Processes of this program that work for the tour, or are about to: they have its folder among their words.
fn working_in(folder: &Path) -> Vec<OwnedFd> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let begins = [program.as_os_str().as_bytes(), b"\0"].concat();
    let folder = folder.as_os_str().as_bytes();
    let works_in_it = |entry: fs::DirEntry| -> Option<OwnedFd> {
        let number = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        // Held first: a number may go to another process.
        let process = pidfd_open(number, PidfdFlags::empty()).ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let names_it = words.windows(folder.len()).any(|window| window == folder);
        (words.starts_with(&begins) && names_it).then_some(process)
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(works_in_it).collect()
}

/// Ends processes, and waits until they are gone: what they are about to make would come back, and a mount would wait
/// for its server.
fn end_all(processes: &[OwnedFd]) {
    for process in processes {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    for process in processes {
        let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&KILLED_WITHIN));
    }
}

fn mounted() -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    tacita_daemon::mounts(&table).collect()
}

/// Takes away what is mounted in a folder, but for others' mounts: what lies on top first.
fn unmount_all(folder: &Path, others: &Others) {
    let Ok(folder) = folder.canonicalize() else { return };
    let is_ours = |mount: &&Mount| {
        mount.place.starts_with(&folder) && !others.contains(&(mount.id, mount.place.clone()))
    };
    for mount in mounted().iter().rev().filter(is_ours) {
        let ends = mount.kind.starts_with("fuse")
            && tacita_vfs::fuse::unmount_within(&mount.place, UNMOUNTED_WITHIN).is_ok();
        if !ends {
            let _ = ext4::quiet("umount", &["-l", &mount.place.to_string_lossy()]);
        }
    }
}
