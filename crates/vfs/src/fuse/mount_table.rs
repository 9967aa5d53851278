//! What is mounted where, and taking mounts away.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;
use tacita_clock::{Clock, System};
use tacita_daemon::{FuseDevice, Mount, mounts};

use crate::{Error, Kind, Result};

/// The helper by which ordinary users mount and unmount.
const HELPER: &str = "fusermount3";

/// What the types of our file systems begin with.
const OURS: &str = "fuse.tacita-";

/// How long a mount may be in use before that is an error, and how often it is looked at.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_STEP: Duration = Duration::from_millis(50);

/// The topmost mount on `dir`, a canonical path.
pub(super) fn mount_on(dir: &Path) -> Result<Option<Mount>> {
    Ok(mounts(&mount_table()?).rfind(|mount| mount.place == dir))
}

/// What is mounted over one of our file systems on `dir`, a canonical path: by the path alone that would be taken
/// away. Its kind, such as `tmpfs`.
pub(super) fn mounted_over(dir: &Path) -> Result<Option<String>> {
    let table = mount_table()?;
    let mut here = mounts(&table).rev().filter(|mount| mount.place == dir);
    let is_ours = |mount: &Mount| mount.kind.starts_with(OURS);
    let topmost = here.next().filter(|topmost| !is_ours(topmost));
    Ok(topmost.filter(|_| here.any(|mount| is_ours(&mount))).map(|topmost| topmost.kind))
}

/// The number of our file system on `dir`, a canonical path, if it is mounted nowhere else.
pub(super) fn sole_mount_on(dir: &Path) -> Result<Option<String>> {
    let table = mount_table()?;
    let ours = mounts(&table).rfind(|mount| mount.place == dir);
    let ours = ours.filter(|mount| mount.kind.starts_with(OURS));
    let is_sole = |device: &String| mounts(&table).filter(|m| m.device == *device).count() == 1;
    Ok(ours.map(|mount| mount.device).filter(is_sole))
}

fn mount_table() -> Result<Vec<u8>> {
    fs::read("/proc/self/mountinfo")
        .map_err(|e| Error::new(Kind::Io, "cannot read /proc/self/mountinfo").because(e))
}

/// The FUSE file system `device`, or one on `dir`, if a mount table such as `/proc/1/mountinfo` has
/// it: its number.
pub(super) fn mounted_in(table: &[u8], dir: &Path, device: Option<&str>) -> Option<String> {
    let is_it = |mount: &Mount| match device {
        Some(device) => mount.device == device,
        None => mount.place == dir && mount.kind.starts_with("fuse."),
    };
    mounts(table).find(is_it).map(|mount| mount.device)
}

/// Where a file system is mounted, if it is.
pub(super) fn place_of(device: &str) -> Result<Option<PathBuf>> {
    Ok(mounts(&mount_table()?).find(|mount| mount.device == device).map(|mount| mount.place))
}

/// The number of the file system mounted on `dir`, a canonical path, as in `0:42`.
pub(super) fn device_of_mount(dir: &Path) -> Option<String> {
    Some(mount_on(dir).ok()??.device)
}

/// Whether a FUSE file system is mounted on `dir`, a canonical path.
pub(super) fn is_mounted(dir: &Path) -> Result<bool> {
    Ok(mount_on(dir)?.is_some_and(|mount| is_fuse(&mount)))
}

fn is_fuse(mount: &Mount) -> bool {
    mount.kind == "fuse" || mount.kind.starts_with("fuse.")
}

/// Who mounted the FUSE file system on `dir`, a canonical path.
pub(super) fn owner_of_mount(dir: &Path) -> Option<u32> {
    mount_on(dir).ok()??.mounter()
}

/// Where a file system is mounted, and which one it is: by the path alone another one would be meant that is
/// mounted beneath it, or over it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    dir: PathBuf,
    /// The number of the mount, and that of the file system; none if somebody had taken it away already.
    mount: Option<(u64, FuseDevice)>,
}

