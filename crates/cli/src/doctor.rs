//! `tacita doctor`: what this machine gives away around a file or folder, and what to do about it. It
//! only reads, and says what it could not look at.

mod machine;
mod places;
mod traces;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tacita_daemon::Kind;
use tacita_daemon::control::{Client, path_of_json, path_to_json};

use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};
use crate::status;
use machine::Machine;

/// What was looked at, and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// What was looked at, in a word or two.
    what: &'static str,
    verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// Nothing was found.
    Fine(String),
    /// What leaks, and what to do.
    Leaks(String, &'static str),
    /// It could not be looked at.
    Unknown(String),
}

impl Finding {
    fn fine(what: &'static str, seen: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Fine(seen.into()) }
    }

    fn leaks(what: &'static str, seen: impl Into<String>, remedy: &'static str) -> Self {
        Self { what, verdict: Verdict::Leaks(seen.into(), remedy) }
    }

    fn unknown(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Unknown(why.into()) }
    }

    fn text(&self) -> String {
        let (mark, seen, remedy) = match &self.verdict {
            Verdict::Fine(seen) => ("ok  ", seen, None),
            Verdict::Leaks(seen, remedy) => ("LEAK", seen, Some(remedy)),
            Verdict::Unknown(why) => ("?   ", why, None),
        };
        let mut text = format!("[{mark}] {}: {seen}\n", self.what);
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "       {remedy}");
        }
        text
    }

    fn json(&self) -> Value {
        let (leaks, seen, remedy) = match &self.verdict {
            Verdict::Fine(seen) => (Some(false), seen, None),
            Verdict::Leaks(seen, remedy) => (Some(true), seen, Some(remedy)),
            Verdict::Unknown(why) => (None, why, None),
        };
        json!({ "what": self.what, "leaks": leaks, "seen": seen, "remedy": remedy })
    }
}

pub(crate) fn run(target: &Path, json: bool) -> Outcome<()> {
    status::looked_at(target)?;
    let given = target.canonicalize().map_err(|e| {
        let remedy = match e.kind() {
            std::io::ErrorKind::PermissionDenied => tacita_daemon::remedy_for(&e),
            _ => None,
        };
        Failure::usage(format!("{}: {e}", shown_name(target))).with_remedy(
            remedy.unwrap_or("give the image or device, or the folder where it is mounted"),
        )
    })?;
    // What is mounted there lies in another file, which its daemon names.
    let medium = medium_of(&given)?;
    let machine = Machine::here();
    let mut findings = machine::findings(&machine);
    findings.extend(places::findings(&machine, &medium));
    findings.extend(traces::findings(&machine, &given));
    let leaks = findings.iter().filter(|f| matches!(f.verdict, Verdict::Leaks(..))).count();
    let unseen = findings.iter().filter(|f| matches!(f.verdict, Verdict::Unknown(_))).count();
    let facts = json!({
        "target": path_to_json(&given),
        "medium": path_to_json(&medium),
        "leaks": leaks,
        "unknown": unseen,
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
    });
    let mut text: String = findings.iter().map(Finding::text).collect();
    let _ = writeln!(text, "{leaks} leaks, {unseen} things that could not be looked at");
    output::facts(json, &facts, &text)?;
    if leaks == 0 {
        return Ok(());
    }
    let text = format!("{}: {leaks} leaks around it", shown_name(&given));
    Err(Failure::new(exit::WRONG, text).with_remedy("docs/threats.md says what each of them means"))
}

/// The file, device or folder that holds what is served at a place; the place itself where nothing is.
fn medium_of(given: &Path) -> Outcome<PathBuf> {
    let asked = match Client::find(given) {
        Err(e) if e.kind() == Kind::NotServed => return Ok(given.to_owned()),
        found => found.map_err(Failure::from).and_then(|it| status::ask(it, "status", Value::Null)),
    };
    let source = match asked {
        Ok(status) => path_of_json(&status["source"]),
        Err(failure) if failure.code == exit::BUSY => return Err(failure),
        // It has ended.
        Err(_) => None,
    };
    Ok(source.filter(|source| source.exists()).unwrap_or_else(|| given.to_owned()))
}
