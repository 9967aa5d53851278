//! The block of an inode: attributes, extended attributes, which parts of the content there may be, and
//! as much content as fits.
//!
//! Paper: section 7 (an inode is a block, without tables, counters or bitmaps).

mod ranges;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use tacita_vfs::{FileType, Timestamp};

use crate::error::{Error, Result};
use crate::fields::{Reader, Writer};
use crate::ids::{BLOCK_LEN, Id};

pub use ranges::{RANGES, Range, Ranges};

const MAGIC: [u8; 4] = *b"TPFI";
const VERSION: u32 = 1;

const RANGES_AT: usize = 256;
const XATTRS_AT: usize = RANGES_AT + RANGES * 16;

/// Bytes of extended attributes that an inode holds.
pub const XATTRS_LEN: usize = 1024;

const BODY_AT: usize = XATTRS_AT + XATTRS_LEN;

/// Bytes of content that an inode holds.
pub const BODY_LEN: usize = BLOCK_LEN - BODY_AT;

/// What stands before an extended attribute: the lengths of its name and its value.
const XATTR_HEAD: usize = 3;

/// Where the content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In the inode.
    Inline,
    /// In blocks of its own.
    Blocks,
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Its name in the store: random.
    pub id: Id,
    /// What it is.
    pub kind: FileType,
    /// Where its content is.
    pub form: Form,
    /// Permission bits.
    pub perm: u16,
    /// Names that it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Inode flags.
    pub flags: u32,
    /// Bytes of content; of a directory, of its entries.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// What the blocks of its content are named after: random, and anew when all content goes.
    pub content: Id,
    /// Of a directory: the one that holds it.
    pub parent: Id,
    /// Of a directory: entries.
    pub entries: u64,
    /// Of a directory: buckets; 0 while its entries are in the inode.
    pub buckets: u64,
    /// Which blocks of content there may be.
    pub ranges: Ranges,
    /// Extended attributes, encoded.
    pub xattrs: Vec<u8>,
    /// Content in the inode.
    pub body: Vec<u8>,
}

