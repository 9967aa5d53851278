//! Mounting, serving and unmounting.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{BackgroundSession, Config, Filesystem, Session};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::mount::mount_remount;
use tacita_clock::{Clock, System, Worker};
use tacita_daemon::{
    Failure, FuseDevice, Heeding, Interrupts, ServingLock, exit, remedy_for, with_causes,
};

use super::adapter::{Adapter, Behaviour, Outcome};
use super::backing::Backings;
use super::invalidator::Invalidator;
use super::mount_options::{MountOptions, refused};
use super::mount_table::{Place, helper, is_mounted};
use super::session_threads::{await_all, can_be_had};
use super::sync_timer::{self, Schedule};
use crate::{Error, FileSystem, Kind, Posix, Result};

/// The device that FUSE speaks through.
const DEVICE: &str = "/dev/fuse";

/// How far the kernel reads ahead, in KiB, where we may set it; its own limit for FUSE is 128.
const READ_AHEAD_KIB: u32 = 1024;

/// How serving has ended, and what had to be done after it.
type Closed = std::result::Result<(), Failure>;

/// What waits for the end of a session.
type Guard = JoinHandle<io::Result<()>>;

/// A mounted file system. Dropping it unmounts, out of sight at least.
#[derive(Debug)]
pub struct Mount {
    place: Place,
    session: Option<Guard>,
    outcome: Arc<Outcome>,
    backings: Arc<Backings>,
    invalidator: Arc<Invalidator>,
    timer: Option<Worker>,
    beside: Option<Worker>,
    heeding: Option<Heeding>,
    lock: Option<ServingLock>,
}

/// Mounts a file system on `dir` and serves it from threads of its own, all of which are there then.
///
/// # Errors
/// [`Kind::Unsupported`] without FUSE or the helper that ordinary users need; [`Kind::NotFound`]
/// and [`Kind::NotDirectory`] for `dir`; [`Kind::Busy`] if it is mounted already;
/// [`Kind::Invalid`] for an option; [`Kind::NotPermitted`] where the system forbids it;
/// [`Kind::Io`] if there is no memory, thread or descriptor to be had.
pub fn mount<F: FileSystem>(
    fs: Arc<Posix<F>>,
    dir: impl AsRef<Path>,
    options: &MountOptions,
) -> Result<Mount> {
    let Ready { dir, config, threads, lock } = Ready::of(dir.as_ref(), options)?;
    let adapter = Adapter::new(
        Arc::clone(&fs),
        Behaviour {
            ttl: options.ttl,
            writeback_cache: options.writeback_cache,
            passthrough: options.passthrough,
            callers_room: options.callers_room,
            background_max: options.background_max,
            shown: options.shown()?,
            at_once: options.at_once(),
        },
        threads,
        lock.leaving()?,
    );
    fs.is_mapped_by(adapter.hands_over());
    let outcome = adapter.outcome();
    let (backings, invalidator) = (Arc::clone(&adapter.backings), Arc::clone(&adapter.invalidator));
    let cannot = |e| cannot_mount(&dir, e);
    let session = Session::new(adapter, &dir, &config).map_err(cannot)?;
    // Before anybody is served: who uses it may take it away.
    let place = Place::of(&dir, session.as_fd().try_clone_to_owned().map_err(cannot)?)?;
    invalidator.start(session.notifier()).map_err(cannot)?;
    let schedule = Schedule { interval: options.sync_interval, quiet: options.sync_when_quiet };
    let timer = if schedule.is_never() {
        None
    } else {
        Some(sync_timer::start(Arc::clone(&fs), schedule).map_err(cannot)?)
    };
    let beside = fs.file_system().left_to_do().map(|left| {
        let clock = Arc::clone(fs.clock());
        Worker::start("tacita-beside", clock, left, None, move || fs.file_system().catch_up())
    });
    let beside = beside.transpose().map_err(cannot)?;
    let session = session.spawn().map_err(cannot)?;
    if let Some(flags) = options.afterwards() {
        mount_remount(&dir, flags, c"").map_err(|errno| cannot(errno.into()))?;
    }
    await_all(&session, threads).map_err(cannot)?;
    let session = guard_of(session).map_err(cannot)?;
    let session = if session.is_finished() {
        ended(joined(session)).map_err(cannot)?;
        // Somebody has unmounted it already.
        None
    } else {
        Some(session)
    };
    read_further_ahead(&place);
    let (heeding, lock) = (None, Some(lock));
    Ok(Mount { place, session, outcome, backings, invalidator, timer, beside, heeding, lock })
}