impl Place {
    /// Of what has just been mounted on `dir`, a canonical path, and is served through `channel`.
    ///
    /// # Errors
    /// [`Kind::Io`] if the table of mounts cannot be read.
    pub(super) fn of(dir: &Path, channel: OwnedFd) -> Result<Self> {
        let mount = mount_on(dir)?.filter(is_fuse);
        let mount = mount.map(|mount| (mount.id, FuseDevice::new(mount.device, channel)));
        Ok(Self { dir: dir.to_owned(), mount })
    }

    /// The folder, by the path that it had then.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The number of what is mounted there.
    pub(super) fn device(&self) -> Option<&FuseDevice> {
        self.mount.as_ref().map(|(_, device)| device)
    }

    /// Takes it away as [`unmount_busy`].
    ///
    /// # Errors
    /// Those of [`unmount_busy`]; [`Kind::Busy`] also where something is mounted over it.
    pub(super) fn unmount_busy(&self) -> Result<()> {
        unmount_busy(&self.now()?)
    }

    /// Takes it away as soon as it is not in use, for it is so for a moment after the last program has left it,
    /// and while a process is being started by one that has files open there.
    ///
    /// # Errors
    /// As [`Place::unmount_busy`].
    pub(super) fn unmount_patiently(&self) -> Result<()> {
        once_unused(&System, None, || self.unmount_busy())
    }

    /// Takes it out of sight; it ends when its last user is gone.
    ///
    /// # Errors
    /// As [`Place::unmount_busy`], but [`Kind::Busy`] only where something is mounted over it.
    pub(super) fn detach(&self) -> Result<()> {
        detach(&self.now()?)
    }

    /// Whether an unmount by its path would take away something else.
    pub(super) fn is_covered(&self) -> bool {
        self.now().is_err_and(|e| e.kind() == Kind::Busy)
    }

    /// Where it is by now, if it is what an unmount by that path takes away, as far as that can be known: without
    /// a descriptor to be had it has to end, too.
    fn now(&self) -> Result<PathBuf> {
        let nothing = || nothing_on(&self.dir);
        let (id, device) = self.mount.as_ref().ok_or_else(nothing)?;
        let number = device.number().ok_or_else(nothing)?;
        let Ok(table) = mount_table() else { return Ok(self.dir.clone()) };
        place_now(&table, &self.dir, *id, number)
    }
}

/// The place of a mount that was on `dir`: a folder above it may have got another name since.
fn place_now(table: &[u8], dir: &Path, id: u64, device: &str) -> Result<PathBuf> {
    let is_it = |mount: &Mount| mount.device == device;
    let now = mounts(table).find(|mount| is_it(mount) && mount.id == id);
    let dir = now.map_or_else(|| dir.to_owned(), |mount| mount.place);
    match mounts(table).rfind(|mount| mount.place == dir) {
        Some(topmost) if is_it(&topmost) => Ok(dir),
        _ if mounts(table).any(|mount| is_it(&mount)) => Err(busy(&dir)),
        _ => Err(nothing_on(&dir)),
    }
}

/// Takes the mount on `dir` away unless it is in use.
///
/// # Errors
/// [`Kind::Busy`] if it is in use; [`Kind::NotFound`] if nothing is mounted there;
/// [`Kind::NotPermitted`]; [`Kind::Unsupported`] without the helper.
pub(super) fn unmount_busy(dir: &Path) -> Result<()> {
    take_away(dir, UnmountFlags::NOFOLLOW, &["-u"])
}

/// Takes the mount on `dir` out of sight; it ends when its last user is gone.
///
/// # Errors
/// As [`unmount_busy`], but never [`Kind::Busy`].
pub(super) fn detach(dir: &Path) -> Result<()> {
    take_away(dir, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, &["-u", "-z"])
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

/// Takes the mount on `dir` away from a server that has been killed. Whatever the kernel has asked of it gets an
/// error: else a thread of the server may wait in the kernel for ever for an answer of its own.
///
/// # Errors
/// As [`unmount_busy`], but never [`Kind::Busy`].
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
        Err(Errno::INVAL | Errno::NOENT) => Err(nothing_on(dir)),
        Err(Errno::BUSY) => Err(busy(dir)),
        Err(e) => {
            Err(Error::new(Kind::Io, format!("{}: cannot unmount", dir.display())).because(e))
        }
    }
}

