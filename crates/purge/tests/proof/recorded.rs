//! Folders that had lost names when the process was killed or power was cut: the next mount knows
//! them, clears them, and its verdicts claim no more than what it saw.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tacita_purge::faults::{Fault, Step, at_each_step, plant};
use tacita_purge::{Overlay, OverlayOptions};
use tacita_testkit::by_name;
use tacita_vfs::FileSystem;

use crate::folders::{chosen, folder, left, make, verdicts};
use crate::image::{Fs, Image, all, cut_power, turn};
use crate::overlay::options;

/// Tells the child where to work, where to end and how, and whether a fault is planted.
const PLACE: &str = "TACITA_PURGE_RECORDED_PLACE";
const STEP: &str = "TACITA_PURGE_RECORDED_STEP";
const CUT: &str = "TACITA_PURGE_RECORDED_CUT";
const ASYNC: &str = "TACITA_PURGE_RECORDED_ASYNC";
const FAULT: &str = "TACITA_PURGE_RECORDED_FAULT";

/// Which names are deleted.
const SEED: u64 = 7;

/// Where the process ends: at the first loss of a folder, at a later one, amid the deletions, and at
/// each step of the end of the epoch.
const STEPS: [(Step, usize); 9] = [
    (Step::Recorded, 1),
    (Step::Recorded, 4),
    (Step::Freed, 70),
    (Step::Passed, 150),
    (Step::Forgotten, 1),
    (Step::Filled, 1),
    (Step::Filled, 3),
    (Step::Flushed, 1),
    (Step::Erased, 1),
];

/// Not a game by itself: a process that deletes, and ends at a step.
#[test]
fn child() {
    let (Ok(place), Ok(wanted)) = (std::env::var(PLACE), std::env::var(STEP)) else { return };
    let is_set = |name: &str| std::env::var_os(name).is_some();
    if is_set(FAULT) {
        plant(&[Fault::FoldersForgotten]);
    }
    let (is_cut, seen, dir) = (is_set(CUT), AtomicUsize::new(0), place.clone());
    at_each_step(move |step| {
        let is_it = STEPS.iter().any(|(named, times)| {
            *named == step
                && format!("{step:?}.{times}") == wanted
                && seen.fetch_add(1, Ordering::SeqCst) + 1 == *times
        });
        if is_it {
            if is_cut {
                cut_power(Path::new(&dir));
            }
            std::process::abort();
        }
    });
    let overlay = Overlay::open(Path::new(&place), options("clear", is_set(ASYNC))).unwrap();
    let now = tacita_vfs::Timestamp::default();
    for (number, name) in chosen(SEED) {
        let folder = format!("folder-{number}");
        let (folder, _) = overlay.lookup(overlay.root(), folder.as_ref()).unwrap();
        let file = by_name::remove(&overlay, folder, name.as_ref(), now).unwrap();
        overlay.unlinked(file, &|| false).unwrap();
    }
    overlay.finish().unwrap();
}

/// How a game is played.
#[derive(Debug, Clone, Copy)]
struct Game {
    fs: Fs,
    step: (Step, usize),
    is_cut: bool,
    asynchronous: bool,
    is_forgotten: bool,
}

/// What is seen after the next mount has come to its end.
#[derive(Debug)]
struct Seen {
    /// Names that are deleted, and in the image all the same.
    left: Vec<String>,
    status: Value,
    verdicts: Vec<Value>,
}

impl Seen {
    /// Whether anything was said of names that are left.
    fn is_told(&self) -> bool {
        self.status["names_left"] != 0
    }
}

