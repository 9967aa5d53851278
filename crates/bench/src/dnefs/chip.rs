//! A volume on a chip in memory, without a mount.

use std::ffi::OsStr;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use tacita_clock::System;
use tacita_dnefs::{CipherChoice, Dnefs, FormatOptions, format};
use tacita_flash::{Emulator, EmulatorOptions, Volume};
use tacita_vfs::{FileSystem, FileType, NewNode, NodeId, Stamps, Timestamp};

use crate::harness::content::Stream;
use crate::harness::statistics::real;

/// Bytes of a sequential read or write: those of a large request of FUSE.
const REQUEST_LEN: usize = 128 << 10;

/// A volume with one file, and the chip that it is on.
pub(super) struct Chip {
    pub(super) emulator: Arc<Emulator>,
    pub(super) dnefs: Dnefs,
    pub(super) file: NodeId,
    pub(super) stream: Stream,
}

/// The ciphers, and what records call them.
pub(super) const CIPHERS: [(&str, CipherChoice); 3] = [
    ("aes128-ctr", CipherChoice::Aes128Ctr),
    ("aes128-gcm", CipherChoice::Aes128Gcm),
    ("aes256-gcm", CipherChoice::Aes256Gcm),
];

impl Chip {
    /// A new volume with an empty file.
    pub(super) fn new(options: &EmulatorOptions, format_options: &FormatOptions) -> Result<Self> {
        let emulator = Arc::new(Emulator::in_memory(options)?);
        let volume: Arc<dyn Volume> = Arc::<Emulator>::clone(&emulator);
        format(&volume, format_options, None)?;
        let dnefs = Dnefs::open(volume, None, Arc::new(System))?;
        let file = create(&dnefs, "file")?;
        Ok(Self { emulator, dnefs, file, stream: Stream::new(1) })
    }

    /// Writes the file from its start to `len_bytes`, and syncs: seconds.
    pub(super) fn write_all(&mut self, len_bytes: u64) -> Result<f64> {
        let mut buf = vec![0; REQUEST_LEN];
        self.stream.fill(&mut buf);
        timed(|| {
            for offset in (0..len_bytes).step_by(REQUEST_LEN) {
                // Another node each time, at no cost.
                buf[..8].copy_from_slice(&offset.to_le_bytes());
                self.dnefs.write(self.file, offset, &buf, Stamps::NONE).map_err(failed)?;
            }
            self.dnefs.sync_node(self.file).map_err(failed)
        })
    }

    /// Reads the file from its start to `len_bytes`: seconds.
    pub(super) fn read_all(&self, len_bytes: u64) -> Result<f64> {
        let mut buf = vec![0; REQUEST_LEN];
        timed(|| {
            (0..len_bytes).step_by(REQUEST_LEN).try_for_each(|offset| {
                self.dnefs.read(self.file, offset, &mut buf).map(drop).map_err(failed)
            })
        })
    }

    /// Overwrites `count` parts of `part_len` bytes at random places of the first `len_bytes`, and
    /// syncs: seconds.
    pub(super) fn overwrite(&mut self, count: u32, part_len: usize, len_bytes: u64) -> Result<f64> {
        let mut buf = vec![0; part_len];
        self.stream.fill(&mut buf);
        timed(|| {
            for _ in 0..count {
                let at = self.stream.below(len_bytes / part_len as u64) * part_len as u64;
                self.dnefs.write(self.file, at, &buf, Stamps::NONE).map_err(failed)?;
            }
            self.dnefs.sync_node(self.file).map_err(failed)
        })
    }

    /// Reads `count` parts of `part_len` bytes at random places of the first `len_bytes`: seconds.
    pub(super) fn pick(&mut self, count: u32, part_len: usize, len_bytes: u64) -> Result<f64> {
        let mut buf = vec![0; part_len];
        timed(|| {
            for _ in 0..count {
                let at = self.stream.below(len_bytes / part_len as u64) * part_len as u64;
                self.dnefs.read(self.file, at, &mut buf).map_err(failed)?;
            }
            Ok(())
        })
    }
}

/// Makes a file in the root folder.
pub(super) fn create(dnefs: &Dnefs, name: &str) -> Result<NodeId> {
    let new = NewNode::new(FileType::File, 0o644, Timestamp { secs: 0, nanos: 0 });
    Ok(dnefs.create(dnefs.root(), OsStr::new(name), &new).map_err(failed)?.0)
}

/// Processor time in seconds that some work takes: a machine that is busy with other work adds
/// little to it.
pub(super) fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        real(time.tv_sec.unsigned_abs()) + real(time.tv_nsec.unsigned_abs()) / 1e9
    };
    let start = now();
    work()?;
    Ok(now() - start)
}

#[allow(clippy::needless_pass_by_value, reason = "it is what errors are mapped with")]
pub(super) fn failed(error: tacita_vfs::Error) -> anyhow::Error {
    anyhow!("{error}")
}
