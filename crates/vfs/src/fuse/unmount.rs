//! Unmounting from outside, so that nothing is left to do.
//!
//! `umount` returns when the kernel has let go, which is before everything is on the medium; so
//! [`unmount`] waits for the lock of whoever serves the mount: see [`tacita_daemon::ServingLock`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_daemon::control::{Client, Request, path_of_json};
use tacita_daemon::voice::shown_name;
use tacita_daemon::{Ending, Failure, Watch, exit};

use super::holders::holders;
use super::mount_table::{
    self, abandon, device_of_mount, is_mounted, mounted_over, once_unused, owner_of_mount,
    place_of, sole_mount_on, unmount_busy,
};
use crate::{Error, Kind, Result};

/// How often the lock is looked at while waiting.
const WAIT_STEP: Duration = Duration::from_millis(10);
/// How long is waited before a look at what it is waited for: twice as long each time, up to the most.
const LOOK_AFTER: Duration = Duration::from_secs(4);
const LOOK_AFTER_MAX: Duration = Duration::from_mins(1);

/// What a daemon has said in so many seconds before may be what it waits for.
const LATELY_SECS: u64 = 60;

/// Unmounts `dir` and returns when everything is on the medium and the process that served it is
/// gone, having done all that it does at its end.
///
/// A mount whose server has died is cleared too, but that is no success: what had not been synced
/// is lost.
///
/// # Errors
/// [`Kind::Busy`] if it is in use, something else is mounted over it, it is mounted elsewhere by now, or held by a
/// process in another mount namespace, which the message names; [`Kind::NotFound`] if nothing is mounted there;
/// [`Kind::Io`] if the final sync failed or what comes after it, with the [`Failure`] that the server has told as its
/// source, or would fail because of files that can be deleted, when it stays mounted; [`Kind::Stale`] if the server
/// had died, when the mount is cleared.
pub fn unmount(dir: impl AsRef<Path>) -> Result<()> {
    unmount_telling(dir, &mut |_| {})
}

/// As [`unmount`]; while that takes long, `tell` hears what is waited for.
///
/// # Errors
/// As [`unmount`].
pub fn unmount_telling(dir: impl AsRef<Path>, tell: &mut dyn FnMut(&str)) -> Result<()> {
    unmount_until(dir.as_ref(), None, tell)
}

/// As [`unmount`], but waits no longer than `wait_max`.
///
/// # Errors
/// As [`unmount`]; [`Kind::Busy`] also if the server is not gone by then.
pub fn unmount_within(dir: impl AsRef<Path>, wait_max: Duration) -> Result<()> {
    unmount_until(dir.as_ref(), Some(System.monotonic() + wait_max), &mut |_| {})
}

/// Takes the mount on `dir` out of sight, though it is in use, and returns at once: its server goes on, and does all
/// that it does at its end when the last program that uses it is gone.
///
/// # Errors
/// [`Kind::Busy`] if something else is mounted over it; [`Kind::NotFound`] if nothing is mounted there;
/// [`Kind::NotPermitted`].
pub fn detach(dir: impl AsRef<Path>) -> Result<()> {
    let dir = canonical(dir.as_ref())?;
    check_uncovered(&dir)?;
    if is_mounted(&dir)? { mount_table::detach(&dir) } else { Err(not_mounted(&dir)) }
}

