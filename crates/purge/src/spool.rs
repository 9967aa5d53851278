//! The spool: a hidden folder of the lower tree where what has lost its last name waits to be
//! purged.
//!
//! The folder is the truth. A file is moved there by the very operation that takes its name away,
//! so a crash leaves it either under its name or in the spool; whatever is found there by the next
//! mount is purged. An entry that has another name (a rename that replaces it was interrupted) only
//! loses its name in the spool. Records tell how far a purge had come, and nothing else.

mod fillers;
pub mod folders;
pub mod intent;
mod intents;
pub mod record;
pub mod tags;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, fchmod, flock, fstat,
    mkdirat, openat2, unlinkat,
};
use rustix::io::Errno;

use crate::error::{During, is_of_medium};
use crate::{Error, Kind, Result, names, xattrs};
use folders::LostFolders;
pub(crate) use intents::IntentLog;
use record::{Header, RECORD_LEN, Record};

/// Name of the spool in the root of the lower tree.
pub const SPOOL_NAME: &str = ".tacita-purge";

/// Name of the file of records.
const RECORDS_NAME: &str = "records";

/// Most records that are kept; entries beyond go without.
const RECORD_COUNT_MAX: usize = 1 << 16;

/// How everything below LOWER is opened: never through a link, another mount, or upwards.
pub(crate) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Number of an entry, which is its name too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seq(pub(crate) u64);

impl Seq {
    /// Its name in the spool.
    pub(crate) fn name(self) -> String {
        self.0.to_string()
    }
}

/// What an earlier mount has left.
#[derive(Debug)]
pub(crate) struct LeftOver {
    pub(crate) seq: Seq,
    pub(crate) kind: FileType,
    pub(crate) inode: u64,
    /// `None` if nothing says how long it was before it was purged.
    pub(crate) size: Option<u64>,
    pub(crate) record: Option<Record>,
}

#[derive(Debug, Default)]
struct Slots {
    by_seq: HashMap<Seq, usize>,
    free: BTreeSet<usize>,
    count: usize,
    last_seq: u64,
}

impl Slots {
    /// Reads all records of a file of `len` bytes by `read`; what they say goes to `known`. One that
    /// cannot be read is neither used nor written over: it may be there the next time.
    fn read(
        len: u64,
        known: &mut HashMap<u64, Record>,
        read: &dyn Fn(&mut [u8], u64) -> std::io::Result<()>,
    ) -> Self {
        let mut slots = Self::default();
        let mut bytes = [0; RECORD_LEN];
        for slot in (0..RECORD_COUNT_MAX).take_while(|slot| offset(slot + 1) <= len) {
            slots.count = slot + 1;
            if let Err(e) = read(&mut bytes, offset(slot)) {
                log::warn!("spool: record {slot} cannot be read, and is not used: {e}");
                continue;
            }
            match Record::decode(&bytes) {
                Ok(Some(record)) => {
                    slots.by_seq.insert(Seq(record.seq), slot);
                    known.insert(record.seq, record);
                }
                Ok(None) => {
                    slots.free.insert(slot);
                }
                Err(damage) => {
                    log::warn!("spool: record {slot} is damaged ({damage:?}) and not used");
                    slots.free.insert(slot);
                }
            }
        }
        slots
    }
}

/// The open spool; locked as long as it lives.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: OwnedFd,
    records: Option<File>,
    slots: Mutex<Slots>,
    /// Inode number of the file of fillers, 0 as long as there is none.
    fillers: AtomicU64,
    folders: Mutex<LostFolders>,
    /// What an earlier mount has intended stays for the next one.
    keeps_intents: AtomicBool,
}

/// An opened spool and what was in it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) spool: Spool,
    pub(crate) left_over: Vec<LeftOver>,
    /// The last mount did not come to its end.
    pub(crate) interrupted: bool,
    /// Handles of folders that had lost names then, and whether it has recorded all.
    pub(crate) lost_folders: (Vec<Vec<u8>>, bool),
}

