//! Man pages and completions, generated from the same table as `--help`.

mod formats;

use std::fs;
use std::io;
use std::path::Path;

use clap::{ArgGroup, Command, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::exit::Outcome;
use crate::output;

/// Writes a man page for every command, and completions for every shell, into `dir`.
pub(crate) fn write(dir: &Path) -> Outcome<()> {
    written(dir).map_err(|e| output::of_file(dir, e))
}

fn written(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let command = Arguments::command();
    let mut shown = without_hidden(&command);
    clap_mangen::generate_to(command, dir)?;
    fs::write(dir.join("tacita-formats.5"), formats::page())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut shown, "tacita", dir)?;
    }
    Ok(())
}

/// What a command shows of itself: completions would offer the rest, too.
fn without_hidden(command: &Command) -> Command {
    let arguments = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    let groups = command.get_groups().map(|group| {
        let members = group.get_args().filter(|id| arguments().any(|a| a.get_id() == *id));
        ArgGroup::new(group.get_id().clone())
            .args(members.cloned())
            .multiple(group.clone().is_multiple())
    });
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut shown = Command::new(command.get_name().to_owned())
        .args(arguments().cloned())
        .groups(groups)
        .subcommands(commands.map(without_hidden));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    match command.get_version() {
        Some(version) => shown.version(version.to_owned()),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_offer_what_is_shown_alone() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let command = Arguments::command();
        let (hidden, shown): (Vec<&Command>, _) =
            command.get_subcommands().partition(|command| command.is_hide_set());
        assert!(!hidden.is_empty(), "else this shows nothing");
        for name in ["tacita.bash", "_tacita", "tacita.fish"] {
            let text = read(name);
            let words = |word: &str| text.split(|c: char| !c.is_alphanumeric()).any(|w| w == word);
            for command in &hidden {
                assert!(!words(command.get_name()), "{name}: {}", command.get_name());
            }
            for command in &shown {
                assert!(words(command.get_name()), "{name}: {}", command.get_name());
            }
            assert!(text.contains("password-file") && text.contains("version"), "{name}");
        }
        // `--latency` is shown by `oram bench` alone.
        let fish = read("tacita.fish");
        let latency = || fish.lines().filter(|line| line.contains("-l latency"));
        assert!(latency().count() > 0 && latency().all(|line| line.contains("bench")), "{fish}");
    }
}
