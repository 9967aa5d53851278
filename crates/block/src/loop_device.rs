//! What else a device is: the file behind a loop device, the disk that a partition is of. Whoever has the
//! device has that, and another process may come to it by its name, or by another device.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::file::Access;
use crate::{Error, Kind};

/// `LOOP_GET_STATUS64` of linux/loop.h.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
/// Length of its answer, `struct loop_info64`, in words of 8 bytes.
const INFO_WORDS: usize = 29;
/// Words of the answer: device and inode of the file, and which part of it the device shows.
const DEVICE: usize = 0;
const INODE: usize = 1;
const OFFSET: usize = 3;
const SIZE_LIMIT: usize = 4;
/// Loop devices on loop devices that are followed.
const DEPTH_MAX: usize = 8;

/// Locks of the files behind a loop device, and of the disk of a partition; none of anything else.
#[derive(Debug, Default)]
pub(crate) struct BackingLock {
    _files: Vec<File>,
    _disk: Option<File>,
}

impl BackingLock {
    /// Locks the file behind `device` as if it had been opened in its place, and what is behind that
    /// if it is a loop device itself.
    ///
    /// A partition, or a loop device that shows a part of the file only, shares the file with those of
    /// other parts: the part is locked for itself, and the whole file against those who want all of it.
    ///
    /// The disk of a partition is locked shared, as others do who use one: those of other partitions are
    /// let in, and nobody writes to all of it.
    ///
    /// What cannot be opened by its name (a file that was deleted, lies in another mount namespace, or
    /// belongs to somebody else) is left alone.
    ///
    /// # Errors
    /// The file or disk that is in use.
    pub(crate) fn take(device: &File, access: Access) -> Result<Self, PathBuf> {
        let disk = match disk_of(device) {
            Some((path, disk)) if is_taken(&disk, FlockOperation::NonBlockingLockShared) => {
                return Err(path);
            }
            disk => disk.map(|(_, disk)| disk),
        };
        let mut files: Vec<File> = Vec::new();
        while files.len() < DEPTH_MAX {
            let Some(backing) = Backing::of(files.last().unwrap_or(device)) else { break };
            let Some(file) = backing.open(access) else { break };
            if !backing.lock(&file, access) {
                return Err(backing.path);
            }
            files.push(file);
        }
        Ok(Self { _files: files, _disk: disk })
    }
}

/// Refuses a file that the kernel swaps to, and one that a loop device shows, or one that shows that, and that
/// somebody has for himself: most often it is mounted. Whoever writes to the file, or takes its name, takes it
/// from under them.
///
/// Loop devices are known by the file's name alone: asking such a device waits for whoever serves what is behind
/// it.
///
/// # Errors
/// [`Kind::Busy`]; `path` is what the file is called.
pub(crate) fn refuse_held(file: &File, path: &Path) -> crate::Result<()> {
    if let Some(refusal) = swapped_to(file) {
        let text = format!("{} is in use", path.display());
        return Err(Error::new(Kind::Busy, text).because(refusal));
    }
    let name = fs::read_link(named(file));
    match name.ok().and_then(|name| shown_and_held_within(DEPTH_MAX, &name)) {
        Some(device) => {
            let text = format!("{} is in use as {}", path.display(), device.display());
            Err(Error::new(Kind::Busy, text))
        }
        None => Ok(()),
    }
}

