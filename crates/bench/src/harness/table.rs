//! Results as text.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::harness::record::{Axis, Record, ratio_to, reference};

/// Width of a column with a value and a ratio.
const CELL: usize = 18;

/// Prints a table a workload: loads down, peers across, each value with its ratio to the
/// reference.
pub(crate) fn print(records: &[Record], out: &mut dyn Write) -> io::Result<()> {
    let mut tables: Vec<(&str, &str)> = Vec::new();
    let mut peers: Vec<&str> = Vec::new();
    for record in records {
        let table = (record.profile.as_str(), record.workload.as_str());
        if !tables.contains(&table) {
            tables.push(table);
        }
        if !peers.contains(&record.peer.as_str()) {
            peers.push(&record.peer);
        }
    }
    let base = reference(records);
    for (profile, workload) in tables {
        let rows: Vec<&Record> =
            records.iter().filter(|r| r.profile == profile && r.workload == workload).collect();
        let loads: BTreeSet<u32> = rows.iter().map(|r| r.load_percent).collect();
        write!(out, "{profile} {workload}, {}", rows[0].unit)?;
        if rows.iter().any(|r| r.peer == base) {
            write!(out, " (x {base})")?;
        }
        writeln!(out)?;
        let axis = Axis::of(profile);
        write!(out, "{:>7}", axis.name)?;
        for peer in &peers {
            write!(out, "{peer:>CELL$}")?;
        }
        writeln!(out)?;
        for load in loads {
            write!(out, "{:>7}", format!("{load}{}", axis.unit))?;
            for peer in &peers {
                let row = rows.iter().find(|r| r.load_percent == load && r.peer == *peer);
                write!(out, "{:>CELL$}", row.map_or(String::new(), |r| cell(r, records)))?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
    }
    let mut notes = BTreeSet::new();
    for record in records.iter().filter(|r| !r.note.is_empty()) {
        notes.insert(format!("{}: {}", record.peer, record.note));
    }
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))
}

fn cell(record: &Record, records: &[Record]) -> String {
    let Some(value) = record.value() else {
        return "-".into();
    };
    let decimals = match value {
        0.0..10.0 => 2,
        10.0..1000.0 => 1,
        _ => 0,
    };
    match ratio_to(reference(records), record, records) {
        Some(ratio) => format!("{value:.decimals$} ({ratio:.2}x)"),
        None => format!("{value:.decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_values_ratios_and_gaps() {
        let record = |peer, load_percent, samples: &[f64]| {
            Record::sample(peer, "seq-read", load_percent, samples)
        };
        let records = [
            record("tacita-d", 60, &[150.0]),
            record("fuse2fs", 60, &[100.0]),
            record("fuse2fs", 90, &[2000.0]),
        ];
        let mut text = Vec::new();
        print(&records, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("150.0 (1.50x)"), "{text}");
        assert!(text.contains("2000 (1.00x)"), "{text}");
        assert_eq!(text.lines().count(), 5);
    }
}
