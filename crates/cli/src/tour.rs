//! `tacita tour`: every built system at work on sample files, with the evidence.

mod blocks;
mod border;
mod deleted;
mod evening;
mod ext4;
mod figure;
mod flash;
mod letters;
mod page;
mod progress;
mod scratch;
mod ward;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::arguments::{SystemName, Tour};
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};
use scratch::Scratch;

/// What a system shows.
struct Stop {
    system: SystemName,
    title: &'static str,
    play: fn(&Path) -> Outcome<Chapter>,
}

const STOPS: [Stop; 7] = [
    Stop {
        system: SystemName::Hifs,
        title: "HIFS: an image that is a function of its files alone",
        play: ward::chapter,
    },
    Stop {
        system: SystemName::Purge,
        title: "Purgefs: what programs delete is overwritten, on ext4",
        play: deleted::chapter,
    },
    Stop {
        system: SystemName::Pddm,
        title: "PD-DM: is there anything else on this device?",
        play: border::chapter,
    },
    Stop {
        system: SystemName::Dnefs,
        title: "DNEFS: what is deleted on flash cannot be decrypted, although it is still there",
        play: flash::chapter,
    },
    Stop {
        system: SystemName::Oram,
        title: "PD-ORAM: a server that sees every request, and not what it is for",
        play: evening::chapter,
    },
    Stop {
        system: SystemName::Privatefs,
        title: "PrivateFS: a folder on a server that does not learn which file is read",
        play: letters::chapter,
    },
    Stop {
        system: SystemName::Fist,
        title: "FiST: code put into a kernel's file system by a page of extension",
        play: figure::chapter,
    },
];

/// One chapter: what was done, what was seen, what it means.
#[derive(Default)]
pub(crate) struct Chapter {
    pub(crate) done: String,
    /// Drawn in characters, a line each.
    pub(crate) drawn: Vec<String>,
    /// Pictures, by the names of their files.
    pub(crate) pictures: Vec<(&'static str, String)>,
    pub(crate) evidence: Vec<Evidence>,
}

/// One thing seen, and whether it is as promised.
pub(crate) struct Evidence {
    pub(crate) what: String,
    pub(crate) seen: String,
    pub(crate) holds: Option<bool>,
}

impl Evidence {
    pub(crate) fn new(what: impl Into<String>, seen: impl Into<String>, holds: bool) -> Self {
        Self { what: what.into(), seen: seen.into(), holds: Some(holds) }
    }

    /// Something this machine cannot show.
    pub(crate) fn skipped(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), seen: format!("SKIPPED: {}", why.into()), holds: None }
    }
}

impl Chapter {
    fn holds(&self) -> bool {
        self.evidence.iter().all(|evidence| evidence.holds != Some(false))
    }

    /// As text of this width, but for what is drawn.
    fn text(&self, width: usize) -> String {
        let mut text = wrapped(&self.done, "   ", width) + "\n";
        for line in &self.drawn {
            text.extend(["   ", line, "\n"]);
        }
        if !self.drawn.is_empty() {
            text += "\n";
        }
        for evidence in &self.evidence {
            let mark = match evidence.holds {
                Some(true) => "yes",
                Some(false) => "NO ",
                None => "-  ",
            };
            let options = textwrap::Options::new(width);
            let (first, rest) = (format!("   [{mark}] "), "         ");
            let options = options.initial_indent(&first).subsequent_indent(rest);
            text.extend([&textwrap::fill(&evidence.what, options), "\n"]);
            text += &wrapped(&evidence.seen, rest, width);
        }
        let verdict = if self.holds() { "holds" } else { "DOES NOT HOLD" };
        text + "\n   Verdict: " + verdict + ".\n\n"
    }

    fn json(&self, stop: &Stop) -> Value {
        let evidence: Vec<Value> = self
            .evidence
            .iter()
            .map(|e| json!({ "what": e.what, "seen": e.seen, "holds": e.holds }))
            .collect();
        json!({ "system": stop.system.to_string(), "title": stop.title, "done": [self.done],
            "drawn": self.drawn, "evidence": evidence, "holds": self.holds() })
    }
}

/// Lines of a paragraph, each ended.
fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let options = textwrap::Options::new(width).initial_indent(indent).subsequent_indent(indent);
    textwrap::fill(text, options) + "\n"
}

pub(crate) fn run(arguments: &Tour) -> Outcome<()> {
    match &arguments.within {
        None => guided(arguments),
        Some(within) => tour(arguments, within),
    }
}

fn wanted(arguments: &Tour) -> impl Iterator<Item = &'static Stop> {
    let system = arguments.system;
    STOPS.iter().filter(move |stop| system.is_none_or(|system| system == stop.system))
}

