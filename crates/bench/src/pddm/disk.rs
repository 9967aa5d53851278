//! The same volumes on a model of a spinning disk, on a virtual clock: the paper's Tables 2 and 3.
//!
//! Nothing here depends on the machine but the order in which runs are written and tails are read,
//! which moves the figures by a few parts in a hundred.

use std::sync::Arc;

use anyhow::{Context, Result};
use tacita_block::{self as block, BlockDevice, BlockNo, DiskModel, Geometry, MemoryDevice};
use tacita_pddm::{Entropy, Level, Options, Parameters, Session, Unlock, Volume, init};
use tacita_secret::Key;

use super::plain::PlainVolume;
use super::{BASE, BLOCK_LEN, LARGE, age, has_room};
use crate::harness::content::Stream;
use crate::harness::record::Record;
use crate::harness::runner;
use crate::harness::statistics::{mib, real};

/// Bytes of large requests in each workload.
const LARGE_BYTES: u64 = 32 << 20;
/// Small requests in each workload.
const SMALL_REQUESTS: u64 = 2000;
/// Public blocks written for each hidden one: a little more than carry it.
const CARRIERS: u64 = 2;

type Disk = Arc<DiskModel<MemoryDevice>>;

/// The paper's figures, as shares of its dm-crypt: profile, workload, public, hidden.
///
/// Paper: Tables 2 and 3 (disk) and 4 (SSD).
pub(super) const PAPER: [(&str, &str, f64, f64); 6] = [
    ("disk", "seq-read", 17.452 / 97.3, 12.030 / 97.3),
    ("disk", "seq-write", 1.347 / 88.0, 1.456 / 88.0),
    ("disk", "rand-read", 0.309 / 0.526, 0.309 / 0.526),
    ("disk", "rand-write", 0.276 / 1.094, 0.282 / 1.094),
    ("ssd", "seq-read", 99.866 / 225.56, 97.373 / 225.56),
    ("ssd", "seq-write", 2.705 / 210.10, 3.176 / 210.10),
];

/// Sequential and random requests on full volumes that have been overwritten evenly.
pub(crate) fn run(size_bytes: u64) -> Result<Vec<Record>> {
    let disk = || -> Result<Disk> {
        let geometry = Geometry::within(size_bytes, 4096)?;
        Ok(Arc::new(DiskModel::new(MemoryDevice::new(geometry))))
    };
    let beneath = disk()?;
    let blocks = size_bytes / BLOCK_LEN / 130 * 128;
    let plain = PlainVolume::new(beneath.clone(), blocks)?;
    fill(&plain)?;
    let mut records = measure(BASE, &plain, &beneath, None)?;

    let beneath = disk()?;
    let device: Arc<dyn BlockDevice> = beneath.clone();
    let keys = [Key::random()?, Key::random()?];
    let [public_key, hidden_key] = keys.each_ref().map(Unlock::Wrap);
    init(&device, &Parameters::default(), public_key, &[hidden_key], Entropy::default())?;
    let options = Options::default();
    let session = Session::open(&device, hidden_key, options)?;
    let volume = |level| session.volume(level).context("the volume is not open");
    let (public, hidden) = (volume(Level::PUBLIC)?, volume(Level::hidden(1))?);
    age(&session, &public, &hidden, 100)?;
    records.extend(measure("public", &public, &beneath, None)?);
    let mut carriers = Carriers { public: &public, hidden: &hidden, random: Stream::new(7) };
    records.extend(measure("hidden", &hidden, &beneath, Some(&mut carriers))?);
    session.close()?;
    Ok(records)
}

/// Writes every block, so that reading is reading.
fn fill(volume: &dyn BlockDevice) -> Result<()> {
    let data = vec![0xa5; usize::try_from(LARGE * BLOCK_LEN)?];
    for at in (0..volume.geometry().blocks / LARGE * LARGE).step_by(usize::try_from(LARGE)?) {
        volume.write(BlockNo(at), &data)?;
    }
    Ok(volume.flush()?)
}

/// Public traffic in small requests all over the volume, for hidden blocks to go with.
struct Carriers<'a> {
    public: &'a Volume,
    hidden: &'a Volume,
    random: Stream,
}

impl Carriers<'_> {
    /// Writes what carries `blocks` hidden ones.
    fn carry(&mut self, blocks: u64) -> block::Result<()> {
        let count = self.public.geometry().blocks;
        let data = [0x5a; 4096];
        for _ in 0..blocks * CARRIERS {
            self.public.write(BlockNo(self.random.below(count)), &data)?;
        }
        self.public.flush()
    }

    /// Carries until `blocks` more may wait.
    fn make_room(&mut self, blocks: u64) -> block::Result<()> {
        while !has_room(self.hidden, blocks) {
            self.carry(LARGE)?;
        }
        Ok(())
    }
}

/// The workloads on one volume; hidden blocks are carried after each large write, and after all
/// small ones.
fn measure(
    peer: &str,
    volume: &dyn BlockDevice,
    disk: &Disk,
    mut carriers: Option<&mut Carriers<'_>>,
) -> Result<Vec<Record>> {
    let blocks = volume.geometry().blocks;
    let large = blocks.min(LARGE_BYTES / BLOCK_LEN) / LARGE;
    let mut random = Stream::new(5);
    let mut records = Vec::new();
    for (workload, writes, len, requests) in [
        // What is read has been written before in the same manner, as files are.
        ("seq-write", true, LARGE, large),
        ("seq-read", false, LARGE, large),
        ("rand-write", true, 1, SMALL_REQUESTS),
        ("rand-read", false, 1, SMALL_REQUESTS),
    ] {
        let mut buf = vec![0x5a; usize::try_from(len * BLOCK_LEN)?];
        let before = disk.elapsed_ns();
        for request in 0..requests {
            runner::check_stop()?;
            let at = if len == 1 { random.below(blocks) } else { request * len };
            if !writes {
                volume.read(BlockNo(at), &mut buf)?;
                continue;
            }
            if let Some(carriers) = &mut carriers {
                carriers.make_room(len)?;
            }
            volume.write(BlockNo(at), &buf)?;
            if len > 1
                && let Some(carriers) = &mut carriers
            {
                carriers.carry(len)?;
            }
        }
        if writes {
            if len == 1
                && let Some(carriers) = &mut carriers
            {
                carriers.carry(requests)?;
            }
            volume.flush()?;
        }
        let seconds = real(disk.elapsed_ns() - before) / 1e9;
        records.push(Record {
            profile: "disk".into(),
            workload: workload.into(),
            peer: peer.into(),
            unit: "MiB/s".into(),
            samples: vec![mib(requests * len * BLOCK_LEN) / seconds],
            image_bytes: disk.geometry().len_bytes(),
            cold: true,
            ..Record::default()
        });
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_whose_queue_takes_less_than_a_workload_is_measured() {
        let records = run(16 << 20).unwrap();
        assert_eq!(records.len(), 12);
        assert!(records.iter().all(|record| record.value().is_some_and(|speed| speed > 0.0)));
    }

    #[test]
    fn a_disk_that_cannot_take_a_large_request_is_refused() {
        for size in [1 << 20, 6 << 20] {
            let error = run(size).unwrap_err();
            assert!(error.to_string().contains("too small"), "{error:#}");
        }
    }
}