/// Looks whether [`mount`] would take `dir` and these options, by mounting there for a moment: for whoever does
/// something before that cannot be undone. The kernel and the helper look at what nobody else does.
///
/// # Errors
/// As [`mount`].
pub fn can_mount(dir: impl AsRef<Path>, options: &MountOptions) -> Result<()> {
    let Ready { dir, config, lock: _lock, .. } = Ready::of(dir.as_ref(), options)?;
    options.shown()?;
    drop(Session::new(Nothing, &dir, &config).map_err(|e| cannot_mount(&dir, e))?);
    // Whoever has come meanwhile, and stays, keeps it from being taken away.
    mount_point(&dir).map(drop)
}

/// What is mounted for a moment.
struct Nothing;

impl Filesystem for Nothing {}

/// What has to be there before anything is mounted.
struct Ready {
    dir: PathBuf,
    config: Config,
    threads: usize,
    lock: ServingLock,
}

impl Ready {
    fn of(dir: &Path, options: &MountOptions) -> Result<Self> {
        let dir = mount_point(dir)?;
        let config = options.config()?;
        let threads = config.n_threads.unwrap_or(1);
        let lock = ServingLock::take(&dir)?;
        if options.afterwards().is_some() && !rustix::process::geteuid().is_root() {
            let remedy = "leave it out, or mount as root";
            return Err(refused("nosymfollow", "only root can mount so", remedy));
        }
        can_be_had(threads).map_err(|e| cannot_mount(&dir, e))?;
        Ok(Self { dir, config, threads, lock })
    }
}

/// What waits for the session's end. Whenever the library drops the rest, even after an unmount, it takes away what
/// is mounted on the folder: that is what lies beneath by then, or has come since. So it is not dropped, and what it
/// holds goes with the process.
fn guard_of(mut session: BackgroundSession) -> io::Result<Guard> {
    let nobody = std::thread::Builder::new().spawn(|| Ok(()))?;
    let guard = std::mem::replace(&mut session.guard, nobody);
    std::mem::forget(session);
    Ok(guard)
}

fn joined(session: Guard) -> io::Result<()> {
    session.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// How serving has ended. Who takes a request at the very moment when the kernel lets go of the mount
/// hears that the connection was aborted; it is the end like any other.
fn ended(served: io::Result<()>) -> io::Result<()> {
    match served {
        Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        served => served,
    }
}

/// What the library's failure to mount means.
fn cannot_mount(dir: &Path, e: io::Error) -> Error {
    // The helper and the library hand on the system's refusal in words only.
    const REFUSALS: [&str; 5] = [
        "not permitted",
        "ermission denied",
        "no write access",
        "not owned by user",
        "only allowed if",
    ];
    let text = e.to_string();
    let context = format!("{}: cannot mount: {}", dir.display(), text.trim());
    let kind = match e.kind() {
        io::ErrorKind::OutOfMemory => {
            let failure = Failure::no_memory(context);
            return Error::new(Kind::Io, failure.cause.clone()).because(failure);
        }
        io::ErrorKind::PermissionDenied => Kind::NotPermitted,
        io::ErrorKind::InvalidInput => Kind::Invalid,
        // The folder was there a moment ago: what is missing is the device or the helper.
        io::ErrorKind::NotFound => Kind::Unsupported,
        _ if REFUSALS.iter().any(|refusal| text.contains(refusal)) => Kind::NotPermitted,
        // What the kernel itself looks at, such as `context=`.
        _ if text.contains("nvalid argument") => Kind::Invalid,
        _ => match remedy_for_helper(&text) {
            Some(remedy) => {
                let failure = Failure::new(exit::NOT_HERE, context).with_remedy(remedy);
                return Error::new(Kind::Unsupported, failure.cause.clone()).because(failure);
            }
            None => Kind::Io,
        },
    };
    Error::new(kind, context).because(e)
}

/// What can be done about what fusermount3 wants otherwise than it is.
fn remedy_for_helper(text: &str) -> Option<&'static str> {
    const REMEDIES: [(&str, &str); 3] = [
        (
            "could not determine username",
            "fusermount3 serves users with an entry in /etc/passwd alone: give this one an entry, or \
             mount as root",
        ),
        (
            "too many FUSE filesystems mounted",
            "unmount another one, or raise `mount_max` in /etc/fuse.conf",
        ),
        ("mounting over filesystem type", "name a folder on another file system"),
    ];
    REMEDIES.iter().find(|(wanted, _)| text.contains(wanted)).map(|(_, remedy)| *remedy)
}

