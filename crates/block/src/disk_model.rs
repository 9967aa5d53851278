//! A spinning disk on a virtual clock.
//!
//! The papers measured on hard disks; here their figures are redrawn in seconds, exactly, and the
//! same on every machine. A request costs a seek if the arm must move, the wait for its first
//! sector to come round, and the passing of its sectors under the head.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, BlockNo, BlockRange, Extent, Geometry, Result};

const SECTOR_LEN: u64 = crate::SECTOR_LEN_BYTES as u64;

/// Steps of the square root of the seek curve: one part in 65,536 of the stroke.
const CURVE_STEPS: u64 = 1 << 16;

/// A disk as its data sheet describes it.
///
/// The default is a SATA disk of 2012 with 7,200 turns a minute and its cache off: half a turn is
/// 4.16 ms, the average seek 8.5 ms for reading and 9.5 ms for writing, and 120 MB pass the head a
/// second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskParameters {
    /// Turns a minute.
    pub rpm: u32,
    /// 512-byte sectors on a track; with the turns a minute this is the transfer rate. All tracks
    /// are of one length, there are no zones.
    pub sectors_per_track: u32,
    /// Seek to the next track in nanoseconds.
    pub seek_min_ns: u64,
    /// Seek from the first track to the last in nanoseconds. Between the two the time grows as the
    /// square root of the distance, so that the average over random places is
    /// `seek_min + 8/15 * (seek_max - seek_min)`.
    pub seek_max_ns: u64,
    /// Added to a seek before a write: the head must settle better than for reading.
    pub write_settle_ns: u64,
    /// Bytes that the stroke spans; `None` for the length of the device, so that a small image
    /// shows the seeks of a full disk.
    pub stroke_len_bytes: Option<u64>,
}

impl Default for DiskParameters {
    fn default() -> Self {
        Self {
            rpm: 7200,
            sectors_per_track: 1953,
            seek_min_ns: 800_000,
            seek_max_ns: 15_237_500,
            write_settle_ns: 1_000_000,
            stroke_len_bytes: None,
        }
    }
}

impl DiskParameters {
    /// Time in which one sector passes the head.
    fn sector_ns(&self) -> u64 {
        60_000_000_000 / u64::from(self.rpm) / u64::from(self.sectors_per_track)
    }

    /// Time of a turn; a whole number of sectors, so that nothing drifts.
    fn turn_ns(&self) -> u64 {
        self.sector_ns() * u64::from(self.sectors_per_track)
    }

    /// Time to move the arm over so many of `tracks` tracks.
    fn seek_ns(&self, distance: u64, tracks: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let farthest = tracks.saturating_sub(1).max(1);
        let part = u128::from(distance.min(farthest)) * u128::from(CURVE_STEPS * CURVE_STEPS)
            / u128::from(farthest);
        let root = u64::try_from(part.isqrt()).expect("at most CURVE_STEPS");
        let span = self.seek_max_ns.saturating_sub(self.seek_min_ns);
        self.seek_min_ns + span * root / CURVE_STEPS
    }
}

/// Passes requests on and adds up what they would have taken on a spinning disk.
///
/// Requests are served in the order in which they come. Sectors are laid out so that reading on
/// past the end of a track loses no turn: a request that starts where the last one ended costs its
/// transfer alone, if the clock was not advanced in between. Flushes are free, because there is no
/// cache to write back; so are discards.
pub struct DiskModel<D> {
    inner: D,
    parameters: DiskParameters,
    tracks: u64,
    arm: Mutex<Arm>,
}

/// Where the head is, and when.
#[derive(Debug, Default)]
struct Arm {
    now_ns: u64,
    sector: u64,
    seeks: u64,
}

impl<D: BlockDevice> DiskModel<D> {
    /// The default disk over `inner`.
    pub fn new(inner: D) -> Self {
        Self::with_parameters(inner, DiskParameters::default())
    }

    /// This disk over `inner`, the head above its first sector, the clock at 0.
    ///
    /// # Panics
    /// If the disk does not turn, or a sector takes less than a nanosecond.
    pub fn with_parameters(inner: D, parameters: DiskParameters) -> Self {
        assert!(parameters.sector_ns() > 0, "no such disk: {parameters:?}");
        let device_len = inner.geometry().len_bytes();
        let stroke = parameters.stroke_len_bytes.unwrap_or(device_len);
        let track_len = u64::from(parameters.sectors_per_track) * SECTOR_LEN;
        Self {
            inner,
            parameters,
            tracks: stroke.max(device_len).div_ceil(track_len).max(1),
            arm: Mutex::default(),
        }
    }

    /// Virtual time since the start.
    pub fn elapsed_ns(&self) -> u64 {
        self.arm().now_ns
    }

    /// Lets the disk turn idly, as while the host computes.
    pub fn advance(&self, idle_ns: u64) {
        self.arm().now_ns += idle_ns;
    }

