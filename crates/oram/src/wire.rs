//! What clients and the server say to each other. docs/spec/oram-wire.md.
//!
//! Every frame has a header of [`HEADER_LEN`] bytes and a body whose length follows from its kind, from
//! the geometry of the store and from what everybody sees; never from what is asked for. Requests
//! have numbers, chosen by the client; answers carry them and come in any order, but for this: before
//! the answer to an [`Request::Append`] the server has pushed every record before that one which this
//! connection did not append itself. On one connection pushed records and answers to appends come in the
//! order of sequence numbers, and a query's record comes before its result.

pub mod codec;

use bytes::Bytes;

use crate::geometry::{Generation, LABEL_LEN};
use crate::object::Object;

/// Version of the protocol.
pub const VERSION: u16 = 1;
/// Bytes of a frame's header: length of the body, kind, three zeros, number of the request.
pub const HEADER_LEN: usize = 16;
/// Bytes of an object that one request gets or puts at most.
pub const PIECE_LEN_MAX: usize = 1 << 20;
/// Names that one answer lists at most.
pub const NAMES_MAX: usize = 4096;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// First on each connection.
    Hello {
        /// [`VERSION`] of the client.
        version: u16,
    },
    /// From now on push records from `record` on that this connection does not append, and results from
    /// `result` on that it does not store: first what is there, then what comes.
    Follow {
        /// Sequence number of the first record that the client does not have.
        record: u64,
        /// All results before this sequence number the client has.
        result: u64,
    },
    /// Append a record to the query log.
    Append {
        /// The client's fence: refused with [`Refusal::Fenced`] if the root's is another.
        fence: u64,
        /// The sealed record.
        record: Bytes,
    },
    /// One step of the lookups of a query: a page of one generation's filter, an item of another.
    Fetch {
        /// The filter's page, but in the last step.
        page: Option<PageAddress>,
        /// The item, but in the first step.
        item: Option<ItemAddress>,
    },
    /// Keep the result of a query, unless there is one already.
    Store {
        /// Sequence number of the query.
        sequence: u64,
        /// The sealed result.
        result: Bytes,
    },
    /// Bytes of an object.
    Get {
        /// Which one.
        object: Object,
        /// From which byte on.
        offset: u64,
        /// How many bytes, at most [`PIECE_LEN_MAX`].
        len: u32,
    },
    /// A piece of a new object; the object is kept, durably and unless there is one already, when its last
    /// piece has come. Pieces come in order.
    Put {
        /// Which one.
        object: Object,
        /// Bytes of the whole object.
        total: u64,
        /// From which byte on.
        offset: u64,
        /// The piece, at most [`PIECE_LEN_MAX`] bytes.
        bytes: Bytes,
    },
    /// Remove an object.
    Delete {
        /// Which one.
        object: Object,
    },
    /// Names of objects of one generation, or of all kinds with no generation.
    List {
        /// Beginning of the names, at most 64 bytes, as [`Object`] displays them.
        prefix: String,
        /// Only names behind this one.
        after: Option<Object>,
    },
    /// The root.
    Root,
    /// Make another root of it.
    SwapRoot {
        /// The root as the client knows it; empty: none.
        expected: Bytes,
        /// The new one.
        new: Bytes,
    },
}

impl Request {
    /// Whether `answer` is one that an honest server gives to this, as far as lengths and kinds tell.
    pub fn is_answered_by(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (_, Answer::Refused(_))
            | (Self::Hello { .. }, Answer::Welcome { .. })
            | (Self::Follow { .. }, Answer::Following)
            | (Self::Append { .. }, Answer::Appended { .. })
            | (Self::Store { .. }, Answer::Kept { .. })
            | (Self::Delete { .. }, Answer::Done)
            | (Self::List { .. }, Answer::Names(_))
            | (Self::Root, Answer::Root(_))
            | (Self::SwapRoot { .. }, Answer::Swapped { .. }) => true,
            (Self::Fetch { page, item }, Answer::Fetched { page: page_got, item: item_got }) => {
                page.is_some() == page_got.is_some() && item.is_some() == item_got.is_some()
            }
            (Self::Get { len, .. }, Answer::Bytes(bytes)) => bytes.len() == *len as usize,
            (Self::Put { total, offset, bytes, .. }, answer) => {
                let is_last = offset + bytes.len() as u64 == *total;
                matches!((is_last, answer), (true, Answer::Kept { .. }) | (false, Answer::Done))
            }
            _ => false,
        }
    }
}

/// Where a page of a filter lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageAddress {
    /// Whose filter.
    pub generation: Generation,
    /// Which page.
    pub page: u32,
}

/// By what an item is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ItemAddress {
    /// In which generation.
    pub generation: Generation,
    /// Its label.
    pub label: [u8; LABEL_LEN],
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Hello`].
    Welcome {
        /// [`VERSION`] of the server.
        version: u16,
        /// The root; empty if there is none.
        root: Bytes,
        /// Records in the log so far, those of earlier periods included.
        records: u64,
        /// The latest period that is open.
        period: u64,
        /// Connections that follow the log.
        followers: u32,
    },
    /// To [`Request::Follow`]: pushes follow.
    Following,
    /// To [`Request::Append`]: durable.
    Appended {
        /// The record's sequence number.
        sequence: u64,
    },
    /// To [`Request::Fetch`].
    Fetched {
        /// The page, if one was asked for.
        page: Option<Bytes>,
        /// The item, if one was asked for.
        item: Option<Bytes>,
    },
    /// To [`Request::Store`] and, with its last piece, to [`Request::Put`].
    Kept {
        /// Whether it is this one that is kept; otherwise there was one already.
        created: bool,
    },
    /// To [`Request::Get`].
    Bytes(Bytes),
    /// To pieces of a put before the last one, and to [`Request::Delete`].
    Done,
    /// To [`Request::List`], in the order of their encoded names.
    Names(Vec<Object>),
    /// To [`Request::Root`]; empty if there is none.
    Root(Bytes),
    /// To [`Request::SwapRoot`].
    Swapped {
        /// Whether the new root is the root.
        swapped: bool,
        /// The root as it is now.
        root: Bytes,
    },
    /// To anything.
    Refused(Refusal),
}

/// What the server sends unasked; request number 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Push {
    /// A record of the log.
    Record {
        /// Its sequence number.
        sequence: u64,
        /// Sealed.
        record: Bytes,
    },
    /// A result.
    Result {
        /// Sequence number of the query.
        sequence: u64,
        /// Sealed.
        result: Bytes,
    },
}

/// Why the server does not do what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The period that the record would belong to has no manifest yet.
    PeriodClosed,
    /// Another client has taken the store over.
    Fenced,
    /// There is no such object, page, label or query.
    Absent,
    /// What was asked for is not what the protocol allows.
    Malformed,
    /// The server's storage failed or is full.
    Storage,
    /// The server cannot take more now: too many requests in flight on this connection.
    Overloaded,
    /// The server speaks another version.
    Version,
}
