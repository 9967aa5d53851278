//! Where the log ends: a function of public state, found without writing anything.
//!
//! Hidden data is looked at only when the end of the log is settled; nothing found there shortens
//! the log, moves its head or causes a write. Design note, section 2.2.

use tacita_secret::{Digest, Key};

use crate::error::{Error, Kind, Result};
use crate::faults::{Fault, planted};
use crate::geometry::{BLOCK_LEN, Level, Seq};
use crate::keys::Cell;
use crate::log::Log;
use crate::unit::{Block, Header};

/// Headers looked at for the last readable one.
const BACK: u64 = 64;

/// Where the log ends.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// Number of the unit to be written next.
    pub(crate) next: Seq,
    /// All units before this one are known to be on the medium.
    pub(crate) durable: Seq,
    /// Hash of the last header.
    pub(crate) previous: Digest,
    /// The last readable header.
    pub(crate) last: Header,
}

/// Finds the end: all units that are known to be durable, and the longest run of whole units
/// behind them.
///
/// # Errors
/// [`Kind::Device`], also if there is no readable unit.
pub(crate) fn find_end(log: &Log, hidden: Option<(Level, &Key)>) -> Result<End> {
    let Some(newest) = log.newest()? else {
        let text = "the log cannot be read: no unit is whole";
        return Err(Error::new(Kind::Device, text));
    };
    let durable = newest.head.durable;
    let mut next = durable;
    let mut previous = header_hash(log, durable)?;
    while let Some(header) = whole_unit(log, next)? {
        if previous.is_some_and(|hash| hash != header.head.previous) {
            break;
        }
        if planted(Fault::HiddenRecovery)
            && let Some((level, master)) = hidden
            && header.hidden(&log.geometry, level, master).is_none()
        {
            break;
        }
        previous = Some(header.hash());
        next = Seq(next.0 + 1);
    }
    let last = last_header(log, next)?;
    Ok(End { next, durable, previous: previous.unwrap_or_default(), last })
}

/// The hash of the header before unit `seq`, if that is what was written there.
fn header_hash(log: &Log, seq: Seq) -> Result<Option<Digest>> {
    let Some(before) = seq.0.checked_sub(1) else { return Ok(None) };
    Ok(log.header_of(Seq(before))?.map(|header| header.hash()))
}

/// The header of a unit that is whole. What may be one, and cannot be read, is missed.
fn whole_unit(log: &Log, seq: Seq) -> Result<Option<Header>> {
    let unit = log.geometry.unit_of(seq);
    let (mut bytes, is_all) = log.unit(unit)?;
    let header_bytes: &Block = bytes[..BLOCK_LEN].try_into().expect("one block");
    let is_unknown = !is_all && log.header_block(unit)?.is_none();
    let header = log.open(unit, header_bytes).filter(|header| header.head.seq == seq);
    if is_unknown || (header.is_some() && !is_all) {
        log.miss(unit);
    }
    let blind = planted(Fault::BlindRecovery);
    let mut proves = |header: &Header| header.proves(&log.geometry, &log.public, &mut bytes);
    Ok(header.filter(|header| blind || proves(header)))
}

fn last_header(log: &Log, next: Seq) -> Result<Header> {
    for back in 1..=BACK.min(next.0) {
        if let Some(header) = log.header_of(Seq(next.0 - back))? {
            return Ok(header);
        }
    }
    Err(Error::new(Kind::Device, "the log cannot be read: its last units are damaged"))
}

/// The newest cell of a class that its master key opens, and the unit it stands in.
pub(crate) fn newest_cell(
    log: &Log,
    end: &End,
    level: Level,
    master: &Key,
) -> Result<Option<(Seq, Cell)>> {
    let oldest = end.next.0.saturating_sub(u64::from(log.geometry.units()));
    for seq in (oldest..end.next.0).rev() {
        let Some(header) = log.header_of(Seq(seq))? else { continue };
        let cell = header.cell(&log.geometry, level);
        if let Ok(cell) = Cell::open_by_master(cell, &header.salt, master) {
            return Ok(Some((Seq(seq), cell)));
        }
    }
    Ok(None)
}
