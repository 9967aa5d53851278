//! New files that get their names when all is in them, and what had those names.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::SeekFrom;

use super::Access;
use super::locked::Locked;
use super::opening::{FileOptions, is_raw_device};
use super::transfer::BOUNCE_LEN_MAX_BYTES;
use crate::new_file::{NewFile, has_name, is_there_after};
use crate::{Error, Kind, Result};

/// What happens to a file that has got the name of a new one since that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Latecomer {
    Stays,
    IsReplaced,
}

/// A file without a name.
#[derive(Debug)]
pub(super) struct Unpublished {
    pub(super) new: NewFile,
    /// Who had its name when it was begun, locked.
    pub(super) before: Option<Locked>,
    pub(super) options: FileOptions,
}

impl Unpublished {
    /// Gives it its name; whoever had that is returned, still locked.
    pub(super) fn publish(mut self) -> Result<Option<Locked>> {
        let path = self.new.path().to_owned();
        let failed = |e: io::Error, what_was_before: &str| {
            let path = path.display();
            let context = if is_there_after(&e) {
                format!("{path}{what_was_before}")
            } else {
                format!("cannot make {path}")
            };
            Error::from_io(context, e)
        };
        loop {
            // Nobody mounts what is locked: it is the file that goes, or the name is another's by now.
            if let Some(before) = self.before.take_if(|before| has_name(before, &path)) {
                let not_overwritten = ": what it has replaced has not been overwritten";
                self.new.take_name().map_err(|e| failed(e, not_overwritten))?;
                return Ok(Some(before));
            }
            match self.new.take_free_name() {
                Err(e)
                    if e.kind() == io::ErrorKind::AlreadyExists
                        && self.options.latecomer == Latecomer::IsReplaced => {}
                Err(e) => return Err(failed(e, "")),
                Ok(()) => return Ok(None),
            }
            match self.options.open_locked(&path, Access::ReadWrite, false) {
                Ok(device) if is_raw_device(&path) => {
                    drop(device);
                    let text = format!("{} is a device by now", path.display());
                    return Err(Error::new(Kind::Exists, text));
                }
                Ok(device) => self.before = Some(device.file),
                // It has gone again.
                Err(_) if fs::symlink_metadata(&path).is_err() => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Overwrites a file that nobody can open any more, as far as it has blocks.
pub(super) fn overwrite_nameless(
    file: &File,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    static ZEROES: [u8; BOUNCE_LEN_MAX_BYTES] = [0; BOUNCE_LEN_MAX_BYTES];
    let meta = file.metadata()?;
    if meta.nlink() > 0 {
        return Ok(());
    }
    let mut at = 0;
    while at < meta.len() {
        let end = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            // There is none behind.
            Err(rustix::io::Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
            Ok(data) => {
                at = data;
                rustix::fs::seek(file, SeekFrom::Hole(data))?.min(meta.len())
            }
        };
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(ZEROES.len()).min(ZEROES.len());
            file.write_all_at(&ZEROES[..len], at)?;
            at += len as u64;
            progress(at, meta.len());
        }
    }
    file.sync_all()
}
