//! What is wanted of DNEFS, and the paper's tables.

use std::fmt::Write as _;

use super::peer::UNENCRYPTED;
use crate::harness::promise::{Bound, Promise};
use crate::harness::record::{Record, best_ratio_to, value_of};

/// The peer that most targets are about, and the one that it is compared with.
const MEASURED: &str = "dnefs";
const RIVAL: &str = "gocryptfs";

/// Least ratios to the rival through mounts.
const RATIOS: [(&str, f64); 5] = [
    ("seq-read", 1.0),
    ("new-data", 1.0),
    ("rand-overwrite", 1.5),
    ("create-small", 1.0),
    ("delete-small", 1.0),
];

/// Most of something: profile, workload, peer, limit.
const LIMITS: [(&str, &str, &str, f64); 3] = [
    ("memory", "purge-block", "aes256-gcm", 2.0),
    ("open", "crashed", MEASURED, 1000.0),
    ("open", "memory", MEASURED, 64.0),
];

/// Least share of the speed without encryption.
const SHARE_MIN: f64 = 0.9;

/// The modes as mounts and ciphers call them.
const MODES: [(&str, &str); 3] =
    [("dnefs-ctr16", "aes128-ctr"), ("dnefs-gcm16", "aes128-gcm"), ("dnefs", "aes256-gcm")];

/// What takes a node's time through a mount.
struct Load {
    workload: &'static str,
    /// What the cipher does.
    work: &'static str,
    /// Nodes in the unit of the workload's speed.
    nodes: f64,
    /// Requests that are served at once: reading ahead keeps both threads of the daemon busy.
    at_once: f64,
}

const LOADS: [Load; 4] = [
    Load { workload: "seq-read", work: "decrypt", nodes: 256.0, at_once: 2.0 },
    Load { workload: "rand-read", work: "decrypt", nodes: 1.0, at_once: 1.0 },
    Load { workload: "rand-overwrite", work: "encrypt", nodes: 1.0, at_once: 1.0 },
    Load { workload: "new-data", work: "encrypt", nodes: 256.0, at_once: 1.0 },
];

/// One for each target that was measured.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    let mut promises = Vec::new();
    for (workload, least) in RATIOS {
        let Some(record) = find(records, "paged", workload, MEASURED) else { continue };
        let values = (record.value(), value_of(RIVAL, record, records));
        let promise = Promise::ratio(workload, Bound::Least(least), RIVAL, &record.unit, values);
        promises.push(promise.at_best(best_ratio_to(RIVAL, record, records)));
    }
    for (profile, workload, peer, most) in LIMITS {
        let Some(record) = find(records, profile, workload, peer) else { continue };
        let Some(value) = record.value() else { continue };
        let what = format!("{profile} {workload}");
        promises.push(Promise::value(what, Bound::Most(most), &record.unit, value));
    }
    for (mode, cipher) in MODES {
        let shares = LOADS.iter().filter_map(|load| of_no_encryption(records, mode, cipher, load));
        promises.extend(shares);
    }
    promises
}

/// The share of the speed of a program that encrypts nothing, if that was measured. Otherwise that of a
/// node's time through a mount that is not its cipher's, as measured alone.
fn of_no_encryption(records: &[Record], mode: &str, cipher: &str, load: &Load) -> Option<Promise> {
    let measured = find(records, "paged", load.workload, mode)?;
    let (speed, unit) = (measured.value()?, &measured.unit);
    let without = value_of(UNENCRYPTED, measured, records).or_else(|| {
        let cipher_us = find(records, "cipher", load.work, cipher)?.value()?;
        Some(speed / (1.0 - cipher_us * speed * load.nodes / load.at_once / 1e6))
    });
    let what = format!("{mode} {}", load.workload);
    let values = (Some(speed), Some(without?));
    Some(Promise::ratio(what, Bound::Least(SHARE_MIN), "no encryption", unit, values))
}

fn find<'r>(
    records: &'r [Record],
    profile: &str,
    workload: &str,
    peer: &str,
) -> Option<&'r Record> {
    records.iter().find(|r| r.profile == profile && r.workload == workload && r.peer == peer)
}

