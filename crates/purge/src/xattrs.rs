//! Extended attributes: their values are overwritten before they go, for no file system does it.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{
    XattrFlags, fgetxattr, fstat, fsync, getxattr, getxattr_query, listxattr, listxattr_query,
    removexattr, setxattr, syncfs,
};
use rustix::io::Errno;

use crate::error::During;
use crate::ext4::Volume;
use crate::ext4::values::{Region, Values, value_len_for};
use crate::faults::{Fault, Step, planted, step};
use crate::lower_fs::{Journal, LowerFs};
use crate::{Error, Result, names};

/// Keeps the block of attributes alive until the others have been cleared out of it; behind the name
/// space.
const PLACEHOLDER: &str = "0";

/// Length of its value: more than fits into an inode of the usual size.
const PLACEHOLDER_LEN: usize = 200;

/// Length of the name of an attribute of ours, without its name space.
const OWN_NAME_LEN: usize = 12;

/// Length of the value of what makes a block of attributes like no other.
const COMPANION_LEN: usize = 16;

/// Most values are not longer.
const VALUE_LEN_USUAL: usize = 256;

/// Longest value that the kernel hands out.
const VALUE_LEN_MAX: usize = 1 << 16;

/// Name spaces whose values are somebody's data; the others are the kernel's own.
const NAME_SPACES: [&[u8]; 2] = [b"user.", b"trusted."];

/// What has attributes, and how they are put on the medium.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    node: BorrowedFd<'a>,
    /// An open folder of its file system, where it is not open itself.
    beside: Option<BorrowedFd<'a>>,
}

impl<'a> Owner<'a> {
    /// A file or folder that is open for reading at least.
    pub(crate) fn open(file: &'a impl AsFd) -> Self {
        Self { node: file.as_fd(), beside: None }
    }

    /// What must not be opened: a link, pipe, socket or device, held by its number only. `beside` is
    /// an open folder of its file system.
    pub(crate) fn unopened(node: &'a impl AsFd, beside: &'a impl AsFd) -> Self {
        Self { node: node.as_fd(), beside: Some(beside.as_fd()) }
    }

    /// The name space of attributes of ours: `user.` is for files and folders alone.
    fn space(self) -> &'static str {
        if self.beside.is_some() { "trusted." } else { "user." }
    }

    /// Puts attributes in place.
    fn settle(self, lower: &LowerFs) -> Result<()> {
        self.write_back(lower)?;
        lower.flush_journal(self.beside.unwrap_or(self.node))
    }

    fn write_back(self, lower: &LowerFs) -> Result<()> {
        match self.beside {
            None => fsync(self.node).during("writing attributes back"),
            // Putting the journal in place writes everything that is in it back before.
            Some(_) if lower.journal == Journal::Erasable => Ok(()),
            Some(beside) => syncfs(beside).during("writing attributes back"),
        }
    }
}

impl AsFd for Owner<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.node
    }
}

/// Values in a block of attributes that other files have, too: each keeps it as it is until the last
/// of them is purged.
#[derive(Debug)]
pub(crate) struct Shared {
    before: Values,
    names: Vec<OsString>,
}

impl Shared {
    /// What became of them by now.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub(crate) fn look(self: Box<Self>, lower: &LowerFs) -> Result<Overwritten> {
        let Some(volume) = lower.volume()? else {
            return Ok(Overwritten::Shared(self));
        };
        for name in &self.names {
            if self.before.left(&volume, name, None)?.is_some() {
                return Ok(Overwritten::Shared(self));
            }
        }
        Ok(Overwritten::Gone)
    }
}

/// The kernel's own name for a file, as long as that is open.
pub(crate) struct PathOf<'a> {
    text: CString,
    _open: PhantomData<BorrowedFd<'a>>,
}

impl Deref for PathOf<'_> {
    type Target = CStr;

    fn deref(&self) -> &CStr {
        &self.text
    }
}

/// The kernel's own name for an open file, by which calls that take paths can mean only it.
pub(crate) fn path_of(file: &impl AsFd) -> PathOf<'_> {
    let text = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    PathOf { text: CString::new(text).unwrap_or_default(), _open: PhantomData }
}

