//! The CSV that keeps what was measured.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use csv::{Reader, StringRecord, Writer};
use tacita_daemon::voice::shown_name;

use super::provenance::Provenance;
use super::record::{Record, ratio_to, reference};

const COLUMNS: [&str; 20] = [
    "profile",
    "workload",
    "load_percent",
    "peer",
    "unit",
    "median",
    "min",
    "max",
    "samples",
    "seeds",
    "ratio",
    "reference",
    "image_bytes",
    "cold",
    "note",
    "medium",
    "machine",
    "kernel",
    "commit",
    "date",
];

/// Writes all records, samples and seeds in the order of the rounds, with where they come from.
pub(crate) fn write(records: &[Record], origin: &Provenance, path: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}", shown_name(path));
    let mut file = Writer::from_path(path).with_context(cannot)?;
    file.write_record(COLUMNS).with_context(cannot)?;
    let base = reference(records);
    for record in records {
        let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.4}"));
        let least = record.samples.iter().copied().reduce(f64::min);
        let most = record.samples.iter().copied().reduce(f64::max);
        let samples: Vec<String> = record.samples.iter().map(|v| format!("{v:.4}")).collect();
        let seeds: Vec<String> = record.seeds.iter().map(u64::to_string).collect();
        let cells: [&str; COLUMNS.len()] = [
            &record.profile,
            &record.workload,
            &record.load_percent.to_string(),
            &record.peer,
            &record.unit,
            &number(record.value()),
            &number(least),
            &number(most),
            &samples.join(";"),
            &seeds.join(";"),
            &number(ratio_to(base, record, records)),
            base,
            &record.image_bytes.to_string(),
            &record.cold.to_string(),
            &record.note,
            &origin.medium,
            &origin.machine,
            &origin.kernel,
            &origin.commit,
            &origin.date,
        ];
        file.write_record(cells).with_context(cannot)?;
    }
    file.flush().with_context(cannot)
}

/// Reads records back.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>> {
    let mut file =
        Reader::from_path(path).with_context(|| format!("cannot read {}", shown_name(path)))?;
    parse(&mut file).with_context(|| format!("{} is not a result file", shown_name(path)))
}

/// Commit and day of what a file keeps; `None` if that is nothing.
pub(crate) fn origin(path: &Path) -> Result<Option<String>> {
    let cannot = || format!("cannot read {}", shown_name(path));
    let mut file = Reader::from_path(path).with_context(cannot)?;
    let Some(row) = file.records().next() else { return Ok(None) };
    let row = row.with_context(cannot)?;
    let day = cell(&row, "date").split('T').next().unwrap_or_default();
    Ok(Some(format!("{}, {day}", cell(&row, "commit"))))
}

fn cell<'r>(row: &'r StringRecord, name: &str) -> &'r str {
    let at = COLUMNS.iter().position(|column| *column == name);
    &row[at.expect("it is one of the columns")]
}

fn parse(file: &mut Reader<impl std::io::Read>) -> Result<Vec<Record>> {
    ensure!(*file.headers()? == COLUMNS[..], "other columns");
    let row = |row: csv::Result<StringRecord>| {
        let row = row?;
        let cell = |name: &str| cell(&row, name);
        let list = |name: &str| cell(name).split(';').filter(|s| !s.is_empty());
        Ok(Record {
            profile: cell("profile").into(),
            workload: cell("workload").into(),
            load_percent: cell("load_percent").parse()?,
            peer: cell("peer").into(),
            unit: cell("unit").into(),
            samples: list("samples").map(str::parse).collect::<Result<_, _>>()?,
            seeds: list("seeds").map(str::parse).collect::<Result<_, _>>()?,
            image_bytes: cell("image_bytes").parse()?,
            cold: cell("cold").parse()?,
            note: cell("note").into(),
        })
    };
    file.records().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.csv");
        let record = |peer, samples: &[f64]| Record {
            image_bytes: 1 << 30,
            cold: true,
            seeds: vec![1, u64::MAX],
            note: "a, \"note\"\nof two lines".into(),
            ..Record::sample(peer, "seq-read", 60, samples)
        };
        let records = [record("x", &[3.0, 1.0, 2.0]), record("y", &[])];
        write(&records, &Provenance::default(), &path).unwrap();
        assert_eq!(read(&path).unwrap(), records);
        std::fs::write(&path, "something,else\n").unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn a_name_stays_in_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let said = format!("{:#}", read(&folder.path().join("a\nb.csv")).unwrap_err());
        assert!(said.contains("a\\u{a}b.csv") && !said.contains('\n'), "{said}");
    }
}
