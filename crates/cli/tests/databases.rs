//! A database whose file tells nothing of its past, on HIFS: the recipe of docs/databases.md, against what
//! people do otherwise.
//!
//! Paper: HIFS, section 3.2, definition 2: every layer is history independent, and what the upper one is
//! decides what the lower one is.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tacita_testkit::history::Rng;
use tacita_testkit::search::holds;
use tacita_testkit::{MountGuard, Watchdog, env_number, skip_without, skip_without_fuse};

const TIME_MAX: Duration = Duration::from_mins(20);
const SCHEMA: &str = "create table patients(ward text, name text, note text, \
                      primary key(ward, name)) without rowid; \
                      create index names on patients(name);";
const ROWS: &str =
    "insert into patients select ward, name, note from old.patients order by ward, name;";
/// A note has many pages, so that discharging leaves free ones.
const NOTE_REPEATS: usize = 900;
/// In the header of a file of `SQLite`: the file change counter, and for which of its values the length in the
/// header is valid.
const COUNTERS: [std::ops::Range<usize>; 2] = [24..28, 92..96];

/// What becomes of a database before its file system is unmounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Vacuum,
    VacuumInto,
    Rebuilt,
}

fn tacita(arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tacita {arguments:?}: {said}");
}

fn sqlite(database: &Path, sql: &str) {
    let output = Command::new("sqlite3").arg("-bail").arg(database).arg(sql).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sql}: {said}");
}

fn marker(ward: &str, name: &str) -> String {
    format!("RECORD OF {} IN THE {} WARD; ", name.to_uppercase(), ward.to_uppercase())
}

fn admit(ward: &str, name: &str) -> String {
    let note = marker(ward, name).repeat(NOTE_REPEATS);
    format!("insert into patients(ward, name, note) values('{ward}', '{name}', '{note}')")
}

fn discharge(ward: &str, name: &str) -> String {
    format!("delete from patients where ward = '{ward}' and name = '{name}'")
}

/// Figure 3(a) of the paper: Rick is admitted to the general ward and discharged again.
fn story_a() -> Vec<String> {
    vec![
        SCHEMA.to_owned(),
        admit("general", "katy"),
        admit("general", "chad"),
        admit("special", "adam"),
        admit("general", "rick"),
        admit("special", "jane"),
        admit("special", "rick"),
        // Otherwise it depends on how SQLite was built whether deleted rows stay.
        format!("pragma secure_delete = off; {}", discharge("general", "rick")),
    ]
}

/// Figure 3(b): another order, and Rick was never there.
fn story_b() -> Vec<String> {
    vec![
        SCHEMA.to_owned(),
        admit("general", "katy"),
        admit("special", "adam"),
        admit("general", "chad"),
        admit("special", "jane"),
        admit("special", "rick"),
    ]
}

/// As the second, but the tables came to be in another way.
fn story_c() -> Vec<String> {
    let mut story = vec![
        "create table tests(x)".to_owned(),
        "create table patients(ward text, name text, primary key(ward, name)) without rowid"
            .to_owned(),
        "alter table patients add column note text".to_owned(),
        "create index names on patients(name); drop table tests".to_owned(),
    ];
    story.extend(story_b().drain(1..));
    story
}

/// The same rows at random: who comes and goes, and in which mode of journal.
fn story_by_chance(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let mode = ["delete", "truncate", "persist", "wal"][usize::try_from(seed % 4).unwrap()];
    let mut story = vec![SCHEMA.to_owned()];
    for round in 0..20 {
        let (ward, name) = (["general", "special"][round % 2], format!("guest {}", rng.below(6)));
        story.push(format!("{}; {}", discharge(ward, &name), admit(ward, &name)));
    }
    let mut last = story_b().split_off(1);
    while !last.is_empty() {
        let at = usize::try_from(rng.below(last.len() as u64)).unwrap();
        story.push(last.swap_remove(at));
    }
    story.push("delete from patients where name like 'guest %'".to_owned());
    story.iter().map(|event| format!("pragma journal_mode = {mode}; {event}")).collect()
}

