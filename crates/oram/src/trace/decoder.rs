//! Frames in the bytes that one side sends, as the other side understands them.

use std::sync::{Arc, OnceLock};

use bytes::{Buf, Bytes, BytesMut};

use super::{Frame, PART, Side, UNDECODED};
use crate::geometry::Geometry;
use crate::root::Root;
use crate::wire::codec::{Codec, Reply};
use crate::wire::{Answer, HEADER_LEN, ItemAddress, PageAddress, Push, Refusal, Request};

/// Understands what one side of a connection sends. Once that is no frame, nothing after it is.
///
/// It keeps less than one frame, whose length is judged by its header alone.
#[derive(Debug)]
pub struct Decoder {
    side: Side,
    /// The store's shapes, which the server tells each client; shared by all that decode its connections.
    geometry: Arc<OnceLock<Geometry>>,
    buffer: BytesMut,
    is_lost: bool,
}

/// What bytes begin with.
enum Next {
    Whole(Frame),
    /// A frame of which more is to come.
    Part,
    /// No frame.
    None,
}

impl Decoder {
    /// For what `side` sends; `geometry` is set when the server tells it.
    pub fn new(side: Side, geometry: Arc<OnceLock<Geometry>>) -> Self {
        Self { side, geometry, buffer: BytesMut::new(), is_lost: false }
    }

    /// Takes the next bytes; tells of each frame that is whole by now.
    pub fn take(&mut self, bytes: &[u8], seen: &mut dyn FnMut(Frame)) {
        if self.is_lost {
            return self.rest(UNDECODED, bytes.len(), seen);
        }
        self.buffer.extend_from_slice(bytes);
        while let Some(head) = self.buffer.first_chunk::<HEADER_LEN>() {
            match self.frame(*head) {
                Next::Whole(frame) => seen(frame),
                Next::Part => return,
                Next::None => {
                    self.is_lost = true;
                    let rest = std::mem::take(&mut self.buffer);
                    return self.rest(UNDECODED, rest.len(), seen);
                }
            }
        }
    }

    /// No more bytes come: tells of those of a frame that is not whole.
    pub fn end(&mut self, seen: &mut dyn FnMut(Frame)) {
        let rest = std::mem::take(&mut self.buffer);
        if !rest.is_empty() {
            self.rest(PART, rest.len(), seen);
        }
    }

    fn rest(&self, kind: &'static str, len: usize, seen: &mut dyn FnMut(Frame)) {
        seen(Frame { len: len as u64, ..frame(self.side, kind, String::new()) });
    }

    /// What the buffer begins with; a whole frame is taken out of it.
    fn frame(&mut self, head: [u8; HEADER_LEN]) -> Next {
        let codec = Codec::new(self.geometry.get().copied());
        let found = match self.side {
            Side::Client => codec.request_head(&head),
            Side::Server => codec.reply_head(&head),
        };
        let Ok(found) = found else { return Next::None };
        let len = HEADER_LEN + found.len;
        if self.buffer.len() < len {
            return Next::Part;
        }
        // A copy: the buffer stays one piece of memory.
        let body = Bytes::copy_from_slice(&self.buffer[HEADER_LEN..len]);
        let frame = match self.side {
            Side::Client => codec.request(found, body).map(|request| of_request(&request)),
            Side::Server => codec.reply(found, body).map(|reply| {
                self.learn(&reply);
                of_reply(&reply)
            }),
        };
        let Ok(frame) = frame else { return Next::None };
        self.buffer.advance(len);
        Next::Whole(Frame { len: len as u64, ..frame })
    }

    /// Learns the store's shapes from a root.
    fn learn(&self, reply: &Reply) {
        let Reply::Answer(
            _,
            Answer::Welcome { root, .. } | Answer::Root(root) | Answer::Swapped { root, .. },
        ) = reply
        else {
            return;
        };
        if let Ok((root, _)) = Root::decode(root) {
            self.geometry.get_or_init(|| root.geometry);
        }
    }
}

/// A frame whose length is still to be told.
fn frame(side: Side, kind: &'static str, names: String) -> Frame {
    Frame { side, kind, len: 0, names, page: None, item: None }
}

fn of_request(request: &Request) -> Frame {
    let none = String::new;
    let (kind, names) = match request {
        Request::Hello { version } => ("hello", version.to_string()),
        Request::Follow { record, result } => ("follow", format!("{record} {result}")),
        Request::Append { fence, .. } => ("append", fence.to_string()),
        Request::Fetch { page, item } => return of_fetch(*page, *item),
        Request::Store { sequence, .. } => ("store", sequence.to_string()),
        Request::Get { object, offset, len } => ("get", format!("{object} {offset}+{len}")),
        Request::Put { object, total, offset, bytes } => {
            ("put", format!("{object} {offset}+{} of {total}", bytes.len()))
        }
        Request::Delete { object } => ("delete", object.to_string()),
        Request::List { prefix, after: None } => ("list", prefix.clone()),
        Request::List { prefix, after: Some(after) } => ("list", format!("{prefix} {after}")),
        Request::Root => ("root", none()),
        Request::SwapRoot { .. } => ("swap-root", none()),
    };
    frame(Side::Client, kind, names)
}

fn of_fetch(page: Option<PageAddress>, item: Option<ItemAddress>) -> Frame {
    Frame { page, item, ..frame(Side::Client, "fetch", String::new()) }
}

fn of_reply(reply: &Reply) -> Frame {
    let none = String::new;
    let truth = |truth: bool| if truth { "yes" } else { "no" }.to_owned();
    let answer = match reply {
        Reply::Answer(_, answer) => answer,
        Reply::Push(Push::Record { sequence, .. }) => {
            return frame(Side::Server, "record", sequence.to_string());
        }
        Reply::Push(Push::Result { sequence, .. }) => {
            return frame(Side::Server, "result", sequence.to_string());
        }
    };
    let (kind, names) = match answer {
        Answer::Welcome { records, period, .. } => ("welcome", format!("{records} {period}")),
        Answer::Following => ("following", none()),
        Answer::Appended { sequence } => ("appended", sequence.to_string()),
        Answer::Fetched { .. } => ("fetched", none()),
        Answer::Kept { created } => ("kept", truth(*created)),
        Answer::Bytes(_) => ("bytes", none()),
        Answer::Done => ("done", none()),
        Answer::Names(names) => ("names", names.len().to_string()),
        Answer::Root(_) => ("root-is", none()),
        Answer::Swapped { swapped, .. } => ("swapped", truth(*swapped)),
        Answer::Refused(refusal) => ("refused", reason(*refusal).to_owned()),
    };
    frame(Side::Server, kind, names)
}

const fn reason(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::PeriodClosed => "closed",
        Refusal::Fenced => "fenced",
        Refusal::Absent => "absent",
        Refusal::Malformed => "malformed",
        Refusal::Storage => "storage",
        Refusal::Overloaded => "overloaded",
        Refusal::Version => "version",
    }
}
