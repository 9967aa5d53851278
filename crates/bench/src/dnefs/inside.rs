//! On a chip in memory, without a mount, in processor time: the ciphers, the length of nodes, the
//! purge of a block of keys, and what of the time is encryption.

use anyhow::{Result, ensure};
use tacita_dnefs::{CipherChoice, FormatOptions, PurgeScope};
use tacita_flash::EmulatorOptions;
use tacita_secret::{FreshKey, MessageKey, Traces};

use super::chip::{CIPHERS, Chip, timed};
use super::record;
use crate::harness::record::Record;
use crate::harness::rounds;
use crate::harness::statistics::{mib, real};

/// Size of the file that is read and written.
const FILE_LEN_BYTES: u64 = 64 << 20;
/// Reads and writes at random places.
const PARTS: u32 = 8192;
/// Bytes of each.
const PART_LEN: usize = 4096;
/// Messages that a cipher is measured with.
const MESSAGES: u32 = 20_000;
/// Lengths of nodes.
const NODES: [u32; 4] = [2 << 10, 4 << 10, 16 << 10, 64 << 10];

/// The chip: pages of 2 KiB, 64 to a block, as the paper's.
fn chip() -> EmulatorOptions {
    EmulatorOptions::default().len_bytes(256 << 20)
}

/// A chip whose blocks are long enough for all nodes of the sweep: pages of 4 KiB, 64 to a block.
fn long_chip() -> EmulatorOptions {
    let shape = EmulatorOptions { page_len_bytes: 4096, ..EmulatorOptions::default() };
    shape.len_bytes(256 << 20)
}

/// What is measured of a volume: name and unit.
const MEASURES: [(&str, &str); 6] = [
    ("seq-write", "MiB/s"),
    ("seq-read", "MiB/s"),
    ("rand-write", "us"),
    ("rand-read", "us"),
    ("purge-block", "ms"),
    ("purge-one", "ms"),
];

/// What is measured of a cipher alone, for a node of 4 KiB.
const CIPHER_MEASURES: [(&str, &str); 2] = [("encrypt", "us"), ("decrypt", "us")];

/// Measures everything in interleaved rounds.
pub(super) fn run(rounds: u32) -> Result<Vec<Record>> {
    let with = |cipher| FormatOptions { cipher, ..FormatOptions::default() };
    let nodes = |node_len_bytes| FormatOptions { node_len_bytes, ..FormatOptions::default() };
    let mut contenders: Vec<Contender> = CIPHERS
        .iter()
        .map(|(name, cipher)| Contender::new("memory", name, chip(), with(*cipher)))
        .collect();
    contenders.extend(
        NODES.map(|len| {
            Contender::new("nodes", &format!("{}K", len >> 10), long_chip(), nodes(len))
        }),
    );
    for round in 0..rounds {
        rounds::round(round, contenders.len(), |index| contenders[index].measure())?;
    }
    let mut records: Vec<_> = contenders.into_iter().flat_map(|c| c.records).collect();
    records.extend(ciphers(rounds)?);
    Ok(records)
}

/// A way to make a volume.
struct Contender {
    chip: EmulatorOptions,
    options: FormatOptions,
    records: [Record; MEASURES.len()],
}

impl Contender {
    fn new(profile: &str, name: &str, chip: EmulatorOptions, options: FormatOptions) -> Self {
        let records =
            MEASURES.map(|(workload, unit)| record(profile, workload, name, unit, Vec::new()));
        Self { chip, options, records }
    }

    fn measure(&mut self) -> Result<()> {
        let mut chip = Chip::new(&self.chip, &self.options)?;
        let per_part = |seconds: f64| seconds * 1e6 / f64::from(PARTS);
        // The chip's memory is there from the second time on.
        chip.write_all(FILE_LEN_BYTES)?;
        let values = [
            mib(FILE_LEN_BYTES) / chip.write_all(FILE_LEN_BYTES)?,
            mib(FILE_LEN_BYTES) / chip.read_all(FILE_LEN_BYTES)?,
            per_part(chip.overwrite(PARTS, PART_LEN, FILE_LEN_BYTES)?),
            per_part(chip.pick(PARTS, PART_LEN, FILE_LEN_BYTES)?),
            purge_all(&chip)?,
            purge_one(&mut chip)?,
        ];
        for (record, value) in self.records.iter_mut().zip(values) {
            record.samples.push(value);
        }
        Ok(())
    }
}

/// Milliseconds for each block of keys, where all are purged.
fn purge_all(chip: &Chip) -> Result<f64> {
    chip.dnefs.purge(PurgeScope::Deleted)?;
    let mut blocks = 0;
    let seconds = timed(|| {
        blocks = chip.dnefs.purge(PurgeScope::All)?.key_lebs;
        Ok(())
    })?;
    Ok(seconds * 1000.0 / f64::from(blocks))
}

/// Milliseconds of a purge, checkpoint and all, after one small part was overwritten.
fn purge_one(chip: &mut Chip) -> Result<f64> {
    // What the last checkpoint made obsolete is gone, too.
    while chip.dnefs.keys_waiting() > 8 {
        chip.dnefs.purge(PurgeScope::Deleted)?;
    }
    chip.overwrite(1, PART_LEN, FILE_LEN_BYTES)?;
    let mut keys = 0;
    let seconds = timed(|| {
        keys = chip.dnefs.purge(PurgeScope::Deleted)?.keys;
        Ok(())
    })?;
    ensure!(keys > 0, "nothing was purged");
    Ok(seconds * 1000.0)
}

fn ciphers(rounds: u32) -> Result<Vec<Record>> {
    let mut records: Vec<[Record; 2]> = CIPHERS
        .map(|(name, _)| {
            CIPHER_MEASURES.map(|(workload, unit)| record("cipher", workload, name, unit, vec![]))
        })
        .into();
    for round in 0..rounds {
        rounds::round(round, CIPHERS.len(), |index| {
            let times = cipher(CIPHERS[index].1)?;
            for (record, time) in records[index].iter_mut().zip(times) {
                record.samples.push(time);
            }
            Ok(())
        })?;
    }
    Ok(records.into_iter().flatten().collect())
}

/// Microseconds to encrypt and to decrypt what a node of 4 KiB holds, with all that is done with
/// its key, and a copy of it.
fn cipher(cipher: CipherChoice) -> Result<[f64; 2]> {
    let key = vec![7; cipher.key_len()];
    let content = vec![1; PART_LEN];
    let (mut buf, mut sealed) = (content.clone(), content.clone());
    let (mut tag, mut traces) = (Default::default(), Traces::new());
    let sealing = timed(|| {
        for _ in 0..MESSAGES {
            sealed.copy_from_slice(&content);
            tag = FreshKey::take(cipher, &key).seal(&mut traces, |_| b"context", &mut sealed);
        }
        Ok(())
    })?;
    let opening = timed(|| {
        for _ in 0..MESSAGES {
            buf.copy_from_slice(&sealed);
            MessageKey::take(cipher, &key).open(&mut traces, b"context", &mut buf, &tag)?;
        }
        Ok(())
    })?;
    ensure!(buf == content, "what was sealed does not open");
    Ok([sealing, opening].map(|seconds| seconds * 1e6 / real(MESSAGES.into())))
}