fn by_helper(dir: &Path, args: &[&str]) -> Result<()> {
    let helper = helper().unwrap_or_else(|| HELPER.into());
    let output = Command::new(helper).args(args).arg("--").arg(dir).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) if !is_mounted(dir)? => Err(nothing_on(dir)),
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

fn nothing_on(dir: &Path) -> Error {
    Error::new(Kind::NotFound, format!("{}: nothing is mounted here", dir.display()))
}

fn busy(dir: &Path) -> Error {
    Error::new(Kind::Busy, format!("{}: in use", dir.display()))
}

/// Where the helper is installed: the library that mounts does not look in `PATH` alone, either.
pub(super) fn helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let standard = ["/bin", "/usr/bin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(standard).map(|dir| dir.join(HELPER));
    places.find(|helper| helper.exists())
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::time::SystemTime;

    use tacita_clock::Simulated;

    use super::*;

    #[test]
    fn a_table_tells_what_is_mounted_where() {
        let table = b"36 35 0:41 / /mnt1 rw,noatime master:1 - fuse.x src rw,user_id=7\n\
            37 35 0:42 / /mnt\\0402 rw - fuse.y src rw,user_id=7\n\
            38 35 8:1 / /mnt3 rw - ext4 src rw";
        let found = |dir: &str, device| mounted_in(table, Path::new(dir), device);
        assert_eq!(found("/mnt1", None).as_deref(), Some("0:41"));
        assert_eq!(found("/mnt 2", None).as_deref(), Some("0:42"));
        assert_eq!(found("/mnt", None), None);
        assert_eq!(found("/mnt3", None), None, "it is not in user space");
        assert_eq!(found("/moved", Some("0:42")).as_deref(), Some("0:42"));
        assert_eq!(found("/mnt1", Some("0:43")), None);
    }

    /// Another file system may have its number then, and even be mounted on the same folder.
    #[test]
    fn what_the_kernel_has_let_go_of_is_not_taken_away() {
        let (kernel, channel) = pipe().unwrap();
        let proc = mount_on(Path::new("/proc")).unwrap().unwrap();
        let device = FuseDevice::new(proc.device, channel.into());
        let place = Place { dir: proc.place, mount: Some((proc.id, device)) };
        place.now().unwrap();
        drop(kernel);
        assert_eq!(place.now().unwrap_err().kind(), Kind::NotFound);
        // Nor what is not ours, but was there when ours was looked for.
        let (_kernel, channel) = pipe().unwrap();
        let beneath = Place::of(Path::new("/proc"), channel.into()).unwrap();
        assert_eq!(beneath.now().unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn a_mount_is_found_where_it_is_by_now() {
        let now = |table: &str| {
            let found = place_now(table.as_bytes(), Path::new("/a/m"), 36, "0:41");
            found.map_err(|e| e.kind())
        };
        let row = |id: u64, device: &str, place: &str| {
            format!("{id} 35 {device} / {place} rw - x s rw\n")
        };
        let (own, over) = (row(36, "0:41", "/a/m"), row(40, "0:43", "/a/m"));
        let (moved, bound) = (row(36, "0:41", "/b/m"), row(39, "0:41", "/c"));
        assert_eq!(now(&own), Ok("/a/m".into()));
        assert_eq!(now(&(own.clone() + &bound)), Ok("/a/m".into()));
        assert_eq!(now(&(own + &over)), Err(Kind::Busy));
        assert_eq!(now(&moved), Ok("/b/m".into()), "a folder above it has another name");
        assert_eq!(now(&(moved.clone() + &over)), Ok("/b/m".into()), "and another one has come");
        assert_eq!(now(&(moved + &row(41, "0:44", "/b/m"))), Err(Kind::Busy));
        assert_eq!(now(&bound), Err(Kind::Busy), "that one was made by somebody else");
        assert_eq!(now(&over), Err(Kind::NotFound));
        assert_eq!(now(""), Err(Kind::NotFound));
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
