//! Entries of pages: inodes and directory entries.
//!
//! Format: docs/spec/hifs.md, sections 6 and 7.

use std::collections::BTreeMap;

use tacita_vfs::{FileType, Timestamp};

use crate::error::{Result, damaged};
use crate::names::FileId;
use crate::page::PAYLOAD_LEN;
use crate::superblock::{u32_at, u64_at, u128_at};

/// Content of at most this size lies in the inode and takes no bucket.
pub(crate) const INLINE_LEN_MAX: u64 = 192;
/// Longest name in bytes.
pub(crate) const NAME_LEN_MAX: usize = 255;
const FIXED_LEN: usize = 56;
const TIME_LEN: usize = 12;
/// Room for all extended attributes of a file, names and values with 3 bytes each, in bytes.
#[expect(clippy::cast_possible_truncation, reason = "192")]
pub(crate) const XATTRS_LEN_MAX: usize =
    PAYLOAD_LEN as usize - FIXED_LEN - 3 * TIME_LEN - INLINE_LEN_MAX as usize;

/// Name spaces of extended attributes.
const NAME_SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Whether an extended attribute can be called so.
pub(crate) fn is_xattr_name(name: &[u8]) -> bool {
    let in_space = |space: &&[u8]| name.len() > space.len() && name.starts_with(space);
    name.len() <= NAME_LEN_MAX && !name.contains(&0) && NAME_SPACES.iter().any(in_space)
}

/// Extended attributes, sorted by name.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// An inode as it stands in a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inode {
    /// Identity.
    pub id: FileId,
    /// What it is.
    pub kind: FileType,
    /// Permission and set-id bits.
    pub perm: u16,
    /// Names; 0 for a file that was open without a name when the image was left.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Size in bytes; for a directory the number of its entries.
    pub size: u64,
    /// Buckets stored.
    pub buckets: u32,
    /// atime, mtime, ctime, as far as the image keeps them.
    pub times: [Option<Timestamp>; 3],
    /// Content, if it is short.
    pub inline: Vec<u8>,
    /// Extended attributes.
    pub xattrs: Xattrs,
}

/// Bytes that an extended attribute takes in an inode.
pub(crate) const fn xattr_len(name: &[u8], value: &[u8]) -> usize {
    3 + name.len() + value.len()
}

/// Bytes that extended attributes take in an inode.
pub(crate) fn xattrs_len(xattrs: &Xattrs) -> usize {
    xattrs.iter().map(|(name, value)| xattr_len(name, value)).sum()
}

/// Bytes of an inode's entry.
pub(crate) fn inode_len(times: [bool; 3], inline_len: usize, xattrs: &Xattrs) -> u32 {
    let times = times.iter().filter(|kept| **kept).count() * TIME_LEN;
    u32::try_from(FIXED_LEN + times + inline_len + xattrs_len(xattrs)).expect("less than a page")
}

const fn kind_code(kind: FileType) -> u8 {
    match kind {
        FileType::File => 1,
        FileType::Directory => 2,
        FileType::Symlink => 3,
        FileType::Fifo => 4,
        FileType::Socket => 5,
        FileType::CharDevice => 6,
        FileType::BlockDevice => 7,
    }
}

fn kind_of(code: u8) -> Result<FileType> {
    Ok(match code {
        1 => FileType::File,
        2 => FileType::Directory,
        3 => FileType::Symlink,
        4 => FileType::Fifo,
        5 => FileType::Socket,
        6 => FileType::CharDevice,
        7 => FileType::BlockDevice,
        _ => return Err(damaged("unknown file type")),
    })
}

