//! The file that whoever serves something holds a lock on.
//!
//! `umount` returns when the kernel has let go, which is before everything is on the medium. So
//! whoever serves a mount holds a lock on a small file while it does, writes into it how it ended, the
//! last sync and all that comes after it, and whoever unmounts waits for that lock. The kernel drops
//! locks with the process, so nobody waits for the dead.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tacita_clock::{Clock, System};

use crate::process_state::is_killed;
use crate::runtime_folder::{file_name, folders_of_all, private_folder};
use crate::{Error, Failure, Kind, Result, exit};

/// Tries to take the lock: whoever looks at it holds it for a moment.
const TRY_COUNT: u32 = 20;

/// Pause between tries.
const TRY_PAUSE: Duration = Duration::from_millis(10);

/// What the file says when nobody can use any more what is served, and the final sync begins.
const LEFT: &str = "left";

/// What the file says after an end without failure.
const DONE: &str = "done";

/// What precedes the failure, which is one line of JSON.
const FAILED: &str = "failed: ";

/// How long is waited for the end of a process that has let go of its lock.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Most that is read of the file: a failure may name two paths.
const TEXT_LEN_MAX_BYTES: u64 = 65536;

/// The lock of whoever serves the mount on a directory.
#[derive(Debug)]
pub struct ServingLock {
    file: File,
    path: PathBuf,
    finished: bool,
}