impl Spool {
    /// Opens the spool of a lower tree, or makes it.
    ///
    /// # Errors
    /// [`Kind::InUse`] if another mount serves the tree; [`Kind::Invalid`] if the folder is
    /// somebody else's; [`Kind::NotPermitted`]; [`Kind::NoSpace`].
    pub(crate) fn open(root: BorrowedFd<'_>) -> Result<Opened> {
        match mkdirat(root, SPOOL_NAME, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(Error::of_kernel(e, "making the spool")),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir =
            openat2(root, SPOOL_NAME, flags, Mode::empty(), BENEATH).during("opening the spool")?;
        // File systems without permissions have the same ones for all folders.
        let _ = fchmod(&dir, Mode::RWXU);
        let stat = fstat(&dir).during("asking for the spool's owner")?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            let text =
                format!("{SPOOL_NAME}: not a private folder of this user; find out what it is");
            return Err(Error::new(Kind::Invalid, text));
        }
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::new(Kind::InUse, "another mount serves this folder"));
            }
            Err(e) => return Err(Error::of_kernel(e, "locking the spool")),
        }
        let records = open_records(&dir)?;
        let mut spool = Self {
            dir,
            records,
            slots: Mutex::default(),
            fillers: AtomicU64::new(0),
            folders: Mutex::default(),
            keeps_intents: AtomicBool::new(false),
        };
        spool.recover_fillers();
        let (interrupted, known) = spool.read_records();
        let left_over = spool.list(known)?;
        let lost_folders = spool.read_folders()?;
        spool.set_in_use(true);
        Ok(Opened { spool, left_over, interrupted, lost_folders })
    }

    /// The folder.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        // Nothing under this lock can be left half done.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no entry has.
    pub(crate) fn next(&self) -> Seq {
        let mut slots = self.slots();
        slots.last_seq += 1;
        Seq(slots.last_seq)
    }

    /// Reads all records; whether the last mount was interrupted, and what they say.
    fn read_records(&mut self) -> (bool, HashMap<u64, Record>) {
        let mut known = HashMap::new();
        let Some(file) = &self.records else {
            return (true, known);
        };
        let mut bytes = [0; RECORD_LEN];
        let len = file.metadata().ok().map(|meta| meta.len());
        let fresh = len == Some(0);
        let header = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| {
            Header::decode(&bytes).inspect_err(|e| log::warn!("spool: header: {e:?}")).ok()
        });
        let slots =
            Slots::read(len.unwrap_or(0), &mut known, &|bytes, at| file.read_exact_at(bytes, at));
        self.slots = Mutex::new(slots);
        (!fresh && header.is_none_or(|header| header.in_use), known)
    }

    /// What is in the folder.
    fn list(&self, mut known: HashMap<u64, Record>) -> Result<Vec<LeftOver>> {
        let mut found = Vec::new();
        let mut last = 0;
        let dir = names::reopen_folder(&self.dir).during("opening the spool")?;
        for entry in Dir::new(dir).during("listing the spool")? {
            let entry = entry.during("listing the spool")?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(seq) = name.parse::<u64>() else {
                let ours = [
                    ".",
                    "..",
                    RECORDS_NAME,
                    fillers::FILLERS_NAME,
                    folders::FOLDERS_NAME,
                    intents::INTENTS_NAME,
                ];
                let is_folder = folders::handle_in(entry.file_name().to_bytes()).is_some();
                if !is_folder && !ours.contains(&name.as_str()) {
                    log::warn!("spool: something that is not ours stays");
                }
                continue;
            };
            last = last.max(seq);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = openat2(&self.dir, name.as_str(), flags, Mode::empty(), BENEATH)
                .and_then(|opened| fstat(&opened).map(|stat| (opened, stat)));
            let (entry, stat) = match opened {
                Ok(opened) => opened,
                // Everything else is not to wait for it: its purge is tried again, and fails as this.
                Err(e) if is_of_medium(e) => {
                    let kind = match entry.file_type() {
                        FileType::Directory => FileType::Directory,
                        _ => FileType::RegularFile,
                    };
                    let inode = entry.ino();
                    let record = known.remove(&seq).filter(|record| record.inode == inode);
                    found.push(LeftOver { seq: Seq(seq), kind, inode, size: None, record });
                    continue;
                }
                Err(e) => return Err(Error::of_kernel(e, "opening an entry of the spool")),
            };
            let record = known.remove(&seq).filter(|record| record.inode == stat.st_ino);
            let kind = FileType::from_raw_mode(stat.st_mode);
            let size = match (&record, stat.st_size) {
                (Some(record), _) => Some(record.size),
                // What has attributes is made empty when its content is gone, and freed later.
                (None, 0) => (!xattrs::has_data(&entry).unwrap_or(true)).then_some(0),
                // Overwriting fills the last block, so it may have been shorter.
                (None, size) => {
                    // Its type is not the same on all machines.
                    let block = u64::try_from(stat.st_blksize).expect("a length is not negative");
                    let size = size.cast_unsigned();
                    (!size.is_multiple_of(block)).then_some(size)
                }
            };
            found.push(LeftOver { seq: Seq(seq), kind, inode: stat.st_ino, size, record });
        }
        let mut slots = self.slots();
        let recorded = slots.by_seq.keys().map(|seq| seq.0).max().unwrap_or(0);
        slots.last_seq = last.max(recorded);
        drop(slots);
        // Records of what is no longer there.
        for seq in known.into_keys() {
            self.drop_record(Seq(seq));
        }
        found.sort_by_key(|entry| entry.seq);
        Ok(found)
    }

    /// Opens an entry.
    ///
    /// # Errors
    /// [`Kind::NotFound`]; [`Kind::Io`].
    pub(crate) fn open_entry(&self, seq: Seq, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(&self.dir, seq.name().as_str(), flags, Mode::empty(), BENEATH)
            .during("opening an entry of the spool")
    }

    /// Removes an entry and its record.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub(crate) fn remove(&self, seq: Seq, folder: bool) -> Result<()> {
        let flags = if folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match unlinkat(&self.dir, seq.name().as_str(), flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(Error::of_kernel(e, "removing an entry of the spool")),
        }
        self.drop_record(seq);
        Ok(())
    }

    /// Writes how far an entry has come. Only a help: failures are told to the log.
    pub(crate) fn record(&self, record: &Record) {
        let seq = Seq(record.seq);
        let mut slots = self.slots();
        let slot = if let Some(slot) = slots.by_seq.get(&seq) {
            *slot
        } else if let Some(slot) = slots.free.pop_first() {
            slot
        } else if slots.count < RECORD_COUNT_MAX {
            slots.count += 1;
            slots.count - 1
        } else {
            return;
        };
        slots.by_seq.insert(seq, slot);
        drop(slots);
        self.write(offset(slot), &record.encode());
    }

    fn drop_record(&self, seq: Seq) {
        let mut slots = self.slots();
        if let Some(slot) = slots.by_seq.remove(&seq) {
            slots.free.insert(slot);
            drop(slots);
            self.write(offset(slot), &[0; RECORD_LEN]);
        }
    }

    /// Notes whether a mount is using the spool.
    pub(crate) fn set_in_use(&self, in_use: bool) {
        self.write(0, &Header { in_use }.encode());
        if let Some(Err(e)) = self.records.as_ref().map(File::sync_data) {
            log::warn!("spool: records: {e}");
        }
    }

    /// Nothing is left to do: the lower tree is left as it would be without us. Somebody else's
    /// files keep the folder.
    pub(crate) fn leave(&self, root: BorrowedFd<'_>) {
        self.set_in_use(false);
        self.recover_fillers();
        self.remove_intents();
        self.remove_folders();
        let removed = unlinkat(&self.dir, RECORDS_NAME, AtFlags::empty())
            .and_then(|()| unlinkat(root, SPOOL_NAME, AtFlags::REMOVEDIR));
        if let Err(e) = removed {
            log::debug!("the spool stays: {e}");
        }
    }

    fn write(&self, at: u64, bytes: &[u8; RECORD_LEN]) {
        if let Some(Err(e)) = self.records.as_ref().map(|file| file.write_all_at(bytes, at)) {
            log::debug!("spool: records: {e}");
        }
    }
}

