//! The file that whoever serves a mount holds a lock on.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::{Error, Kind, Result};

/// Tries to take the lock: whoever looks at it holds it for a moment.
const TRY_COUNT: u32 = 20;

/// Pause between tries.
const TRY_PAUSE: Duration = Duration::from_millis(10);

/// What the file says after a final sync without failure.
const DONE: &str = "done";

/// What precedes the reason after a failure.
const FAILED: &str = "failed: ";

/// Most that is read of the file.
const TEXT_LEN_MAX_BYTES: u64 = 4096;

/// The lock of whoever serves the mount on a directory.
#[derive(Debug)]
pub(crate) struct ServingLock {
    file: File,
    path: PathBuf,
    finished: bool,
}

impl ServingLock {
    /// Takes the lock for `dir`, a canonical path.
    pub(crate) fn take(dir: &Path) -> Result<Self> {
        let cannot =
            |e: io::Error| Error::new(Kind::Io, format!("cannot record the mount: {e}")).because(e);
        let path = private_folder().map_err(cannot)?.join(file_name(dir));
        for _ in 0..TRY_COUNT {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)
                .map_err(cannot)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Its last owner may have removed it in between.
                Ok(()) if is_same(&file, &path) => {
                    file.set_len(0).map_err(cannot)?;
                    writeln!(file, "{}", std::process::id()).map_err(cannot)?;
                    return Ok(Self { file, path, finished: false });
                }
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => std::thread::sleep(TRY_PAUSE),
                Err(e) => return Err(cannot(e.into())),
            }
        }
        Err(Error::new(
            Kind::Busy,
            format!("{}: already mounted or still being unmounted", dir.display()),
        ))
    }

    /// Records how serving ended. A failure stays on record until somebody reads it.
    pub(crate) fn finish(&mut self, failure: Option<&Error>) {
        self.finished = true;
        let line = match failure {
            None => DONE.to_owned(),
            Some(e) => format!("{FAILED}{e}"),
        };
        // Whoever waits takes a missing record for a death, which is the safe side.
        if let Err(e) = writeln!(self.file, "{line}") {
            log::warn!("cannot record how serving ended: {e}");
        }
        if failure.is_none() {
            self.remove();
        }
    }

    /// Leaves the lock to be dropped by the kernel when the process ends.
    pub(crate) fn keep_until_exit(self) {
        std::mem::forget(self);
    }

    fn remove(&self) {
        if let Err(e) = fs::remove_file(&self.path) {
            log::debug!("cannot remove {}: {e}", self.path.display());
        }
    }
}

impl Drop for ServingLock {
    fn drop(&mut self) {
        if !self.finished {
            self.remove();
        }
    }
}

/// How serving ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everything is on the medium.
    Done,
    /// The final sync failed, for this reason.
    Failed(String),
    /// The process ended without a final sync.
    Died,
}

/// The view of whoever waits for the lock.
#[derive(Debug)]
pub(super) struct Watch {
    file: File,
    path: PathBuf,
}

