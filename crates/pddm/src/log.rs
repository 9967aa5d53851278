//! Reading the log: units as they lie on the device, and where it ends.

use std::sync::{Arc, OnceLock};

use tacita_block::{AlignedBuf, BlockDevice, BlockNo, BlockRange};
use tacita_secret::Key;

use crate::error::{Error, Kind, Result};
use crate::geometry::{BLOCK_LEN, Geometry, Seq};
use crate::unit::{Block, Header};

/// Damaged units that the search for the end steps over.
const STEP_OVER: u32 = 64;
/// Headers for which reads are announced at once.
const AHEAD: u64 = 256;

/// The log on a device, opened with the public key.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: Geometry,
    pub(crate) public: Key,
    /// The first unit of which something was missed that cannot be read.
    missed: Arc<OnceLock<u32>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn new(device: &Arc<dyn BlockDevice>, geometry: Geometry, public: Key) -> Self {
        Self { device: Arc::clone(device), geometry, public, missed: Arc::default() }
    }

    /// Something of a unit is missed that cannot be read: it may be there the next time.
    pub(crate) fn miss(&self, unit: u32) {
        let _ = self.missed.set(unit);
    }

    /// What was missed.
    pub(crate) fn missed(&self) -> Option<String> {
        let unit = self.missed.get()?;
        let at = self.geometry.unit_start(*unit).0 * BLOCK_LEN as u64;
        Some(format!("unit {unit} at byte {at} cannot be read"))
    }

    /// Refuses to write where something was missed: what may be there would be destroyed.
    ///
    /// # Errors
    /// [`Kind::Unread`].
    pub(crate) fn check_missed(&self) -> Result<()> {
        let Some(missed) = self.missed() else { return Ok(()) };
        Err(Error::new(Kind::Unread, missed + "; nothing has been changed"))
    }

    /// Reads the header of a unit; `None` if it is damaged, or was never written.
    ///
    /// # Errors
    /// As [`Log::header_block`].
    pub(crate) fn header(&self, unit: u32) -> Result<Option<Header>> {
        Ok(self.header_block(unit)?.and_then(|block| self.open(unit, &block)))
    }

    /// Reads the block of a header; `None` where a bad sector has cost it.
    ///
    /// # Errors
    /// The device's, where it can be read nowhere.
    pub(crate) fn header_block(&self, unit: u32) -> Result<Option<Box<Block>>> {
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        let Err(error) = self.device.read(self.geometry.unit_start(unit), &mut block[..]) else {
            return Ok(Some(block));
        };
        let blocks = (1..self.geometry.unit_blocks()).map(|other| self.block_of(unit, other));
        if self.is_any_readable(blocks) || self.is_there(unit) {
            Ok(None)
        } else {
            Err(error.into())
        }
    }

    /// Whether the device is still there when nothing of a unit can be read: something can that is far from it.
    fn is_there(&self, unit: u32) -> bool {
        let units = self.geometry.units();
        let far = (1..4).map(|quarter| u64::from(unit) + u64::from(units) * quarter / 4);
        self.is_any_readable(
            far.map(|seq| self.geometry.unit_start(self.geometry.unit_of(Seq(seq)))),
        )
    }

    fn is_any_readable(&self, mut blocks: impl Iterator<Item = BlockNo>) -> bool {
        let mut block: Box<Block> = Box::new([0; BLOCK_LEN]);
        blocks.any(|at| self.device.read(at, &mut block[..]).is_ok())
    }

    /// Opens a header that was read from `unit`.
    pub(crate) fn open(&self, unit: u32, block: &Block) -> Option<Header> {
        let header = Header::open(&self.geometry, &self.public, block)?;
        (self.geometry.unit_of(header.head.seq) == unit).then_some(header)
    }

    /// Reads the header of the unit with this number; `None` if it is damaged or overwritten. One that cannot be
    /// read is missed.
    ///
    /// # Errors
    /// As [`Log::header_block`].
    pub(crate) fn header_of(&self, seq: Seq) -> Result<Option<Header>> {
        let unit = self.geometry.unit_of(seq);
        let Some(block) = self.header_block(unit)? else {
            self.miss(unit);
            return Ok(None);
        };
        Ok(self.open(unit, &block).filter(|header| header.head.seq == seq))
    }

    /// Says that headers from `seq` on will be read.
    pub(crate) fn will_read_headers(&self, seq: Seq, end: Seq) {
        if !seq.0.is_multiple_of(AHEAD) {
            return;
        }
        for seq in seq.0 + AHEAD..(seq.0 + 2 * AHEAD).min(end.0) {
            let start = self.geometry.unit_start(self.geometry.unit_of(Seq(seq)));
            self.device.will_read(BlockRange { start, count: 1 });
        }
    }

    /// Reads a unit, and says whether that is all of it.
    ///
    /// # Errors
    /// As [`Log::read_unit`].
    pub(crate) fn unit(&self, unit: u32) -> Result<(AlignedBuf, bool)> {
        let mut bytes = AlignedBuf::new(self.geometry.unit_len());
        let is_all = self.read_unit(unit, &mut bytes)?;
        Ok((bytes, is_all))
    }

    /// Reads what can be read of a unit, and says whether that is all: a bad sector costs its block, which is
    /// zero then, and no seal fits that.
    ///
    /// # Errors
    /// The device's, where it can be read nowhere: it is gone.
    pub(crate) fn read_unit(&self, unit: u32, bytes: &mut [u8]) -> Result<bool> {
        let Err(error) = self.device.read(self.geometry.unit_start(unit), bytes) else {
            return Ok(true);
        };
        let blocks = (0..).zip(bytes.chunks_exact_mut(BLOCK_LEN));
        let read = blocks.filter_map(|(block, bytes)| {
            let read = self.device.read(self.block_of(unit, block), bytes);
            read.inspect_err(|_| bytes.fill(0)).ok()
        });
        match read.count() {
            0 if !self.is_there(unit) => Err(error.into()),
            count => Ok(count == self.geometry.unit_blocks() as usize),
        }
    }

    /// The block of a unit.
    pub(crate) fn block_of(&self, unit: u32, block: u32) -> BlockNo {
        BlockNo(self.geometry.unit_start(unit).0 + u64::from(block))
    }

    /// The last header of the log, or nearly so: units in flight when the power went may lie in any
    /// order around it. `None` if there is none at all.
    ///
    /// The ring is divided in two: units of this lap, then those of the lap before. So the border is
    /// found by halving. A stale unit looks like one of the lap before: if there is a newer one
    /// behind the border, that was none.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn newest(&self) -> Result<Option<Header>> {
        let units = self.geometry.units();
        let Some(mut found) = self.next_header(0, units)? else {
            return Ok(None);
        };
        loop {
            let (unit, newest) = self.border(found)?;
            match self.newer(unit, newest.head.seq)? {
                Some(newer) => found = newer,
                None => return Ok(Some(newest)),
            }
        }
    }

    /// The last unit of the lap of this one, as halving finds it.
    fn border(&self, (first, header): (u32, Header)) -> Result<(u32, Header)> {
        let units = self.geometry.units();
        let lap = header.head.seq.0 / u64::from(units);
        let (mut low, mut newest, mut high) = (first, header, units);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.next_header(middle, high)? {
                Some((unit, header)) if header.head.seq.0 / u64::from(units) == lap => {
                    (low, newest) = (unit, header);
                }
                _ => high = middle,
            }
        }
        Ok((low, newest))
    }

    /// A header with a greater number, in one of the next units or some further on.
    fn newer(&self, unit: u32, seq: Seq) -> Result<Option<(u32, Header)>> {
        let units = self.geometry.units();
        let next = 1..STEP_OVER.min(units);
        let far = (STEP_OVER.ilog2()..=units.ilog2()).map(|power| 1 << power);
        for step in next.chain(far).filter(|step| *step < units) {
            let unit = (unit + step) % units;
            if let Some(header) = self.header(unit)?.filter(|header| header.head.seq > seq) {
                return Ok(Some((unit, header)));
            }
        }
        Ok(None)
    }

    /// The first readable header from `unit` on, within reason and below `end`.
    fn next_header(&self, unit: u32, end: u32) -> Result<Option<(u32, Header)>> {
        for unit in unit..end.min(unit.saturating_add(STEP_OVER)) {
            if let Some(header) = self.header(unit)? {
                return Ok(Some((unit, header)));
            }
        }
        Ok(None)
    }
}
