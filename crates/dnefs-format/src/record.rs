//! What nodes of the file system hold.

use crate::fields::{Fields, Malformed, Put};

const TYPE_SHIFT: u32 = 60;
/// Bits of what is within a type: a block number, or a hash and a slot.
const WITHIN: u64 = (1 << TYPE_SHIFT) - 1;
const INODE: u64 = 0;
const DATA: u64 = 1;
const DENTRY: u64 = 2;
const XATTR: u64 = 3;
const RECEIPT: u64 = 4;
/// Entries of one directory whose names have the same hash: how many there can be, as bits.
const SLOT_BITS: u32 = 4;
/// Longest name in bytes.
pub const NAME_LEN_MAX: usize = 255;

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An [`Inode`].
    Inode,
    /// A block of a file.
    Data,
    /// A [`Dentry`].
    Dentry,
    /// An [`Xattr`].
    Xattr,
    /// A [`Removal`].
    Removal,
    /// A truncation: the new size, 8 bytes.
    Truncation,
    /// A [`crate::receipt::Receipt`].
    Receipt,
    /// Part of the index, [`crate::checkpoint::IndexChunk`].
    IndexChunk,
    /// Where the nodes of an erase block of keys lie, [`crate::checkpoint::KeyMap`].
    KeyMap,
    /// Where other nodes of the checkpoint lie, [`crate::checkpoint::Table`].
    Table,
    /// Inodes without names that were in use, [`crate::checkpoint::Orphans`].
    Orphans,
    /// Where a checkpoint begins, [`crate::checkpoint::Root`].
    Root,
}

const KINDS: [(u8, Kind); 12] = [
    (1, Kind::Inode),
    (2, Kind::Data),
    (3, Kind::Dentry),
    (4, Kind::Xattr),
    (5, Kind::Removal),
    (6, Kind::Truncation),
    (7, Kind::Receipt),
    (16, Kind::IndexChunk),
    (17, Kind::KeyMap),
    (18, Kind::Table),
    (19, Kind::Orphans),
    (20, Kind::Root),
];

impl Kind {
    pub(crate) fn number(self) -> u8 {
        KINDS.iter().find(|(_, kind)| *kind == self).expect("all are listed").0
    }

    pub(crate) fn from_number(number: u8) -> Result<Self, Malformed> {
        let found = KINDS.iter().find(|(n, _)| *n == number);
        found.map(|(_, kind)| *kind).ok_or(Malformed("what it is is unknown"))
    }
}

/// Where a node is in the index: whose it is, and which of what that has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexKey {
    /// The inode.
    pub ino: u64,
    /// Its type in the upper 4 bits, and which of them.
    pub sub: u64,
}

/// What an [`IndexKey`] stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The inode itself.
    Inode,
    /// A block of the file.
    Data(u64),
    /// An entry of the directory.
    Dentry(u64),
    /// An extended attribute.
    Xattr(u64),
    /// A receipt.
    Receipt(u64),
}

impl IndexKey {
    const fn of(ino: u64, kind: u64, within: u64) -> Self {
        Self { ino, sub: kind << TYPE_SHIFT | within & WITHIN }
    }

    /// An inode.
    pub const fn inode(ino: u64) -> Self {
        Self::of(ino, INODE, 0)
    }

    /// A block of a file.
    pub const fn data(ino: u64, block: u64) -> Self {
        Self::of(ino, DATA, block)
    }

    /// An entry of a directory, by [`Self::hashed`].
    pub const fn dentry(ino: u64, hashed: u64) -> Self {
        Self::of(ino, DENTRY, hashed)
    }

    /// An extended attribute, by [`Self::hashed`].
    pub const fn xattr(ino: u64, hashed: u64) -> Self {
        Self::of(ino, XATTR, hashed)
    }

    /// The receipt of an epoch. Receipts belong to no inode.
    pub const fn receipt(epoch: u64) -> Self {
        Self::of(0, RECEIPT, epoch)
    }

    /// The first of the places for a name with this hash.
    pub const fn hashed(hash: u64) -> u64 {
        hash << SLOT_BITS & WITHIN
    }

    /// Places for names with the same hash.
    pub const SLOTS: u64 = 1 << SLOT_BITS;

    /// The end of all that belongs to an inode.
    pub const fn end_of(ino: u64) -> Self {
        Self { ino: ino + 1, sub: 0 }
    }

    /// What it stands for.
    pub const fn part(self) -> Option<Part> {
        let within = self.sub & WITHIN;
        match self.sub >> TYPE_SHIFT {
            INODE if within == 0 => Some(Part::Inode),
            DATA => Some(Part::Data(within)),
            DENTRY => Some(Part::Dentry(within)),
            XATTR => Some(Part::Xattr(within)),
            RECEIPT => Some(Part::Receipt(within)),
            _ => None,
        }
    }
}

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanos: u32,
}

impl Time {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let time = Self { secs: fields.i64()?, nanos: fields.u32()? };
        if time.nanos < 1_000_000_000 { Ok(time) } else { Err(Malformed("its time is none")) }
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_i64(self.secs);
        out.put_u32(self.nanos);
    }
}

/// An inode flag: what is deleted of it is purged at once. Files made in such a directory have it, too.
pub const SENSITIVE: u32 = 1 << 31;

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// File type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Names; for a directory 2 and one for each directory in it.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Inode flags, as `chattr` sets them, and [`SENSITIVE`].
    pub flags: u32,
    /// Length of the content in bytes.
    pub size: u64,
    /// Of a directory, the one that holds it.
    pub parent: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
}