/// Plays a story with a process for each event, and then goes a way.
fn play(story: &[String], way: Way, folder: &Path) {
    let (database, new) = (folder.join("ward.db"), folder.join("new.db"));
    for event in story {
        sqlite(&database, event);
    }
    match way {
        Way::Plain => return,
        Way::Vacuum => return sqlite(&database, "vacuum"),
        Way::VacuumInto => sqlite(&database, &format!("vacuum into '{}'", new.display())),
        Way::Rebuilt => {
            let old = format!("attach '{}' as old;", database.display());
            sqlite(&new, &format!("{SCHEMA} {old} {ROWS}"));
        }
    }
    fs::rename(new, database).unwrap();
    // What the mode `persist` leaves holds old pages.
    let _ = fs::remove_file(folder.join("ward.db-journal"));
}

/// A folder for images, and a place to mount.
struct Bench {
    guard: MountGuard,
    images: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Bench {
    fn new(test: &str) -> Option<Self> {
        if skip_without_fuse(test) || skip_without(test, &["sqlite3"]) {
            return None;
        }
        let (guard, images) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
        Some(Self { guard, images, _watchdog: Watchdog::start(test, TIME_MAX) })
    }

    /// What a story leaves: the image, and the file of the database.
    fn tell(&self, name: &str, story: &[String], way: Way) -> (Vec<u8>, Vec<u8>) {
        let image: PathBuf = self.images.path().join(format!("{name}-{way:?}"));
        let (image, dir) = (image.to_str().unwrap(), self.guard.path().to_str().unwrap());
        tacita(&["hifs", "format", image, "--size", "4M", "--seed", "5ead"]);
        tacita(&["hifs", "mount", image, dir]);
        play(story, way, self.guard.path());
        tacita(&["umount", dir]);
        // In every way: HIFS keeps its promise of files, whatever is in them.
        tacita(&["hifs", "check", image]);
        let files = tempfile::tempdir().unwrap();
        tacita(&["hifs", "unpack", image, files.path().to_str().unwrap()]);
        (fs::read(image).unwrap(), fs::read(files.path().join("ward.db")).unwrap())
    }
}

#[test]
fn two_histories_of_a_database_leave_one_image() {
    let Some(bench) = Bench::new("two_histories_of_a_database_leave_one_image") else { return };
    let (kept, gone) = (marker("special", "rick"), marker("general", "rick"));
    let tell = |way| {
        let (a, b) = (bench.tell("a", &story_a(), way), bench.tell("b", &story_b(), way));
        assert!([&a.0, &b.0].iter().all(|image| holds(image, &kept)), "{way:?}");
        assert_eq!(holds(&a.0, &gone), way == Way::Plain, "{way:?}");
        (a, b)
    };
    // The controls: with the file as SQLite leaves it images differ, and after a vacuum, too, by how often
    // there was a transaction.
    let (a, b) = tell(Way::Plain);
    assert!(a.0 != b.0, "a plain database keeps no history: the test looks at nothing");
    let (a, b) = tell(Way::Vacuum);
    assert!(a.0 != b.0, "a vacuum leaves no history");
    assert_eq!(a.1.len(), b.1.len());
    for at in (0..a.1.len()).filter(|at| a.1[*at] != b.1[*at]) {
        assert!(COUNTERS.iter().any(|counter| counter.contains(&at)), "byte {at} differs, too");
    }
    for way in [Way::VacuumInto, Way::Rebuilt] {
        let (a, b) = tell(way);
        assert!(a.0 == b.0, "{way:?}: the images differ");
    }
}

/// `VACUUM INTO` keeps how often tables were made and dropped; who makes the tables anew does not.
#[test]
fn how_tables_came_to_be_is_forgotten_by_making_them_anew() {
    let test = "how_tables_came_to_be_is_forgotten_by_making_them_anew";
    let Some(bench) = Bench::new(test) else { return };
    let tell = |way| (bench.tell("b", &story_b(), way).0, bench.tell("c", &story_c(), way).0);
    let (b, c) = tell(Way::VacuumInto);
    assert!(b != c, "the control: VACUUM INTO forgets it, too");
    let (b, c) = tell(Way::Rebuilt);
    assert!(b == c, "the images differ");
}

#[test]
fn histories_at_random_leave_the_image_that_their_rows_have() {
    let test = "histories_at_random_leave_the_image_that_their_rows_have";
    let Some(bench) = Bench::new(test) else { return };
    let (one, _) = bench.tell("b", &story_b(), Way::Rebuilt);
    for seed in 0..env_number("TACITA_GAMES", 4) {
        let (other, _) = bench.tell(&format!("{seed}"), &story_by_chance(seed), Way::Rebuilt);
        assert!(one == other, "seed {seed}: the images differ");
    }
}
