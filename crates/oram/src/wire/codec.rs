//! The bytes of frames: pure. docs/spec/oram-wire.md.
//!
//! A frame's length is judged by its header alone, before anything is allocated for its body; and what
//! is encoded is judged in the same way. Every message has one encoding.

mod body;

use bytes::{BufMut, Bytes, BytesMut};

use super::{Answer, HEADER_LEN, NAMES_MAX, PIECE_LEN_MAX, Push, Refusal, Request};
use crate::blob::ROOT_LEN_MAX;
use crate::error::{Error, Kind, Result};
use crate::geometry::{Generation, Geometry, PAGE_LEN};
use crate::object::{OBJECT_LEN, Object};
use body::Body;

/// Bytes of a prefix that is listed by at most.
pub const PREFIX_LEN_MAX: usize = 64;
/// What the first frame of a connection begins with, behind its header.
const MAGIC: &[u8; 8] = b"TACITAOW";

const HELLO: u8 = 1;
const FOLLOW: u8 = 2;
const APPEND: u8 = 3;
const FETCH: u8 = 4;
const STORE: u8 = 5;
const GET: u8 = 6;
const PUT: u8 = 7;
const DELETE: u8 = 8;
const LIST: u8 = 9;
const ROOT: u8 = 10;
const SWAP_ROOT: u8 = 11;

const WELCOME: u8 = 65;
const FOLLOWING: u8 = 66;
const APPENDED: u8 = 67;
const FETCHED: u8 = 68;
const KEPT: u8 = 69;
const BYTES: u8 = 70;
const DONE: u8 = 71;
const NAMES: u8 = 72;
const ROOT_IS: u8 = 73;
const SWAPPED: u8 = 74;
const REFUSED: u8 = 75;

const PUSHED_RECORD: u8 = 129;
const PUSHED_RESULT: u8 = 130;

/// Bits of a fetch: what it asks for, or brings.
const WITH_PAGE: u8 = 1;
const WITH_ITEM: u8 = 2;
/// Bytes of a fetch.
const FETCH_LEN: usize = 56;
/// Bytes of a list.
const LIST_LEN: usize = 24 + PREFIX_LEN_MAX;

/// Encodes and decodes frames by what is public of a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Codec {
    geometry: Option<Geometry>,
}

/// What a header says, found right for its side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the body.
    pub len: usize,
    /// Number of the request; 0 for pushes.
    pub number: u64,
    kind: u8,
}

/// What comes from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To the request of this number.
    Answer(u64, Answer),
    /// Unasked.
    Push(Push),
}

impl Codec {
    /// For a store of this `geometry`; `None` where there is no store yet: then there are no records,
    /// results, items and pages.
    pub const fn new(geometry: Option<Geometry>) -> Self {
        Self { geometry }
    }

    /// The frame of a request; `number` is not 0.
    ///
    /// # Errors
    /// [`Kind::Protocol`] if something in it has a length that it cannot have.
    pub fn encode_request(&self, number: u64, request: &Request) -> Result<Bytes> {
        let mut out = begin();
        let kind = match request {
            Request::Hello { version } => {
                out.put_slice(MAGIC);
                out.put_u16_le(*version);
                out.put_bytes(0, 6);
                HELLO
            }
            Request::Follow { record, result } => {
                out.put_u64_le(*record);
                out.put_u64_le(*result);
                FOLLOW
            }
            Request::Append { fence, record } => {
                out.put_u64_le(*fence);
                out.put_slice(record);
                APPEND
            }
            Request::Fetch { page, item } => {
                body::put_fetch(&mut out, page.as_ref(), item.as_ref());
                FETCH
            }
            Request::Store { sequence, result } => {
                out.put_u64_le(*sequence);
                out.put_slice(result);
                STORE
            }
            Request::Get { object, offset, len } => {
                out.put_slice(&object.encode());
                out.put_u64_le(*offset);
                out.put_u32_le(*len);
                out.put_bytes(0, 4);
                GET
            }
            Request::Put { object, total, offset, bytes } => {
                out.put_slice(&object.encode());
                out.put_u64_le(*total);
                out.put_u64_le(*offset);
                out.put_slice(bytes);
                PUT
            }
            Request::Delete { object } => {
                out.put_slice(&object.encode());
                DELETE
            }
            Request::List { prefix, after } => {
                body::put_list(&mut out, prefix, after.as_ref())?;
                LIST
            }
            Request::Root => ROOT,
            Request::SwapRoot { expected, new } => {
                body::put_roots(&mut out, expected, new)?;
                SWAP_ROOT
            }
        };
        self.finish(out, kind, number)
    }

