//! What lies beneath a folder: which file system, whether it overwrites in place, what becomes of
//! names and of its journal, and on which device.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx};
use rustix::io::Errno;
use tacita_daemon::mounts;

use crate::error::During;
use crate::ext4::Volume;
use crate::ext4::journal::{self, Erased};
use crate::faults::{Fault, planted};
use crate::kernel::{self, Checkpoint};
use crate::virtual_disk::{file_of_loop, is_virtual_disk};
use crate::{Error, Kind, Result};

/// Whether what is written over a file reaches the blocks that held it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {
    /// By design, where extents are not shared; a probe has to confirm it.
    Expected,
    /// Nobody here can tell; with the reason.
    Unknown(&'static str),
    /// Never; with the reason.
    No(&'static str),
}

/// What becomes of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    /// The file system has none.
    None,
    /// It can be put in place and overwritten with zeros (ext3, ext4).
    Erasable,
    /// It could be, by root.
    NotPermitted,
    /// It has an area for fast commits, which the kernel's one call would erase as well, and which
    /// may be in use: so nothing is asked of it (ext4 with `fast_commit`).
    FastCommits,
    /// It could be, if it has no such area: nobody here can tell.
    Unseen,
    /// It cannot be overwritten; old names and attributes stay until it has gone around (XFS).
    Stays,
    /// Nothing is known of it (network).
    Unknown,
}

/// What the file system does with the names of what is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// It clears them itself, if their directory is written before it is freed (ext4's driver).
    Cleared,
    /// It leaves them until another name needs the place, so other names are put there at once.
    Covered,
}

/// What lies beneath a folder.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct LowerFs {
    /// Type of the file system, as in the mount table.
    pub fs: String,
    /// Whether overwriting reaches the old blocks.
    pub in_place: InPlace,
    /// What becomes of the journal.
    pub journal: Journal,
    /// Whether content passes through the journal (`data=journal`).
    pub journals_data: bool,
    /// Whether small changes may stand in an area of the journal for fast commits; `None` where
    /// nobody here can tell.
    pub fast_commits: Option<bool>,
    /// Whether changes of names reach the medium in their order, even if power is cut.
    pub is_ordered: bool,
    /// What becomes of names.
    pub names: Names,
    /// Whether the device, or one beneath it, does not rotate: flash, which writes elsewhere.
    pub flash: bool,
    /// Whether the device, or one beneath it, is a disk of a virtual machine, as far as can be seen.
    pub on_virtual_disk: bool,
    /// Whether a file system that copies on write lies beneath the device.
    pub copies_beneath: Option<String>,
    /// The file system in user space that has the device as a file, if there is one.
    pub disk_on: Option<String>,
    /// Whether files with the same attributes get one block for them, so that the block that one of
    /// them has had until then is freed as it is (ext2 to ext4, unless mounted with `nombcache`).
    pub shares_values: bool,
    /// Whether content may lie on a device of its own (XFS).
    pub(crate) has_other_device: bool,
    /// Path of the block device, if there is one of its own.
    pub device: Option<PathBuf>,
    raw: Option<File>,
    values: Mutex<()>,
}

/// A type of file system as its number says it.
struct Family {
    magic: u64,
    name: &'static str,
    in_place: InPlace,
    journal: Journal,
    is_ordered: bool,
    names: Names,
}

const COPIES: &str = "it writes every change to a new place and keeps the old one";
const LOG: &str = "it is a log: every change is appended";
const MEMORY: &str = "it lives in memory and swap; there are no blocks to overwrite";
const ANOTHER: &str = "it lies on another file system; use that one";
const NETWORK: &str = "a server decides where data goes; purge on the server";
const STRANGE: &str = "nothing is known about it";

const fn family(
    magic: u64,
    name: &'static str,
    in_place: InPlace,
    (journal, is_ordered, names): (Journal, bool, Names),
) -> Family {
    Family { magic, name, in_place, journal, is_ordered, names }
}