impl Inode {
    /// Whether what is deleted of it is purged at once.
    pub const fn is_sensitive(&self) -> bool {
        self.flags & SENSITIVE != 0
    }

    /// As payload.
    ///
    /// # Panics
    /// If the target is longer than a path can be.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(80 + self.target.len());
        for value in [self.mode, self.nlink, self.uid, self.gid, self.rdev, self.flags] {
            out.put_u32(value);
        }
        out.put_u64(self.size);
        out.put_u64(self.parent);
        for time in [self.atime, self.mtime, self.ctime] {
            time.put(&mut out);
        }
        out.put_u16(u16::try_from(self.target.len()).expect("paths are shorter"));
        out.put(&self.target);
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let inode = Self {
            mode: fields.u32()?,
            nlink: fields.u32()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            rdev: fields.u32()?,
            flags: fields.u32()?,
            size: fields.u64()?,
            parent: fields.u64()?,
            atime: Time::read(&mut fields)?,
            mtime: Time::read(&mut fields)?,
            ctime: Time::read(&mut fields)?,
            target: {
                let len = fields.u16()?;
                fields.bytes(len.into())?.to_vec()
            },
        };
        fields.end()?;
        Ok(inode)
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dentry {
    /// The inode it names.
    pub ino: u64,
    /// The file type of it, as in `st_mode`.
    pub file_type: u32,
    /// The name.
    pub name: Vec<u8>,
}

impl Dentry {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12 + self.name.len());
        out.put_u64(self.ino);
        out.put_u32(self.file_type);
        out.put(&self.name);
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let dentry = Self { ino: fields.u64()?, file_type: fields.u32()?, name: fields.0.to_vec() };
        if dentry.name.is_empty() || dentry.name.len() > NAME_LEN_MAX {
            return Err(Malformed("its name has a length that no name has"));
        }
        Ok(dentry)
    }
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl Xattr {
    /// As payload.
    ///
    /// # Panics
    /// If the name is longer than names are.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 + self.name.len() + self.value.len());
        out.put_u16(u16::try_from(self.name.len()).expect("names are shorter"));
        out.put(&self.name);
        out.put(&self.value);
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let len = fields.u16()?;
        let name = fields.bytes(len.into())?.to_vec();
        Ok(Self { name, value: fields.0.to_vec() })
    }
}

/// What is no more: needed from one checkpoint to the next only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removal {
    /// What left the index.
    pub removed: Vec<IndexKey>,
    /// Inodes that lost their last name.
    pub orphans: Vec<u64>,
}

impl Removal {
    /// As payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_count(self.removed.len());
        for key in &self.removed {
            out.put_u64(key.ino);
            out.put_u64(key.sub);
        }
        out.put_count(self.orphans.len());
        for ino in &self.orphans {
            out.put_u64(*ino);
        }
        out
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let mut removal = Self::default();
        for _ in 0..fields.count(16)? {
            removal.removed.push(IndexKey { ino: fields.u64()?, sub: fields.u64()? });
        }
        for _ in 0..fields.count(8)? {
            removal.orphans.push(fields.u64()?);
        }
        fields.end()?;
        Ok(removal)
    }
}

/// The payload of a truncation.
pub const fn encode_truncation(size: u64) -> [u8; 8] {
    size.to_le_bytes()
}

/// From the payload of a truncation.
///
/// # Errors
/// [`Malformed`].
pub fn decode_truncation(payload: &[u8]) -> Result<u64, Malformed> {
    let mut fields = Fields(payload);
    let size = fields.u64()?;
    fields.end()?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_their_bytes() {
        let time = |secs| Time { secs, nanos: 999_999_999 };
        let inode = Inode {
            mode: 0o120_777,
            nlink: 1,
            uid: 2,
            gid: 3,
            rdev: 4,
            flags: 5,
            size: 6,
            parent: 7,
            atime: time(-1),
            mtime: time(2),
            ctime: time(3),
            target: b"../elsewhere".to_vec(),
        };
        assert_eq!(Inode::decode(&inode.encode()), Ok(inode));
        let dentry = Dentry { ino: 9, file_type: 0o100_000, name: b"name".to_vec() };
        assert_eq!(Dentry::decode(&dentry.encode()), Ok(dentry));
        let xattr = Xattr { name: b"user.a".to_vec(), value: vec![1; 70_000] };
        assert_eq!(Xattr::decode(&xattr.encode()), Ok(xattr));
        let removal = Removal { removed: vec![IndexKey::dentry(1, 2)], orphans: vec![3, 4] };
        assert_eq!(Removal::decode(&removal.encode()), Ok(removal));
        assert_eq!(decode_truncation(&encode_truncation(77)), Ok(77));
    }

    #[test]
    fn counts_beyond_the_end_and_bytes_behind_it_are_refused() {
        Removal::decode(&[0xff; 20]).unwrap_err();
        Removal::decode(&[0; 9]).unwrap_err();
        decode_truncation(&[0; 9]).unwrap_err();
        Dentry::decode(&[0; 12]).unwrap_err();
        Xattr::decode(&[9, 0, 1]).unwrap_err();
    }

    #[test]
    fn the_parts_of_an_inode_lie_together_in_the_index() {
        let parts = [
            IndexKey::inode(5),
            IndexKey::data(5, 0),
            IndexKey::data(5, 7),
            IndexKey::dentry(5, IndexKey::hashed(u64::MAX)),
            IndexKey::xattr(5, 0),
            IndexKey::end_of(5),
        ];
        assert!(parts.is_sorted());
        assert_eq!(parts[2].part(), Some(Part::Data(7)));
        assert_eq!(IndexKey { ino: 5, sub: 1 }.part(), None);
    }
}
