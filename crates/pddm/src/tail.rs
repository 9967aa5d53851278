//! Units at the tail: what is live there is carried to the head.
//!
//! Which unit comes next is known before it is needed, so a run of them is read while the run before
//! is sealed. Units are always read as a whole, whatever is live in them.

use std::collections::VecDeque;
use std::ops::Range;

use tacita_block::AlignedBuf;

use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Seq};
use crate::open_log::OpenLog;
use crate::unit::Header;

/// A unit at the tail.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The number under which it was written.
    pub(crate) seq: Seq,
    pub(crate) unit: u32,
    /// `None` if it cannot be read.
    pub(crate) header: Option<Header>,
    pub(crate) bytes: AlignedBuf,
}

/// Units that have been read before they are needed, in their order.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead(VecDeque<Tail>);

impl ReadAhead {
    /// The unit at the tail while unit `seq` is made; `None` as long as there is none.
    pub(crate) fn tail(&mut self, shared: &OpenLog, seq: Seq) -> Result<Option<Tail>> {
        let Some(left) = shared.log.geometry.left_by(seq) else {
            return Ok(None);
        };
        while let Some(tail) = self.0.pop_front() {
            if tail.seq == left {
                return Ok(Some(tail));
            }
            shared.buffers.give(tail.bytes);
        }
        read_tail(shared, left).map(Some)
    }

    /// Takes back the tail that was taken last.
    pub(crate) fn put_back(&mut self, tail: Tail) {
        self.0.push_front(tail);
    }

    /// The units whose tails are to be read, when those before `planned` have theirs.
    pub(crate) fn to_read(&self, shared: &OpenLog, planned: Seq) -> Range<u64> {
        let start = planned.0 + self.0.len() as u64;
        if self.0.len() >= shared.run_units || shared.log.geometry.left_by(Seq(start)).is_none() {
            return start..start;
        }
        start..start + shared.run_units as u64
    }

    /// Keeps tails that come next.
    pub(crate) fn extend(&mut self, tails: Vec<Tail>) {
        self.0.extend(tails);
    }
}

/// The numbers of the units that the tail leaves while these are made.
pub(crate) fn tails_left(shared: &OpenLog, made: Range<u64>) -> impl Iterator<Item = Seq> {
    made.map_while(|seq| shared.log.geometry.left_by(Seq(seq)))
}

/// Reads the unit that was written under this number.
///
/// # Errors
/// As [`Log::read_unit`](crate::log::Log::read_unit).
pub(crate) fn read_tail(shared: &OpenLog, left: Seq) -> Result<Tail> {
    let (log, geometry) = (&shared.log, &shared.log.geometry);
    let unit = geometry.unit_of(left);
    let mut bytes = shared.buffers.take(geometry.unit_len());
    let is_all = log.read_unit(unit, &mut bytes)?;
    if !is_all && planted(Fault::HiddenUnread) && shared.levels.iter().skip(1).any(Option::is_some)
    {
        return Err(Error::new(Kind::Unread, "planted"));
    }
    let block = bytes[..BLOCK_LEN].try_into().expect("one block");
    let header = log.open(unit, block).filter(|header| header.head.seq == left);
    Ok(Tail { seq: left, unit, header, bytes })
}
