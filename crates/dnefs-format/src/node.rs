//! A node: a header that anybody can read, and a record that its key alone opens.
//!
//! What a node is, whose it is and what it holds is in the record. The header tells where its key is,
//! whether a key is the right one, and when it was written: as much as finding nodes needs.

use tacita_secret::{CHECK_VALUE_LEN, CheckValue, FreshKey, MessageKey, TAG_LEN, Traces};

use crate::compression::Compression;
use crate::fields::{Fields, Malformed, Put};
use crate::layout::{KeyPos, NODE_ALIGN};
use crate::record::{IndexKey, Kind};

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 48;
/// Length of what precedes the payload of a record, in bytes.
const IDENTITY_LEN: usize = 24;
/// Most bytes that a node adds to its payload.
pub const OVERHEAD: usize = HEADER_LEN + IDENTITY_LEN + TAG_LEN + NODE_ALIGN as usize;
const MAGIC: [u8; 4] = *b"TacN";
/// What the header's checksum covers.
const CHECKED: usize = 8;
/// What is authenticated with the record.
const CONTEXT: usize = 12;
const MORE_OF_GROUP: u8 = 1;

/// What a node is for those who cannot open it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Part of a file system: garbage collection keeps it while its key is in use.
    Record,
    /// Part of a checkpoint: the next checkpoints write it anew or go on using it.
    Checkpoint,
    /// First in each erase block: nothing but a header. Its number is when the block was begun.
    BlockHead,
    /// Nothing: the rest of a page.
    Padding,
    /// Behind a root: the volume was mounted for writing since.
    Mounted,
    /// Behind a root: nothing was written since, all that was deleted is purged and erased, and all keys
    /// that no node has are fresh.
    Unmounted,
}

impl Class {
    const fn number(self) -> u8 {
        match self {
            Self::Record => 1,
            Self::Checkpoint => 2,
            Self::BlockHead => 3,
            Self::Padding => 4,
            Self::Mounted => 5,
            Self::Unmounted => 6,
        }
    }

    const fn from_number(number: u8) -> Result<Self, Malformed> {
        match number {
            1 => Ok(Self::Record),
            2 => Ok(Self::Checkpoint),
            3 => Ok(Self::BlockHead),
            4 => Ok(Self::Padding),
            5 => Ok(Self::Mounted),
            6 => Ok(Self::Unmounted),
            _ => Err(Malformed("its class is unknown")),
        }
    }

    /// Whether it holds a record.
    pub const fn is_sealed(self) -> bool {
        matches!(self, Self::Record | Self::Checkpoint)
    }
}

/// What stands before a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is for those who cannot open it.
    pub class: Class,
    /// The next node in the order of numbers belongs to the same group: all of it counts, or none.
    pub more_of_group: bool,
    /// Length of the node in bytes, with its header.
    pub len_bytes: u32,
    /// The order of nodes in time.
    pub sqnum: u64,
    /// Where its key is.
    pub key: KeyPos,
    /// What the key's check value is.
    pub check_value: CheckValue,
    record_crc: u32,
}

impl Header {
    /// Length of the node with the zeros behind it, in bytes.
    pub const fn stored_len_bytes(&self) -> u32 {
        self.len_bytes.next_multiple_of(NODE_ALIGN)
    }

    /// The header at the start of `bytes`, which hold all of the node; `None` where nothing was
    /// written.
    ///
    /// # Errors
    /// [`Malformed`] if there is no header, or the node does not fit.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let head = bytes.get(..HEADER_LEN).ok_or(Malformed("it is too short"))?;
        if head.iter().all(|&byte| byte == 0xff) {
            return Ok(None);
        }
        let mut fields = Fields(head);
        if fields.array()? != MAGIC {
            return Err(Malformed("it does not begin as a node does"));
        }
        if fields.u32()? != crc32fast::hash(&head[CHECKED..]) {
            return Err(Malformed("the checksum of its header is wrong"));
        }
        let record_crc = fields.u32()?;
        let len_bytes = fields.u32()?;
        let sqnum = fields.u64()?;
        let key = KeyPos { leb: fields.u32()?, slot: fields.u32()? };
        let check_value = fields.array()?;
        let class = Class::from_number(fields.u8()?)?;
        let more_of_group = fields.u8()? & MORE_OF_GROUP != 0;
        let least = if class.is_sealed() { HEADER_LEN + IDENTITY_LEN } else { HEADER_LEN };
        if (len_bytes as usize) < least || len_bytes as usize > bytes.len() {
            return Err(Malformed("its length makes no sense"));
        }
        Ok(Some(Self { class, more_of_group, len_bytes, sqnum, key, check_value, record_crc }))
    }

    /// Whether what follows the header is what was written, as far as a checksum tells.
    pub fn is_whole(&self, node: &[u8]) -> bool {
        let record = node.get(HEADER_LEN..self.len_bytes as usize);
        !self.class.is_sealed()
            || record.is_some_and(|record| crc32fast::hash(record) == self.record_crc)
    }

    fn put(&self, at: &mut [u8]) {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.put(&MAGIC);
        out.put_u32(0);
        out.put_u32(self.record_crc);
        out.put_u32(self.len_bytes);
        out.put_u64(self.sqnum);
        out.put_u32(self.key.leb);
        out.put_u32(self.key.slot);
        out.put(&self.check_value);
        out.put_u8(self.class.number());
        out.put_u8(if self.more_of_group { MORE_OF_GROUP } else { 0 });
        out.put(&[0; 6]);
        let crc = crc32fast::hash(&out[CHECKED..]);
        out[4..CHECKED].copy_from_slice(&crc.to_le_bytes());
        at.copy_from_slice(&out);
    }
}