    /// The frame of the answer to request `number`.
    ///
    /// # Errors
    /// [`Kind::Protocol`] if something in it has a length that it cannot have.
    pub fn encode_answer(&self, number: u64, answer: &Answer) -> Result<Bytes> {
        let mut out = begin();
        let kind = match answer {
            Answer::Welcome { version, root, records, period, followers } => {
                out.put_u16_le(*version);
                out.put_bytes(0, 2);
                out.put_u32_le(*followers);
                out.put_u64_le(*records);
                out.put_u64_le(*period);
                out.put_slice(root);
                WELCOME
            }
            Answer::Following => FOLLOWING,
            Answer::Appended { sequence } => {
                out.put_u64_le(*sequence);
                APPENDED
            }
            Answer::Fetched { page, item } => {
                let with = u8::from(page.is_some()) * WITH_PAGE;
                body::put_padded(&mut out, with + u8::from(item.is_some()) * WITH_ITEM);
                [page, item].into_iter().flatten().for_each(|part| out.put_slice(part));
                FETCHED
            }
            Answer::Kept { created } => {
                body::put_padded(&mut out, u8::from(*created));
                KEPT
            }
            Answer::Bytes(bytes) => {
                out.put_slice(bytes);
                BYTES
            }
            Answer::Done => DONE,
            Answer::Names(names) => {
                for name in names {
                    out.put_slice(&name.encode());
                }
                NAMES
            }
            Answer::Root(root) => {
                out.put_slice(root);
                ROOT_IS
            }
            Answer::Swapped { swapped, root } => {
                body::put_padded(&mut out, u8::from(*swapped));
                out.put_slice(root);
                SWAPPED
            }
            Answer::Refused(refusal) => {
                body::put_padded(&mut out, refusal.code());
                REFUSED
            }
        };
        self.finish(out, kind, number)
    }

    /// The frame of a push.
    ///
    /// # Errors
    /// [`Kind::Protocol`] if it has a length that it cannot have.
    pub fn encode_push(&self, push: &Push) -> Result<Bytes> {
        let mut out = begin();
        let (kind, sequence, bytes) = match push {
            Push::Record { sequence, record } => (PUSHED_RECORD, sequence, record),
            Push::Result { sequence, result } => (PUSHED_RESULT, sequence, result),
        };
        out.put_u64_le(*sequence);
        out.put_slice(bytes);
        self.finish(out, kind, 0)
    }

    /// The header of a request.
    ///
    /// # Errors
    /// [`Kind::Protocol`] if there is no such request of this length.
    pub fn request_head(&self, bytes: &[u8; HEADER_LEN]) -> Result<Head> {
        let head = Head::decode(bytes)?;
        if !(HELLO..=SWAP_ROOT).contains(&head.kind) || head.number == 0 {
            return Err(protocol("a request of no kind"));
        }
        self.check(head)
    }

    /// The header of what the server sends.
    ///
    /// # Errors
    /// [`Kind::Protocol`] if there is no such answer or push of this length.
    pub fn reply_head(&self, bytes: &[u8; HEADER_LEN]) -> Result<Head> {
        let head = Head::decode(bytes)?;
        let is_push = (PUSHED_RECORD..=PUSHED_RESULT).contains(&head.kind);
        if !is_push && !(WELCOME..=REFUSED).contains(&head.kind) || is_push != (head.number == 0) {
            return Err(protocol("an answer of no kind"));
        }
        self.check(head)
    }

