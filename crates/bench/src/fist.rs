//! `FiST`: the paper's table 2, and what purging costs the generated ext2, in counts of a virtual
//! machine that a busy one does not change. The scripts of `crates/fist/lab` do the work.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tacita_daemon::voice::shown_name;

use crate::arguments::{Arguments, FistOptions};
use crate::harness::promise::{Bound, Promise, lines};
use crate::harness::provenance::Provenance;
use crate::harness::record::Record;
use crate::harness::report::report;
use crate::harness::runner::{self, tacita};

/// Virtual machines that count are slow.
const LIMIT: Duration = Duration::from_hours(3);

/// The paper's table 2, in seconds: instrumenting and compiling, by what is nearest here.
const TABLE_2: [(&str, f64, f64); 5] = [
    ("ext2", 1.2, 14.6),
    ("fat", 1.1, 6.1),
    ("ramfs", 1.2, 6.0),
    ("nfs", 1.3, 16.5),
    ("base0fs", 1.3, 11.7),
];

/// The paper's overheads in elapsed time: of a build and of Postmark, single and triple.
const OVERHEAD: [(&str, &str, &str); 4] = [
    ("build", "single", "+0%"),
    ("build", "triple", "+35%"),
    ("mail", "single", "+81%"),
    ("mail", "triple", "22 times"),
];

/// Instrumenting may take so much of compiling, and so many seconds for the largest.
const SHARE_MAX: f64 = 0.1;
const SECONDS_MAX: (&str, f64) = ("nfs", 1.0);

/// Measures all parts, and prints what is wanted and the paper's figures.
pub(crate) fn report_all(
    options: &FistOptions,
    arguments: &Arguments,
    origin: &Provenance,
) -> Result<()> {
    let mut records = Vec::new();
    for part in &options.parts {
        let found = run(part, options)?;
        report(&found, origin, &arguments.out, &format!("fist-{part}"))?;
        records.extend(found);
    }
    print!("{}{}", lines(&promises(&records)), beside_the_paper(&records));
    Ok(())
}

fn run(part: &str, options: &FistOptions) -> Result<Vec<Record>> {
    let mut script = Command::new(script()?);
    script.args([&options.kernel, part]).arg(tacita()?);
    let said = runner::run(&mut script, LIMIT)?;
    let records = parse(part, &said)?;
    if records.is_empty() {
        bail!(
            "nothing was measured: TACITA_LAB has to name the lab, and see what measure.sh needs"
        );
    }
    Ok(records)
}

/// The script in the source that this program was built from.
fn script() -> Result<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fist/lab/measure.sh");
    path.canonicalize().with_context(|| format!("there is no {}", shown_name(&path)))
}

/// Lines of the script: what, who, and values.
fn parse(part: &str, said: &str) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [what, who, values @ ..] = &words[..] else { bail!("{line:?} is no result") };
        let units: &[&str] = if part == "times" { &["s"] } else { &["KiB", "instructions"] };
        if values.len() != units.len() {
            bail!("{line:?} is no result");
        }
        for (value, unit) in values.iter().zip(units) {
            let value: f64 = value.parse().with_context(|| format!("{line:?} is no result"))?;
            // A table a work: of counts one for each unit.
            let workload =
                if part == "times" { (*what).to_owned() } else { format!("{what} {unit}") };
            match records.iter_mut().find(|r| r.workload == workload && r.peer == *who) {
                Some(record) => record.samples.push(value),
                None => records.push(Record {
                    profile: part.into(),
                    workload,
                    peer: (*who).to_owned(),
                    unit: (*unit).to_owned(),
                    samples: vec![value],
                    ..Record::default()
                }),
            }
        }
    }
    Ok(records)
}

fn value(records: &[Record], workload: &str, peer: &str) -> Option<f64> {
    records.iter().find(|r| r.workload == workload && r.peer == peer)?.value()
}

/// One for each target.
pub(crate) fn promises(records: &[Record]) -> Vec<Promise> {
    let mut promises = Vec::new();
    for (name, instrumented_there, compiled_there) in TABLE_2 {
        let of = |peer| value(records, name, peer);
        let values = (of("instrumented"), of("compiled"));
        let (Some(instrumented), Some(_)) = values else { continue };
        let (what, there) = (format!("{name} instrumented"), instrumented_there / compiled_there);
        let promise = Promise::ratio(&what, Bound::Most(SHARE_MAX), "compiling", "s", values);
        promises.push(promise.remarked(format!("the paper: {there:.2}x")));
        if name == SECONDS_MAX.0 {
            promises.push(Promise::value(what, Bound::Most(SECONDS_MAX.1), "s", instrumented));
        }
    }
    promises
}

/// The paper's figures of what purging costs, beside ours.
fn beside_the_paper(records: &[Record]) -> String {
    let mut text = String::new();
    for (load, passes, paper) in OVERHEAD {
        for unit in ["KiB", "instructions"] {
            let of = |peer| value(records, &format!("{load} {unit}"), peer);
            if let (Some(plain), Some(purged)) = (of("plain"), of(passes)) {
                let more = (purged / plain - 1.0) * 100.0;
                writeln!(text, "{load}, {passes}: {more:+.1}% {unit}; the paper {paper} time")
                    .expect("a string takes all");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_records_and_verdicts() {
        let said =
            "nfs instrumented 0.5\nnfs instrumented 1.5\nnfs instrumented 0.9\nnfs compiled 3\n";
        let records = parse("times", said).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(value(&records, "nfs", "instrumented"), Some(0.9));
        let text = lines(&promises(&records));
        let share = "MISSED: nfs instrumented, <= 0.1x of compiling: 0.30x (the paper: 0.08x)";
        assert!(text.contains(share), "{text}");
        assert!(text.contains("holds: nfs instrumented, <= 1 s: 0.90 s"), "{text}");
        let counts = parse("counts", "mail plain 100 2000\nmail single 150 2200\n").unwrap();
        let text = beside_the_paper(&counts);
        assert!(text.contains("mail, single: +50.0% KiB; the paper +81% time"), "{text}");
        assert!(text.contains("mail, single: +10.0% instructions"), "{text}");
        assert!(parse("counts", "mail plain 100\n").is_err());
        assert!(parse("times", "nfs compiled soon\n").is_err());
    }
}
