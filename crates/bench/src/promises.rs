//! All that is promised of speed and memory, beside what the last runs of all benchmarks reached: made of
//! the CSV files alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tacita_daemon::voice::shown_name;

use crate::harness::promise::{Promise, rows};
use crate::harness::record::Record;
use crate::harness::results;
use crate::{dnefs, fist, hifs, nbd, oram, pddm, privatefs, purge};

/// A table: its title, the benchmarks whose files it is made of, and what is promised.
struct Table {
    title: &'static str,
    benchmarks: &'static [&'static str],
    promises: fn(&[Record]) -> Vec<Promise>,
}

const TABLES: [Table; 8] = [
    Table {
        title: "HIFS",
        benchmarks: &["hifs", "ram", "mount"],
        promises: hifs::targets::promises,
    },
    Table { title: "Purge", benchmarks: &["purge"], promises: purge::promises },
    Table {
        title: "Purge, deleting stored files",
        benchmarks: &["deleting"],
        promises: purge::deleting::promises,
    },
    Table { title: "NBD", benchmarks: &["nbd"], promises: nbd::promises },
    Table { title: "PD-DM", benchmarks: &["pddm"], promises: pddm::promises },
    Table { title: "DNEFS", benchmarks: &["dnefs"], promises: dnefs::targets::promises },
    Table {
        title: "PD-ORAM and PrivateFS",
        benchmarks: &["oram", "privatefs"],
        promises: |records| {
            [oram::targets::promises(records), privatefs::targets::promises(records)].concat()
        },
    },
    Table { title: "FiST", benchmarks: &["fist"], promises: fist::promises },
];

/// A table for each system that was measured.
pub(crate) fn of_all(out: &Path) -> Result<String> {
    let files = files(out)?;
    let mut text = String::new();
    for table in TABLES {
        let (mut records, mut origins) = (Vec::new(), Vec::new());
        for file in files.iter().filter(|file| is_of(file, table.benchmarks)) {
            records.extend(results::read(file)?);
            let name = file.file_stem().unwrap_or_default().display();
            origins.extend(results::origin(file)?.map(|origin| format!("{name}: {origin}")));
        }
        let promises = (table.promises)(&records);
        if promises.is_empty() {
            continue;
        }
        let (title, rows, origins) = (table.title, rows(&promises), origins.join("; "));
        writeln!(text, "### {title}\n\n{rows}\n{origins}.\n").expect("a string takes all");
    }
    Ok(text)
}

/// The CSV files of a folder, in the order of their names.
fn files(out: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot list {}", shown_name(out));
    let entries = std::fs::read_dir(out).with_context(cannot)?;
    let paths = entries.map(|entry| Ok(entry.with_context(cannot)?.path()));
    let mut files = paths.collect::<Result<Vec<PathBuf>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    Ok(files)
}

/// Whether a file is of one of these benchmarks, or of a part of one: `oram-40ms.csv`.
fn is_of(file: &Path, benchmarks: &[&str]) -> bool {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    // A model is a benchmark of its own.
    benchmarks.iter().any(|benchmark| {
        let rest = name.strip_prefix(benchmark);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-') && rest != "-model")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::provenance::Provenance;

    #[test]
    fn tables_are_of_what_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let origin = Provenance {
            commit: "0123456789ab".into(),
            date: "2026-11-27T00:00:00Z".into(),
            ..Provenance::default()
        };
        let write = |name: &str, records: &[Record]| {
            results::write(records, &origin, &folder.path().join(name).with_extension("csv"))
        };
        let of = |peer, value: f64| Record::sample(peer, "seq-read", 60, &[value]);
        write("hifs", &[of("tacita-d", 30.0), of("fuse2fs", 10.0)]).unwrap();
        let of = |peer, value: f64| Record {
            profile: "paged".into(),
            ..Record::sample(peer, "seq-read", 0, &[value])
        };
        write("dnefs-mounts", &[of("dnefs", 30.0), of("gocryptfs", 40.0)]).unwrap();
        write("nbd", &[]).unwrap();
        let text = of_all(folder.path()).unwrap();
        let titles: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
        assert_eq!(titles, ["### HIFS", "### DNEFS"], "{text}");
        assert!(text.contains("| seq-read | 40.0 MiB/s | 30.0 MiB/s | 0.75x |"), "{text}");
        assert!(text.contains("dnefs-mounts: 0123456789ab, 2026-11-27."), "{text}");
        assert!(of_all(&folder.path().join("absent")).is_err());
    }

    #[test]
    fn files_belong_to_benchmarks() {
        let is_of = |name: &str| is_of(Path::new(name), &["pddm", "oram"]);
        assert!(is_of("pddm.csv") && is_of("oram-40ms.csv"));
        assert!(!is_of("pddm-model.csv") && !is_of("oramology.csv"));
    }
}
