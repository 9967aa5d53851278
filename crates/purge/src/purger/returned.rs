//! Files that a loss of power has brought back under their names, though they are under purge.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, RenameFlags, fstat, fsync, openat, openat2, renameat_with,
    syncfs,
};
use rustix::io::Errno;
use tacita_block::AlignedBuf;

use crate::error::{During, is_of_medium};
use crate::extents::{Map, State};
use crate::faults::{Fault, is_unreadable, planted};
use crate::handle::Handle;
use crate::lower_fs::LowerFs;
use crate::spool::tags::{TAGGED_LEN_MAX, Tags};
use crate::spool::{BENEATH, LeftOver, Spool};
use crate::{Error, Kind, Result, names, xattrs};

/// What is read of a file at once where not all of it can be read.
const PIECE_LEN: usize = 4096;

/// Moves all files that carry tags into the spool, and erases the intents of an earlier mount. The
/// folders that they come from are added to those that have lost names. Where one of them cannot be
/// looked at because the medium does not give it, the others are, and the intents stay.
///
/// # Errors
/// [`Kind::Io`]: nobody can tell then which files are whole.
pub(crate) fn take_back(
    lower: &LowerFs,
    spool: &Spool,
    folders: &mut Vec<Vec<u8>>,
) -> Result<Vec<LeftOver>> {
    let (intents, mut are_all) = spool.read_intents()?;
    let mut found = Vec::new();
    if intents.is_empty() && are_all {
        spool.remove_intents();
        return Ok(found);
    }
    syncfs(spool.dir()).during("writing the file system back")?;
    let mut seen = HashSet::new();
    for intent in &intents {
        for folder in &intent.folders {
            if !planted(Fault::TagsUnseen) && seen.insert((intent.key, folder)) {
                are_all &= search(lower, spool, (&intent.key, folder), &mut found, folders)?;
            }
        }
    }
    fsync(spool.dir()).during("writing the spool back")?;
    if !found.is_empty() {
        log::info!("{} files that were being purged have come back", found.len());
    }
    if are_all {
        // What is intended from now on is another matter, even if power is cut again at once.
        drop(spool.make_intents()?);
    } else {
        spool.keep_intents();
    }
    Ok(found)
}

/// Looks at every file of one folder; whether the medium gives them all.
fn search(
    lower: &LowerFs,
    spool: &Spool,
    (key, encoded): (&[u8; 32], &[u8]),
    found: &mut Vec<LeftOver>,
    folders: &mut Vec<Vec<u8>>,
) -> Result<bool> {
    let Some(handle) = Handle::decode(encoded) else {
        return Ok(true);
    };
    let folder = match handle.open(spool.dir(), OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(folder) => folder,
        // It is gone itself, with all names in it.
        Err(Errno::STALE | Errno::NOENT) => return Ok(true),
        Err(e) if is_of_medium(e) => {
            log::warn!("a folder cannot be looked at: {e}");
            return Ok(false);
        }
        Err(e) => return Err(Error::of_kernel(e, "opening a folder by its handle")),
    };
    let (mut loses, mut are_all) = (false, true);
    let listed = names::reopen_folder(&folder).and_then(Dir::new).during("listing a folder")?;
    for entry in listed {
        let entry = match entry {
            Err(e) if is_of_medium(e) => {
                log::warn!("a folder cannot be listed: {e}");
                are_all = false;
                break;
            }
            entry => entry.during("listing a folder")?,
        };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let looked = open_regular(&folder, name).and_then(|file| match file {
            Some(file) => is_tagged(lower, &file, key).map(|tagged| Some((file, tagged))),
            None => Ok(None),
        });
        let (file, tagged) = match looked {
            Ok(Some(looked)) => looked,
            Ok(None) => continue,
            Err(e) if e.is_of_medium() => {
                log::warn!("a file cannot be looked at: {e}");
                are_all = false;
                continue;
            }
            Err(e) => return Err(e),
        };
        are_all &= tagged.is_some();
        if tagged == Some(true) {
            if !std::mem::replace(&mut loses, true) {
                if spool.lose(encoded).is_err() {
                    spool.stop_recording();
                }
                folders.push(encoded.to_vec());
            }
            found.extend(move_into(spool, &folder, name, &file)?);
        }
    }
    if loses {
        names::flush_folder(&folder)?;
    }
    Ok(are_all)
}

