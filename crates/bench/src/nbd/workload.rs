//! What is done to an export, by fio's NBD engine.

use std::path::Path;

use anyhow::Result;

use super::Contender;
use crate::harness::fio;
use crate::harness::statistics::{mib, real};

/// Requests of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// As fio calls it.
    pub(crate) pattern: &'static str,
    /// Length of a request in bytes.
    pub(crate) request_len: u32,
    /// Requests under way at once.
    pub(crate) depth: u32,
    /// Whether a flush follows each request.
    pub(crate) flushed: bool,
    /// Seconds of the same before measuring.
    pub(crate) ramp_seconds: u32,
}

const fn workload(
    name: &'static str,
    pattern: &'static str,
    request_len: u32,
    depth: u32,
) -> Workload {
    Workload { name, pattern, request_len, depth, flushed: false, ramp_seconds: 0 }
}

/// What every comparison has.
pub(crate) const USUAL: [Workload; 6] = [
    workload("rand-read-qd1", "randread", 4096, 1),
    workload("rand-write-qd1", "randwrite", 4096, 1),
    workload("rand-read-qd32", "randread", 4096, 32),
    workload("rand-write-qd32", "randwrite", 4096, 32),
    workload("seq-read", "read", 1 << 20, 4),
    workload("seq-write", "write", 1 << 20, 4),
];

/// Small writes, each made durable.
pub(crate) const FLUSHED: Workload =
    Workload { flushed: true, ..workload("flushed-write-qd1", "randwrite", 4096, 1) };

impl Workload {
    /// The same, after so many seconds of it that do not count.
    pub(crate) const fn after(self, ramp_seconds: u32) -> Self {
        Self { ramp_seconds, ..self }
    }

    pub(crate) fn is_write(&self) -> bool {
        self.pattern.contains("write")
    }

    /// Unit of [`Workload::speed`]: small requests are counted, large ones weighed.
    pub(crate) const fn unit(&self) -> &'static str {
        if self.request_len < 1 << 20 { "IOPS" } else { "MiB/s" }
    }

    /// How fast that was.
    pub(crate) fn speed(&self, outcome: &fio::Outcome) -> f64 {
        let elapsed_s = real(outcome.runtime_ms) / 1000.0;
        match self.unit() {
            "IOPS" => real(outcome.requests) / elapsed_s,
            _ => mib(outcome.bytes) / elapsed_s,
        }
    }

    /// Runs for so many seconds, or until every byte has been met if that is 0.
    pub(crate) fn run(
        &self,
        uri: &str,
        size_bytes: u64,
        seconds: u32,
        seed: u32,
        scratch: &Path,
    ) -> Result<fio::Outcome> {
        let variables = [
            ("URI", uri.to_owned()),
            ("RW", self.pattern.to_owned()),
            ("BS", self.request_len.to_string()),
            ("DEPTH", self.depth.to_string()),
            ("SIZE", size_bytes.to_string()),
            ("SECONDS", seconds.to_string()),
            ("TIMED", u32::from(seconds > 0).to_string()),
            ("RAMP", self.ramp_seconds.to_string()),
            ("FSYNC", u32::from(self.flushed).to_string()),
            ("SEED", seed.to_string()),
        ];
        fio::run(fio::NBD, scratch, &variables)
    }
}

/// Writes every byte of an export once, from start to end.
pub(crate) fn fill(contender: &Contender, size_bytes: u64, scratch: &Path) -> Result<()> {
    let write = workload("fill", "write", 1 << 20, 4);
    write.run(contender.uri(), size_bytes, 0, 1, scratch).map(drop)
}
