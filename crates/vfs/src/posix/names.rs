//! What may be a name, and who may take one away.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::posix::Caller;
use crate::{Attr, FileType, Kind, Result};

/// Longest name in bytes: `NAME_MAX` of Linux.
pub const NAME_LEN_MAX: usize = 255;

/// Longest target of a symbolic link in bytes: `PATH_MAX` of Linux without its final zero.
pub(super) const TARGET_LEN_MAX: usize = 4095;

/// The sticky bit of a directory.
pub(super) const STICKY: u16 = 0o1000;

/// Refuses what no entry can be called.
pub(super) fn check_name(name: &OsStr) -> Result<()> {
    let bytes = name.as_bytes();
    if bytes.len() > NAME_LEN_MAX {
        return Err(Kind::NameTooLong.into());
    }
    if bytes.is_empty() {
        return Err(Kind::NotFound.into());
    }
    if bytes == b"." || bytes == b".." || bytes.iter().any(|b| *b == b'/' || *b == 0) {
        return Err(Kind::Invalid.into());
    }
    Ok(())
}

/// Refuses a directory that cannot take a new name: not a directory, or removed.
pub(super) fn check_parent(dir: &Attr) -> Result<()> {
    if dir.kind != FileType::Directory {
        return Err(Kind::NotDirectory.into());
    }
    if dir.nlink == 0 {
        return Err(Kind::NotFound.into());
    }
    Ok(())
}

/// Refuses to take the name of `victim` out of a sticky directory unless the caller owns either.
pub(super) fn check_sticky(
    caller: Caller,
    dir: impl FnOnce() -> Result<Attr>,
    victim: &Attr,
) -> Result<()> {
    if caller.is_root() || caller.uid == victim.uid {
        return Ok(());
    }
    let dir = dir()?;
    if dir.perm & STICKY != 0 && caller.uid != dir.uid {
        return Err(Kind::NotPermitted.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &[u8]) -> Option<Kind> {
        check_name(OsStr::from_bytes(name)).err().map(|e| e.kind())
    }

    #[test]
    fn names_have_limits() {
        assert_eq!(kind(&[b'a'; 255]), None);
        assert_eq!(kind(&[b'a'; 256]), Some(Kind::NameTooLong));
        assert_eq!(kind(b""), Some(Kind::NotFound));
        assert_eq!(kind(b"."), Some(Kind::Invalid));
        assert_eq!(kind(b".."), Some(Kind::Invalid));
        assert_eq!(kind(b"a/b"), Some(Kind::Invalid));
        assert_eq!(kind(b"..."), None);
        assert_eq!(kind(b"\xff\x01"), None);
    }
}