    /// The request with this `head`.
    ///
    /// # Errors
    /// [`Kind::Protocol`] if `bytes` are not what such a request consists of.
    pub fn request(&self, head: Head, bytes: Bytes) -> Result<Request> {
        let mut body = Body::new(head, bytes)?;
        let request = match head.kind {
            HELLO => {
                if body.array()? != *MAGIC {
                    return Err(protocol("a beginning of another protocol"));
                }
                let version = body.u16()?;
                body.zeros(6)?;
                Request::Hello { version }
            }
            FOLLOW => Request::Follow { record: body.u64()?, result: body.u64()? },
            APPEND => Request::Append { fence: body.u64()?, record: body.rest() },
            FETCH => {
                let (page, item) = body.fetch()?;
                Request::Fetch { page, item }
            }
            STORE => Request::Store { sequence: body.u64()?, result: body.rest() },
            GET => {
                let (object, offset, len) = (body.object()?, body.u64()?, body.u32()?);
                body.zeros(4)?;
                if len as usize > PIECE_LEN_MAX {
                    return Err(protocol("more bytes are asked for than a piece has"));
                }
                Request::Get { object, offset, len }
            }
            PUT => {
                let (object, total, offset) = (body.object()?, body.u64()?, body.u64()?);
                let bytes = body.rest();
                let end = offset.checked_add(bytes.len() as u64);
                if end.is_none_or(|end| end > total) || (bytes.is_empty() && total > 0) {
                    return Err(protocol("a piece that is not within its object"));
                }
                Request::Put { object, total, offset, bytes }
            }
            DELETE => Request::Delete { object: body.object()? },
            LIST => {
                let (prefix, after) = body.list()?;
                Request::List { prefix, after }
            }
            ROOT => Request::Root,
            _ => {
                let (expected, new) = body.roots()?;
                Request::SwapRoot { expected, new }
            }
        };
        body.end()?;
        Ok(request)
    }

    /// The answer or push with this `head`.
    ///
    /// # Errors
    /// [`Kind::Protocol`] if `bytes` are not what it consists of.
    pub fn reply(&self, head: Head, bytes: Bytes) -> Result<Reply> {
        let mut body = Body::new(head, bytes)?;
        let answer = match head.kind {
            PUSHED_RECORD => {
                let (sequence, record) = (body.u64()?, body.rest());
                return Ok(Reply::Push(Push::Record { sequence, record }));
            }
            PUSHED_RESULT => {
                let (sequence, result) = (body.u64()?, body.rest());
                return Ok(Reply::Push(Push::Result { sequence, result }));
            }
            WELCOME => {
                let version = body.u16()?;
                body.zeros(2)?;
                let followers = body.u32()?;
                let (records, period) = (body.u64()?, body.u64()?);
                Answer::Welcome { version, root: body.rest(), records, period, followers }
            }
            FOLLOWING => Answer::Following,
            APPENDED => Answer::Appended { sequence: body.u64()? },
            FETCHED => {
                let flags = body.padded(WITH_PAGE | WITH_ITEM)?;
                let page = (flags & WITH_PAGE != 0).then(|| body.take(PAGE_LEN)).transpose()?;
                let item = (flags & WITH_ITEM != 0).then(|| body.rest());
                if item.as_ref().is_some_and(|i| !self.has(i.len(), Geometry::item_len)) {
                    return Err(protocol("an item of another length"));
                }
                Answer::Fetched { page, item }
            }
            KEPT => Answer::Kept { created: body.padded(1)? == 1 },
            BYTES => Answer::Bytes(body.rest()),
            DONE => Answer::Done,
            NAMES => Answer::Names(body.names()?),
            ROOT_IS => Answer::Root(body.rest()),
            SWAPPED => Answer::Swapped { swapped: body.padded(1)? == 1, root: body.rest() },
            _ => Answer::Refused(body.refusal()?),
        };
        body.end()?;
        Ok(Reply::Answer(head.number, answer))
    }