/// A line a figure of the paper's Tables 3 and 4: what encryption costs of a chip in memory, where
/// the paper has the same file system with and without it. Table 5 is `tacita dnefs plan`.
pub(crate) fn beside_the_paper(records: &[Record]) -> String {
    let mut text = String::new();
    let value =
        |profile: &str, workload: &str| find(records, profile, workload, "aes128-ctr")?.value();
    let mut line = |table: u32, what: &str, paper: f64, ours: Option<f64>, unit: &str| {
        if let Some(ours) = ours {
            writeln!(
                text,
                "  paper, table {table}: {what} {paper:.2} {unit}; ours {ours:.2} {unit}"
            )
            .expect("a string takes all");
        }
    };
    let share = |speed: &str, work: &str| {
        Some(1.0 - value("cipher", work)? * value("memory", speed)? * 256.0 / 1e6)
    };
    line(3, "read, of no encryption", 3.0 / 3.9, share("seq-read", "decrypt"), "x");
    line(3, "write, of no encryption", 1.7 / 2.1, share("seq-write", "encrypt"), "x");
    let over = |node: &str, work: &str| {
        let (node, work) = (value("memory", node)?, value("cipher", work)?);
        Some(node / (node - work))
    };
    line(4, "read node, to no encryption", 4.0 / 2.8, over("rand-read", "decrypt"), "x");
    line(4, "write node, to no encryption", 2.5 / 1.3, over("rand-write", "encrypt"), "x");
    let part = |work: &str, node: &str| Some(value("cipher", work)? / value("memory", node)?);
    line(4, "decrypt, of read node", 0.94 / 4.0, part("decrypt", "rand-read"), "x");
    line(4, "encrypt, of write node", 0.91 / 2.5, part("encrypt", "rand-write"), "x");
    let purge = || Some(value("memory", "purge-block")? * 1000.0 / value("memory", "rand-write")?);
    line(4, "purge of a block, to write node", 21.2 / 2.5, purge(), "x");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dnefs::record;
    use crate::harness::promise::lines;

    #[test]
    fn limits_ratios_and_shares_are_judged() {
        let records = [
            record("paged", "rand-overwrite", "dnefs", "IOPS", vec![20_000.0]),
            record("paged", "rand-overwrite", RIVAL, "IOPS", vec![10_000.0]),
            record("paged", "seq-read", "dnefs", "MiB/s", vec![500.0]),
            record("paged", "seq-read", RIVAL, "MiB/s", vec![600.0]),
            record("cipher", "encrypt", "aes256-gcm", "us", vec![4.0]),
            record("cipher", "decrypt", "aes256-gcm", "us", vec![4.0]),
            record("open", "crashed", "dnefs", "ms", vec![1200.0]),
        ];
        let text = lines(&promises(&records));
        assert!(text.contains("holds: rand-overwrite, >= 1.5x of gocryptfs: 2.00x"), "{text}");
        assert!(text.contains("MISSED: seq-read, >= 1x of gocryptfs: 0.83x"), "{text}");
        assert!(text.contains("MISSED: open crashed, <= 1000 ms: 1200 ms"), "{text}");
        assert!(text.contains("holds: dnefs rand-overwrite, >= 0.9x of no encryption: 0.92x"));
        assert!(text.contains("MISSED: dnefs seq-read, >= 0.9x of no encryption: 0.74x"), "{text}");
        assert_eq!(text.lines().count(), 5, "what was not measured is not judged");
        // Without encryption it was measured, too.
        let none = record("paged", "seq-read", UNENCRYPTED, "MiB/s", vec![510.0]);
        let text = lines(&promises(&[&records[..], &[none]].concat()));
        assert!(text.contains("holds: dnefs seq-read, >= 0.9x of no encryption: 0.98x"), "{text}");
    }

    #[test]
    fn tables_are_shares_of_no_encryption() {
        let of = |profile, workload, value: f64| {
            record(profile, workload, "aes128-ctr", "us", vec![value])
        };
        let records = [of("memory", "rand-read", 8.0), of("cipher", "decrypt", 2.0)];
        let text = beside_the_paper(&records);
        assert!(text.contains("read node, to no encryption 1.43 x; ours 1.33 x"), "{text}");
        assert!(text.contains("decrypt, of read node 0.23 x; ours 0.25 x"), "{text}");
    }
}