/// Where a node stands among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What it is for those who cannot open it.
    pub class: Class,
    /// The next node in the order of numbers belongs to the same group.
    pub more_of_group: bool,
    /// The order of nodes in time.
    pub sqnum: u64,
    /// Where its key is.
    pub key: KeyPos,
}

/// Appends a node to `out`, whose length is a multiple of [`NODE_ALIGN`], and zeros up to the next.
///
/// # Panics
/// If the payload is 4 GiB long.
pub fn seal(
    out: &mut Vec<u8>,
    standing: Standing,
    key: FreshKey,
    traces: &mut Traces,
    authenticates: bool,
    record: &Record<'_>,
) {
    let start = out.len();
    out.resize(start + HEADER_LEN, 0);
    out.put_u8(record.kind.number());
    let compression = out.len();
    out.put_u8(0);
    out.put_u16(0);
    out.put_u32(u32::try_from(record.payload.len()).expect("an erase block is shorter"));
    out.put_u64(record.at.ino);
    out.put_u64(record.at.sub);
    out[compression] = record.compression.compress(record.payload, out).number();
    let len = out.len() - start + if authenticates { TAG_LEN } else { 0 };
    let mut header = Header {
        class: standing.class,
        more_of_group: standing.more_of_group,
        len_bytes: u32::try_from(len).expect("an erase block is shorter"),
        sqnum: standing.sqnum,
        key: standing.key,
        check_value: [0; CHECK_VALUE_LEN],
        record_crc: 0,
    };
    let (head, body) = out[start..].split_at_mut(HEADER_LEN);
    let tag = key.seal(
        traces,
        |check_value| {
            header.check_value = check_value;
            header.put(head);
            &head[CONTEXT..]
        },
        body,
    );
    if authenticates {
        out.put(&tag);
    }
    header.record_crc = crc32fast::hash(&out[start + HEADER_LEN..]);
    header.put(&mut out[start..start + HEADER_LEN]);
    out.resize(out.len().next_multiple_of(NODE_ALIGN as usize), 0);
}

/// Appends a node without a record, `len_bytes` long: a header and zeros.
///
/// # Panics
/// If `len_bytes` is shorter than a header.
pub fn put_mark(out: &mut Vec<u8>, class: Class, sqnum: u64, len_bytes: u32) {
    let start = out.len();
    out.resize(start + len_bytes as usize, 0);
    let header = Header {
        class,
        more_of_group: false,
        len_bytes,
        sqnum,
        key: KeyPos { leb: u32::MAX, slot: u32::MAX },
        check_value: [0; CHECK_VALUE_LEN],
        record_crc: 0,
    };
    header.put(&mut out[start..start + HEADER_LEN]);
}

/// What a node holds, to be sealed.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// What it is.
    pub kind: Kind,
    /// What it belongs to.
    pub at: IndexKey,
    /// How to compress the payload, where that saves something.
    pub compression: Compression,
    /// Its content.
    pub payload: &'a [u8],
}

/// An opened node.
#[derive(Debug, Clone, Copy)]
pub struct Opened<'a> {
    /// What it is.
    pub kind: Kind,
    /// What it belongs to.
    pub at: IndexKey,
    /// Length of the payload in bytes, uncompressed.
    pub len_bytes: u32,
    compression: Compression,
    packed: &'a [u8],
}

impl Opened<'_> {
    /// The payload.
    ///
    /// # Errors
    /// [`Malformed`] if it cannot be decompressed.
    pub fn payload(&self, most_bytes: usize) -> Result<Vec<u8>, Malformed> {
        if self.len_bytes as usize > most_bytes {
            return Err(Malformed("its content is longer than it may be"));
        }
        let mut out = vec![0; self.len_bytes as usize];
        self.payload_into(&mut out)?;
        Ok(out)
    }

    /// The payload into `out`, which is as long.
    ///
    /// # Errors
    /// [`Malformed`] if it cannot be decompressed, or has another length.
    pub fn payload_into(&self, out: &mut [u8]) -> Result<(), Malformed> {
        self.compression.decompress_into(self.packed, out)
    }
}

/// Opens the node in place that begins with `header`.
///
/// # Errors
/// [`Malformed`] if the key is another's, or it is not what was sealed.
pub fn open<'a>(
    node: &'a mut [u8],
    header: &Header,
    key: &MessageKey,
    traces: &mut Traces,
    authenticates: bool,
) -> Result<Opened<'a>, Malformed> {
    if key.check_value(traces) != header.check_value {
        return Err(Malformed("its key is gone"));
    }
    open_unchecked(node, header, key, traces, authenticates)
}

