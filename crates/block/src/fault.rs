//! A device that fails where it is told to, and remembers enough to show every crash.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, BlockNo, BlockRange, Error, Geometry, Kind, Result};

mod recording;

pub(crate) use recording::mix;
pub use recording::{Event, InFlight, Recording, SECTOR_LEN_BYTES, Sector};

/// What goes wrong, and when; writes and flushes are counted from 0, refused ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The power fails during this write, which may be torn between any two sectors.
    CutAtWrite(u64),
    /// The power fails during this flush, which makes nothing durable.
    CutAtFlush(u64),
    /// This write fails and changes nothing.
    FailWrite {
        /// Which one.
        write: u64,
        /// [`Kind::Io`] or [`Kind::NoSpace`].
        kind: Kind,
    },
    /// This write and every later one fail and change nothing.
    FailWritesFrom {
        /// The first one.
        write: u64,
        /// [`Kind::Io`] or [`Kind::NoSpace`].
        kind: Kind,
    },
    /// This flush fails; the writes before it may be lost for ever, whatever is flushed later.
    FailFlush(u64),
    /// Reads that touch these bytes fail.
    FailReads(Range<u64>),
    /// This flush silently does nothing: a fault planted to see whether a test finds it.
    SkipFlush(u64),
}

/// A device in memory that records its writes and flushes, and fails by plan.
///
/// Clones are handles on one device: keep one when the other is handed to a file system.
#[derive(Clone)]
pub struct FaultDevice {
    geometry: Geometry,
    state: Arc<Mutex<State>>,
}

struct State {
    content: Vec<u8>,
    recording: Recording,
    faults: Vec<Fault>,
    writes: u64,
    flushes: u64,
    cut: bool,
}

impl FaultDevice {
    /// A device full of zeros.
    pub fn new(geometry: Geometry) -> Self {
        let len = usize::try_from(geometry.len_bytes()).expect("the device fits into memory");
        Self::over(vec![0; len], geometry)
    }

    /// A device with this content, all of it durable; a rest of less than a block is left out.
    ///
    /// # Errors
    /// [`Kind::OutOfRange`] for a block length that is none.
    pub fn from_bytes(mut bytes: Vec<u8>, block_len_bytes: u32) -> Result<Self> {
        let geometry = Geometry::within(bytes.len() as u64, block_len_bytes)?;
        bytes.truncate(bytes.len() - bytes.len() % block_len_bytes as usize);
        Ok(Self::over(bytes, geometry))
    }

    fn over(base: Vec<u8>, geometry: Geometry) -> Self {
        let state = State {
            content: base.clone(),
            recording: Recording::new(base),
            faults: Vec::new(),
            writes: 0,
            flushes: 0,
            cut: false,
        };
        Self { geometry, state: Arc::new(Mutex::new(state)) }
    }

    /// Adds a fault to the plan.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Drops the plan; the power stays cut if it is.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// Cuts the power now, between two requests.
    pub fn cut_power(&self) {
        self.lock().cut = true;
    }

    /// Whether the power has been cut.
    pub fn is_cut(&self) -> bool {
        self.lock().cut
    }

    /// Writes asked for so far.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Flushes asked for so far.
    pub fn flushes(&self) -> u64 {
        self.lock().flushes
    }

    /// What was written and flushed since the device was made, or since the last
    /// [`FaultDevice::restart_recording`].
    pub fn recording(&self) -> Recording {
        self.lock().recording.clone()
    }

    /// Takes the present content, all of it durable, as the base of a new recording; write and
    /// flush numbers start from 0 again.
    pub fn restart_recording(&self) {
        let mut state = self.lock();
        state.recording = Recording::new(state.content.clone());
        state.writes = 0;
        state.flushes = 0;
    }

    /// The content as a reader sees it now.
    pub fn content(&self) -> Vec<u8> {
        self.lock().content.clone()
    }

    /// What the medium holds if the power fails now, or failed where it did; see
    /// [`Recording::crash_image`] for `seed`.
    pub fn crash_image(&self, seed: u64) -> Vec<u8> {
        let state = self.lock();
        let end = state.recording.events().len();
        state.recording.crash_image(end, seed)
    }

    // A test that panics elsewhere still wants to print the recording.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn powered(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.cut {
            return Err(no_power("the power has been cut"));
        }
        Ok(state)
    }
}

impl BlockDevice for FaultDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        let bytes = self.geometry.byte_range(at, buf.len())?;
        let state = self.powered()?;
        let hit = |fault: &Fault| match fault {
            Fault::FailReads(bad) => bad.start < bytes.end && bytes.start < bad.end,
            _ => false,
        };
        if state.faults.iter().any(hit) {
            let context = format!("read of {} bytes at {} failed", buf.len(), bytes.start);
            return Err(Error::new(Kind::Io, context));
        }
        buf.copy_from_slice(&state.content[indices(&bytes)]);
        Ok(())
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        let bytes = self.geometry.byte_range(at, buf.len())?;
        let mut state = self.powered()?;
        let number = state.writes;
        state.writes += 1;
        for fault in &state.faults {
            match *fault {
                Fault::FailWrite { write, kind } if write == number => {
                    return Err(Error::new(kind, format!("write {number} failed")));
                }
                Fault::FailWritesFrom { write, kind } if write <= number => {
                    return Err(Error::new(kind, format!("write {number} failed")));
                }
                _ => {}
            }
        }
        state.recording.push(Event::Write { offset: bytes.start, data: buf.into() });
        if state.faults.contains(&Fault::CutAtWrite(number)) {
            state.cut = true;
            return Err(no_power(format!("power cut during write {number}")));
        }
        state.content[indices(&bytes)].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.powered()?;
        let number = state.flushes;
        state.flushes += 1;
        if state.faults.contains(&Fault::CutAtFlush(number)) {
            state.cut = true;
            return Err(no_power(format!("power cut during flush {number}")));
        }
        if state.faults.contains(&Fault::FailFlush(number)) {
            state.recording.push(Event::FailedFlush);
            return Err(Error::new(Kind::Io, format!("flush {number} failed")));
        }
        if !state.faults.contains(&Fault::SkipFlush(number)) {
            state.recording.push(Event::Flush);
        }
        Ok(())
    }

    /// Fills the blocks with a byte that nobody may rely on, and records that.
    fn discard(&self, range: BlockRange) -> Result<()> {
        let bytes = self.geometry.byte_range_of(range)?;
        let mut state = self.powered()?;
        state
            .recording
            .push(Event::Discard { offset: bytes.start, len_bytes: bytes.end - bytes.start });
        state.content[indices(&bytes)].fill(recording::DISCARDED);
        Ok(())
    }
}

impl fmt::Debug for FaultDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("FaultDevice")
            .field("geometry", &self.geometry)
            .field("faults", &state.faults)
            .field("writes", &state.writes)
            .field("flushes", &state.flushes)
            .field("cut", &state.cut)
            .finish_non_exhaustive()
    }
}

fn no_power(context: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::PowerCut, context)
}

fn indices(bytes: &Range<u64>) -> Range<usize> {
    let index = |offset| usize::try_from(offset).expect("the device fits into memory");
    index(bytes.start)..index(bytes.end)
}

#[cfg(test)]
mod tests;