/// The names of all attributes of an open file or folder.
pub(crate) fn names(file: impl AsFd) -> rustix::io::Result<Vec<OsString>> {
    let path = path_of(&file);
    loop {
        let len = match listxattr_query(&*path) {
            Ok(0) | Err(Errno::OPNOTSUPP | Errno::PERM) => return Ok(Vec::new()),
            Ok(len) => len,
            Err(e) => return Err(e),
        };
        let mut list = vec![0_u8; len];
        match listxattr(&*path, &mut list[..]) {
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
    let path = path_of(&file);
    read_value(&|value| getxattr(&*path, name, value))
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
    setxattr(&*path_of(&file), name, value, flags)
}

/// Removes an attribute.
pub(crate) fn remove(file: impl AsFd, name: &OsStr) -> rustix::io::Result<()> {
    removexattr(&*path_of(&file), name)
}

/// Whether the attribute holds somebody's data.
pub(crate) fn is_data(name: &OsStr) -> bool {
    NAME_SPACES.iter().any(|space| name.as_bytes().starts_with(space))
}

/// Whether any of a file's attributes does.
pub(crate) fn has_data(file: impl AsFd) -> rustix::io::Result<bool> {
    Ok(names(file)?.iter().any(|name| is_data(name)))
}

/// Puts as many random bytes in the place of values, and looks whether they are gone from the
/// device.
///
/// A value that lies in the block of attributes would be put into the inode if there were room, and
/// be left in the block. So that room is taken up first.
///
/// # Errors
/// [`crate::Kind::Io`]; [`crate::Kind::NoSpace`].
pub(crate) fn overwrite_values(
    lower: &LowerFs,
    owner: Owner<'_>,
    names: &[&OsStr],
) -> Result<Overwritten> {
    let stay = |before: &Values| {
        let moves = names.iter().any(|name| before.would_move(name));
        let taker = if moves { take_room(owner, before.room)? } else { None };
        Ok(taker.into_iter().collect())
    };
    in_place(lower, owner, names, stay, |_| {
        let mut any = false;
        for name in names {
            any |= overwrite(owner, name)?;
        }
        Ok(any)
    })
}

/// Puts a new value in the place of one that there is, and looks whether that is gone from the
/// device.
///
/// Whoever asks meanwhile, or after a power cut, has the one or the other: the driver clears what a
/// value leaves in its place. But not in a block of attributes that its last one leaves for the inode,
/// or that becomes equal to another file's, which both then share. So room in the inode is taken up,
/// and the block has a companion, until the new value is in the place of the old one.
///
/// # Errors
/// The kernel's; [`crate::Kind::Io`].
pub(crate) fn replace_value(
    lower: &LowerFs,
    owner: Owner<'_>,
    name: &OsStr,
    value: &[u8],
) -> Result<Overwritten> {
    let accompany = |before: &Values| {
        let mut others = Vec::new();
        if before.is_in_block(name) {
            others.extend(take_room(owner, before.room)?);
            others.extend(add(owner, &noise(COMPANION_LEN)?)?);
        }
        Ok(others)
    };
    let replace = |others: &[OsString]| {
        let replace = || set(owner, name, value, XattrFlags::REPLACE);
        let mut replaced = replace();
        if replaced == Err(Errno::NOSPC) && !others.is_empty() {
            remove_all(owner, others)?;
            replaced = replace();
        }
        replaced.during("setting an attribute").map(|()| true)
    };
    in_place(lower, owner, &[name], accompany, replace)
}

/// Changes values where they lie, and looks whether the old ones are gone. `prepare` adds attributes
/// that keep them there; these go when the change is on the medium.
fn in_place(
    lower: &LowerFs,
    owner: Owner<'_>,
    names: &[&OsStr],
    prepare: impl FnOnce(&Values) -> Result<Vec<OsString>>,
    change: impl FnOnce(&[OsString]) -> Result<bool>,
) -> Result<Overwritten> {
    let volume = lower.volume()?;
    let number = fstat(owner).during("asking for a file's number")?.st_ino;
    let before = match &volume {
        None => None,
        Some(volume) => {
            owner.settle(lower)?;
            Values::of(volume, number)?
        }
    };
    let alone = lower.alone_with_values();
    let others = match &before {
        Some(before) if !planted(Fault::ValuesMove) => prepare(before)?,
        _ => Vec::new(),
    };
    let changed = change(&others);
    drop(alone);
    let settled = if matches!(changed, Ok(true)) { owner.settle(lower) } else { Ok(()) };
    // Whatever failed, nobody is to find them.
    remove_all(owner, &others)?;
    settled?;
    if !changed? {
        return Ok(Overwritten::Nothing);
    }
    let (Some(volume), Some(before)) = (volume, before) else {
        return Ok(Overwritten::Unseen);
    };
    step(Step::ValuesChanged);
    if names.iter().any(|name| before.has_own_inode(name)) {
        return Ok(Overwritten::Left("a value has an inode of its own, which no call overwrites"));
    }
    let look = || left_of(&volume, number, &before, names);
    // What cannot be read may be readable in a moment. Later nobody can look: the old values are known here alone.
    match look().or_else(|e| if e.is_of_medium() { look() } else { Err(e) }) {
        Ok(None) => Ok(Overwritten::Gone),
        Ok(Some(region)) if before.is_shared(region) => {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Ok(Overwritten::Shared(Box::new(Shared { before, names })))
        }
        Ok(Some(_)) => Ok(Overwritten::Left("a value is still on the device")),
        Err(e) if e.is_of_medium() => {
            log::warn!("inode {number}: its attributes cannot be looked at: {e}");
            Ok(Overwritten::Left(
                "overwritten, but the device could not be read to verify that it is gone",
            ))
        }
        Err(e) => Err(e),
    }
}

/// Where something is left of values that a file has had.
fn left_of(
    volume: &Volume<'_>,
    number: u64,
    before: &Values,
    names: &[&OsStr],
) -> Result<Option<Region>> {
    let now = Values::of(volume, number)?;
    for name in names.iter().filter(|_| !planted(Fault::ValuesUnseen)) {
        if let Some(region) = before.left(volume, name, now.as_ref())? {
            return Ok(Some(region));
        }
    }
    Ok(None)
}

/// What became of values.
#[derive(Debug)]
pub(crate) enum Overwritten {
    /// There were none.
    Nothing,
    /// Overwritten, and gone from the device.
    Gone,
    /// Overwritten; the device was not looked at.
    Unseen,
    /// Overwritten; in a block that other files had as well, they are as they were.
    Shared(Box<Shared>),
    /// Not reached, with the reason.
    Left(&'static str),
}

impl Overwritten {
    /// What is to be looked at again when other files have been purged.
    pub(crate) fn into_shared(self) -> Option<Box<Shared>> {
        match self {
            Self::Shared(shared) => Some(shared),
            _ => None,
        }
    }
}

/// Takes up the room in an inode with an attribute of ours; its name.
fn take_room(owner: Owner<'_>, room: usize) -> Result<Option<OsString>> {
    match value_len_for(room, OWN_NAME_LEN) {
        Some(len) => add(owner, &vec![b'0'; len]),
        None => Ok(None),
    }
}

/// Adds an attribute of ours, if there is room for it; its name.
fn add(owner: Owner<'_>, value: &[u8]) -> Result<Option<OsString>> {
    let name = OsString::from(owner.space().to_owned() + &names::random_name(OWN_NAME_LEN)?);
    match set(owner, &name, value, XattrFlags::CREATE) {
        Ok(()) => Ok(Some(name)),
        Err(e) => {
            log::debug!("an attribute may be left where it was: {e}");
            Ok(None)
        }
    }
}

/// Removes attributes that may be gone.
fn remove_all(owner: Owner<'_>, names: &[OsString]) -> Result<()> {
    names.iter().try_for_each(|name| match remove(owner, name) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(e) => Err(Error::of_kernel(e, "removing an attribute")),
    })
}

fn overwrite(file: impl AsFd, name: &OsStr) -> Result<bool> {
    let path = path_of(&file);
    let len = match getxattr_query(&*path, name) {
        Ok(len) => len,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(false),
        Err(e) => return Err(Error::of_kernel(e, "reading an attribute")),
    };
    let noise = noise(len)?;
    setxattr(&*path, name, &noise, XattrFlags::REPLACE).during("overwriting an attribute")?;
    Ok(true)
}

fn noise(len: usize) -> Result<Vec<u8>> {
    let key = tacita_secret::random().during("asking for random bytes")?;
    let mut bytes = vec![0; len];
    tacita_secret::Prf::new(key).stream(0, 0, &mut bytes);
    Ok(bytes)
}

/// Overwrites the values of all attributes of what is about to go.
///
/// Only then may [`clear_names`] follow: it frees the block that held the values.
pub(crate) fn overwrite_all(lower: &LowerFs, owner: Owner<'_>) -> Result<Overwritten> {
    let names = names(owner).during("listing attributes")?;
    let data: Vec<&OsStr> =
        names.iter().map(OsString::as_os_str).filter(|name| is_data(name)).collect();
    if data.is_empty() {
        return Ok(Overwritten::Nothing);
    }
    overwrite_values(lower, owner, &data)
}

/// Removes all attributes of what is about to go, so that their names are cleared too.
///
/// Removing one makes the others move together and clears what is behind them, but the last one
/// would only free its block: so a placeholder is left, like no other file's, with which it would
/// share a block and free its own. As far as there is room for it; the values are overwritten already.
pub(crate) fn clear_names(lower: &LowerFs, owner: Owner<'_>) -> Result<()> {
    let names = names(owner).during("listing attributes")?;
    let path = path_of(&owner);
    let placeholder = OsString::from(owner.space().to_owned() + PLACEHOLDER);
    let value = if planted(Fault::PlaceholdersAlike) {
        vec![b'0'; PLACEHOLDER_LEN]
    } else {
        noise(PLACEHOLDER_LEN)?
    };
    if let Err(e) = setxattr(&*path, &placeholder, &value, XattrFlags::empty()) {
        log::debug!("names of attributes may stay: {e}");
    }
    for name in names.iter().filter(|name| is_data(name) && **name != placeholder) {
        match removexattr(&*path, name.as_os_str()) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(e) => return Err(Error::of_kernel(e, "removing an attribute")),
        }
    }
    owner.write_back(lower)
}

/// Both, with the journal put in place after each.
pub(crate) fn erase_all(lower: &LowerFs, owner: Owner<'_>) -> Result<Overwritten> {
    let overwritten = overwrite_all(lower, owner)?;
    if matches!(overwritten, Overwritten::Nothing) {
        return Ok(overwritten);
    }
    owner.settle(lower)?;
    clear_names(lower, owner)?;
    owner.settle(lower)?;
    Ok(overwritten)
}
