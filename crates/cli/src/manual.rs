//! Man pages and completions, generated from the same table as `--help`.

mod formats;

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::exit::Outcome;

/// Writes a man page for every command, and completions for every shell, into `dir`.
pub(crate) fn write(dir: &Path) -> Outcome<()> {
    fs::create_dir_all(dir)?;
    let mut command = Arguments::command();
    clap_mangen::generate_to(command.clone(), dir)?;
    fs::write(dir.join("tacita-formats.5"), formats::page())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "tacita", dir)?;
    }
    Ok(())
}
