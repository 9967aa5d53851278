//! Images of real file systems, mounted by loop devices.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mount::{UnmountFlags, unmount};
use tacita_testkit::search::{self, Stretch};
use tacita_testkit::system;
use tempfile::TempDir;

#[cfg(feature = "faults")]
use crate::witness::Witness;

/// Which file system, and how it is made and mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fs {
    Ext2,
    Ext3,
    Ext4,
    /// `data=journal`.
    Ext4Journaled,
    /// `data=writeback`.
    Ext4Writeback,
    /// Without a journal.
    Ext4Plain,
    /// Large values of attributes have inodes of their own.
    Ext4EaInode,
    /// Small files and folders lie in their inodes.
    Ext4Inline,
    /// Blocks are given out in clusters.
    Ext4Bigalloc,
    /// In blocks of 1 KiB: the only ones that begin before the first block of data.
    Ext4BigallocSmall,
    /// Names may be compared folded.
    Ext4Casefold,
    /// Folders may be encrypted. Blocks of 1 KiB, which are split soon.
    Ext4Encrypted,
    /// Small changes go to a journal of their own.
    Ext4FastCommit,
    /// Blocks are given out when they are written to: only so files are journaled one by one.
    Ext4Immediate,
    /// A fifth of it is kept for root.
    Ext4Reserved,
    Xfs,
    Btrfs,
}

impl Fs {
    /// What is made for it: program, its arguments, mount options, size in MiB.
    fn recipe(self) -> (&'static str, &'static [&'static str], &'static str, u64) {
        match self {
            Self::Ext2 => ("mkfs.ext2", &["-q", "-F", "-b", "4096"], "loop", 32),
            Self::Ext3 => ("mkfs.ext3", &["-q", "-F", "-b", "4096"], "loop", 32),
            Self::Ext4 => ("mkfs.ext4", &["-q", "-F", "-b", "4096"], "loop", 48),
            Self::Ext4Journaled => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096"], "loop,data=journal", 48)
            }
            Self::Ext4Writeback => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096"], "loop,data=writeback", 48)
            }
            Self::Ext4Plain => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "^has_journal"], "loop", 32)
            }
            Self::Ext4EaInode => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "ea_inode"], "loop", 48)
            }
            Self::Ext4Inline => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "inline_data"], "loop", 48)
            }
            Self::Ext4Bigalloc => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "bigalloc"], "loop", 64)
            }
            Self::Ext4BigallocSmall => {
                ("mkfs.ext4", &["-q", "-F", "-b", "1024", "-O", "bigalloc"], "loop", 64)
            }
            Self::Ext4Casefold => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "casefold"], "loop", 48)
            }
            Self::Ext4Encrypted => {
                ("mkfs.ext4", &["-q", "-F", "-b", "1024", "-O", "encrypt"], "loop", 48)
            }
            Self::Ext4FastCommit => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "fast_commit"], "loop", 48)
            }
            Self::Ext4Immediate => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096"], "loop,nodelalloc", 48)
            }
            Self::Ext4Reserved => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-m", "20"], "loop", 48)
            }
            Self::Xfs => ("mkfs.xfs", &["-q", "-f"], "loop", 320),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f"], "loop", 128),
        }
    }

    /// Whether names are promised too.
    pub(crate) fn clears_names(self) -> bool {
        !matches!(self, Self::Xfs | Self::Btrfs | Self::Ext4FastCommit)
    }
}

/// An image in a folder of its own; nothing is left of it when dropped.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) fs: Fs,
    folder: TempDir,
    #[cfg(feature = "faults")]
    pub(crate) witness: Witness,
}

/// Whether the long games are asked for, as `./soak` does.
pub(crate) fn all() -> bool {
    std::env::var_os("TACITA_PURGE_ALL").is_some()
}

