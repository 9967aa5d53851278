//! Erases by the interval of purges: a chip in memory that lives through weeks of a steady
//! workload.

use std::ffi::OsStr;

use anyhow::Result;
use tacita_dnefs::{FormatOptions, PurgeScope};
use tacita_flash::EmulatorOptions;
use tacita_vfs::{FileSystem, Link, Stamps, Timestamp};

use super::chip::{Chip, create, failed};
use super::record;
use crate::harness::record::Record;
use crate::harness::statistics::real;

/// Time that passes.
const HOURS: u32 = 300;
/// Written each minute: so many nodes of 4 KiB at random places, and a file of one node, which
/// lives for a minute; 2.8 MiB of content an hour, as little as gave the paper 21 erases an hour
/// without purges.
const OVERWRITES_A_MINUTE: u32 = 11;
/// A file that stays, of which nodes are overwritten.
const FILE_LEN_BYTES: u64 = 8 << 20;
/// A chip of 256 blocks.
const CHIP_LEN_BYTES: u64 = 32 << 20;
const NODE_LEN: usize = 4096;
/// Minutes from one purge to the next; 0 for never.
const INTERVALS: [u32; 5] = [0, 60, 30, 15, 1];

/// Lives through the time with each interval.
pub(super) fn run() -> Result<Vec<Record>> {
    let lives: Vec<_> = INTERVALS.iter().map(|minutes| life(*minutes)).collect::<Result<_>>()?;
    Ok(lives.into_iter().flatten().collect())
}

fn life(interval: u32) -> Result<[Record; 2]> {
    let options = EmulatorOptions::default().len_bytes(CHIP_LEN_BYTES);
    let mut chip = Chip::new(&options, &FormatOptions::default())?;
    chip.write_all(FILE_LEN_BYTES)?;
    let before = erases(&chip);
    for minute in 1..=HOURS * 60 {
        chip.overwrite(OVERWRITES_A_MINUTE, NODE_LEN, FILE_LEN_BYTES)?;
        one_minute_file(&chip, minute)?;
        if interval > 0 && minute % interval == 0 {
            chip.dnefs.purge(PurgeScope::Deleted)?;
        }
    }
    let worn: Vec<_> =
        erases(&chip).iter().zip(&before).map(|(after, before)| after - before).collect();
    let hourly = real(worn.iter().sum()) / f64::from(HOURS);
    let peer = if interval == 0 { "never".to_owned() } else { format!("{interval} min") };
    Ok([
        record("wear", "erases", &peer, "an hour", vec![hourly]),
        record("wear", "inequality", &peer, "%", vec![inequality(&worn) * 100.0]),
    ])
}

/// The file of the last minute goes, another comes.
fn one_minute_file(chip: &Chip, minute: u32) -> Result<()> {
    let dnefs = &chip.dnefs;
    let name = |minute: u32| format!("minute {minute}");
    let now = Timestamp { secs: i64::from(minute) * 60, nanos: 0 };
    let file = create(dnefs, &name(minute))?;
    dnefs.write(file, 0, &[5; NODE_LEN], Stamps::NONE).map_err(failed)?;
    if minute > 1 {
        let old = name(minute - 1);
        let (node, _) = dnefs.lookup(dnefs.root(), OsStr::new(&old)).map_err(failed)?;
        let link = Link { dir: dnefs.root(), name: OsStr::new(&old), node };
        dnefs.remove(link, now).map_err(failed)?;
        dnefs.forget(node);
    }
    dnefs.sync_node(file).map_err(failed)
}

fn erases(chip: &Chip) -> Vec<u64> {
    chip.emulator.wear().iter().map(|block| block.erase_counter).collect()
}

/// The share of all erases that would have to fall on other blocks for all to be worn alike (the
/// Hoover index).
fn inequality(worn: &[u64]) -> f64 {
    let all = real(worn.iter().sum());
    let even = all / real(worn.len() as u64);
    let beyond: f64 = worn.iter().map(|count| (real(*count) - even).max(0.0)).sum();
    if all > 0.0 { beyond / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inequality_is_what_would_have_to_move() {
        let near = |worn: &[u64], wanted: f64| (inequality(worn) - wanted).abs() < 1e-9;
        assert!(near(&[3, 3, 3], 0.0) && near(&[0, 0, 9, 3], 0.5) && near(&[0, 0], 0.0));
        assert!(near(&[0, 4], 0.5));
    }
}