    /// How often the arm moved.
    pub fn seeks(&self) -> u64 {
        self.arm().seeks
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn arm(&self) -> MutexGuard<'_, Arm> {
        self.arm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn transfer(&self, arm: &mut Arm, offset: u64, len_bytes: usize, settle_ns: u64) {
        if len_bytes == 0 {
            return;
        }
        let disk = &self.parameters;
        let first = offset / SECTOR_LEN;
        let sectors = len_bytes as u64 / SECTOR_LEN;
        let per_track = u64::from(disk.sectors_per_track);
        let distance = (first / per_track).abs_diff(arm.sector / per_track);
        if distance > 0 {
            arm.now_ns += disk.seek_ns(distance, self.tracks) + settle_ns;
            arm.seeks += 1;
        }
        let angle_ns = arm.now_ns % disk.turn_ns();
        let wanted_ns = first % per_track * disk.sector_ns();
        let wait_ns = (wanted_ns + disk.turn_ns() - angle_ns) % disk.turn_ns();
        arm.now_ns += wait_ns + sectors * disk.sector_ns();
        arm.sector = first + sectors;
    }
}

impl<D: BlockDevice> BlockDevice for DiskModel<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn rest(&self) -> Result<Vec<u8>> {
        self.inner.rest()
    }

    fn zero_rest(&self) -> Result<()> {
        self.inner.zero_rest()
    }

    fn read(&self, at: BlockNo, buf: &mut [u8]) -> Result<()> {
        let offset = self.geometry().byte_range(at, buf.len())?.start;
        let mut arm = self.arm();
        self.inner.read(at, buf)?;
        self.transfer(&mut arm, offset, buf.len(), 0);
        Ok(())
    }

    fn write(&self, at: BlockNo, buf: &[u8]) -> Result<()> {
        let offset = self.geometry().byte_range(at, buf.len())?.start;
        let mut arm = self.arm();
        self.inner.write(at, buf)?;
        self.transfer(&mut arm, offset, buf.len(), self.parameters.write_settle_ns);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: BlockRange) -> Result<()> {
        self.inner.discard(range)
    }

    fn extent(&self, range: BlockRange) -> Result<Extent> {
        self.inner.extent(range)
    }
}

impl<D: fmt::Debug> fmt::Debug for DiskModel<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskModel")
            .field("inner", &self.inner)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, conformance, fault};

    const BLOCK: u64 = 4096;

    fn disk(len_bytes: u64) -> DiskModel<MemoryDevice> {
        DiskModel::new(MemoryDevice::new(Geometry::within(len_bytes, 4096).unwrap()))
    }

    #[test]
    fn conforms() {
        conformance::check(|g| Box::new(DiskModel::new(MemoryDevice::new(g))));
    }

    #[test]
    fn reading_on_costs_the_transfer_alone() {
        let disk = disk(1 << 30);
        let mut buf = vec![0; 1 << 16];
        for at in 0..1600 {
            disk.read(BlockNo(at * 16), &mut buf).unwrap();
        }
        let bytes = 1600 * buf.len() as u64;
        let expected = bytes / 512 * disk.parameters.sector_ns();
        assert_eq!(disk.elapsed_ns(), expected);
        assert_eq!(disk.seeks(), 0);
        let mb_per_s = bytes * 1000 / disk.elapsed_ns();
        assert_eq!(mb_per_s, 120);
    }

    #[test]
    fn random_places_cost_seek_and_half_a_turn() {
        for (write, seek_ms) in [(false, 8.5), (true, 9.5)] {
            let disk = disk(1 << 40);
            let blocks = disk.geometry().blocks;
            let mut buf = vec![0; 4096];
            let count = 20_000;
            for i in 0..count {
                let at = BlockNo(fault::mix(i) % blocks);
                if write {
                    disk.write(at, &buf).unwrap();
                } else {
                    disk.read(at, &mut buf).unwrap();
                }
            }
            let mean_ms = std::time::Duration::from_nanos(disk.elapsed_ns() / count);
            let expected_ms = seek_ms + 4.166 + 0.034;
            let off = (mean_ms.as_secs_f64() * 1000.0 - expected_ms).abs();
            assert!(off < 0.1, "{mean_ms:?} a request, not {expected_ms} ms");
        }
    }

    #[test]
    fn a_small_image_on_a_large_disk_has_short_seeks() {
        let parameters =
            DiskParameters { stroke_len_bytes: Some(1 << 40), ..DiskParameters::default() };
        let inner = || MemoryDevice::new(Geometry::within(1 << 30, 4096).unwrap());
        let large = DiskModel::with_parameters(inner(), parameters);
        let full = DiskModel::new(inner());
        for disk in [&large, &full] {
            disk.read(BlockNo((1 << 30) / BLOCK - 1), &mut [0; 4096]).unwrap();
        }
        let turn = full.parameters.turn_ns();
        assert!(large.elapsed_ns() < 1_500_000 + turn);
        assert!(full.elapsed_ns() > 15_000_000);
    }

    #[test]
    fn writing_a_sector_again_costs_a_turn() {
        let disk = disk(1 << 30);
        disk.write(BlockNo(0), &[1; 4096]).unwrap();
        disk.flush().unwrap();
        let first = disk.elapsed_ns();
        disk.write(BlockNo(0), &[2; 4096]).unwrap();
        assert_eq!(disk.elapsed_ns() - first, disk.parameters.turn_ns());
        disk.advance(5);
        assert_eq!(disk.elapsed_ns(), first + disk.parameters.turn_ns() + 5);
    }

    #[test]
    fn what_fails_takes_no_time() {
        let disk = disk(1 << 20);
        disk.read(BlockNo(256), &mut [0; 4096]).unwrap_err();
        assert_eq!(disk.elapsed_ns(), 0);
    }
}