/// [`open`] with a key that is known to be the node's, as authentication will show. A cipher that does
/// not authenticate is checked by the checksum.
///
/// # Errors
/// [`Malformed`] if it is not what was sealed.
pub fn open_unchecked<'a>(
    node: &'a mut [u8],
    header: &Header,
    key: &MessageKey,
    traces: &mut Traces,
    authenticates: bool,
) -> Result<Opened<'a>, Malformed> {
    if !header.class.is_sealed() {
        return Err(Malformed("it holds nothing"));
    }
    let node = node.get_mut(..header.len_bytes as usize).ok_or(Malformed("it is too short"))?;
    let (head, body) = node.split_at_mut(HEADER_LEN);
    let forged = Malformed("it is not what was sealed");
    let tail = if authenticates { TAG_LEN } else { 0 };
    let end = body.len().checked_sub(tail).filter(|&end| end >= IDENTITY_LEN).ok_or(forged)?;
    if !authenticates && crc32fast::hash(body) != header.record_crc {
        return Err(forged);
    }
    let (body, tag) = body.split_at_mut(end);
    let tag = if authenticates { Fields(tag).array()? } else { [0; TAG_LEN] };
    key.open(traces, &head[CONTEXT..], body, &tag).map_err(|_| forged)?;
    let mut fields = Fields(body);
    let kind = Kind::from_number(fields.u8()?)?;
    let compression = Compression::from_number(fields.u8()?)?;
    fields.u16()?;
    let len_bytes = fields.u32()?;
    let at = IndexKey { ino: fields.u64()?, sub: fields.u64()? };
    Ok(Opened { kind, at, len_bytes, compression, packed: fields.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tacita_secret::OneTimeCipher;

    const CIPHERS: [OneTimeCipher; 3] =
        [OneTimeCipher::Aes128Ctr, OneTimeCipher::Aes128Gcm, OneTimeCipher::Aes256Gcm];

    fn sealed(cipher: OneTimeCipher, payload: &[u8]) -> Vec<u8> {
        let standing = Standing {
            class: Class::Record,
            more_of_group: true,
            sqnum: 7,
            key: KeyPos { leb: 1, slot: 2 },
        };
        let at = IndexKey::data(5, 9);
        let record = Record { kind: Kind::Data, at, compression: Compression::Lz4, payload };
        let mut out = Vec::new();
        let key = FreshKey::take(cipher, &[3; 32][..cipher.key_len()]);
        seal(&mut out, standing, key, &mut Traces::new(), cipher.authenticates(), &record);
        out
    }

    #[test]
    fn a_node_comes_back_and_its_header_tells_nothing_of_it() {
        for cipher in CIPHERS {
            for payload in [&b""[..], b"some content", &[1; 4096]] {
                let mut node = sealed(cipher, payload);
                assert!(node.len().is_multiple_of(8));
                let header = Header::parse(&node).unwrap().unwrap();
                assert_eq!(header.stored_len_bytes() as usize, node.len());
                assert_eq!((header.sqnum, header.more_of_group), (7, true));
                assert!(header.is_whole(&node));
                let key = MessageKey::take(cipher, &[3; 32][..cipher.key_len()]);
                let traces = &mut Traces::new();
                let opened =
                    open(&mut node, &header, &key, traces, cipher.authenticates()).unwrap();
                assert_eq!((opened.kind, opened.at), (Kind::Data, IndexKey::data(5, 9)));
                assert_eq!(opened.payload(4096).unwrap(), payload);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for cipher in CIPHERS {
            let node = sealed(cipher, b"content");
            let key = MessageKey::take(cipher, &[3; 32][..cipher.key_len()]);
            let len = Header::parse(&node).unwrap().unwrap().len_bytes as usize;
            for bit in 0..len * 8 {
                let mut flipped = node.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                if let Ok(Some(header)) = Header::parse(&flipped) {
                    assert!(!header.is_whole(&flipped));
                    let authenticates = cipher.authenticates();
                    let traces = &mut Traces::new();
                    open(&mut flipped, &header, &key, traces, authenticates).unwrap_err();
                }
            }
        }
    }

    #[test]
    fn what_was_never_written_is_no_node_and_marks_hold_nothing() {
        assert_eq!(Header::parse(&[0xff; 100]), Ok(None));
        Header::parse(&[0; 100]).unwrap_err();
        Header::parse(&[0xff; 10]).unwrap_err();
        let mut out = Vec::new();
        put_mark(&mut out, Class::Padding, 3, 200);
        let header = Header::parse(&out).unwrap().unwrap();
        assert_eq!((header.class, header.len_bytes), (Class::Padding, 200));
        assert!(header.is_whole(&out));
        let key = MessageKey::take(CIPHERS[0], &[3; 16]);
        open_unchecked(&mut out, &header, &key, &mut Traces::new(), false).unwrap_err();
    }
}
