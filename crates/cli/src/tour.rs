//! `tacita tour`: every built system at work on sample files, with the evidence.

mod border;
mod deleted;
mod evening;
mod ext4;
mod figure;
mod flash;
mod letters;
mod progress;
mod ward;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::arguments::Tour;
use crate::exit::{self, Failure, Outcome};
use crate::output;

/// One chapter: what was done, what was seen, what it means.
pub(crate) struct Chapter {
    pub(crate) title: &'static str,
    pub(crate) done: Vec<String>,
    /// Drawn in characters, a line each.
    pub(crate) drawn: Vec<String>,
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

    fn text(&self, number: usize) -> String {
        let mut text = format!("{number}. {}\n\n", self.title);
        for line in &self.done {
            let _ = writeln!(text, "   {line}");
        }
        let _ = writeln!(text);
        for line in &self.drawn {
            let _ = writeln!(text, "   {line}");
        }
        if !self.drawn.is_empty() {
            let _ = writeln!(text);
        }
        for evidence in &self.evidence {
            let mark = match evidence.holds {
                Some(true) => "yes",
                Some(false) => "NO ",
                None => "-  ",
            };
            let _ = writeln!(text, "   [{mark}] {}\n         {}", evidence.what, evidence.seen);
        }
        let verdict = if self.holds() { "holds" } else { "DOES NOT HOLD" };
        let _ = writeln!(text, "\n   Verdict: {verdict}.\n");
        text
    }

    fn json(&self) -> Value {
        let evidence: Vec<Value> = self
            .evidence
            .iter()
            .map(|e| json!({ "what": e.what, "seen": e.seen, "holds": e.holds }))
            .collect();
        json!({ "title": self.title, "done": self.done, "drawn": self.drawn, "evidence": evidence,
            "holds": self.holds() })
    }
}

pub(crate) fn run(arguments: &Tour) -> Outcome<()> {
    let scratch;
    let folder: PathBuf = if let Some(keep) = &arguments.keep {
        fs::create_dir_all(keep)?;
        keep.clone()
    } else {
        scratch = tempfile::Builder::new().prefix("tacita-tour-").tempdir()?;
        scratch.path().to_owned()
    };
    let chapters = chapters(&folder)?;
    let holds = chapters.iter().all(Chapter::holds);
    if arguments.json {
        let chapters: Vec<Value> = chapters.iter().map(Chapter::json).collect();
        output::print(&format!("{:#}\n", json!({ "chapters": chapters, "holds": holds })))?;
    } else {
        let mut text = String::from("Tacita: storage that keeps silent\n\n");
        for (number, chapter) in (1..).zip(&chapters) {
            text += &chapter.text(number);
        }
        if let Some(keep) = &arguments.keep {
            let _ = writeln!(text, "Everything is kept in {}.", keep.display());
        }
        output::print(&text)?;
    }
    if holds { Ok(()) } else { Err(Failure::new(exit::WRONG, "the tour found a promise broken")) }
}

fn chapters(folder: &Path) -> Outcome<Vec<Chapter>> {
    Ok(vec![
        ward::chapter(&folder.join("hifs"))?,
        deleted::chapter(&folder.join("purge"))?,
        border::chapter(&folder.join("pddm"))?,
        flash::chapter(&folder.join("dnefs"))?,
        evening::chapter(&folder.join("oram"))?,
        letters::chapter(&folder.join("privatefs"))?,
        figure::chapter(&folder.join("fist"))?,
    ])
}
