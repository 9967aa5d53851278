//! `FiST`: the paper's table 2, and what purging costs the generated ext2, in counts of a virtual
//! machine that a busy one does not change. The scripts of `crates/fist/lab` do the work.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tacita_daemon::voice::shown_name;

use crate::arguments::{Arguments, FistOptions};
use crate::harness::provenance::Provenance;
use crate::harness::record::Record;
use crate::harness::report::report;
use crate::harness::runner::{self, tacita};
use crate::harness::targets::{Verdict, tell};

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
    print!("{}", verdicts(&records));
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

/// A line a target, and the paper's figures beside ours.
fn verdicts(records: &[Record]) -> String {
    let mut text = String::new();
    for (name, instrumented_there, compiled_there) in TABLE_2 {
        let of = |peer| value(records, name, peer);
        let (Some(instrumented), Some(compiled)) = (of("instrumented"), of("compiled")) else {
            continue;
        };
        let share = instrumented / compiled;
        let there = instrumented_there / compiled_there;
        tell(
            &mut text,
            Verdict::of(share <= SHARE_MAX),
            &format!("{name}: {share:.4} of compiling (<= {SHARE_MAX}; the paper {there:.2})"),
        );
        if name == SECONDS_MAX.0 {
            let most = SECONDS_MAX.1;
            let what = format!("{name}: instrumented in {instrumented:.2} s (<= {most} s)");
            tell(&mut text, Verdict::of(instrumented <= most), &what);
        }
    }
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
        let text = verdicts(&records);
        assert!(
            text.contains("MISSED: nfs: 0.3000 of compiling (<= 0.1; the paper 0.08)"),
            "{text}"
        );
        assert!(text.contains("holds: nfs: instrumented in 0.90 s"), "{text}");
        let counts = parse("counts", "mail plain 100 2000\nmail single 150 2200\n").unwrap();
        let text = verdicts(&counts);
        assert!(text.contains("mail, single: +50.0% KiB; the paper +81% time"), "{text}");
        assert!(text.contains("mail, single: +10.0% instructions"), "{text}");
        assert!(parse("counts", "mail plain 100\n").is_err());
        assert!(parse("times", "nfs compiled soon\n").is_err());
    }
}