/// Searching and making images is heavy: tests take turns where they would only slow each other
/// down, and faults are planted for the whole process.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Image {
    /// A new file system, mounted; `None` where this machine cannot, which is said.
    pub(crate) fn new(test: &str, fs: Fs) -> Option<Self> {
        Self::with(test, fs, &[])
    }

    /// One that is made with more arguments.
    pub(crate) fn with(test: &str, fs: Fs, more: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: {test} on {fs:?}: not root");
            return None;
        }
        let (program, arguments, _, mib) = fs.recipe();
        // There are inodes for as many names as all games make.
        let mib = if all() { mib.max(48) } else { mib };
        let folder = tempfile::Builder::new().prefix("tacita-purge-").tempdir().unwrap();
        let image = Self {
            fs,
            folder,
            #[cfg(feature = "faults")]
            witness: Witness::call(),
        };
        File::create(image.path()).unwrap().set_len(mib << 20).unwrap();
        fs::create_dir(image.dir()).unwrap();
        fs::create_dir(image.mount_dir()).unwrap();
        let path = image.path();
        let made = system(program, &[arguments, more, &[path.to_str().unwrap()]].concat());
        if let Err(why) = made.and_then(|_| image.try_mount()) {
            eprintln!("SKIPPED: {test} on {fs:?}: {}", why.trim());
            return None;
        }
        Some(image)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Where the file system itself is mounted.
    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("lower")
    }

    /// An empty folder to mount an overlay on.
    pub(crate) fn mount_dir(&self) -> PathBuf {
        self.folder.path().join("upper")
    }

    fn try_mount(&self) -> Result<(), String> {
        let (_, _, options, _) = self.fs.recipe();
        let (path, dir) = (self.path(), self.dir());
        let arguments = ["-o", options, path.to_str().unwrap(), dir.to_str().unwrap()];
        system("mount", &arguments).map(drop)
    }

    pub(crate) fn mount(&self) {
        self.try_mount().unwrap();
    }

    /// Unmounts it, so that everything is in the image.
    pub(crate) fn unmount(&self) {
        let found = self.unmount_and_ask();
        assert!(found.is_empty(), "{:?}: verdicts hold that are false: {found:#?}", self.fs);
    }

    /// Unmounts it; what the witness finds in the image though a verdict says that it is gone.
    #[cfg(feature = "faults")]
    pub(crate) fn unmount_and_ask(&self) -> Vec<String> {
        let question = self.witness.question(&self.dir());
        tacita_testkit::unmount(&self.dir());
        question.map(|question| question.answer(&self.path())).unwrap_or_default()
    }

    /// There is no witness without planted faults.
    #[cfg(not(feature = "faults"))]
    pub(crate) fn unmount_and_ask(&self) -> Vec<String> {
        tacita_testkit::unmount(&self.dir());
        Vec::new()
    }

    pub(crate) fn remount(&self) {
        self.unmount();
        self.mount();
    }

    /// The same after power was cut. A copy of the mount in another namespace keeps the file system
    /// as it was, cut off: until that is gone, the image cannot be mounted anew.
    #[cfg(feature = "faults")]
    pub(crate) fn remount_after_cut(&self) {
        for _ in 0..600 {
            self.remount();
            let permissions = fs::metadata(self.dir()).unwrap().permissions();
            if fs::set_permissions(self.dir(), permissions).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("another namespace holds the mount");
    }

    /// How often a text is in the raw image.
    pub(crate) fn count(&self, text: &str) -> usize {
        count_in(&self.path(), text)
    }

    /// How often each mark of the acts is in the raw image.
    pub(crate) fn tally(&self) -> HashMap<String, usize> {
        let mut tally = HashMap::new();
        for Stretch { bytes, .. } in search::stretches(&self.path()).unwrap() {
            for begin in ["LOST-", "KEPT-", "secretname-"] {
                for at in search::places(&bytes, begin) {
                    *tally.entry(mark(&bytes[at..], begin)).or_insert(0) += 1;
                }
            }
        }
        tally.remove("");
        tally
    }
}

/// Detaches a file system from its device, as a loss of power does: what is only in memory is lost,
/// the journal's last part too.
#[cfg(feature = "faults")]
pub(crate) fn cut_power(dir: &Path) {
    system("xfs_io", &["-x", "-c", "shutdown", dir.to_str().unwrap()]).unwrap();
}

/// The mark of an act that bytes begin with, as "LOST-Unlink-m-"; empty if there is only its begin.
fn mark(bytes: &[u8], begin: &str) -> String {
    let mut len = begin.len();
    for may_be_capital in [true, false] {
        let is_of_it = |byte: &&u8| {
            byte.is_ascii_digit()
                || byte.is_ascii_lowercase()
                || may_be_capital && byte.is_ascii_uppercase()
        };
        let part = bytes[len..].iter().take_while(is_of_it).count();
        if part == 0 || bytes.get(len + part) != Some(&b'-') {
            return String::new();
        }
        len += part + 1;
    }
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// How often a text is in a file.
pub(crate) fn count_in(path: &Path, text: &str) -> usize {
    let stretches = search::stretches(path).unwrap();
    stretches.iter().map(|stretch| search::places(&stretch.bytes, text).len()).sum()
}

impl Drop for Image {
    fn drop(&mut self) {
        let device = |dir: &Path| fs::metadata(dir).map_or(0, |meta| meta.dev());
        let is_mounted = device(&self.dir()) != device(self.folder.path());
        if is_mounted && !std::thread::panicking() {
            while unmount(self.mount_dir(), UnmountFlags::DETACH).is_ok() {}
            self.unmount();
        }
        for dir in [self.mount_dir(), self.dir()] {
            while unmount(&dir, UnmountFlags::DETACH).is_ok() {}
        }
    }
}