/// The name by which this process finds a file that it has open, however it is open.
fn named(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// How the kernel refuses whoever writes to a file that it swaps to, be it nothing; `None` of any other file, and
/// of one that may not be written.
fn swapped_to(file: &File) -> Option<std::io::Error> {
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits().cast_signed();
    let writable = OpenOptions::new().write(true).custom_flags(flags).open(named(file)).ok()?;
    let refusal = rustix::io::pwrite(&writable, &[], 0).err();
    refusal.filter(|refusal| *refusal == Errno::TXTBSY).map(Into::into)
}

fn shown_and_held_within(depth: usize, name: &Path) -> Option<PathBuf> {
    let depth = depth.checked_sub(1)?;
    fs::read_dir("/sys/block").ok()?.flatten().find_map(|entry| {
        let mut backing = fs::read(entry.path().join("loop/backing_file")).ok()?;
        backing.pop_if(|last| *last == b'\n');
        if name.as_os_str().as_bytes() != backing {
            return None;
        }
        let device = Path::new("/dev").join(entry.file_name());
        if is_held(&device).unwrap_or_else(|| is_mounted(&entry.path())) {
            return Some(device);
        }
        shown_and_held_within(depth, &device)
    })
}

/// Whether somebody has a device for himself; `None` if that cannot be seen.
fn is_held(device: &Path) -> Option<bool> {
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::EXCL;
    let opened =
        OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(device);
    match opened {
        Ok(_) => Some(false),
        Err(e) => (e.kind() == ErrorKind::ResourceBusy).then_some(true),
    }
}

/// Whether the file system of a device that sysfs describes is mounted here.
fn is_mounted(own: &Path) -> bool {
    let number = fs::read_to_string(own.join("dev")).unwrap_or_default();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(2) == Some(number.trim()))
}

/// What is behind a loop device.
struct Backing {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Where the part begins that the device shows, and its length, if it is not the whole file.
    part: Option<(u64, u64)>,
}

impl Backing {
    /// `None` if it is no loop device, or has no file.
    fn of(device: &File) -> Option<Self> {
        let own = described(device)?;
        let (mut path, start) = if let Ok(path) = fs::read(own.join("loop/backing_file")) {
            (path, None)
        } else {
            // Of a partition, what the whole device has.
            let path = fs::read(own.join("../loop/backing_file")).ok()?;
            (path, Some(number(&own.join("start"))? * 512))
        };
        path.pop_if(|last| *last == b'\n');
        let info = info(device)?;
        let is_part = start.is_some() || info[OFFSET] > 0 || info[SIZE_LIMIT] > 0;
        let at = info[OFFSET] + start.unwrap_or(0);
        let part = is_part.then_some((at, number(&own.join("size"))? * 512));
        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        Some(Self { path, device: info[DEVICE], inode: info[INODE], part })
    }

    /// `None` if it is not reachable, or another file has its name here.
    fn open(&self, access: Access) -> Option<File> {
        let is_it = |meta: fs::Metadata| {
            let kind = meta.file_type();
            (meta.dev(), meta.ino()) == (self.device, self.inode)
                && (kind.is_file() || kind.is_block_device())
        };
        fs::metadata(&self.path).ok().filter(|meta| is_it(meta.clone()))?;
        // Only what is open for writing can be locked in part.
        let write = access == Access::ReadWrite && self.part.is_some();
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = |write| {
            let mut options = OpenOptions::new();
            options.read(true).write(write).custom_flags(flags.bits().cast_signed());
            options.open(&self.path).ok()
        };
        let file = open(write).or_else(|| open(false))?;
        file.metadata().is_ok_and(is_it).then_some(file)
    }

    /// Whether nobody else has it.
    fn lock(&self, file: &File, access: Access) -> bool {
        let how = match access {
            Access::ReadWrite if self.part.is_none() => FlockOperation::NonBlockingLockExclusive,
            _ => FlockOperation::NonBlockingLockShared,
        };
        !is_taken(file, how) && self.part.is_none_or(|part| lock_part(file, part, access))
    }
}

/// Locks a file or disk, unless somebody else has it.
fn is_taken(file: &File, how: FlockOperation) -> bool {
    rustix::fs::flock(file, how) == Err(Errno::WOULDBLOCK)
}