const FAMILIES: [Family; 19] = {
    use InPlace::{Expected, No, Unknown};
    use Names::{Cleared, Covered};
    const PLAIN: (Journal, bool, Names) = (Journal::None, false, Covered);
    const NONE: (Journal, bool, Names) = (Journal::Unknown, false, Covered);
    [
        family(0xEF53, "ext", Expected, (Journal::None, false, Cleared)),
        family(0x5846_5342, "xfs", Expected, (Journal::Stays, true, Covered)),
        family(0x4D44, "fat", Expected, PLAIN),
        family(0x2011_BAB0, "exfat", Expected, PLAIN),
        family(0x137F, "minix", Expected, PLAIN),
        family(0x2468, "minix", Expected, PLAIN),
        family(0x4D5A, "minix", Expected, PLAIN),
        family(0x3153_464A, "jfs", Expected, (Journal::Stays, true, Covered)),
        family(0x9123_683E, "btrfs", No(COPIES), NONE),
        family(0x2FC1_2FC1, "zfs", No(COPIES), NONE),
        family(0xCA45_1A4E, "bcachefs", No(COPIES), NONE),
        family(0xF2F5_2010, "f2fs", No(LOG), NONE),
        family(0x3434, "nilfs2", No(LOG), NONE),
        family(0x2405_1905, "ubifs", No(LOG), NONE),
        family(0x0102_1994, "tmpfs", No(MEMORY), NONE),
        family(0x8584_58F6, "ramfs", No(MEMORY), NONE),
        family(0x794C_7630, "overlay", Unknown(ANOTHER), NONE),
        family(0x6573_5546, "fuse", Unknown(ANOTHER), NONE),
        family(0x6969, "nfs", Unknown(NETWORK), NONE),
    ]
};

