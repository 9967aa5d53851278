//! Extended attributes: their values are overwritten before they go, for no file system does it.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{
    XattrFlags, fgetxattr, fsync, getxattr, getxattr_query, listxattr, listxattr_query,
    removexattr, setxattr,
};
use rustix::io::Errno;

use crate::error::During;
use crate::medium::Medium;
use crate::verdict::Part;
use crate::{Error, Result};

/// Keeps the block of attributes alive until the others have been cleared out of it.
const PLACEHOLDER: &str = "user.0";

/// Length of its value: more than fits into an inode of the usual size.
const PLACEHOLDER_LEN: usize = 200;

/// Most values are not longer.
const VALUE_LEN_USUAL: usize = 256;

/// Longest value that the kernel hands out.
const VALUE_LEN_MAX: usize = 1 << 16;

/// Name spaces whose values are somebody's data; the others are the kernel's own.
const NAME_SPACES: [&[u8]; 2] = [b"user.", b"trusted."];

/// The kernel's own name for an open file, by which calls that take paths can mean only it.
pub(crate) fn path_of(file: impl AsFd) -> CString {
    let text = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    CString::new(text).unwrap_or_default()
}

/// The names of all attributes of an open file or folder.
pub(crate) fn names(file: impl AsFd) -> rustix::io::Result<Vec<OsString>> {
    let path = path_of(file);
    loop {
        let len = match listxattr_query(&path) {
            Ok(0) | Err(Errno::OPNOTSUPP | Errno::PERM) => return Ok(Vec::new()),
            Ok(len) => len,
            Err(e) => return Err(e),
        };
        let mut list = vec![0_u8; len];
        match listxattr(&path, &mut list[..]) {
            Ok(len) => {
                list.truncate(len);
                let names = list.split(|b| *b == 0).filter(|name| !name.is_empty());
                return Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect());
            }
            // It has grown meanwhile.
            Err(Errno::RANGE) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The value of an attribute.
pub(crate) fn value(file: impl AsFd, name: &OsStr) -> rustix::io::Result<Vec<u8>> {
    let path = path_of(file);
    read_value(&|value| getxattr(&path, name, value))
}

/// The same of a file that is open for reading or writing, which needs no path.
pub(crate) fn value_of_open(file: &File, name: &OsStr) -> rustix::io::Result<Vec<u8>> {
    read_value(&|value| fgetxattr(file, name, value))
}

fn read_value(get: &dyn Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0_u8; VALUE_LEN_USUAL];
    let len = match get(&mut value) {
        Err(Errno::RANGE) => {
            value.resize(VALUE_LEN_MAX, 0);
            get(&mut value)?
        }
        other => other?,
    };
    value.truncate(len);
    Ok(value)
}

/// Sets an attribute.
pub(crate) fn set(
    file: impl AsFd,
    name: &OsStr,
    value: &[u8],
    flags: XattrFlags,
) -> rustix::io::Result<()> {
    setxattr(path_of(file), name, value, flags)
}

/// Removes an attribute.
pub(crate) fn remove(file: impl AsFd, name: &OsStr) -> rustix::io::Result<()> {
    removexattr(path_of(file), name)
}

/// Whether the attribute holds somebody's data.
pub(crate) fn is_data(name: &OsStr) -> bool {
    NAME_SPACES.iter().any(|space| name.as_bytes().starts_with(space))
}

/// Puts as many random bytes in the place of a value; nothing if there is none. `synced` is the
/// same file, open for reading at least.
pub(crate) fn overwrite_value(file: impl AsFd, synced: &File, name: &OsStr) -> Result<bool> {
    if !overwrite(&file, name)? {
        return Ok(false);
    }
    fsync(synced).during("writing an attribute back")?;
    Ok(true)
}

fn overwrite(file: impl AsFd, name: &OsStr) -> Result<bool> {
    let path = path_of(file);
    let len = match getxattr_query(&path, name) {
        Ok(len) => len,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(false),
        Err(e) => return Err(Error::of_kernel(e, "reading an attribute")),
    };
    let noise = noise(len)?;
    setxattr(&path, name, &noise, XattrFlags::REPLACE).during("overwriting an attribute")?;
    Ok(true)
}

fn noise(len: usize) -> Result<Vec<u8>> {
    let key = tacita_secret::random().during("asking for random bytes")?;
    let mut bytes = vec![0; len];
    tacita_secret::Prf::new(key).stream(0, 0, &mut bytes);
    Ok(bytes)
}

/// Overwrites the values of all attributes of a file that is about to go; whether it has any.
///
/// Before [`clear_names`] may follow, what was written has to be in place: the block that held
/// the values is freed then, and a freed block is not written any more.
pub(crate) fn overwrite_all(file: &File) -> Result<bool> {
    let names = names(file).during("listing attributes")?;
    let mut any = false;
    for name in names.iter().filter(|name| is_data(name)) {
        any |= overwrite(file, name)?;
    }
    if any {
        fsync(file).during("writing attributes back")?;
    }
    Ok(any)
}

/// Removes all attributes of a file that is about to go, so that their names are cleared too.
///
/// Removing one makes the others move together and clears what is behind them, but the last one
/// would only free its block: so a placeholder is left. As far as there is room for it; the values
/// are overwritten already.
pub(crate) fn clear_names(file: &File) -> Result<()> {
    let names = names(file).during("listing attributes")?;
    let path = path_of(file);
    if let Err(e) = setxattr(&path, PLACEHOLDER, &[b'0'; PLACEHOLDER_LEN], XattrFlags::empty()) {
        log::debug!("names of attributes may stay: {e}");
    }
    for name in names.iter().filter(|name| is_data(name) && name.as_os_str() != PLACEHOLDER) {
        match removexattr(&path, name.as_os_str()) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(e) => return Err(Error::of_kernel(e, "removing an attribute")),
        }
    }
    fsync(file).during("writing attributes back")
}

/// Both, with the journal put in place after each.
pub(crate) fn erase_all(medium: &Medium, file: &File) -> Result<Part> {
    if !overwrite_all(file)? {
        return Ok(Part::None);
    }
    medium.flush_journal(file)?;
    clear_names(file)?;
    medium.flush_journal(file)?;
    Ok(judge(medium))
}

/// What can be said of overwritten attributes.
pub(crate) fn judge(medium: &Medium) -> Part {
    if matches!(medium.judge_journal(), Part::Left(_)) {
        let why = "overwritten, but old values may stay in the journal";
        return Part::Left(why.to_owned());
    }
    Part::Done
}
