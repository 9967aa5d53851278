//! `tacita dnefs audit`.

use std::path::{Path, PathBuf};

use serde_json::json;
use tacita_dnefs_audit::{Closed, Place, Report, audit, audit_memory};

use crate::exit::{self, Failure, Outcome};
use crate::{output, passwords};

/// Recoverable nodes that are listed.
const LISTED: usize = 20;

pub(super) fn run(
    before: &Path,
    after: &Path,
    memory: Option<&Path>,
    password_files: &[PathBuf],
    json: bool,
) -> Outcome<()> {
    let read = |path: &Path| output::read(path).map_err(|e| output::of_file(path, e));
    let passwords: Vec<_> =
        password_files.iter().map(|file| passwords::first_line(file)).collect::<Outcome<_>>()?;
    let (before, after) = (read(before)?, read(after)?);
    let bar = output::progress("searching", 0);
    let told = |done, of| {
        bar.set_length(of);
        bar.set_position(done);
    };
    let audited = match memory {
        Some(memory) => audit_memory(&read(memory)?, (&before, &after), &passwords, &told),
        None => audit(&before, &after, &passwords, &told),
    };
    bar.finish_and_clear();
    let report = audited.map_err(|e| match e {
        Closed::WrongPassword => Failure::new(exit::NO_VOLUME, e.to_string())
            .with_remedy("give every password that the volume had, with --password-file each"),
        Closed::NoMemory(_) => Failure::no_memory(e.to_string()),
    })?;
    tell(&report, memory.is_some(), json)?;
    if report.holds() {
        return Ok(());
    }
    Err(verdict(&report))
}

fn verdict(report: &Report) -> Failure {
    let (cause, remedy) = match (&report.undecided, report.recoverable.len()) {
        (Some(why), _) => (
            format!("nothing can be said: {why}"),
            "give two whole dumps of one volume, made by `tacita dnefs dump` without a failure and not formatted \
             between them",
        ),
        (None, 0) => (
            format!(
                "{} pages of keys are sealed under a key that is not known, or damaged",
                report.key_pages_sealed
            ),
            "give every password that the volume had, with --password-file each; what is in a damaged page cannot be \
             said",
        ),
        (None, count) => (
            format!("{count} deleted nodes can still be decrypted"),
            "purge (`tacita dnefs purge DIR`), and dump again; what went bad meanwhile can be destroyed with \
             the chip alone",
        ),
    };
    Failure::new(exit::WRONG, cause).with_remedy(remedy)
}

fn tell(report: &Report, of_memory: bool, json: bool) -> Outcome<()> {
    let place = |place: &Place| match place {
        Place::Raw(offset) if of_memory => format!("byte {offset} of the memory"),
        Place::Raw(offset) => format!("byte {offset} of the dump"),
        Place::KeyPage { leb, page, epoch } => {
            format!("key block {leb}, page {page}, of epoch {epoch}")
        }
    };
    let recoverable: Vec<_> = report
        .recoverable
        .iter()
        .take(LISTED)
        .map(|node| json!({ "node": node.sqnum, "bytes": node.len_bytes, "key_at": place(&node.key) }))
        .collect();
    let incomplete: Vec<_> =
        report.receipts.iter().filter(|receipt| !receipt.is_complete()).map(|r| r.epoch).collect();
    let facts = json!({
        "holds": report.holds(),
        "nodes": report.nodes,
        "in_use": report.in_use,
        "newer_than_checkpoint": report.newer,
        "deleted": report.deleted,
        "windows_tried": report.windows,
        "key_pages": report.key_pages,
        "key_pages_sealed": report.key_pages_sealed,
        "receipts": report.receipts.len(),
        "receipts_whole": report.receipts_whole,
        "last_epoch": report.receipts.last().map(|receipt| receipt.epoch),
        "epochs_incomplete": incomplete,
        "recoverable_count": report.recoverable.len(),
        "recoverable": recoverable,
    });
    output::facts(json, &facts, &output::lines(&facts))
}