fn unmount_until(dir: &Path, deadline: Option<Duration>, tell: &mut dyn FnMut(&str)) -> Result<()> {
    let dir = canonical(dir)?;
    check_uncovered(&dir)?;
    let mounted = is_mounted(&dir)?;
    let watch = match Watch::open(&dir, owner_of_mount(&dir))? {
        None if mounted => watch_of_moved(&dir)?,
        Some(watch) if !mounted => Some(not_elsewhere(&dir, watch)?),
        watch => watch,
    };
    let device = device_of_mount(&dir).filter(|_| mounted);
    if let Some(device) = &device {
        check_loses_nothing(&dir, device)?;
    }
    if mounted {
        // Without its server a mount can only be cleared, and programs that use it get errors
        // already: it need not wait for them.
        let is_dead = |watch: &Watch| !watch.is_served() || watch.is_killed();
        // It may be killed meanwhile.
        let done = once_unused(&System, deadline, || match &watch {
            Some(watch) if is_dead(watch) => abandon(&dir),
            _ => unmount_busy(&dir),
        });
        match done {
            Ok(()) => {}
            Err(e) if e.kind() == Kind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    let Some(watch) = watch else {
        return if mounted { Ok(()) } else { Err(not_mounted(&dir)) };
    };
    let (begun, lately) = (System.monotonic(), System.unix_seconds().saturating_sub(LATELY_SECS));
    let (mut look_at, mut look_after) = (begun + LOOK_AFTER, LOOK_AFTER);
    let ending = loop {
        if let Some(ending) = watch.ending()? {
            break ending;
        }
        let now = System.monotonic();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Err(Error::new(
                Kind::Busy,
                format!("{}: unmounted, but still being served", dir.display()),
            ));
        }
        if now >= look_at {
            look_after = LOOK_AFTER_MAX.min(2 * look_after);
            look_at = now + look_after;
            // When the kernel has let go, others may have its number already.
            if !watch.is_left()? && !is_let_go(&watch) {
                still_held(&dir, device.as_deref())?;
            }
            let name = shown_name(&dir);
            let waited = System.elapsed(begun).as_secs();
            let why = Client::of_watched(&watch).and_then(|client| client.said_since(lately));
            let why = why.map(|why| format!("; {why}")).unwrap_or_default();
            tell(&format!(
                "{name}: unmounted; its last changes are being finished ({waited} s){why}"
            ));
        }
        System.wait(WAIT_STEP);
    };
    match ending {
        Ending::Done => Ok(()),
        Ending::Failed(told) => Err(Error::new(Kind::Io, told.cause.clone()).because(told)),
        Ending::Died if mounted => Err(Error::new(
            Kind::Stale,
            format!(
                "{}: the process that served it had died; the mount has been removed, but what was \
                 not yet synced is lost",
                dir.display()
            ),
        )),
        Ending::Died => Err(not_mounted(&dir)),
    }
}

/// Whether its daemon says that the kernel has let go of the mount: it may still have threads that wait.
fn is_let_go(watch: &Watch) -> bool {
    let status = Client::of_watched(watch).and_then(|client| client.status().ok());
    status.is_some_and(|status| status["device"].is_null())
}

/// What tells of the end of a mount that was begun elsewhere: a folder above it has got another name since, and
/// its daemon knows the one of before. What is mounted twice goes on.
fn watch_of_moved(dir: &Path) -> Result<Option<Watch>> {
    let Some(device) = sole_mount_on(dir)? else { return Ok(None) };
    let status = Client::of_mount(&device).map_err(Failure::from).and_then(Client::status);
    match status.ok().and_then(|status| path_of_json(&status["at"])) {
        // There is another one by now.
        Some(at) if is_mounted(&at)? => Ok(None),
        Some(at) => Ok(Watch::open(&at, owner_of_mount(dir))?),
        None => Ok(None),
    }
}

/// Refuses to wait for the end of what was mounted on `dir` and goes on at another place: a folder above it has got
/// another name, or it was bound there and unmounted here by others.
fn not_elsewhere(dir: &Path, watch: Watch) -> Result<Watch> {
    let device = || {
        let status = Client::of_watched(&watch)?.status().ok()?;
        status["device"].as_str().map(str::to_owned)
    };
    let Some(number) = device() else { return Ok(watch) };
    let Some(place) = place_of(&number)? else { return Ok(watch) };
    if device() != Some(number) {
        // The kernel has let go of it meanwhile, and the number may be another's.
        return Ok(watch);
    }
    let place = shown_name(&place);
    let text = format!("{}: nothing is mounted here: it is mounted on {place} now", dir.display());
    Err(busy(text, "unmount that, if it is to end"))
}

/// Refuses what would take away something else.
fn check_uncovered(dir: &Path) -> Result<()> {
    let Some(kind) = mounted_over(dir)? else { return Ok(()) };
    let text = format!("{}: another file system is mounted over it ({kind})", dir.display());
    Err(busy(text, "unmount that first, with `umount DIR`"))
}

/// Refuses what would lose changes that can still be saved: those of a mount that says that its final sync would
/// fail because of files that can be deleted.
fn check_loses_nothing(dir: &Path, device: &str) -> Result<()> {
    let waits = |fact: &str| {
        let status = Client::of_mount(device).map_err(Failure::from).and_then(Client::status);
        status.is_ok_and(|status| {
            let fact = &status["facts"][fact];
            *fact == true || fact.as_array().is_some_and(|files| !files.is_empty())
        })
    };
    if !waits("waits_for_commit") {
        return Ok(());
    }
    let Err(why) = sync_of(device) else { return Ok(()) };
    if !waits("in_the_way") {
        return Ok(());
    }
    let text = format!("{}: still mounted: {}", dir.display(), why.cause);
    let failure = Failure::new(exit::DEVICE, text).with_remedy(
        "do that, and unmount it again; the command `umount` unmounts it as it is, and what waits is lost",
    );
    Err(Error::new(Kind::Io, failure.cause.clone()).because(failure))
}

/// Refuses to wait for the end of a mount that is somewhere else, too: it is safe, but goes on.
fn still_held(dir: &Path, device: Option<&str>) -> Result<()> {
    let safe = |device: &str| match sync_of(device) {
        Ok(()) => "everything written so far is on the medium".to_owned(),
        Err(why) => format!("it cannot be synced from here ({})", why.cause),
    };
    if let Some(device) = device
        && let Some(place) = place_of(device)?
    {
        let place = shown_name(&place);
        let text = format!(
            "{}: unmounted, but it is mounted on {place}, too; {}",
            dir.display(),
            safe(device)
        );
        return Err(busy(text, "unmount that as well, if it is to end"));
    }
    let holders = holders(dir, device);
    let Some(holder) = holders.first() else { return Ok(()) };
    Err(Error::new(
        Kind::Busy,
        format!(
            "{}: unmounted here, but {holder} holds it in another mount namespace; {}, and it \
             ends with its last holder",
            dir.display(),
            safe(&holder.device)
        ),
    ))
}

/// Busy, with something else to be done than to end programs.
fn busy(text: String, remedy: &str) -> Error {
    let failure = Failure::new(exit::BUSY, text).with_remedy(remedy);
    Error::new(Kind::Busy, failure.cause.clone()).because(failure)
}

/// Has the daemon of a mounted file system put everything on the medium.
pub(super) fn sync_of(device: &str) -> std::result::Result<(), Failure> {
    Client::of_mount(device)?.sync()
}

/// Whether the daemon of a mounted file system says that it writes nothing; waits for one that takes
/// long to say so.
///
/// # Errors
/// [`Kind::Busy`] if it is there and does not answer.
pub(super) fn is_served_read_only(device: &str) -> Result<bool> {
    let asked = match Client::of_mount(device) {
        Err(e) if e.kind() == tacita_daemon::Kind::NotServed => return Ok(false),
        found => found
            .map_err(Failure::from)
            .and_then(|daemon| daemon.ask(&Request::plain("status"), &mut |_| ())?.result()),
    };
    match asked {
        Ok(status) => Ok(status["facts"]["read_only"] == true),
        Err(why) if why.code == exit::BUSY => {
            Err(Error::new(Kind::Busy, why.cause.clone()).because(why))
        }
        // It has ended.
        Err(_) => Ok(false),
    }
}

pub(super) fn not_mounted(dir: &Path) -> Error {
    Error::new(Kind::NotFound, format!("{}: nothing is mounted here", dir.display()))
}

/// The canonical path of `dir`, even if it is a mount whose server is dead.
pub(super) fn canonical(dir: &Path) -> Result<PathBuf> {
    let whole = dir.canonicalize();
    let path = match (&whole, dir.parent(), dir.file_name()) {
        (Err(_), Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            parent.canonicalize().map(|parent| parent.join(name))
        }
        _ => whole,
    };
    path.map_err(|e| {
        let kind = match e.kind() {
            std::io::ErrorKind::PermissionDenied => Kind::AccessDenied,
            _ => Kind::NotFound,
        };
        Error::new(kind, format!("{}: {e}", dir.display())).because(e)
    })
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tacita_daemon::control::{Control, Identity, Reply, Service};
    use tacita_daemon::{FuseDevice, ServingLock};

    use super::*;

    /// Was opened for reading alone, and says so when nobody holds it back.
    #[derive(Default)]
    struct Slow(Mutex<()>);

    impl Service for Slow {
        fn status(&self) -> Value {
            let _held = self.0.lock().unwrap();
            json!({ "read_only": true })
        }

        fn serve(&self, request: &Request, reply: Reply) {
            reply.unknown(request);
        }
    }

    #[test]
    fn a_daemon_that_is_slow_has_not_said_that_it_writes() {
        // Without one it is seen to have mounted nothing.
        let Ok(_any) = std::fs::File::open("/dev/fuse") else {
            return eprintln!(
                "SKIPPED: a_daemon_that_is_slow_has_not_said_that_it_writes: no /dev/fuse"
            );
        };
        // No mount has it, and no other run of these tests.
        let number = format!("4093:{}", std::process::id());
        let (_kernel, channel) = pipe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let slow = Arc::new(Slow::default());
        let identity = Identity {
            system: "slow",
            at: folder.path().canonicalize().unwrap(),
            device: Some(FuseDevice::new(number.clone(), channel.into())),
            source: None,
        };
        let _control = Control::start(identity, Arc::<Slow>::clone(&slow) as _).unwrap();
        let held = slow.0.lock().unwrap();
        let refused = is_served_read_only(&number).unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        drop(held);
        // Other daemons of this machine may be slow, too.
        let mut said = std::iter::repeat_with(|| is_served_read_only(&number));
        assert!(said.find_map(Result::ok).unwrap());
    }

    #[test]
    fn a_number_is_no_more_that_of_a_mount_that_the_kernel_has_let_go() {
        let number = format!("4094:{}", std::process::id());
        let (kernel, channel) = pipe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        let _lock = ServingLock::take(&at).unwrap();
        let watch = Watch::open(&at, None).unwrap().unwrap();
        assert!(!is_let_go(&watch), "nobody says so");
        let identity = Identity {
            system: "slow",
            at,
            device: Some(FuseDevice::new(number, channel.into())),
            source: None,
        };
        let _control = Control::start(identity, Arc::<Slow>::default()).unwrap();
        assert!(!is_let_go(&watch));
        drop(kernel);
        assert!(is_let_go(&watch));
    }

    #[test]
    fn what_is_waited_for_is_told_in_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap().join("a\nb");
        std::fs::create_dir(&dir).unwrap();
        // The kernel has let go, and what served goes on until it is heard that it is waited for.
        let mut lock = Some(ServingLock::take(&dir).unwrap());
        let mut heard = Vec::new();
        let mut tell = |text: &str| {
            heard.push(text.to_owned());
            lock.take().unwrap().finish(None);
        };
        unmount_telling(&dir, &mut tell).unwrap();
        assert!(
            matches!(&heard[..], [line] if line.contains("/a\\u{a}b: unmounted; ") && line.ends_with(" s)")),
            "{heard:?}"
        );
    }
}