/// Opens what a name stands for, if that is a regular file.
fn open_regular(folder: &OwnedFd, name: &OsStr) -> Result<Option<File>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = match openat2(folder, name, flags, Mode::empty(), BENEATH) {
        Ok(entry) => entry,
        Err(Errno::NOENT | Errno::XDEV) => return Ok(None),
        Err(e) => return Err(Error::of_kernel(e, "opening a file")),
    };
    let stat = fstat(&entry).during("asking for a file")?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(CWD, &*xattrs::path_of(&entry), flags, Mode::empty());
    Ok(Some(File::from(file.during("opening a file")?)))
}

/// Whether any sector that is stored of a file carries its tag; `None` where none does that can be read,
/// and some cannot.
fn is_tagged(lower: &LowerFs, file: &File, key: &[u8; 32]) -> Result<Option<bool>> {
    let handle = Handle::of(file).during("asking for the handle of a file")?;
    let tags = Tags::new(key, &handle.encode());
    let device = lower.raw().ok_or_else(|| {
        let text =
            "an earlier mount was interrupted, and recovering it takes read access to the device";
        Error::new(Kind::NotPermitted, text)
    })?;
    let stored = Map::of(file)?.unwrap_or_default().only(|state| state == State::Stored);
    let mut are_all = true;
    for extent in stored.within(&(0..TAGGED_LEN_MAX)).extents {
        let len = usize::try_from(extent.len).unwrap_or(0);
        let mut bytes = AlignedBuf::new(len);
        let read = |bytes: &mut [u8], at: u64| -> std::io::Result<bool> {
            if is_unreadable(extent.physical + at, bytes.len()) {
                return Err(Errno::IO.into());
            }
            device.read_exact_at(bytes, extent.physical + at)?;
            Ok(tags.is_any_in(extent.logical + at, bytes))
        };
        match read(&mut bytes, 0) {
            Ok(true) => return Ok(Some(true)),
            Ok(false) => continue,
            Err(e) => log::warn!("a file cannot be read from the device: {e}"),
        }
        // One tag is enough.
        for (at, piece) in (0..).step_by(PIECE_LEN).zip(bytes.chunks_mut(PIECE_LEN)) {
            match read(piece, at) {
                Ok(true) => return Ok(Some(true)),
                Ok(false) => {}
                Err(_) => are_all = false,
            }
        }
    }
    Ok(are_all.then_some(false))
}

/// Takes its name away; `None` if that stands for another file by now.
fn move_into(
    spool: &Spool,
    folder: &OwnedFd,
    name: &OsStr,
    file: &File,
) -> Result<Option<LeftOver>> {
    let seq = spool.next();
    let to = seq.name();
    renameat_with(folder, name, spool.dir(), to.as_str(), RenameFlags::NOREPLACE)
        .during("moving a file into the spool")?;
    let moved = fstat(spool.open_entry(seq, OFlags::PATH)?).during("asking for a file")?;
    let stat = fstat(file).during("asking for a file")?;
    if moved.st_ino != stat.st_ino {
        renameat_with(spool.dir(), to.as_str(), folder, name, RenameFlags::NOREPLACE)
            .during("moving a file back")?;
        return Ok(None);
    }
    let (kind, size) = (FileType::RegularFile, Some(stat.st_size.cast_unsigned()));
    Ok(Some(LeftOver { seq, kind, inode: stat.st_ino, size, record: None }))
}