/// The file of records; a spool without it works too, but not where nothing more can be opened.
fn open_records(dir: &OwnedFd) -> Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(dir, RECORDS_NAME, flags, Mode::RUSR | Mode::WUSR, BENEATH) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
            Err(Error::of_kernel(e, "opening the spool"))
        }
        Err(e) => {
            log::warn!("spool: no records: {e}");
            Ok(None)
        }
    }
}

fn offset(slot: usize) -> u64 {
    (slot as u64 + 1) * RECORD_LEN as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_cannot_be_read_takes_no_other_with_it() {
        let record = |seq: u64| Record {
            seq,
            inode: seq,
            size: 1,
            hold_until: 0,
            passes_done: 0,
            method: "e".parse().unwrap(),
        };
        let mut known = HashMap::new();
        let slots = Slots::read(offset(4), &mut known, &|bytes, at| match at {
            at if at == offset(1) => Err(std::io::Error::from(Errno::IO)),
            at if at == offset(2) => {
                bytes.fill(0);
                Ok(())
            }
            at => {
                bytes.copy_from_slice(&record(at / RECORD_LEN as u64).encode());
                Ok(())
            }
        });
        assert_eq!(known.len(), 2, "those before and behind it");
        assert_eq!((slots.count, slots.free), (4, BTreeSet::from([2])), "it is not written over");
    }
}