/// The canonical path of a directory that can be mounted on.
fn mount_point(dir: &Path) -> Result<PathBuf> {
    if !Path::new(DEVICE).exists() {
        return Err(Error::new(
            Kind::Unsupported,
            "there is no /dev/fuse: this kernel or container has no FUSE",
        ));
    }
    let both = Access::READ_OK | Access::WRITE_OK;
    if accessat(CWD, DEVICE, both, AtFlags::EACCESS).is_err() {
        let text = "/dev/fuse is not open to this user";
        return Err(Error::new(Kind::NotPermitted, text));
    }
    if !rustix::process::geteuid().is_root() && helper().is_none() {
        return Err(Error::new(
            Kind::Unsupported,
            "fusermount3 is not installed, which users other than root need for mounting",
        ));
    }
    let canonical = dir.canonicalize().map_err(|e| {
        let kind = match e.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::NotADirectory => Kind::NotDirectory,
            io::ErrorKind::PermissionDenied => Kind::AccessDenied,
            // A mount whose server is gone.
            io::ErrorKind::NotConnected => Kind::Busy,
            _ => Kind::Io,
        };
        Error::new(kind, format!("{}: {e}", dir.display())).because(e)
    })?;
    if is_mounted(&canonical)? {
        return Err(Error::new(Kind::Busy, format!("{}: already mounted", dir.display())));
    }
    if !canonical.is_dir() {
        return Err(Error::new(Kind::NotDirectory, format!("{}: not a directory", dir.display())));
    }
    Ok(canonical)
}

/// Lets the kernel read further ahead than FUSE can settle itself; only root may.
fn read_further_ahead(place: &Place) {
    if let Some(number) = place.device().and_then(FuseDevice::number) {
        let setting = format!("/sys/class/bdi/{number}/read_ahead_kb");
        if let Err(e) = fs::write(setting, READ_AHEAD_KIB.to_string()) {
            log::debug!("read-ahead stays as it is: {e}");
        }
    }
}

impl Mount {
    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// The number of the mounted file system.
    pub fn device(&self) -> Option<&FuseDevice> {
        self.place.device()
    }

    /// Whether something else is mounted over it, so that it cannot be taken away.
    pub fn is_covered(&self) -> bool {
        self.place.is_covered()
    }

