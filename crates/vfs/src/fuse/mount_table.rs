//! What is mounted where, and taking mounts away.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;
use tacita_clock::{Clock, System};

use crate::{Error, Kind, Result};

/// The helper by which ordinary users mount and unmount.
const HELPER: &str = "fusermount3";

/// How long a mount may be in use before that is an error, and how often it is looked at.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_STEP: Duration = Duration::from_millis(50);

/// A mount, as `/proc/self/mountinfo` shows it.
#[derive(Debug)]
pub(super) struct Row {
    /// Major and minor number of the mounted file system, as in `0:42`.
    pub(super) device: String,
    /// Type, as in `fuse.tacita`.
    pub(super) kind: String,
    /// Options of the file system, as in `rw,user_id=1000`.
    pub(super) options: String,
}

/// The topmost mount on `dir`, a canonical path.
pub(super) fn row_of(dir: &Path) -> Result<Option<Row>> {
    let table = fs::read("/proc/self/mountinfo")
        .map_err(|e| Error::new(Kind::Io, "cannot read /proc/self/mountinfo").because(e))?;
    let wanted = escape(dir.as_os_str().as_bytes());
    let rows = table.split(|b| *b == b'\n');
    Ok(rows.filter_map(|row| parse(row, &wanted)).next_back())
}

/// The FUSE file system `device`, or one on `dir`, if a mount table such as `/proc/1/mountinfo` has
/// it: its number.
pub(super) fn mounted_in(table: &[u8], dir: &Path, device: Option<&str>) -> Option<String> {
    let wanted = escape(dir.as_os_str().as_bytes());
    table.split(|b| *b == b'\n').find_map(|row| {
        let its_device = row.split(|b| *b == b' ').nth(2)?;
        match device {
            Some(device) => (its_device == device.as_bytes()).then(|| device.to_owned()),
            None => parse(row, &wanted)
                .filter(|row| row.kind.starts_with("fuse."))
                .map(|row| row.device),
        }
    })
}

/// The number of the file system mounted on `dir`, a canonical path, as in `0:42`.
pub(super) fn device_of_mount(dir: &Path) -> Option<String> {
    Some(row_of(dir).ok()??.device)
}

/// Whether a FUSE file system is mounted on `dir`, a canonical path.
pub(super) fn is_mounted(dir: &Path) -> Result<bool> {
    Ok(row_of(dir)?.is_some_and(|row| row.kind == "fuse" || row.kind.starts_with("fuse.")))
}

/// Who mounted the FUSE file system on `dir`, a canonical path.
pub(super) fn owner_of_mount(dir: &Path) -> Option<u32> {
    let row = row_of(dir).ok()??;
    let mut options = row.options.split(',');
    options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
}

fn parse(row: &[u8], wanted: &[u8]) -> Option<Row> {
    let mut fields = row.split(|b| *b == b' ');
    let device = fields.nth(2)?;
    if fields.nth(1)? != wanted {
        return None;
    }
    let mut fields = fields.skip_while(|field| *field != b"-");
    let kind = fields.nth(1)?;
    let options = fields.nth(1)?;
    Some(Row {
        options: String::from_utf8_lossy(options).into_owned(),
        device: String::from_utf8_lossy(device).into_owned(),
        kind: String::from_utf8_lossy(kind).into_owned(),
    })
}

/// Writes a path as mountinfo does.
fn escape(path: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => {
                escaped.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            _ => escaped.push(*byte),
        }
    }
    escaped
}

/// Takes the mount on `dir` away unless it is in use.
///
/// # Errors
/// [`Kind::Busy`] if it is in use; [`Kind::NotFound`] if nothing is mounted there;
/// [`Kind::NotPermitted`]; [`Kind::Unsupported`] without the helper.
pub(super) fn unmount_busy(dir: &Path) -> Result<()> {
    take_away(dir, UnmountFlags::NOFOLLOW, &["-u"])
}

/// Takes the mount on `dir` away as soon as it is not in use, for it is so for a moment after the last
/// program has left it, and while a process is being started by one that has files open there.
/// `deadline` is a time of [`System`] by which it is given up in any case.
///
/// # Errors
/// As [`unmount_busy`].
pub(super) fn unmount_patiently(dir: &Path, deadline: Option<Duration>) -> Result<()> {
    once_unused(&System, deadline, || unmount_busy(dir))
}

/// Calls `unmount` as long as it is in use, with a patience that ends at `deadline` at the latest.
///
/// # Errors
/// Those of `unmount`.
pub(super) fn once_unused(
    clock: &impl Clock,
    deadline: Option<Duration>,
    mut unmount: impl FnMut() -> Result<()>,
) -> Result<()> {
    let patience = clock.monotonic() + BUSY_MAX;
    let give_up = deadline.map_or(patience, |deadline| deadline.min(patience));
    loop {
        match unmount() {
            Err(e) if e.kind() == Kind::Busy && clock.monotonic() < give_up => {
                clock.wait(BUSY_STEP);
            }
            done => return done,
        }
    }
}

