//! Man pages and completions, generated from the same table as `--help`.

mod formats;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::builder::PossibleValue;
use clap::{ArgGroup, Command, CommandFactory};
use clap_complete::{Generator, Shell};
use clap_mangen::Man;

use crate::arguments::{Arguments, EXIT_CODES};
use crate::exit::{Failure, Outcome};
use crate::helper::{MOUNT, UNMOUNT};
use crate::output;

/// Writes a man page for every command, and completions for every shell, into `dir`: each is there when it
/// is whole.
pub(crate) fn write(dir: &Path) -> Outcome<()> {
    let is_new = !dir.exists();
    if !is_new && !dir.is_dir() {
        let text = format!("{}: not a folder", output::shown_name(dir));
        return Err(Failure::usage(text).with_remedy("name a folder, or a new one"));
    }
    fs::create_dir_all(dir).map_err(|e| output::of_file(dir, e))?;
    write_all(dir).inspect_err(|_| {
        if is_new {
            // As long as nothing is in it.
            let _ = fs::remove_dir(dir);
        }
    })
}

fn write_all(dir: &Path) -> Outcome<()> {
    let mut command = Arguments::command();
    let mut shown = without_hidden(&command);
    command = command.disable_help_subcommand(true);
    command.build();
    write_links(&command, dir)?;
    write_pages(command, dir)?;
    output::new_file(&dir.join("tacita-formats.5"), &formats::page())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut shown, "tacita", &mut text);
        match shell {
            Shell::Fish => text = for_fish(text, &shown),
            Shell::Bash => text = for_bash(text),
            _ => {}
        }
        write_text(&dir.join(shell.file_name("tacita")), text)?;
    }
    Ok(())
}

fn write_pages(command: Command, dir: &Path) -> Outcome<()> {
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(below.clone(), dir)?;
    }
    write_text(&dir.join(Man::new(command.clone()).get_filename()), page(command)?)
}

