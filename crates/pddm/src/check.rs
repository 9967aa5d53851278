//! Looking at a whole device: is everything there that was written, as it was written?
//!
//! A unit is looked at and forgotten: a device may be larger than memory, and what it holds is not to
//! be there. The public key shows all of it, so whatever is open, the same is found.

use crate::error::Result;
use crate::geometry::{BLOCK_LEN, Seq};
use crate::log::Log;
use crate::session::Session;
use crate::unit::Header;
use crate::unlock::damaged_superblocks;

/// What is damaged of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Superblocks that are damaged, or are not the one that counts: where they begin, in bytes.
    pub superblocks: Vec<u64>,
    /// Units that should be readable and are not, or not as a whole.
    pub units: Vec<u32>,
}

impl Session {
    /// Looks at the superblocks and at every unit of a device to which nobody writes meanwhile. `each`
    /// is told how many bytes have been looked at.
    ///
    /// # Errors
    /// [`crate::Kind::Device`], but for single blocks that cannot be read.
    pub fn check(&self, each: &mut dyn FnMut(u64)) -> Result<Damage> {
        let (log, next) = (self.log(), Seq(self.written_units()));
        let superblocks = damaged_superblocks(&*log.device, self.superblock())?;
        let mut units = Vec::new();
        for unit in 0..log.geometry.units() {
            if let Some(seq) = due(log, unit, next)
                && !is_whole(log, unit, seq)?
            {
                units.push(unit);
            }
            each((u64::from(unit) + 1) * log.geometry.unit_len() as u64);
        }
        let superblocks = superblocks.iter().map(|at| at.0 * BLOCK_LEN as u64).collect();
        Ok(Damage { superblocks, units })
    }
}

/// The number that a unit must have; `None` if it was never written, or if the tail has left it: then it
/// may have been overwritten in part when the power went.
fn due(log: &Log, unit: u32, next: Seq) -> Option<Seq> {
    let (units, gap) = (u64::from(log.geometry.units()), u64::from(log.geometry.gap()));
    log.geometry.seq_at(unit, next).filter(|seq| seq.0 + units >= next.0 + gap)
}

/// Whether all of a unit is what was written under this number.
fn is_whole(log: &Log, unit: u32, seq: Seq) -> Result<bool> {
    let mut bytes = match log.unit(unit) {
        Ok((bytes, _)) => bytes,
        Err(error) if error.device().is_some_and(|e| e.kind() == tacita_block::Kind::Io) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let block = bytes[..BLOCK_LEN].try_into().expect("one block");
    let header: Option<Header> = log.open(unit, block).filter(|header| header.head.seq == seq);
    Ok(header.is_some_and(|header| header.proves(&log.geometry, &log.public, &mut bytes)))
}