/// Takes the mount on `dir` out of sight; it ends when its last user is gone.
///
/// # Errors
/// As [`unmount_busy`], but never [`Kind::Busy`].
pub(super) fn detach(dir: &Path) -> Result<()> {
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
    take_away(dir, flags, &["-u", "-z"])
}

/// Takes the mount on `dir` away from a server that has been killed. Whatever the kernel has asked of it gets an
/// error: else a thread of the server may wait in the kernel for ever for an answer of its own.
///
/// # Errors
/// As [`detach`].
pub(super) fn abandon(dir: &Path) -> Result<()> {
    // Whoever has mounted it may do that as well as root, where the kernel shows it.
    if let Some(number) = device_of_mount(dir) {
        let number = number.rsplit(':').next().unwrap_or_default();
        let _ = fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1");
    }
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE;
    take_away(dir, flags, &["-u", "-z"])
}

fn take_away(dir: &Path, flags: UnmountFlags, helper_args: &[&str]) -> Result<()> {
    match unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => by_helper(dir, helper_args),
        Err(Errno::INVAL | Errno::NOENT) => {
            Err(Error::new(Kind::NotFound, format!("{}: nothing is mounted here", dir.display())))
        }
        Err(Errno::BUSY) => Err(busy(dir)),
        Err(e) => {
            Err(Error::new(Kind::Io, format!("{}: cannot unmount", dir.display())).because(e))
        }
    }
}

fn by_helper(dir: &Path, args: &[&str]) -> Result<()> {
    let output = Command::new(HELPER).args(args).arg("--").arg(dir).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) if !is_mounted(dir)? => {
            Err(Error::new(Kind::NotFound, format!("{}: nothing is mounted here", dir.display())))
        }
        Ok(output) => Err(refused_by_helper(dir, &String::from_utf8_lossy(&output.stderr))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let text = format!("{}: fusermount3 is not installed", dir.display());
            Err(Error::new(Kind::Unsupported, text).because(e))
        }
        Err(e) => {
            let text = format!("{}: cannot run fusermount3", dir.display());
            Err(Error::new(Kind::Io, text).because(e))
        }
    }
}

/// The helper has one exit code for all failures, and what it says is not translated.
fn refused_by_helper(dir: &Path, said: &str) -> Error {
    if said.contains("busy") {
        return busy(dir);
    }
    let is_theirs = owner_of_mount(dir).is_some_and(|owner| owner != geteuid().as_raw());
    let why = if is_theirs { "mounted by another user" } else { said.trim() };
    Error::new(Kind::NotPermitted, format!("{}: {why}", dir.display()))
}

fn busy(dir: &Path) -> Error {
    Error::new(Kind::Busy, format!("{}: in use", dir.display()))
}

/// Whether the helper is installed.
pub(super) fn has_helper() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let standard = ["/bin", "/usr/bin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(standard).any(|dir| dir.join(HELPER).exists())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tacita_clock::Simulated;

    use super::*;

    #[test]
    fn rows_are_found_by_their_mount_point() {
        let row = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - fuse.x src rw,user_id=7";
        let found = parse(row, &escape(b"/mnt 2")).unwrap();
        assert_eq!(found.device, "98:0");
        assert_eq!(found.kind, "fuse.x");
        assert_eq!(found.options, "rw,user_id=7");
        assert!(parse(row, b"/mnt").is_none());
        assert!(parse(b"", b"/").is_none());
    }

    /// In use for so long: how it ends, and how often it was tried.
    fn in_use_for(time: Duration, deadline: Option<Duration>) -> (Result<()>, u32) {
        let clock = Simulated::at(SystemTime::UNIX_EPOCH);
        std::thread::scope(|scope| {
            let unmounting = scope.spawn(|| {
                let mut tries = 0;
                let done = once_unused(&clock, deadline, || {
                    tries += 1;
                    let in_use = clock.monotonic() < time;
                    if in_use { Err(Error::new(Kind::Busy, "in use")) } else { Ok(()) }
                });
                (done, tries)
            });
            while !unmounting.is_finished() {
                clock.advance_to_next();
                std::thread::yield_now();
            }
            unmounting.join().unwrap()
        })
    }

    #[test]
    fn what_is_in_use_for_a_moment_is_waited_for() {
        let (done, tries) = in_use_for(Duration::ZERO, None);
        assert_eq!((done.is_ok(), tries), (true, 1));
        let (done, tries) = in_use_for(BUSY_MAX / 2, None);
        assert!(done.is_ok() && tries > 1, "{done:?} after {tries} tries");
        let (done, _) = in_use_for(BUSY_MAX + BUSY_STEP, None);
        assert_eq!(done.unwrap_err().kind(), Kind::Busy);
        let (done, tries) = in_use_for(BUSY_MAX / 2, Some(BUSY_STEP));
        assert_eq!((done.unwrap_err().kind(), tries), (Kind::Busy, 2), "it had less time");
    }

    #[test]
    fn other_errors_are_told_at_once() {
        let clock = Simulated::at(SystemTime::UNIX_EPOCH);
        let refused = || Err(Error::new(Kind::NotPermitted, "no"));
        assert_eq!(once_unused(&clock, None, refused).unwrap_err().kind(), Kind::NotPermitted);
    }
}