impl LowerFs {
    /// Looks at what lies beneath an open file or folder.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn beneath(file: impl AsFd) -> Result<Self> {
        let fs = fstatfs(&file).during("asking for the type of a file system")?;
        // Types are 32 bits, widened with a sign on some machines.
        let magic = fs.f_type.cast_unsigned() & 0xFFFF_FFFF;
        let stat = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
            .during("asking for a device")?;
        let number = (stat.stx_dev_major, stat.stx_dev_minor);
        let known = family_of(magic);
        let (kind, options) = in_mount_table(stat.stx_mnt_id).unzip();
        let options = options.unwrap_or_default();
        let is_ext = known.is_some_and(|k| k.name == "ext");
        let mut lower = Self {
            fs: kind.unwrap_or_else(|| known.map_or("unknown", |k| k.name).to_owned()),
            in_place: known.map_or(InPlace::Unknown(STRANGE), |k| k.in_place),
            journal: known.map_or(Journal::Unknown, |k| k.journal),
            journals_data: false,
            fast_commits: Some(false),
            is_ordered: known.is_some_and(|k| k.is_ordered),
            names: known.map_or(Names::Covered, |k| k.names),
            flash: false,
            on_virtual_disk: false,
            copies_beneath: None,
            disk_on: None,
            shares_values: is_ext && !keeps_values_apart(&options),
            has_other_device: options.contains("rtdev="),
            device: None,
            raw: None,
            values: Mutex::default(),
        };
        lower.find_device(number);
        if is_ext {
            lower.ask_ext(&file);
        }
        Ok(lower)
    }

    fn ask_ext(&mut self, file: impl AsFd) {
        let fast_commits = self.raw().and_then(journal::has_fast_commits);
        self.journal = match kernel::checkpoint(&file, Checkpoint::Ask) {
            Ok(()) => erasable(fast_commits),
            Err(Errno::PERM) if self.has_journal() => Journal::NotPermitted,
            Err(Errno::NODEV | Errno::PERM) => Journal::None,
            // Kernels before 5.14, and the driver of ext2.
            Err(_) if self.fs == "ext2" => Journal::None,
            Err(_) => Journal::Stays,
        };
        self.is_ordered = self.journal != Journal::None;
        self.fast_commits = if self.is_ordered { fast_commits } else { Some(false) };
        let name = self.device.as_deref().and_then(|d| d.file_name()).unwrap_or_default();
        let options = fs::read_to_string(PathBuf::from("/proc/fs/ext4").join(name).join("options"));
        self.journals_data = options.is_ok_and(|o| o.lines().any(|line| line == "data=journal"));
        if self.fs == "ext2" && !PathBuf::from("/proc/fs/ext4").join(name).exists() {
            // Served by the driver of ext2 proper, which leaves names.
            self.names = Names::Covered;
        }
    }

    /// Whether the kernel keeps a journal for the device; asked only where the journal itself may
    /// not be.
    fn has_journal(&self) -> bool {
        let name = self.device.as_deref().and_then(|d| d.file_name()).unwrap_or_default();
        let prefix = format!("{}-", name.to_string_lossy());
        fs::read_dir("/proc/fs/jbd2").map_or(true, |journals| {
            journals
                .flatten()
                .any(|journal| journal.file_name().to_string_lossy().starts_with(&prefix))
        })
    }

    fn find_device(&mut self, (major, minor): (u32, u32)) {
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let Ok(folder) = folder.canonicalize() else {
            return;
        };
        let Some(name) = folder.file_name() else {
            return;
        };
        let device = PathBuf::from("/dev").join(name);
        // A partition has no queue of its own.
        let rotates = ["queue/rotational", "../queue/rotational"]
            .iter()
            .find_map(|path| fs::read_to_string(folder.join(path)).ok());
        self.flash = rotates.is_some_and(|text| text.trim() == "0");
        self.on_virtual_disk = is_virtual_disk(&folder);
        if let Some(file) = file_of_loop(&folder) {
            self.copies_beneath = copies(&file);
            self.disk_on = in_user_space(&file);
            // What the kernel says of a loop device there, it does not know.
            self.flash &= self.disk_on.is_none();
        }
        self.raw = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC)
            .open(&device)
            .ok();
        self.device = Some(device);
    }

    /// What beneath the device may keep old copies where nobody here reaches them, in words.
    pub fn keeps_copies(&self) -> Option<String> {
        let flash = self.flash.then(|| {
            "the device does not rotate: flash writes elsewhere and may keep old copies".to_owned()
        });
        let disk = self.disk_on.as_ref().map(|fs| {
            format!("the disk is a file on {fs}, which may write elsewhere and keep old copies")
        });
        disk.or(flash)
    }

    /// The device to read without any cache, for those who may.
    pub(crate) fn raw(&self) -> Option<&File> {
        self.raw.as_ref()
    }

    /// Whether it is one of ext2, ext3 and ext4, served by ext4's driver.
    pub(crate) fn is_ext(&self) -> bool {
        self.names == Names::Cleared
    }

    /// Whether what was flushed can be put in its place, so that the device shows it there.
    pub(crate) fn puts_in_place(&self) -> bool {
        matches!(self.journal, Journal::None | Journal::Erasable)
    }

    /// The device, where it shows what the file system holds; `None` where it is no ext, may not be
    /// read, or is behind the journal.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub(crate) fn volume(&self) -> Result<Option<Volume<'_>>> {
        match self.raw() {
            Some(device) if self.is_ext() && self.puts_in_place() => Volume::of(device),
            _ => Ok(None),
        }
    }

    /// Held by whoever changes values of attributes. The last two files that have a block would else
    /// both leave it to the other, and it would be freed as it was.
    pub(crate) fn alone_with_values(&self) -> MutexGuard<'_, ()> {
        // It protects nothing that could be left half done.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a handle means the same file as long as that exists. Those of FAT, whose inodes are
    /// numbered in memory, do not.
    pub(crate) fn has_lasting_handles(&self) -> bool {
        matches!(self.fs.as_str(), "ext2" | "ext3" | "ext4" | "xfs")
    }

    /// Whether files are overwritten in their places on a device that can be read, while names are
    /// kept in order by a journal; and files and folders can be known again after a crash.
    pub(crate) fn is_ordered_in_place(&self) -> bool {
        let is_served = matches!(self.fs.as_str(), "ext3" | "ext4" | "xfs");
        is_served
            && self.is_ordered
            && !self.journals_data
            && !self.has_other_device
            && self.raw.is_some()
            && self.check().is_ok()
    }

    /// Whether another machine may keep the files.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.in_place, InPlace::Unknown(NETWORK | STRANGE))
    }

    /// Whether nobody but `file` has its inode open or mapped; true where nobody can tell.
    pub(crate) fn is_ours_alone(&self, file: impl AsFd) -> bool {
        // A server grants leases as it likes, which says nothing of who has a file open.
        self.is_remote() || kernel::is_ours_alone(file).unwrap_or(true)
    }

    /// Whether folders consist of slots, of which a name takes one or several (FAT).
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.fs.as_str(), "vfat" | "msdos" | "fat")
    }

    /// Refuses where overwriting does not reach the old blocks.
    ///
    /// # Errors
    /// [`Kind::Unsuitable`], with the reason.
    pub fn check(&self) -> Result<()> {
        match (&self.in_place, &self.copies_beneath) {
            (InPlace::Unknown(why), _) => Err(Error::new(
                Kind::Unsuitable,
                format!(
                    "{}: it is not known whether overwriting reaches the old blocks: {why}",
                    self.fs
                ),
            )),
            (InPlace::No(why), _) => Err(Error::new(
                Kind::Unsuitable,
                format!("{}: overwriting does not reach the old blocks: {why}", self.fs),
            )),
            (_, Some(fs)) => Err(Error::new(
                Kind::Unsuitable,
                format!("{}: its image lies on {fs}, where blocks are not overwritten", self.fs),
            )),
            _ => Ok(()),
        }
    }

    /// Puts what is in the journal in place, where that is done by a call of its own.
    ///
    /// Never asked for with an area for fast commits: the call keeps others from changing anything
    /// while it waits for a fast commit that waits to change something, and both wait for ever.
    pub(crate) fn flush_journal(&self, any_file: impl AsFd) -> Result<()> {
        if self.journal != Journal::Erasable {
            return Ok(());
        }
        kernel::checkpoint(any_file, Checkpoint::Flush).during("putting the journal in place")
    }

    /// Overwrites the journal with zeros; what was seen of it then, `None` where that cannot be.
    pub(crate) fn erase_journal(&self, any_file: impl AsFd) -> Result<Option<Erased>> {
        if self.journal != Journal::Erasable {
            return Ok(None);
        }
        let erase = || {
            if planted(Fault::JournalStays) {
                return Ok(());
            }
            kernel::checkpoint(&any_file, Checkpoint::Erase).during("erasing the journal")
        };
        let volume = self.volume().unwrap_or_else(|e| {
            log::debug!("the journal cannot be looked at: {e}");
            None
        });
        journal::erase(volume.as_ref(), &erase).map(Some)
    }
}