impl ServingLock {
    /// Takes the lock for `dir`, a canonical path.
    ///
    /// # Errors
    /// [`Kind::Busy`] if somebody holds it; [`Kind::NoPlace`]; [`Kind::Io`].
    pub fn take(dir: &Path) -> Result<Self> {
        let cannot = |e: io::Error| Error::of_private("cannot record who serves", e);
        let path = private_folder().map_err(cannot)?.join(file_name(dir));
        for _ in 0..TRY_COUNT {
            let mut file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
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
                Err(Errno::WOULDBLOCK) => System.wait(TRY_PAUSE),
                Err(e) => return Err(cannot(e.into())),
            }
        }
        Err(Error::new(
            Kind::Busy,
            format!("{}: already mounted or still being unmounted", dir.display()),
        ))
    }

    /// For whoever learns first that nobody can use any more what is served. It does not hold the lock.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn leaving(&self) -> Result<Leaving> {
        let opened =
            OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(&self.path);
        opened.map(Leaving).map_err(|e| Error::from_io("cannot record who serves", e))
    }

    /// Records how serving ended. A failure stays on record until somebody reads it.
    pub fn finish(&mut self, failure: Option<&Failure>) {
        self.finished = true;
        let line = match failure {
            None => DONE.to_owned(),
            Some(failure) => format!("{FAILED}{}", failure.json()),
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
    pub fn keep_until_exit(self) {
        std::mem::forget(self);
    }

    fn remove(&self) {
        if let Err(e) = fs::remove_file(&self.path) {
            log::debug!("the record of who serves stays: {e}");
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

/// The hand of whoever learns first that nobody can use any more what is served.
#[derive(Debug)]
pub struct Leaving(File);

impl Leaving {
    /// Tells whoever waits for the lock.
    pub fn tell(&self) {
        if let Err(e) = writeln!(&self.0, "{LEFT}") {
            log::warn!("cannot record that nobody uses it any more: {e}");
        }
    }
}

/// How serving ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything is on the medium.
    Done,
    /// The final sync failed, or what comes after it: as the process has said.
    Failed(Failure),
    /// The process ended before it could say how.
    Died,
}

/// The view of whoever waits for the lock.
#[derive(Debug)]
pub struct Watch {
    file: File,
    path: PathBuf,
    /// Who held the lock when this began, unless it is this process.
    process: Option<OwnedFd>,
}

impl Watch {
    /// Opens the file of the mount on `dir`, a canonical path; `None` if there is none.
    ///
    /// `owner` is whose it may be beside the caller's and root's.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn open(dir: &Path, owner: Option<u32>) -> Result<Option<Self>> {
        let name = file_name(dir);
        for folder in folders_of_all(owner.as_slice()) {
            if let Some(watch) = Self::of(folder.join(&name))? {
                return Ok(Some(watch));
            }
        }
        Ok(None)
    }

    /// Opens the file at `path`; `None` if there is none, or none that may be read.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub(crate) fn of(path: PathBuf) -> Result<Option<Self>> {
        // For root it is any user's, who may put a pipe there, which would be waited for, or a link.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) if !file.metadata().is_ok_and(|meta| meta.is_file()) => Ok(None),
            Ok(file) => {
                let mut watch = Self { file, path, process: None };
                watch.process = watch.find_process();
                Ok(Some(watch))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            Err(e) if [Some(libc::ELOOP), Some(libc::ENXIO)].contains(&e.raw_os_error()) => {
                Ok(None)
            }
            Err(e) => Err(Error::from_io(path.display().to_string(), e)),
        }
    }

    /// The process that holds the lock, by the number that it has recorded.
    fn find_process(&self) -> Option<OwnedFd> {
        let mut text = String::new();
        (&self.file).take(TEXT_LEN_MAX_BYTES).read_to_string(&mut text).ok()?;
        let number = text.lines().next()?.parse().ok()?;
        if number == rustix::process::getpid().as_raw_nonzero().get() {
            return None;
        }
        let process = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
        // As long as it holds the lock the number is its own.
        self.is_served().then_some(process)
    }

    /// Waits until the process is gone: the kernel takes its lock away before it closes the rest of
    /// what it has open. Bounded, for elsewhere its number may be another's.
    fn wait_for_process(&self) {
        let Some(process) = &self.process else { return };
        let bound = Timespec::try_from(GONE_WITHIN).ok();
        let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], bound.as_ref());
    }

    /// Where the record is.
    pub(crate) fn record(&self) -> &Path {
        &self.path
    }

    /// Whether somebody holds the lock.
    pub fn is_served(&self) -> bool {
        match flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = flock(&self.file, FlockOperation::Unlock);
                false
            }
            Err(_) => true,
        }
    }

    /// Whether the process that holds the lock has been killed, and lives on only because the kernel waits for
    /// an answer that it could give alone.
    pub fn is_killed(&self) -> bool {
        let number = || self.text().ok()?.lines().next()?.parse().ok();
        // Nobody else is believed to have the number.
        let process = self.process.as_ref().and_then(|_| Pid::from_raw(number()?));
        process.is_some_and(is_killed)
    }

    /// Whether nobody can use any more what is served: the final sync is all that is waited for. A
    /// server of an older version does not tell.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn is_left(&self) -> Result<bool> {
        let text = self.text()?;
        Ok(text.lines().skip(1).any(|line| line == LEFT))
    }

    /// The number of the process, and the record.
    fn text(&self) -> Result<String> {
        let mut text = String::new();
        let mut file = &self.file;
        let read = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.take(TEXT_LEN_MAX_BYTES).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(text),
            Err(e) => Err(Error::from_io(self.path.display().to_string(), e)),
        }
    }

    /// How serving ended; `None` while somebody holds the lock. The record, and the process that held it, are gone
    /// afterwards.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn ending(&self) -> Result<Option<Ending>> {
        if self.is_served() {
            return Ok(None);
        }
        self.wait_for_process();
        let text = self.text()?;
        if is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
        // Who goes while it is still in use has said how it ended before it is left.
        let record: Vec<&str> = text.lines().skip(1).filter(|line| *line != LEFT).collect();
        let record = record.join("\n");
        Ok(Some(match record.strip_prefix(FAILED) {
            Some(told) => Ending::Failed(failure_told(told)),
            None if record == DONE => Ending::Done,
            None => Ending::Died,
        }))
    }
}

/// A failure as it stands in the file. A server of an older version gives the reason alone.
fn failure_told(text: &str) -> Failure {
    let told = serde_json::from_str(text).ok().and_then(|value| Failure::from_json(&value));
    told.unwrap_or_else(|| Failure::new(exit::DEVICE, text))
}

fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    fn place(name: &str) -> PathBuf {
        // Not a mount: the lock only knows the path.
        PathBuf::from(format!("/nowhere/{}/{name}", std::process::id()))
    }

    fn failure() -> Failure {
        Failure::new(exit::WRONG, "the disk\nis gone").with_remedy("fetch it back")
    }

    #[test]
    fn one_at_a_time() {
        let dir = place("one");
        let lock = ServingLock::take(&dir).unwrap();
        assert_eq!(ServingLock::take(&dir).unwrap_err().kind(), Kind::Busy);
        drop(lock);
        drop(ServingLock::take(&dir).unwrap());
        assert!(Watch::open(&dir, None).unwrap().is_none(), "no record is left");
    }

    #[test]
    fn what_is_no_record_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), mode).unwrap();
        std::os::unix::fs::symlink(at("pipe"), at("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["pipe", "link", "socket", "folder", "nothing"] {
            assert!(Watch::of(at(name)).unwrap().is_none(), "{name}");
        }
    }

    #[test]
    fn a_failure_stays_on_record_until_read() {
        let dir = place("failure");
        let mut lock = ServingLock::take(&dir).unwrap();
        let watch = Watch::open(&dir, None).unwrap().unwrap();
        assert_eq!(watch.ending().unwrap(), None);
        lock.finish(Some(&failure()));
        assert_eq!(watch.ending().unwrap(), None, "still held");
        drop(lock);
        let later = Watch::open(&dir, None).unwrap().unwrap();
        let ending = later.ending().unwrap();
        assert_eq!(ending, Some(Ending::Failed(failure())));
        assert!(Watch::open(&dir, None).unwrap().is_none());
    }

    #[test]
    fn the_words_of_an_older_version_are_a_failure_of_the_device() {
        let dir = place("older");
        let mut lock = ServingLock::take(&dir).unwrap();
        lock.finished = true;
        writeln!(lock.file, "failed: the disk is gone").unwrap();
        drop(lock);
        let watch = Watch::open(&dir, None).unwrap().unwrap();
        let told = Failure::new(exit::DEVICE, "the disk is gone");
        assert_eq!(watch.ending().unwrap(), Some(Ending::Failed(told)));
    }

    #[test]
    fn success_is_seen_by_those_who_already_watch() {
        let dir = place("success");
        let mut lock = ServingLock::take(&dir).unwrap();
        let watch = Watch::open(&dir, None).unwrap().unwrap();
        lock.finish(None);
        drop(lock);
        assert_eq!(watch.ending().unwrap(), Some(Ending::Done));
        assert!(Watch::open(&dir, None).unwrap().is_none());
    }

    #[test]
    fn who_is_left_alone_tells_before_the_end() {
        let dir = place("left");
        let mut lock = ServingLock::take(&dir).unwrap();
        let leaving = lock.leaving().unwrap();
        let watch = Watch::open(&dir, None).unwrap().unwrap();
        assert!(!watch.is_left().unwrap());
        leaving.tell();
        assert!(watch.is_left().unwrap() && watch.is_served());
        lock.finish(Some(&failure()));
        drop(lock);
        assert!(!watch.is_served(), "the hand does not hold the lock");
        let ending = watch.ending().unwrap();
        assert_eq!(ending, Some(Ending::Failed(failure())));
    }

    #[test]
    fn who_ends_before_it_is_left_has_ended_well() {
        let dir = place("early");
        let mut lock = ServingLock::take(&dir).unwrap();
        let leaving = lock.leaving().unwrap();
        let watch = Watch::open(&dir, None).unwrap().unwrap();
        lock.finish(None);
        leaving.tell();
        drop(lock);
        assert_eq!(watch.ending().unwrap(), Some(Ending::Done));
    }

    #[test]
    fn the_process_is_gone_when_it_has_ended() {
        let dir = place("process");
        let path = private_folder().unwrap().join(file_name(&dir));
        // It lets go of the lock while it still has other things to do.
        let script = "exec 9>>\"$0\"; flock 9; echo $$ >&9; echo held; read go; echo done >&9; flock -u 9; sleep 0.1";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        let watch = Watch::open(&dir, None).unwrap().unwrap();
        assert_eq!(watch.ending().unwrap(), None);
        drop(child.stdin.take());
        let ending = loop {
            match watch.ending().unwrap() {
                Some(ending) => break ending,
                None => System.wait(TRY_PAUSE),
            }
        };
        assert_eq!(ending, Ending::Done);
        assert!(child.try_wait().unwrap().is_some(), "it is still there");
    }
}