    /// Puts the header before the body, if the other side will take it.
    fn finish(&self, mut out: BytesMut, kind: u8, number: u64) -> Result<Bytes> {
        let len = out.len() - HEADER_LEN;
        self.check(Head { len, number, kind })?;
        let narrow = u32::try_from(len).expect("checked against limits far below");
        out[..4].copy_from_slice(&narrow.to_le_bytes());
        out[4] = kind;
        out[8..HEADER_LEN].copy_from_slice(&number.to_le_bytes());
        Ok(out.freeze())
    }

    fn check(&self, head: Head) -> Result<Head> {
        if self.is_length(head.kind, head.len) {
            Ok(head)
        } else {
            Err(protocol("a frame of a length that its kind does not have"))
        }
    }

    fn is_length(&self, kind: u8, len: usize) -> bool {
        match kind {
            HELLO | FOLLOW => len == 16,
            APPEND | PUSHED_RECORD => self.has(len.wrapping_sub(8), Geometry::record_len),
            FETCH => len == FETCH_LEN,
            STORE | PUSHED_RESULT => self.has(len.wrapping_sub(8), Geometry::result_len),
            GET => len == 32,
            PUT => (32..=32 + PIECE_LEN_MAX).contains(&len),
            DELETE => len == OBJECT_LEN,
            LIST => len == LIST_LEN,
            SWAP_ROOT => (8..=8 + 2 * ROOT_LEN_MAX).contains(&len),
            WELCOME => (24..=24 + ROOT_LEN_MAX).contains(&len),
            APPENDED | KEPT | REFUSED => len == 8,
            FETCHED => {
                let both = |g: &Geometry| PAGE_LEN + g.item_len();
                let parts = len.wrapping_sub(8);
                parts == PAGE_LEN || self.has(parts, Geometry::item_len) || self.has(parts, both)
            }
            BYTES => len <= PIECE_LEN_MAX,
            NAMES => len.is_multiple_of(OBJECT_LEN) && len <= NAMES_MAX * OBJECT_LEN,
            ROOT_IS => len <= ROOT_LEN_MAX,
            SWAPPED => (8..=8 + ROOT_LEN_MAX).contains(&len),
            ROOT | FOLLOWING | DONE => len == 0,
            _ => false,
        }
    }

    fn has(&self, len: usize, of: impl Fn(&Geometry) -> usize) -> bool {
        self.geometry.as_ref().is_some_and(|geometry| of(geometry) == len)
    }
}

impl Head {
    fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self> {
        let (len, rest) = bytes.split_first_chunk().expect("a header is longer");
        let (_, number) = rest.split_last_chunk().expect("a header is longer");
        if bytes[5..8] != [0; 3] {
            return Err(protocol("a header with bytes where there are none"));
        }
        Ok(Self {
            len: u32::from_le_bytes(*len) as usize,
            kind: bytes[4],
            number: u64::from_le_bytes(*number),
        })
    }
}

impl Refusal {
    const fn code(self) -> u8 {
        match self {
            Self::PeriodClosed => 1,
            Self::Fenced => 2,
            Self::Absent => 3,
            Self::Malformed => 4,
            Self::Storage => 5,
            Self::Overloaded => 6,
            Self::Version => 7,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::PeriodClosed,
            2 => Self::Fenced,
            3 => Self::Absent,
            4 => Self::Malformed,
            5 => Self::Storage,
            6 => Self::Overloaded,
            7 => Self::Version,
            _ => return None,
        })
    }
}

fn begin() -> BytesMut {
    BytesMut::zeroed(HEADER_LEN)
}

fn protocol(what: &'static str) -> Error {
    Error::new(Kind::Protocol, what)
}

#[cfg(test)]
mod tests;
