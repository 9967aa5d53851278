//! Deterministic content that cannot be compressed.
//!
//! Zeros would be unfair: a file system may store none of them.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use tacita_daemon::voice::shown_name;

/// Bytes a write while filling.
const STRIDE_LEN_BYTES: usize = 1 << 20;

/// Appends `len_bytes` that follow from `seed` to a file, made if it is not there; not synced.
pub(crate) fn append(path: &Path, len_bytes: u64, seed: u64) -> Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot open {}", shown_name(path)))?;
    write_to(&mut file, len_bytes, seed)
        .with_context(|| format!("cannot write {}", shown_name(path)))
}

fn write_to(file: &mut File, len_bytes: u64, seed: u64) -> Result<()> {
    let mut stream = Stream::new(seed);
    let mut buf = vec![0; STRIDE_LEN_BYTES];
    let mut left = len_bytes;
    while left > 0 {
        let len = usize::try_from(left.min(STRIDE_LEN_BYTES as u64))?;
        stream.fill(&mut buf[..len]);
        file.write_all(&buf[..len])?;
        left -= len as u64;
    }
    Ok(())
}

/// xorshift64*: quick, and never zero for a whole bucket.
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(seed: u64) -> Self {
        // The state must not be 0, and small seeds should not give similar starts.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn fill(&mut self, buf: &mut [u8]) {
        for part in buf.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
    }
}