    /// Whether the session has ended, be it by `umount`.
    pub fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(Guard::is_finished)
    }

    /// Waits until somebody unmounts it and everything is on the medium.
    ///
    /// # Errors
    /// [`Kind::Io`] if serving or the final sync failed.
    pub fn wait(mut self) -> Result<()> {
        self.finish()
    }

    /// Waits as [`Mount::wait`], then has `close` do what is left to do, which hears how that went. Its
    /// answer is how serving has ended, to the caller and to whoever unmounts. The serving lock stays held
    /// until the process ends, so whoever waits for it knows that the caller has finished too.
    ///
    /// # Errors
    /// Those of `close`.
    pub fn wait_for_good(mut self, close: impl FnOnce(Result<()>) -> Closed) -> Closed {
        let served = self.end();
        self.close_for_good(served, close)
    }

    /// Takes it out of sight, in use or not, and has `close` do what is left to do, as
    /// [`Mount::wait_for_good`]. Whoever uses it is served until the process ends, which is soon, and gets
    /// errors then. `close` hears of [`Kind::NotPermitted`], [`Kind::Unsupported`] or [`Kind::Io`] where it
    /// stays in sight.
    ///
    /// # Errors
    /// Those of `close`.
    pub fn leave(mut self, close: impl FnOnce(Result<()>) -> Closed) -> Closed {
        let left = match self.place.detach() {
            // Somebody else has unmounted it.
            Err(e) if e.kind() == Kind::NotFound => return self.wait_for_good(close),
            left => left,
        };
        // Joining would wait for whoever uses it.
        std::mem::forget(self.session.take());
        self.close_for_good(left, close)
    }

    fn close_for_good(
        mut self,
        served: Result<()>,
        close: impl FnOnce(Result<()>) -> Closed,
    ) -> Closed {
        let closed = close(served);
        if let Some(mut lock) = self.lock.take() {
            lock.finish(closed.as_ref().err());
            lock.keep_until_exit();
        }
        closed
    }

    /// Has the first signal unmount it unless it is in use, and the second put it out of sight, to end
    /// with its last user.
    ///
    /// # Errors
    /// [`Kind::Io`] if there is no thread to be had.
    pub fn heed(&mut self, interrupts: Interrupts) -> Result<()> {
        let place = self.place.clone();
        let mut is_first = true;
        self.heeding = Some(interrupts.heed(move || {
            log::info!("a signal: unmounting");
            let done = if is_first { place.unmount_patiently() } else { place.detach() };
            match done {
                // An earlier signal has done it, or somebody else.
                Err(e) if e.kind() == Kind::NotFound => {}
                Err(e) => log::warn!("not unmounted ({}); another signal detaches it", e.kind()),
                Ok(()) => {}
            }
            is_first = false;
        })?);
        Ok(())
    }

    /// Calls `ended` once the session has ended, be it by `umount`.
    ///
    /// # Errors
    /// [`Kind::Io`] if there is no thread to be had.
    pub fn when_ended(&mut self, ended: impl FnOnce() + Send + 'static) -> Result<()> {
        let Some(session) = &mut self.session else {
            ended();
            return Ok(());
        };
        let (hand, take) = std::sync::mpsc::channel::<Guard>();
        let watcher =
            std::thread::Builder::new().name("tacita-served".to_owned()).spawn(move || {
                let Ok(guard) = take.recv() else { return Ok(()) };
                let result = joined(guard);
                ended();
                result
            });
        let watcher =
            watcher.map_err(|e| Error::new(Kind::Io, "cannot watch the mount").because(e))?;
        // It waits for its work, so that nothing is lost where it cannot be had.
        let _ = hand.send(std::mem::replace(session, watcher));
        Ok(())
    }

    /// Unmounts it and waits until everything is on the medium.
    ///
    /// # Errors
    /// [`Kind::Busy`] if it is in use, when it stays mounted; [`Kind::Io`] if serving or the final
    /// sync failed.
    pub fn unmount(&mut self) -> Result<()> {
        if self.session.is_none() {
            return Ok(());
        }
        self.backings.settle(&System);
        match self.place.unmount_busy() {
            Ok(()) => {}
            // Somebody else has unmounted it.
            Err(e) if e.kind() == Kind::NotFound => {}
            Err(e) => return Err(e),
        }
        self.finish()
    }

    /// Waits for the end, and records how it went.
    fn finish(&mut self) -> Result<()> {
        let result = self.end();
        if let Some(lock) = &mut self.lock {
            lock.finish(result.as_ref().err().map(failure_of).as_ref());
        }
        result
    }

    /// Waits for the end of the session and of its threads.
    fn end(&mut self) -> Result<()> {
        let served = self.session.take().map(|session| ended(joined(session)));
        self.backings.end();
        if let Some(Err(_)) = served {
            // It is there still, and nobody serves it.
            let _ = self.place.detach();
        }
        drop(self.timer.take());
        drop(self.beside.take());
        self.invalidator.stop();
        match (served, self.outcome.take()) {
            (_, Some(Err(e))) => {
                // No room is something to be done about.
                let kind = if e.kind() == Kind::NoSpace { Kind::NoSpace } else { Kind::Io };
                let text = format!("{}: the final sync failed: {e}", self.dir().display());
                Err(Error::new(kind, text).because(e))
            }
            (Some(Err(e)), _) => {
                Err(Error::new(Kind::Io, format!("{}: serving failed: {e}", self.dir().display()))
                    .because(e))
            }
            (Some(Ok(())), None) => Err(Error::new(
                Kind::Io,
                format!("{}: the final sync was not reached", self.dir().display()),
            )),
            (_, _) => Ok(()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.session.is_none() {
            return;
        }
        self.backings.settle(&System);
        if !self.has_ended()
            && self.place.unmount_busy().is_err()
            && let Err(e) = self.place.detach()
        {
            log::warn!(
                "the mount stays, and serves nobody ({}): `tacita umount` takes it away",
                e.kind()
            );
        }
        // While programs still use a detached mount it cannot be waited for: its threads serve it
        // to the end, which comes with the process at the latest.
        if self.has_ended() || !is_mounted(self.dir()).unwrap_or(true) {
            let wait_max = Duration::from_secs(2);
            let mut waited = Duration::ZERO;
            let step = Duration::from_millis(5);
            while !self.has_ended() && waited < wait_max {
                System.wait(step);
                waited += step;
            }
        }
        if self.has_ended() {
            if let Err(e) = self.finish() {
                log::error!("the end of serving: {}", e.kind());
            }
        } else if let Some(session) = self.session.take() {
            // Dropping would wait; the threads go on by themselves.
            std::mem::forget(session);
        }
    }
}

/// A failure of serving, where nothing else is known of what is served.
fn failure_of(e: &Error) -> Failure {
    let remedy = remedy_for(e).map(str::to_owned);
    Failure { remedy, ..Failure::new(exit::DEVICE, with_causes(e)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_helper_wants_has_a_remedy() {
        let told =
            |text: &str| cannot_mount(Path::new("/m"), io::Error::other(format!("{text}\n")));
        for (text, remedy) in [
            ("fusermount3: could not determine username", "/etc/passwd"),
            ("fusermount3: too many FUSE filesystems mounted; mount_max=N can be set", "mount_max"),
            ("fusermount3: mounting over filesystem type 0x009fa0 is forbidden", "another file"),
        ] {
            let error = told(text);
            assert_eq!(error.kind(), Kind::Unsupported);
            let told =
                std::error::Error::source(&error).unwrap().downcast_ref::<Failure>().unwrap();
            assert_eq!((told.code, &*told.cause), (exit::NOT_HERE, &*error.to_string()));
            assert!(told.remedy.as_ref().unwrap().contains(remedy));
            assert_eq!(with_causes(&error), format!("/m: cannot mount: {text}"));
        }
        for text in ["mountpoint /m not owned by user", "option allow_other only allowed if"] {
            assert_eq!(told(text).kind(), Kind::NotPermitted);
        }
        assert_eq!(told("mount failed: Invalid argument").kind(), Kind::Invalid);
        assert_eq!(told("mount failed: Input/output error").kind(), Kind::Io);
    }

    #[test]
    fn an_aborted_connection_is_the_end_of_serving() {
        assert!(ended(Err(io::Error::from_raw_os_error(libc::ECONNABORTED))).is_ok());
        assert!(ended(Err(io::Error::from_raw_os_error(libc::EIO))).is_err());
    }
}