impl Inode {
    /// Appends the entry to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let flags = (0..3).fold(0, |flags, i| flags | u8::from(self.times[i].is_some()) << i);
        out.extend(self.id.to_le_bytes());
        out.extend([kind_code(self.kind), flags]);
        out.extend(self.perm.to_le_bytes());
        for word in [self.nlink, self.uid, self.gid, self.rdev] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.size.to_le_bytes());
        out.extend(self.buckets.to_le_bytes());
        let inline = u16::try_from(self.inline.len()).expect("192 at most");
        let xattrs = u16::try_from(xattrs_len(&self.xattrs)).expect("less than a page");
        out.extend(inline.to_le_bytes());
        out.extend(xattrs.to_le_bytes());
        out.extend([0; 4]);
        for time in self.times.iter().flatten() {
            out.extend(time.secs.to_le_bytes());
            out.extend(time.nanos.to_le_bytes());
        }
        out.extend(&self.inline);
        for (name, value) in &self.xattrs {
            out.push(u8::try_from(name.len()).expect("255 at most"));
            out.extend(u16::try_from(value.len()).expect("less than a page").to_le_bytes());
            out.extend(name);
            out.extend(value);
        }
    }

    /// Reads one entry from the front of `bytes`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Damaged`] if it is truncated or not as [`Inode::encode`] writes it.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Result<Self> {
        let fixed = take(bytes, FIXED_LEN)?;
        let flags = fixed[17];
        if flags > 7 || fixed[52..56] != [0; 4] {
            return Err(damaged("unknown flags"));
        }
        let half = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let mut this = Self {
            id: u128_at(fixed, 0),
            kind: kind_of(fixed[16])?,
            perm: half(18),
            nlink: u32_at(fixed, 20),
            uid: u32_at(fixed, 24),
            gid: u32_at(fixed, 28),
            rdev: u32_at(fixed, 32),
            size: u64_at(fixed, 36),
            buckets: u32_at(fixed, 44),
            times: [None; 3],
            inline: Vec::new(),
            xattrs: Xattrs::new(),
        };
        let (inline_len, xattrs_len) = (usize::from(half(48)), usize::from(half(50)));
        for (i, time) in this.times.iter_mut().enumerate() {
            if flags >> i & 1 == 1 {
                let raw = take(bytes, TIME_LEN)?;
                let secs = i64::from_le_bytes(raw[..8].try_into().expect("8 bytes"));
                *time = Some(Timestamp { secs, nanos: u32_at(raw, 8) });
            }
        }
        this.inline = take(bytes, inline_len)?.to_vec();
        let mut xattrs = take(bytes, xattrs_len)?;
        while !xattrs.is_empty() {
            let head = take(&mut xattrs, 3)?;
            let (name_len, value_len) = (head[0].into(), u16::from_le_bytes([head[1], head[2]]));
            let name = take(&mut xattrs, name_len)?.to_vec();
            let value = take(&mut xattrs, value_len.into())?.to_vec();
            if this.xattrs.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(damaged("extended attributes out of order"));
            }
            if !is_xattr_name(&name) {
                return Err(damaged("an extended attribute with an impossible name"));
            }
            this.xattrs.insert(name, value);
        }
        this.check()?;
        Ok(this)
    }

    fn check(&self) -> Result<()> {
        let has_content = matches!(self.kind, FileType::File | FileType::Symlink);
        let inline = has_content && self.size <= INLINE_LEN_MAX;
        let nanos_ok = self.times.iter().flatten().all(|time| time.nanos < 1_000_000_000);
        if self.id == 0 || self.perm > 0o7777 || !nanos_ok {
            return Err(damaged("impossible inode"));
        }
        if self.inline.len() as u64 != if inline { self.size } else { 0 }
            || (inline || !has_content) && self.buckets != 0
        {
            return Err(damaged("size and content do not agree"));
        }
        if self.rdev != 0 && !matches!(self.kind, FileType::CharDevice | FileType::BlockDevice) {
            return Err(damaged("a device number on something that is not a device"));
        }
        Ok(())
    }
}

/// A directory entry as it stands in a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirEntry<'a> {
    /// The file.
    pub id: FileId,
    /// What it is.
    pub kind: FileType,
    /// Its name: 1 to 255 bytes.
    pub name: &'a [u8],
}

/// Bytes of a directory entry with a name of `name_len` bytes.
pub(crate) fn entry_len(name_len: usize) -> u32 {
    u32::try_from(18 + name_len).expect("a name has 255 bytes at most")
}

impl<'a> DirEntry<'a> {
    /// Appends the entry of `name` to `out`.
    pub(crate) fn encode(id: FileId, kind: FileType, name: &[u8], out: &mut Vec<u8>) {
        out.extend(id.to_le_bytes());
        out.push(kind_code(kind));
        out.push(u8::try_from(name.len()).expect("255 at most"));
        out.extend(name);
    }

    /// Reads one entry from the front of `bytes`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Damaged`] if it is truncated or names nothing.
    pub(crate) fn decode(bytes: &mut &'a [u8]) -> Result<Self> {
        let fixed = take(bytes, 18)?;
        let (id, kind) = (u128_at(fixed, 0), kind_of(fixed[16])?);
        let name = take(bytes, fixed[17].into())?;
        let is_name = !name.is_empty()
            && name != b"."
            && name != b".."
            && name.iter().all(|&b| b != 0 && b != b'/');
        if id == 0 || !is_name {
            return Err(damaged("impossible directory entry"));
        }
        Ok(Self { id, kind, name })
    }
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(len).ok_or_else(|| damaged("truncated entry"))?;
    *bytes = tail;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_round_trip_and_length() {
        let inode = Inode {
            id: 7,
            kind: FileType::File,
            perm: 0o644,
            nlink: 2,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 3,
            buckets: 0,
            times: [None, Some(Timestamp { secs: -5, nanos: 9 }), None],
            inline: b"abc".to_vec(),
            xattrs: [(b"user.a".to_vec(), b"x".to_vec()), (b"user.b".to_vec(), vec![])].into(),
        };
        let mut bytes = Vec::new();
        inode.encode(&mut bytes);
        assert_eq!(bytes.len(), inode_len([false, true, false], 3, &inode.xattrs) as usize);
        let mut rest = &bytes[..];
        assert_eq!(Inode::decode(&mut rest).unwrap(), inode);
        assert!(rest.is_empty());
        for len in 0..bytes.len() {
            assert!(Inode::decode(&mut &bytes[..len]).is_err());
        }
    }
}
