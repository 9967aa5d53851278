//! What the server sees, written down: which frames pass when, how long they are, and what they name.
//!
//! A [`Recorder`] stands between clients and the server and hands on all bytes as they come. A
//! [`Decoder`] tells the frames in them, as the server would; it needs no key. [`text`] is the form in
//! which events are kept. [`compare`] says whether two traces have one shape: all that is seen but
//! labels, numbers of pages and time, which tell nothing without the key.

mod decoder;
mod recorder;
mod shape;
pub mod text;

use std::collections::HashSet;

pub use decoder::Decoder;
pub use recorder::Recorder;
pub use shape::{Comparison, compare};

use crate::wire::{ItemAddress, PageAddress};

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// A client.
    Client,
    /// The server.
    Server,
}

/// What kinds of frames are called: requests, answers and pushes.
pub const KINDS: [&str; 26] = [
    "hello",
    "follow",
    "append",
    "fetch",
    "store",
    "get",
    "put",
    "delete",
    "list",
    "root",
    "swap-root",
    "welcome",
    "following",
    "appended",
    "fetched",
    "kept",
    "bytes",
    "done",
    "names",
    "root-is",
    "swapped",
    "refused",
    "record",
    "result",
    PART,
    UNDECODED,
];

/// The kind of a frame that had not come whole when its connection ended.
pub const PART: &str = "part";
/// The kind of bytes that are no frame of the protocol.
pub const UNDECODED: &str = "undecoded";

/// What is seen of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Who sends it.
    pub side: Side,
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// Bytes, with the header.
    pub len: u64,
    /// What it names beside pages and items: sequence numbers, objects, parts of them. Of `a-z`, `0-9`,
    /// `/`, `-`, `+` and spaces.
    pub names: String,
    /// The page that a fetch asks for.
    pub page: Option<PageAddress>,
    /// The item that a fetch asks for.
    pub item: Option<ItemAddress>,
}

/// A frame that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds since the recording began.
    pub at_us: u64,
    /// On which connection, from 1 on, in the order in which they came.
    pub connection: u32,
    /// What passed.
    pub frame: Frame,
}

/// What a trace adds up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections.
    pub connections: u32,
    /// Frames in both directions.
    pub frames: u64,
    /// Queries: records that were appended.
    pub queries: u64,
    /// Bytes from clients.
    pub client_bytes: u64,
    /// Bytes from the server.
    pub server_bytes: u64,
    /// Items that were asked for, by their labels.
    pub labels: u64,
    /// Of these, those that had been asked for before in the same generation. An honest client does so only
    /// to repeat what it was not answered.
    pub labels_again: u64,
    /// Bytes that are no frames of the protocol.
    pub undecoded_bytes: u64,
}

/// Adds up a trace while it comes. It keeps each label, to know it again.
#[derive(Debug, Default)]
pub struct Tally {
    totals: Totals,
    labels: HashSet<ItemAddress>,
}

impl Tally {
    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        let Event { connection, frame, .. } = event;
        let totals = &mut self.totals;
        totals.connections = totals.connections.max(*connection);
        match frame.side {
            Side::Client => totals.client_bytes += frame.len,
            Side::Server => totals.server_bytes += frame.len,
        }
        if frame.kind == UNDECODED {
            totals.undecoded_bytes += frame.len;
        }
        if frame.kind == UNDECODED || frame.kind == PART {
            return;
        }
        totals.frames += 1;
        totals.queries += u64::from(frame.kind == "append");
        if let Some(item) = frame.item {
            totals.labels += 1;
            totals.labels_again += u64::from(!self.labels.insert(item));
        }
    }

    /// What the events so far add up to.
    pub const fn totals(&self) -> Totals {
        self.totals
    }
}

impl Totals {
    /// What `events` add up to.
    pub fn of(events: &[Event]) -> Self {
        let mut tally = Tally::default();
        for event in events {
            tally.add(event);
        }
        tally.totals()
    }
}

#[cfg(test)]
mod tests;
