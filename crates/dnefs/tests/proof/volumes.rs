//! Volumes for tests: small chips in memory.

use std::sync::Arc;

use tacita_clock::System;
use tacita_dnefs::{CipherChoice, Compression, Dnefs, FormatOptions, format};
use tacita_flash::{Emulator, EmulatorOptions, Volume};
use tacita_testkit::history::Limits;

/// Shape of histories: a few names, files of some nodes.
pub(crate) const LIMITS: Limits = Limits { names: 12, size_max: 30_000, write_max: 9_000 };

/// A chip of so many blocks of 32 pages of 512 bytes.
pub(crate) fn chip(blocks: u32) -> EmulatorOptions {
    EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 32,
        blocks,
        ..EmulatorOptions::default()
    }
}

/// How volumes are made, in turn.
pub(crate) fn options(seed: u64) -> FormatOptions {
    let ciphers = [CipherChoice::Aes256Gcm, CipherChoice::Aes128Ctr, CipherChoice::Aes128Gcm];
    let compressions = [Compression::Lz4, Compression::None, Compression::Zstd];
    let at = usize::try_from(seed % 3).unwrap();
    FormatOptions {
        node_len_bytes: [4096, 1024, 2048][at],
        cipher: ciphers[at],
        compression: compressions[at],
        ..FormatOptions::default()
    }
}

/// A new volume on a chip.
pub(crate) fn fresh(blocks: u32, seed: u64) -> Arc<Emulator> {
    let chip = Arc::new(Emulator::in_memory(&chip(blocks)).unwrap());
    format(&volume(&chip), &options(seed), None).unwrap();
    chip
}

pub(crate) fn volume(chip: &Arc<Emulator>) -> Arc<dyn Volume> {
    Arc::<Emulator>::clone(chip)
}

pub(crate) fn open(chip: &Arc<Emulator>) -> Dnefs {
    Dnefs::open(volume(chip), None, Arc::new(System)).unwrap()
}

/// Every physical block of a chip.
pub(crate) fn dump(chip: &Emulator) -> Vec<u8> {
    let mut bytes = Vec::new();
    chip.dump(&mut bytes).unwrap();
    bytes
}
