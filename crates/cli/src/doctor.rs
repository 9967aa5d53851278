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
use crate::faults::{Fault, planted};
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
        if planted(Fault::UnseenFine) {
            return Self::fine(what, why);
        }
        Self { what, verdict: Verdict::Unknown(why.into()) }
    }

    /// The same, of what a device above shows; of no device if it has no name.
    fn below(mut self, device: &str) -> Self {
        if !device.is_empty() {
            let (Verdict::Fine(seen) | Verdict::Leaks(seen, _) | Verdict::Unknown(seen)) =
                &mut self.verdict;
            *seen = format!("below {device}: {seen}");
        }
        self
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
    let findings = findings(&Machine::here(), &given, &medium);
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
    let leaks_shown = counted(leaks, "leak");
    let unseen_shown = counted(unseen, "thing");
    let _ = writeln!(text, "{leaks_shown}, {unseen_shown} that could not be looked at");
    output::facts(json, &facts, &text)?;
    if leaks == 0 {
        return Ok(());
    }
    let text = format!("{}: {leaks_shown} around it", shown_name(&given));
    Err(Failure::new(exit::WRONG, text).with_remedy("docs/threats.md says what each of them means"))
}

/// So many of what is named as one.
fn counted(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// All that is looked at, around what was given and the medium that holds it.
fn findings(machine: &Machine, given: &Path, medium: &Path) -> Vec<Finding> {
    let mut findings = machine::findings(machine);
    findings.extend(places::findings(machine, medium));
    if !planted(Fault::TracesForgotten) {
        findings.extend(traces::findings(machine, given));
    }
    findings
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::machine::tests::machine;
    use super::*;
    use crate::faults::plant;

    /// All that it looks at, as docs/cli.md names it; the clock is this machine's.
    const LIST: [&str; 15] = [
        "swap",
        "hibernation",
        "core dumps",
        "clock",
        "disk",
        "file system",
        "discards",
        "journal",
        "access times",
        "snapshots",
        "trash",
        "thumbnails",
        "recent files",
        "search index",
        "backups",
    ];

    /// What is wrong with what it says of a machine on which everything leaks.
    fn missed() -> Vec<&'static str> {
        let (root, machine) = machine(&[
            // It lies on two disks, of which one is encrypted.
            ("/proc/swaps", "Filename Type Size Used Priority\n/dev/dm-0 partition 9 0 -2\n"),
            ("/sys/class/block/dm-0/dm/uuid", "LVM-abc"),
            ("/sys/class/block/dm-0/slaves/dm-1/size", "1"),
            ("/sys/class/block/dm-0/slaves/sda2/size", "1"),
            ("/sys/class/block/dm-1/dm/uuid", "CRYPT-LUKS2-a"),
            ("/sys/power/state", "mem disk"),
            ("/sys/power/resume", "254:1"),
            ("/proc/sys/kernel/core_pattern", "core"),
            ("/sys/class/block/sda1/queue/rotational", "0"),
            ("/home/.cache/thumbnails/large/1.png", ""),
            ("/home/.viminfo", ""),
            ("/var/lib/plocate/plocate.db", ""),
            ("/etc/restic", ""),
            ("/.Trash-1000/files/letter", ""),
        ]);
        let table = format!(
            "21 1 254:0 / {} rw - btrfs /dev/sda1 rw,discard,data=journal\n",
            root.path().display()
        );
        fs::create_dir_all(machine.path("/proc/self")).unwrap();
        fs::write(machine.path("/proc/self/mountinfo"), table).unwrap();
        fs::create_dir(root.path().join(".snapshots")).unwrap();
        let given = root.path().join("given");
        let found = findings(&machine, &given, &given);
        let leaks = |what: &&str| {
            found.iter().any(|f| f.what == *what && matches!(f.verdict, Verdict::Leaks(..)))
        };
        LIST.into_iter().filter(|what| *what != "clock" && !leaks(what)).collect()
    }

    /// What it calls fine on a machine of which nothing can be seen.
    fn taken_for_fine() -> Vec<&'static str> {
        let (root, machine) = machine(&[]);
        let machine = Machine { home: None, ..machine };
        let found = findings(&machine, root.path(), root.path());
        let unseen = ["swap", "core dumps", "file system", "thumbnails", "recent files"];
        let fine = found.iter().filter(|found| matches!(found.verdict, Verdict::Fine(_)));
        fine.map(|found| found.what).filter(|what| unseen.contains(what)).collect()
    }

    #[test]
    fn all_of_the_list_is_looked_at() {
        assert_eq!(missed(), Vec::<&str>::new());
        assert_eq!(taken_for_fine(), Vec::<&str>::new());
        let page = include_str!("../../../docs/cli.md");
        let about = page.split("### ").find(|part| part.starts_with("`tacita doctor")).unwrap();
        let about = about.replace('\n', " ");
        for what in LIST {
            assert!(about.contains(what), "{what}");
        }
    }

    #[test]
    fn what_is_not_looked_at_is_noticed() {
        for (fault, noticed) in [
            (Fault::TracesForgotten, &LIST[10..]),
            (Fault::TopUnseen, &["trash"][..]),
            (Fault::PartEncrypted, &["swap"][..]),
        ] {
            let _planted = plant(fault);
            assert_eq!(missed(), noticed, "{fault:?}");
        }
        let _planted = plant(Fault::UnseenFine);
        assert_eq!(taken_for_fine().len(), 5);
    }
}