/// The tour is another process of this program, and what it makes is removed once that one is gone, however it ends:
/// what is removed beside something at work may come back.
fn guided(arguments: &Tour) -> Outcome<()> {
    let Tour { system, keep, html, json, within: _ } = arguments;
    if let Some(keep) = keep {
        may_keep(keep, wanted(arguments))?;
    }
    let scratch = Scratch::new(keep.as_deref())?;
    let mut guest = Command::new(std::env::current_exe()?);
    // For folders of sockets, too.
    guest.arg("tour").env("TMPDIR", scratch.folder());
    let folder = Some(scratch.folder());
    let named = [("--within=", folder), ("--keep=", keep.as_deref()), ("--html=", html.as_deref())];
    for (name, path) in named {
        guest.args(path.map(|path| OsString::from_iter([name.as_ref(), path.as_os_str()])));
    }
    guest.args(json.then_some("--json")).args(system.map(|system| system.to_string()));
    let ended = scratch.run(&mut guest)?;
    drop(scratch);
    if let Some(signal) = ended.signal().and_then(rustix::process::Signal::from_named_raw) {
        // As it would be if this process were the tour.
        rustix::process::kill_process(rustix::process::getpid(), signal)
            .map_err(io::Error::from)?;
    }
    match ended.code() {
        Some(0) => Ok(()),
        // It has said why.
        code => std::process::exit(code.unwrap_or(exit::DEVICE.into())),
    }
}

fn tour(arguments: &Tour, within: &Path) -> Outcome<()> {
    // It does not outlive who removes what it makes.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(io::Error::from)?;
    // Nobody is to wait for all of it to hear that it cannot be written.
    let page = match arguments.html.as_deref() {
        Some(path) => Some((path, output::beginning(path, None)?)),
        None => None,
    };
    let folder = arguments.keep.as_deref().unwrap_or(within).canonicalize()?;
    let tell = |text: &str| if arguments.json { Ok(()) } else { output::print(text) };
    let width = textwrap::termwidth().clamp(40, 100);
    tell("Tacita: storage that keeps silent\n\n")?;
    let mut chapters = Vec::new();
    for (number, stop) in (1..).zip(wanted(arguments)) {
        let indent = textwrap::Options::new(width).subsequent_indent("   ");
        tell(&(textwrap::fill(&format!("{number}. {}", stop.title), indent) + "\n\n"))?;
        let chapter = played(stop, &folder.join(stop.system.to_string()))?;
        tell(&chapter.text(width))?;
        chapters.push((stop, chapter));
    }
    let holds = chapters.iter().all(|(_, chapter)| chapter.holds());
    if arguments.json {
        let chapters: Vec<Value> = chapters.iter().map(|(stop, c)| c.json(stop)).collect();
        output::facts(true, &json!({ "chapters": chapters, "holds": holds }), "")?;
    }
    if let Some((path, new)) = page {
        output::written(path, new, &page::page(&chapters))?;
        tell(&format!("The page is {}.\n", shown_name(path)))?;
    }
    if let Some(keep) = &arguments.keep {
        tell(&format!("Everything is kept in {}.\n", shown_name(keep)))?;
    }
    if holds {
        return Ok(());
    }
    Err(Failure::new(exit::WRONG, "the tour found a promise broken").with_remedy(
        "what is marked NO says which; `--keep DIR` keeps the files that show it, for a report",
    ))
}

/// Sees to a folder in which chapters are to be kept, and that nothing of another tour is where they go.
fn may_keep<'a>(keep: &Path, stops: impl Iterator<Item = &'a Stop>) -> Outcome<()> {
    if keep.exists() && !keep.is_dir() {
        return Err(Failure::usage(format!("{}: not a folder", shown_name(keep)))
            .with_remedy("name a folder, or a new one"));
    }
    fs::create_dir_all(keep).map_err(|e| output::of_file(keep, e))?;
    let is_used = |place: &PathBuf| match fs::read_dir(place) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => place.symlink_metadata().is_ok(),
    };
    let mut places = stops.map(|stop| keep.join(stop.system.to_string()));
    match places.find(is_used) {
        Some(place) => Err(Failure::usage(format!("{}: it exists already", shown_name(&place)))
            .with_remedy("name another folder, or remove what is there")),
        None => Ok(()),
    }
}

/// A chapter, and its pictures in its folder. On a terminal something moves meanwhile.
fn played(stop: &Stop, folder: &Path) -> Outcome<Chapter> {
    fs::create_dir_all(folder).map_err(|e| output::of_file(folder, e))?;
    let moving = output::spinner(&format!("{} at work", stop.system));
    let chapter = (stop.play)(folder);
    moving.finish_and_clear();
    let chapter = chapter?;
    for (name, svg) in &chapter.pictures {
        output::new_file(&folder.join(name), svg)?;
    }
    Ok(chapter)
}