/// `None` where this machine cannot, or if the process never came by the step.
fn play(game: Game) -> Option<Seen> {
    let image = Image::new("folders_are_known_after_a_crash", game.fs)?;
    make(&image.dir());
    image.remount();
    let (step, times) = game.step;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["recorded::child", "--exact", "--test-threads=1", "--nocapture"]);
    child.env(PLACE, image.dir()).env(STEP, format!("{step:?}.{times}"));
    for (is_set, name) in
        [(game.is_cut, CUT), (game.asynchronous, ASYNC), (game.is_forgotten, FAULT)]
    {
        if is_set {
            child.env(name, "1");
        }
    }
    let ended = child.output().unwrap();
    if ended.status.success() {
        return None;
    }
    if game.is_cut {
        image.remount_after_cut();
    }
    let report = image.path().with_extension("report");
    let options = OverlayOptions {
        report: Some(File::create(&report).unwrap()),
        ..options("clear", game.asynchronous)
    };
    let overlay = Overlay::open(&image.dir(), options).unwrap();
    overlay.finish().unwrap();
    let status = overlay.status();
    drop(overlay);
    assert!(!image.dir().join(".tacita-purge").exists(), "{game:?}: the spool stays");
    let mut gone = chosen(SEED);
    gone.retain(|(number, name)| !folder(&image.dir(), *number).join(name).exists());
    image.unmount();
    crate::matrix::check_with_fsck(&image);
    let seen = Seen { left: left(&image, &gone), status, verdicts: verdicts(&report) };
    image.mount();
    Some(seen)
}

fn games(fs: Fs, is_cut: bool) {
    let _turn = turn();
    let (mut played, mut missed) = (0, Vec::new());
    let manners: &[bool] = if fs == Fs::Ext4 || all() { &[false, true] } else { &[false] };
    for asynchronous in manners.iter().copied() {
        for step in STEPS {
            let game = Game { fs, step, is_cut, asynchronous, is_forgotten: false };
            let Some(seen) = play(game) else {
                missed.extend((!may_not_come_by(game)).then_some(game));
                continue;
            };
            played += 1;
            assert!(seen.left.is_empty() || seen.is_told(), "{game:?}: {seen:#?}");
            // Power that is cut takes the record along with the loss; otherwise it is there until
            // the epoch has come to its end.
            let recovered = seen.status["folders_recovered"].as_u64().unwrap();
            assert!(is_cut || recovered > 0, "{game:?}: {seen:#?}");
            for verdict in &seen.verdicts {
                let holds = verdict["holds"] == true;
                assert!(holds || seen.is_told(), "{game:?}: {verdict:#}");
            }
        }
    }
    assert!(played == 0 || missed.is_empty(), "{missed:#?}");
}

/// In the background a round of passes is for many files, and nothing is overwritten ahead of the loss
/// of its name, so that there are no intents to be forgotten; nor is it without a journal.
fn may_not_come_by(game: Game) -> bool {
    match game.step.0 {
        Step::Passed => game.asynchronous,
        Step::Forgotten => game.asynchronous || game.fs == Fs::Ext4Plain,
        _ => false,
    }
}

#[test]
fn folders_are_known_after_a_kill() {
    games(Fs::Ext4, false);
}

#[test]
fn folders_are_known_after_a_power_cut() {
    games(Fs::Ext4, true);
}

#[test]
fn folders_are_known_after_a_kill_without_a_journal() {
    games(Fs::Ext4Plain, false);
}

/// Images that are tried until one has copies of names: where folders are split depends on a number
/// of each image.
const TRIES: usize = 10;

/// Without their record nobody would look at them, and verdicts would hold that are false.
#[test]
fn folders_that_are_forgotten_are_caught() {
    let _turn = turn();
    let step = (Step::Passed, 150);
    let game = Game { fs: Fs::Ext4, step, is_cut: false, asynchronous: false, is_forgotten: true };
    let is_false = |seen: &Seen| {
        let claims = seen.verdicts.iter().any(|verdict| verdict["holds"] == true);
        !seen.left.is_empty() && !seen.is_told() && claims
    };
    let Some(first) = play(game) else { return };
    assert!(is_false(&first) || (1..TRIES).any(|_| play(game).is_some_and(|seen| is_false(&seen))));
}