/// A page, with the sections that man-pages(7) asks for. The synopsis is the one of `--help`: it has the words that
/// options take.
fn page(mut command: Command) -> std::io::Result<Vec<u8>> {
    let usage = command.render_usage().to_string();
    let usage = formats::escaped(usage.trim_start_matches("Usage: "));
    let mut end = format!(".SH \"EXIT STATUS\"\n{}\n", formats::escaped(EXIT_CODES));
    if let Some(notes) = command.get_after_long_help() {
        let _ = writeln!(end, ".SH NOTES\n{}", formats::escaped(&notes.to_string()));
    }
    end += ".SH \"SEE ALSO\"\n.BR tacita (1),\n.BR tacita\\-formats (5)\n";
    let has_commands = command.has_subcommands();
    let page = Man::new(command).source(concat!("tacita ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    text.extend(format!(".SH SYNOPSIS\n{usage}\n").into_bytes());
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_commands {
        page.render_subcommands_section(&mut text)?;
    }
    text.extend(end.into_bytes());
    Ok(text)
}

/// Bash has its own way with names of files, which knows spaces: it is taken where nothing else is offered. So
/// options are offered to whoever types a dash, and no list of files that ends at every space; and the `=` of
/// `--sync=durable` is no word before the value.
fn for_bash(text: Vec<u8>) -> Vec<u8> {
    const OFFERED: &str = r#"_tacita_offered() {
    local word
    for word in ${opts}; do
        [[ ${cur} == -* || ${word} != -* ]] && echo "${word}"
    done
}

"#;
    const CHANGED: [(&str, &str); 3] = [
        (r#"compgen -W "${opts}""#, r#"compgen -W "$(_tacita_offered)""#),
        (r#"COMPREPLY=($(compgen -f "${cur}"))"#, "COMPREPLY=()"),
        (
            "    prev=\"$3\"\n",
            "    prev=\"$3\"\n    [[ ${prev} == \"=\" ]] && prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n",
        ),
    ];
    let text = String::from_utf8(text).expect("it is generated as text");
    let text = CHANGED.iter().fold(text, |text, (old, new)| text.replace(old, new));
    (OFFERED.to_owned() + &text).into_bytes()
}

/// The generator has `help` among the words behind `help` after which no other is offered.
fn for_fish(text: Vec<u8>, command: &Command) -> Vec<u8> {
    const BEHIND_HELP: &str = "-n \"__fish_tacita_using_subcommand help; and not ";
    let text = String::from_utf8(text).expect("it is generated as text");
    let lines = text.lines().map(|line| match line.split_once(BEHIND_HELP) {
        Some(_) => line.replacen(" help\" -f ", "\" -f ", 1) + "\n",
        None => line.to_owned() + "\n",
    });
    (lines.collect::<String>() + &words_for_fish(command)).into_bytes()
}

/// Words that can stand at a place of a command: the generator leaves them out for this shell, which offers files
/// there.
fn words_for_fish(command: &Command) -> String {
    let mut text = String::new();
    for below in command.get_subcommands() {
        for argument in below.get_positionals() {
            let words = argument.get_possible_values();
            let words: Vec<&str> = words.iter().map(PossibleValue::get_name).collect();
            if !words.is_empty() {
                let (below, words) = (below.get_name(), words.join(" "));
                let _ = writeln!(
                    text,
                    "complete -c tacita -n \"__fish_tacita_using_subcommand {below}\" -f -a \"{words}\""
                );
            }
        }
    }
    text
}

/// The helpers of mount(8) and umount(8) are described where what they do is.
fn write_links(command: &Command, dir: &Path) -> Outcome<()> {
    let systems = command.get_subcommands().map(Command::get_name).filter(|name| {
        command.find_subcommand(name).is_some_and(|it| it.find_subcommand("mount").is_some())
    });
    for system in systems {
        for (helper, page) in
            [(MOUNT, format!("tacita-{system}-mount")), (UNMOUNT, "tacita-umount".to_owned())]
        {
            let link = format!(".so man1/{page}.1\n");
            output::new_file(&dir.join(format!("{helper}{system}.8")), &link)?;
        }
    }
    Ok(())
}

fn write_text(path: &Path, text: Vec<u8>) -> Outcome<()> {
    output::new_file(path, &String::from_utf8(text).expect("it is generated as text"))
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

    /// In packages all of them lie beside each other.
    #[test]
    fn each_helper_has_a_page_that_says_how_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let helpers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/helpers");
        let helpers = fs::read_dir(helpers).unwrap().map(|entry| entry.unwrap().file_name());
        let mut pages: Vec<String> = Vec::new();
        for helper in helpers {
            let page = format!("{}.8", helper.to_str().unwrap());
            let link = fs::read_to_string(folder.path().join(&page)).expect(&page);
            let name = link.strip_prefix(".so man1/").unwrap().trim_end();
            let text = fs::read_to_string(folder.path().join(name)).expect(name);
            let wanted = if page.starts_with('u') { "umount" } else { "/etc/fstab" };
            assert!(text.contains(wanted), "{name}");
            pages.push(page);
        }
        let all = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let all = all.filter(|name| name.as_encoded_bytes().ends_with(b".8"));
        assert!(pages.len() >= 8 && all.count() == pages.len(), "{pages:?}");
    }

    /// What is typed can be read off the page: words that options take, where they have to stand.
    #[test]
    fn a_page_says_how_a_command_is_typed() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let page = read("tacita-oram-export.1");
        let wanted = "tacita oram export [OPTIONS] \\-\\-key <FILE> \\-\\-nbd <SOCKET> <ADDRESS>\n";
        assert!(page.contains(&format!(".SH SYNOPSIS\n{wanted}")), "{page}");
        for page in [page, read("tacita.1"), read("tacita-hifs-mount.1")] {
            for wanted in ["\"tacita 0", ".SH \"EXIT STATUS\"\n0 done, 1 ", ".SH \"SEE ALSO\"\n"] {
                assert!(page.contains(wanted), "{wanted}: {page}");
            }
        }
        let fish = read("tacita.fish");
        let offered = fish.lines().find(|line| line.contains("subcommand tour\" -f -a "));
        assert!(offered.is_some_and(|line| line.contains("hifs purge pddm")), "{fish}");
    }

    #[test]
    fn a_file_is_no_place_for_pages() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(write(file.path()).unwrap_err().cause.ends_with("not a folder"));
    }

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

    /// Lines, of which the last word is to be completed.
    const ASK: &str = r#"
        source "$1"
        complete -p tacita | grep -q -e "-o default" || exit 1
        at() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _tacita tacita "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            echo "${COMPREPLY[*]}"
        }
        at tacita hifs check ""
        at tacita hifs check --j
        at tacita hifs check image --j
        at tacita pddm open device --password-file ""
        at tacita hifs mount --sync = s
        at tacita hifs mount --sync s
        at tacita purge f
        at tacita tour pri
    "#;

    /// What bash is told at the end of a line; where that is nothing, it offers files as it always does.
    #[test]
    fn bash_offers_files_where_they_are_named_and_options_behind_a_dash() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let words = ["--norc", "-c", ASK, "bash"];
        let asked = std::process::Command::new("bash")
            .args(words)
            .arg(folder.path().join("tacita.bash"))
            .output();
        // Without a bash nobody is offered anything.
        let Ok(output) = asked else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let wanted = "\n--json\n--json\n\nstrict\nstrict\nfile\nprivatefs\n";
        assert_eq!(String::from_utf8_lossy(&output.stdout), wanted, "{said}");
    }

    #[test]
    fn fish_offers_commands_behind_help() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let fish = fs::read_to_string(folder.path().join("tacita.fish")).unwrap();
        let behind = fish.lines().filter(|line| line.contains("_subcommand help; and not "));
        let until: Vec<&str> = behind.filter_map(|line| line.split(" -f ").next()).collect();
        assert!(until.len() > 5, "{fish}");
        assert!(until.iter().all(|line| line.ends_with(" privatefs fist\"")), "{until:?}");
    }
}