impl Inode {
    /// The number that programs see.
    pub fn number(id: &Id) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&id[..8]);
        // Small numbers mean something to some.
        u64::from_le_bytes(first) >> 1 | 1 << 62
    }

    /// Its bytes, without a stamp.
    ///
    /// # Panics
    /// If more is in it than fits, which whoever puts it there looks after.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.xattrs.len() <= XATTRS_LEN && self.body.len() <= BODY_LEN);
        let mut block = Writer::new();
        block.bytes(0, &MAGIC);
        block.u32(4, VERSION);
        block.bytes(24, &[kind_number(self.kind), u8::from(self.form == Form::Blocks)]);
        block.u16(26, self.perm);
        for (number, value) in
            [self.nlink, self.uid, self.gid, self.rdev, self.flags].into_iter().enumerate()
        {
            block.u32(28 + 4 * number, value);
        }
        block.u64(48, self.size);
        for (number, time) in [self.atime, self.mtime, self.ctime].into_iter().enumerate() {
            block.bytes(56 + 12 * number, &time.secs.to_le_bytes());
            block.u32(64 + 12 * number, time.nanos);
        }
        block.bytes(96, &self.id);
        block.bytes(128, &self.content);
        block.bytes(160, &self.parent);
        block.u64(192, self.entries);
        block.u64(200, self.buckets);
        block.u16(208, u16::try_from(self.xattrs.len()).expect("few"));
        block.u16(210, u16::try_from(self.body.len()).expect("short"));
        block.u16(212, u16::try_from(self.ranges.all().len()).expect("few"));
        for (number, range) in self.ranges.all().iter().enumerate() {
            block.u64(RANGES_AT + 16 * number, range.start);
            block.u64(RANGES_AT + 16 * number + 8, range.end);
        }
        block.bytes(XATTRS_AT, &self.xattrs);
        block.bytes(BODY_AT, &self.body);
        block.0
    }

    /// From its bytes.
    ///
    /// # Errors
    /// [`crate::Kind::Damaged`] if no mount has written them.
    pub fn decode(block: &[u8]) -> Result<Self> {
        let damaged = |what: &'static str| Error::damaged(format!("an inode: {what}"));
        if block.len() != BLOCK_LEN || block[..4] != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        let fields = Reader(block);
        if fields.u32(4) != VERSION {
            return Err(damaged("of a format that this program does not know"));
        }
        let form = match block[25] {
            0 => Form::Inline,
            1 => Form::Blocks,
            _ => return Err(damaged("content that is nowhere")),
        };
        let (xattrs, body) = (usize::from(fields.u16(208)), usize::from(fields.u16(210)));
        let ranges = usize::from(fields.u16(212));
        if xattrs > XATTRS_LEN || body > BODY_LEN || ranges > RANGES {
            return Err(damaged("more than fits"));
        }
        let zeros = fields.is_zero(92..96)
            && fields.is_zero(214..RANGES_AT)
            && fields.is_zero(RANGES_AT + 16 * ranges..XATTRS_AT)
            && fields.is_zero(XATTRS_AT + xattrs..BODY_AT)
            && fields.is_zero(BODY_AT + body..BLOCK_LEN);
        if !zeros {
            return Err(damaged("something where nothing belongs"));
        }
        let time = |number: usize| {
            let secs = i64::from_le_bytes(fields.array(56 + 12 * number));
            Timestamp { secs, nanos: fields.u32(64 + 12 * number) }
        };
        let times = [time(0), time(1), time(2)];
        if times.iter().any(|time| time.nanos >= 1_000_000_000) || fields.u16(26) > 0o7777 {
            return Err(damaged("an attribute that cannot be"));
        }
        let all = (0..ranges).map(|number| Range {
            start: fields.u64(RANGES_AT + 16 * number),
            end: fields.u64(RANGES_AT + 16 * number + 8),
        });
        let inode = Self {
            id: fields.id(96),
            kind: kind_of(block[24]).ok_or_else(|| damaged("of no kind"))?,
            form,
            perm: fields.u16(26),
            nlink: fields.u32(28),
            uid: fields.u32(32),
            gid: fields.u32(36),
            rdev: fields.u32(40),
            flags: fields.u32(44),
            size: fields.u64(48),
            atime: times[0],
            mtime: times[1],
            ctime: times[2],
            content: fields.id(128),
            parent: fields.id(160),
            entries: fields.u64(192),
            buckets: fields.u64(200),
            ranges: Ranges::from_all(all.collect()).ok_or_else(|| damaged("of disorder"))?,
            xattrs: block[XATTRS_AT..XATTRS_AT + xattrs].to_vec(),
            body: block[BODY_AT..BODY_AT + body].to_vec(),
        };
        let too_long = inode.form == Form::Inline
            && inode.kind == FileType::File
            && inode.size != inode.body.len() as u64;
        if too_long || parse_xattrs(&inode.xattrs).is_none() || inode.buckets > 1 << 40 {
            return Err(damaged("what it says of itself cannot be"));
        }
        Ok(inode)
    }

    /// Its extended attributes.
    pub fn xattrs(&self) -> Vec<(&[u8], &[u8])> {
        parse_xattrs(&self.xattrs).unwrap_or_default()
    }

    /// Sets or takes away an extended attribute; whether there is room.
    #[must_use]
    pub fn set_xattr(&mut self, name: &OsStr, value: Option<&[u8]>) -> bool {
        let mut encoded = Vec::new();
        let others = self.xattrs().into_iter().filter(|(other, _)| *other != name.as_bytes());
        for (name, value) in others.chain(value.map(|value| (name.as_bytes(), value))) {
            let (Ok(name_len), Ok(value_len)) =
                (u8::try_from(name.len()), u16::try_from(value.len()))
            else {
                return false;
            };
            encoded.push(name_len);
            encoded.extend(value_len.to_le_bytes());
            encoded.extend(name);
            encoded.extend(value);
        }
        let fits = encoded.len() <= XATTRS_LEN;
        if fits {
            self.xattrs = encoded;
        }
        fits
    }
}

fn parse_xattrs(mut bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let head = bytes.get(..XATTR_HEAD)?;
        let name_end = XATTR_HEAD + usize::from(head[0]);
        let end = name_end + usize::from(u16::from_le_bytes([head[1], head[2]]));
        found.push((bytes.get(XATTR_HEAD..name_end)?, bytes.get(name_end..end)?));
        bytes = &bytes[end..];
    }
    Some(found)
}

/// Kinds, in the order of their numbers.
const KINDS: [FileType; 7] = [
    FileType::File,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
];

/// The number of a kind in blocks.
pub(crate) fn kind_number(kind: FileType) -> u8 {
    let at = KINDS.iter().position(|other| *other == kind);
    u8::try_from(at.unwrap_or(0) + 1).unwrap_or(1)
}

/// The kind of a number.
pub(crate) fn kind_of(number: u8) -> Option<FileType> {
    KINDS.get(usize::from(number).checked_sub(1)?).copied()
}
