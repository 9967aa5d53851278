//! Level B: what is written looks like noise, whatever it is. (Design note, section 5.3.)

use std::collections::HashMap;

use tacita_block::{Event, FaultDevice};

use crate::worlds::{Scenario, play};
use tacita_testkit::env_number;

const BLOCK: usize = 4096;
const UNIT: usize = 8 * BLOCK;
/// Of a unit of 4 public and 3 hidden slots with one class: 3 * 24 + 16 + 144 bytes.
const HIDDEN_PART: usize = 232;
/// Chi-square of 4 KiB of noise over 256 values exceeds this once in 10^9.
const CHI_MAX: f64 = 420.0;

/// Every unit ever written, in order.
pub(crate) fn units(device: &FaultDevice) -> Vec<Vec<u8>> {
    let recording = device.recording();
    let runs = recording.events().iter().filter_map(|event| match event {
        Event::Write { data, .. } if data.len() >= UNIT => Some(data.clone()),
        _ => None,
    });
    runs.flat_map(|data| data.chunks_exact(UNIT).map(<[u8]>::to_vec).collect::<Vec<_>>()).collect()
}

fn hidden_slots(unit: &[u8]) -> impl Iterator<Item = &[u8]> {
    unit[5 * BLOCK..].chunks_exact(BLOCK)
}

fn chi_square(bytes: &[u8]) -> f64 {
    let mut bins = [0u32; 256];
    bytes.iter().for_each(|byte| bins[usize::from(*byte)] += 1);
    let expected = bytes.len() as f64 / 256.0;
    bins.iter().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum()
}

/// Rank over GF(2) of the first 128 rows of 256 bits.
fn rank(bytes: &[u8]) -> usize {
    let mut rows: Vec<[u64; 4]> = bytes
        .chunks_exact(32)
        .take(128)
        .map(|row| {
            let word = |i: usize| u64::from_le_bytes(row[i * 8..i * 8 + 8].try_into().unwrap());
            [word(0), word(1), word(2), word(3)]
        })
        .collect();
    let mut rank = 0;
    for bit in 0..256 {
        let (word, mask) = (bit / 64, 1u64 << (bit % 64));
        let Some(pivot) = (rank..rows.len()).find(|r| rows[*r][word] & mask != 0) else { continue };
        rows.swap(rank, pivot);
        let pivot = rows[rank];
        for row in rows.iter_mut().skip(rank + 1).filter(|row| row[word] & mask != 0) {
            row.iter_mut().zip(pivot).for_each(|(a, b)| *a ^= b);
        }
        rank += 1;
    }
    rank
}

/// What in all that was written is not like noise; empty if nothing.
pub(crate) fn findings(units: &[Vec<u8>]) -> Vec<String> {
    let mut found = Vec::new();
    let mut pooled = Vec::new();
    for (n, unit) in units.iter().enumerate() {
        for (slot, bytes) in hidden_slots(unit).enumerate() {
            let chi = chi_square(bytes);
            if chi > CHI_MAX {
                found.push(format!("unit {n}, hidden slot {slot}: chi-square {chi:.0}"));
            }
            if rank(bytes) < 120 {
                found.push(format!("unit {n}, hidden slot {slot}: a linear generator"));
            }
            pooled.extend_from_slice(bytes);
        }
    }
    let chi = chi_square(&pooled);
    if !(144.0..366.0).contains(&chi) {
        found.push(format!("all hidden slots: chi-square {chi:.0}"));
    }
    found.extend(repeats(units));
    found.truncate(6);
    found
}

/// No 16 bytes are written twice.
fn repeats(units: &[Vec<u8>]) -> Vec<String> {
    let mut seen: HashMap<[u8; 16], (usize, usize)> = HashMap::new();
    let mut found = Vec::new();
    for (n, unit) in units.iter().enumerate() {
        let aligned = (0..UNIT).step_by(16);
        // Tags and cells lie at any multiple of 4 in the hidden part.
        let dense = (BLOCK - HIDDEN_PART..=BLOCK - 16).step_by(4).filter(|at| at % 16 != 0);
        for at in aligned.chain(dense) {
            let chunk: [u8; 16] = unit[at..at + 16].try_into().unwrap();
            if let Some((other, before)) = seen.insert(chunk, (n, at)) {
                found.push(format!("unit {n} at {at} repeats unit {other} at {before}"));
            }
        }
        if found.len() > 3 {
            break;
        }
    }
    found
}

#[test]
fn all_that_is_written_is_noise() {
    for seed in 0..env_number("TACITA_GAMES", 6) {
        for hidden in [false, true] {
            let world = play(&Scenario::random(seed * 1000 + 77), hidden);
            let found = findings(&units(&world.device));
            assert!(found.is_empty(), "seed {seed}, hidden {hidden}: {found:#?}");
        }
    }
}