/// What becomes of a journal that could be erased.
const fn erasable(fast_commits: Option<bool>) -> Journal {
    match fast_commits {
        Some(false) => Journal::Erasable,
        Some(true) => Journal::FastCommits,
        None => Journal::Unseen,
    }
}

fn family_of(magic: u64) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.magic == magic)
}

/// The type and the options of the file system that the mount table shows.
fn in_mount_table(mount: u64) -> Option<(String, String)> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let found = mounts(&table).find(|found| found.id == mount)?;
    Some((found.kind, found.options_of_all))
}

/// Whether options of a mount of ext2 to ext4 say that each file has a block of attributes of its own.
fn keeps_values_apart(options: &str) -> bool {
    options.split(',').any(|option| matches!(option, "nombcache" | "no_mbcache"))
}

/// The file system under a loop device's file, if it does not overwrite in place.
fn copies(backing: &Path) -> Option<String> {
    let family = family_of(magic_of(&File::open(backing).ok()?)?)?;
    matches!(family.in_place, InPlace::No(why) if why == COPIES || why == LOG)
        .then(|| family.name.to_owned())
}

/// The type of the file system in user space that has a loop device's file, which only that one can
/// say anything about.
fn in_user_space(backing: &Path) -> Option<String> {
    // Who is not its user may not look at the file; the mount table tells everybody.
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let around = mounts(&table).filter(|mount| backing.starts_with(&mount.place));
    let kind = around.max_by_key(|mount| mount.place.as_os_str().len())?.kind;
    (kind == "fuse" || kind.starts_with("fuse.")).then_some(kind)
}