/// Where sysfs describes a device; `None` for what is none.
fn described(device: &File) -> Option<PathBuf> {
    let meta = device.metadata().ok().filter(|meta| meta.file_type().is_block_device())?;
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    Some(PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
}

/// The disk that a partition is of, and its name; `None` for anything else.
fn disk_of(device: &File) -> Option<(PathBuf, File)> {
    let own = described(device).filter(|own| own.join("partition").exists())?;
    let disk = own.canonicalize().ok()?.parent()?.to_owned();
    // A slash in the name of a device is an exclamation mark there.
    let name = disk.file_name()?.to_str()?.replace('!', "/");
    let path = Path::new("/dev").join(name);
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(&path).ok()?;
    (described(&file)?.canonicalize().ok()? == disk).then_some((path, file))
}

/// A file of sysfs that holds a number.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[allow(unsafe_code, reason = "JUSTIFICATION: no safe wrapper of the call exists")]
fn info(device: &File) -> Option<[u64; INFO_WORDS]> {
    let mut info = [0; INFO_WORDS];
    // SAFETY: the descriptor is open, and the answer is as long as what it is written to.
    let told = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) };
    (told == 0).then_some(info)
}

/// Whether nobody else has these bytes, who looks at them as a part, too.
#[allow(unsafe_code, reason = "JUSTIFICATION: no safe wrapper of the call exists")]
fn lock_part(file: &File, (start, len): (u64, u64), access: Access) -> bool {
    let kind = if access == Access::ReadWrite { libc::F_WRLCK } else { libc::F_RDLCK };
    let (Ok(start), Ok(len)) = (i64::try_from(start), i64::try_from(len)) else { return true };
    // SAFETY: all zero is a value of it.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = i16::try_from(kind).expect("a small number");
    range.l_whence = i16::try_from(libc::SEEK_SET).expect("a small number");
    (range.l_start, range.l_len) = (start, len);
    // SAFETY: the descriptor is open, and the call reads what it is given.
    let taken = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    let error = std::io::Error::last_os_error();
    taken == 0 || !matches!(Errno::from_io_error(&error), Some(Errno::AGAIN | Errno::ACCESS))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::FileDevice;

    /// A loop device; detached when dropped.
    struct Loop(PathBuf);

    impl Loop {
        fn on(file: &Path, options: &[&str]) -> Option<Self> {
            let mut losetup = Command::new("losetup");
            losetup.args(["--find", "--show"]).args(options).arg(file);
            let output = losetup.output().ok().filter(|output| output.status.success())?;
            Some(Self(String::from_utf8(output.stdout).ok()?.trim().into()))
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
        }
    }

    fn open(path: &Path, access: Access) -> Result<FileDevice, Kind> {
        FileDevice::open(path, access, 512).map_err(|e| e.kind())
    }

    #[test]
    fn a_file_is_locked_with_what_shows_it() {
        use Access::{ReadOnly, ReadWrite};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        drop(FileDevice::create(&file, 4 << 20, 512).unwrap());
        let Some(first) = Loop::on(&file, &[]) else {
            eprintln!("SKIPPED: a_file_is_locked_with_what_shows_it: no loop device here");
            return;
        };
        let second = Loop::on(&file, &[]).unwrap();
        let above = Loop::on(&second.0, &[]).unwrap();
        let all = [&file, &first.0, &second.0, &above.0];
        for path in all {
            let writer = open(path, ReadWrite).unwrap();
            for other in all {
                for access in [ReadOnly, ReadWrite] {
                    assert_eq!(open(other, access).err(), Some(Kind::Busy), "{path:?} {other:?}");
                }
            }
            drop(writer);
            let readers = all.map(|path| open(path, ReadOnly).unwrap());
            for other in all {
                assert_eq!(open(other, ReadWrite).err(), Some(Kind::Busy), "{other:?}");
            }
            drop(readers);
        }
        // Another file has the name; the one behind the devices has none.
        fs::remove_file(&file).unwrap();
        let new = FileDevice::create(&file, 1 << 20, 512).unwrap();
        drop(open(&first.0, ReadWrite).unwrap());
        drop(new);
    }

    /// As for a mounted file system.
    #[test]
    fn a_file_is_not_written_beneath_whoever_has_its_loop_device() {
        use Access::{ReadOnly, ReadWrite};
        let test = "a_file_is_not_written_beneath_whoever_has_its_loop_device";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        drop(FileDevice::create(&file, 4 << 20, 512).unwrap());
        let Some(first) = Loop::on(&file, &[]) else {
            eprintln!("SKIPPED: {test}: no loop device here");
            return;
        };
        let part = Loop::on(&file, &["--offset", "1048576"]).unwrap();
        let above = Loop::on(&first.0, &[]).unwrap();
        for (held, beneath) in [(&first, 1), (&part, 1), (&above, 2)] {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(OFlags::EXCL.bits().cast_signed());
            let user = options.open(&held.0).unwrap();
            for path in [&file, &first.0].into_iter().take(beneath) {
                let error = FileDevice::open(path, ReadWrite, 512).unwrap_err();
                assert_eq!(error.kind(), Kind::Busy, "{path:?} beneath {:?}", held.0);
                let told = error.to_string();
                assert!(told.contains(held.0.to_str().unwrap()), "{told}");
                drop(open(path, ReadOnly).unwrap());
            }
            drop(user);
            drop(open(&file, ReadWrite).unwrap());
        }
        assert!(!is_mounted(&Path::new("/sys/block").join(first.0.file_name().unwrap())));
    }

    #[test]
    fn parts_of_a_file_are_locked_by_themselves() {
        use Access::{ReadOnly, ReadWrite};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        drop(FileDevice::create(&file, 4 << 20, 512).unwrap());
        let part = |at: &str| Loop::on(&file, &["--offset", at, "--sizelimit", "1048576"]);
        let Some(first) = part("0") else {
            eprintln!("SKIPPED: parts_of_a_file_are_locked_by_themselves: no loop device here");
            return;
        };
        let (again, second) = (part("0").unwrap(), part("1048576").unwrap());
        let writers = [open(&first.0, ReadWrite).unwrap(), open(&second.0, ReadWrite).unwrap()];
        assert_eq!(open(&again.0, ReadWrite).err(), Some(Kind::Busy));
        assert_eq!(open(&again.0, ReadOnly).err(), Some(Kind::Busy));
        assert_eq!(open(&file, ReadWrite).err(), Some(Kind::Busy));
        drop(writers);
        let _readers = [open(&first.0, ReadOnly).unwrap(), open(&again.0, ReadOnly).unwrap()];
        assert_eq!(open(&again.0, ReadWrite).err(), Some(Kind::Busy));
        drop(open(&second.0, ReadWrite).unwrap());
    }

    /// Of a device whose file cannot be locked, as of any disk.
    #[test]
    fn a_disk_is_locked_with_its_partitions() {
        use Access::{ReadOnly, ReadWrite};
        let test = "a_disk_is_locked_with_its_partitions";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        drop(FileDevice::create(&file, 8 << 20, 512).unwrap());
        let Some(disk) = Loop::on(&file, &[]) else {
            eprintln!("SKIPPED: {test}: no loop device here");
            return;
        };
        fs::remove_file(&file).unwrap();
        let part = |number: u32, start: &str| {
            let mut addpart = Command::new("addpart");
            addpart.arg(&disk.0).args([&number.to_string(), start, "4096"]);
            let added = addpart.status();
            let path = PathBuf::from(format!("{}p{number}", disk.0.display()));
            (added.is_ok_and(|status| status.success()) && path.exists()).then_some(path)
        };
        let parts = [part(1, "2048"), part(2, "8192")];
        let played = if let [Some(first), Some(second)] = &parts {
            let mut seen = Vec::new();
            for access in [ReadOnly, ReadWrite] {
                let held = [open(first, access).unwrap(), open(second, access).unwrap()];
                seen.push(open(&disk.0, ReadWrite).err());
                drop(held);
            }
            let held = open(&disk.0, ReadWrite).unwrap();
            seen.extend([first, second].map(|part| open(part, ReadOnly).err()));
            drop(held);
            let held = open(&disk.0, ReadOnly).unwrap();
            drop([open(first, ReadOnly).unwrap(), open(second, ReadOnly).unwrap()]);
            drop(held);
            Some(seen)
        } else {
            None
        };
        for number in ["1", "2"] {
            let _ = Command::new("delpart").arg(&disk.0).arg(number).status();
        }
        match played {
            Some(seen) => assert_eq!(seen, [Some(Kind::Busy); 4]),
            None => eprintln!("SKIPPED: {test}: no partitions can be made here"),
        }
    }
}
