//! What a run leaves: a table, a CSV file, and plots of that.

use std::io;
use std::path::Path;

use anyhow::Result;
use tacita_daemon::voice::shown_name;

use super::provenance::Provenance;
use super::record::Record;
use super::{plot, results, table};

/// Prints a table, and writes CSV and plots named after `name`.
pub(crate) fn report(
    records: &[Record],
    origin: &Provenance,
    out: &Path,
    name: &str,
) -> Result<()> {
    table::print(records, &mut io::stdout().lock())?;
    let path = out.join(name).with_extension("csv");
    results::write(records, origin, &path)?;
    let plots = plot::draw_all(&results::read(&path)?, out, name)?;
    eprintln!("wrote {} and {plots} plots beside it", shown_name(&path));
    Ok(())
}

/// Draws the plots again from a CSV file, if that is there.
pub(crate) fn redraw(out: &Path, name: &str) -> Result<()> {
    let path = out.join(name).with_extension("csv");
    if path.exists() {
        plot::draw_all(&results::read(&path)?, out, name)?;
    }
    Ok(())
}