fn magic_of(file: &File) -> Option<u64> {
    // Types are 32 bits, widened with a sign on some machines.
    Some(fstatfs(file).ok()?.f_type.cast_unsigned() & 0xFFFF_FFFF)
}

#[cfg(test)]
impl LowerFs {
    /// A file system by its number, without a device.
    pub(crate) fn of_family(magic: u64) -> Self {
        let family = family_of(magic).expect("one of the table");
        Self {
            fs: family.name.to_owned(),
            in_place: family.in_place,
            journal: family.journal,
            journals_data: false,
            fast_commits: Some(false),
            is_ordered: family.is_ordered,
            names: family.names,
            flash: false,
            on_virtual_disk: false,
            copies_beneath: None,
            disk_on: None,
            shares_values: false,
            has_other_device: false,
            device: None,
            raw: None,
            values: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Content, Part};

    /// The kernel is not asked for anything where there may be an area for fast commits: a plain
    /// file refuses whatever it is asked for.
    #[test]
    fn nothing_is_asked_of_a_journal_with_an_area_for_fast_commits() {
        let file = tempfile::tempfile().unwrap();
        for (fast_commits, is_asked) in [(Some(false), true), (Some(true), false), (None, false)] {
            let journal = erasable(fast_commits);
            let lower = LowerFs { journal, fast_commits, ..LowerFs::of_family(0xEF53) };
            assert_eq!(lower.flush_journal(&file).is_err(), is_asked, "{journal:?}");
            let erased = lower.erase_journal(&file);
            assert_eq!(erased.is_err(), is_asked, "{journal:?}");
            assert!(matches!(erased, Err(_) | Ok(None)), "{journal:?}");
            let told = Part::of_journal(&lower, None);
            assert_eq!(told == Part::Done, is_asked, "{journal:?}");
            assert_eq!(lower.puts_in_place(), is_asked, "{journal:?}");
        }
    }

    /// Their numbers, from the kernel's `magic.h` and the file systems' own heads.
    #[test]
    fn what_does_not_overwrite_in_place_is_refused() {
        let refused = [
            (0x9123_683E, "btrfs"),
            (0x2FC1_2FC1, "zfs"),
            (0xCA45_1A4E, "bcachefs"),
            (0xF2F5_2010, "f2fs"),
            (0x3434, "nilfs2"),
            (0x2405_1905, "ubifs"),
            (0x0102_1994, "tmpfs"),
            (0x8584_58F6, "ramfs"),
            (0x794C_7630, "overlay"),
            (0x6573_5546, "fuse"),
            (0x6969, "nfs"),
        ];
        for (magic, name) in refused {
            let lower = LowerFs::of_family(magic);
            let error = lower.check().unwrap_err();
            assert_eq!(error.kind(), Kind::Unsuitable);
            assert!(error.to_string().starts_with(name), "{error}");
            let told = matches!(Content::of_refused(&lower), Some(Content::NotInPlace(_)));
            assert_eq!(told, !["overlay", "fuse", "nfs"].contains(&name), "{name}");
        }
        for magic in [0xEF53, 0x5846_5342, 0x4D44, 0x2011_BAB0] {
            let mut lower = LowerFs::of_family(magic);
            lower.check().unwrap();
            assert_eq!(Content::of_refused(&lower), None);
            lower.copies_beneath = Some("btrfs".to_owned());
            assert_eq!(lower.check().unwrap_err().kind(), Kind::Unsuitable);
        }
        assert!(family_of(0x1234).is_none());
    }
}