impl Watch {
    /// Opens the file of the mount on `dir`, a canonical path; `None` if there is none.
    pub(super) fn open(dir: &Path) -> Result<Option<Self>> {
        let name = file_name(dir);
        for folder in folders_of_all(dir) {
            let path = folder.join(&name);
            let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path);
            match opened {
                Ok(file) => return Ok(Some(Self { file, path })),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
                Err(e) => {
                    let text = format!("{}: {e}", path.display());
                    return Err(Error::new(Kind::Io, text).because(e));
                }
            }
        }
        Ok(None)
    }

    /// Whether somebody holds the lock.
    pub(super) fn is_served(&self) -> bool {
        match flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = flock(&self.file, FlockOperation::Unlock);
                false
            }
            Err(_) => true,
        }
    }

    /// How serving ended; `None` while somebody holds the lock. The record is gone afterwards.
    pub(super) fn ending(&self) -> Result<Option<Ending>> {
        if self.is_served() {
            return Ok(None);
        }
        let mut text = String::new();
        let mut file = &self.file;
        let read = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.take(TEXT_LEN_MAX_BYTES).read_to_string(&mut text));
        if let Err(e) = read {
            let text = format!("{}: {e}", self.path.display());
            return Err(Error::new(Kind::Io, text).because(e));
        }
        if is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
        let (_, record) = text.split_once('\n').unwrap_or_default();
        let record = record.trim_end();
        Ok(Some(match record.strip_prefix(FAILED) {
            Some(reason) => Ending::Failed(reason.to_owned()),
            None if record == DONE => Ending::Done,
            None => Ending::Died,
        }))
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// The file's name gives the mount's path away only to whoever can guess it.
fn file_name(dir: &Path) -> String {
    // FNV-1a: two mounts at a time that share a number would only refuse one another.
    let bytes = dir.as_os_str().as_bytes().iter();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Where a user's files are, in the order of preference: memory first, no trace on a medium. Not by
/// the environment, for whoever unmounts may have another one.
fn folders_of(uid: u32) -> [PathBuf; 2] {
    let in_memory = if uid == 0 {
        PathBuf::from("/run/tacita")
    } else {
        PathBuf::from(format!("/run/user/{uid}/tacita"))
    };
    [in_memory, PathBuf::from(format!("/tmp/tacita-{uid}"))]
}

/// Where the file of a mount can be: with its owner, with whoever asks, or with root.
fn folders_of_all(dir: &Path) -> Vec<PathBuf> {
    let mut uids = vec![geteuid().as_raw(), 0];
    uids.extend(crate::fuse::owner_of_mount(dir));
    uids.iter().flat_map(|uid| folders_of(*uid)).collect()
}

/// The folder that this user's files go to, for daemons of other kinds, too: private, and gone with
/// the next start of the machine.
///
/// # Errors
/// If it cannot be made, or somebody else's is in its place.
pub fn private_folder() -> io::Result<PathBuf> {
    let uid = geteuid().as_raw();
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders_of(uid) {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => failure = e,
            _ => {
                let found = fs::symlink_metadata(&folder)?;
                // Somebody else's folder in a place where anybody may make one.
                if found.is_dir() && found.uid() == uid && found.mode() & 0o022 == 0 {
                    return Ok(folder);
                }
                let text = format!("{}: not a private folder", folder.display());
                failure = io::Error::new(io::ErrorKind::PermissionDenied, text);
            }
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        // Not a mount: the lock only knows the path.
        PathBuf::from(format!("/nowhere/{}/{name}", std::process::id()))
    }

    #[test]
    fn one_at_a_time() {
        let dir = place("one");
        let lock = ServingLock::take(&dir).unwrap();
        assert_eq!(ServingLock::take(&dir).unwrap_err().kind(), Kind::Busy);
        drop(lock);
        drop(ServingLock::take(&dir).unwrap());
        assert!(Watch::open(&dir).unwrap().is_none(), "no record is left");
    }

    #[test]
    fn a_failure_stays_on_record_until_read() {
        let dir = place("failure");
        let mut lock = ServingLock::take(&dir).unwrap();
        let watch = Watch::open(&dir).unwrap().unwrap();
        assert_eq!(watch.ending().unwrap(), None);
        lock.finish(Some(&Error::new(Kind::Io, "the disk is gone")));
        assert_eq!(watch.ending().unwrap(), None, "still held");
        drop(lock);
        let later = Watch::open(&dir).unwrap().unwrap();
        let ending = later.ending().unwrap();
        assert_eq!(ending, Some(Ending::Failed("the disk is gone".to_owned())));
        assert!(Watch::open(&dir).unwrap().is_none());
    }

    #[test]
    fn success_is_seen_by_those_who_already_watch() {
        let dir = place("success");
        let mut lock = ServingLock::take(&dir).unwrap();
        let watch = Watch::open(&dir).unwrap().unwrap();
        lock.finish(None);
        drop(lock);
        assert_eq!(watch.ending().unwrap(), Some(Ending::Done));
        assert!(Watch::open(&dir).unwrap().is_none());
    }
}
