//! Crashes at every step of purging: the process is killed, or the device is cut off.
//!
//! Then the next mount comes to its end, and nothing is left of what was deleted, and no other
//! file is hurt.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tacita_clock::System;
use tacita_purge::Overlay;
use tacita_purge::faults::{Fault, Step, at_each_step, plant};
use tacita_testkit::skip_without_fuse;
use tacita_vfs::Posix;
use tacita_vfs::posix::{Caller, RenameMode};

use crate::acts::fill;
use crate::image::{Fs, Image, all, turn};
use crate::overlay::{Mounted, options};

/// Tells the child where to work and where to end.
const PLACE: &str = "TACITA_PURGE_CRASH_PLACE";
const STEP: &str = "TACITA_PURGE_CRASH_STEP";
const MANNER: &str = "TACITA_PURGE_CRASH_MANNER";
const FAULT: &str = "TACITA_PURGE_CRASH_FAULT";

const LOST: &str = "LOST-Crash-m-";

/// No multiple of a block: what is overwritten grows to one.
const LOST_LEN: u64 = (64 << 10) - 100;

const KEPT: &str = "KEPT-Crash-m-";
const NAME: &str = "secretname-Crash-m-";

fn prepare(dir: &Path) {
    for name in ["one", "two", "three"] {
        fs::write(dir.join(format!("{NAME}{name}")), fill(LOST, LOST_LEN)).unwrap();
    }
    let file = dir.join(format!("{NAME}one"));
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(file, "user.note", fill(LOST, 600).as_slice(), none).unwrap();
    fs::create_dir(dir.join(format!("{NAME}folder"))).unwrap();
    fs::write(dir.join(format!("{NAME}folder/{NAME}in-it")), LOST).unwrap();
    fs::write(dir.join("calm"), fill(KEPT, 64 << 10)).unwrap();
    fs::write(dir.join("new"), fill(KEPT, 8 << 10)).unwrap();
}

/// What is deleted: by unlink, by a rename over it, and a folder.
fn delete(dir: &Path, manner: &str) {
    // Only a single pass is made ahead of the loss of the name.
    let method = if manner == "ahead" { "clear" } else { "e" };
    let overlay = Overlay::open(dir, options(method, manner == "async")).unwrap();
    let posix = Posix::new(overlay, Arc::new(System));
    let root = posix.root();
    let caller = Caller::default();
    let name = |text: &str| std::ffi::OsString::from(format!("{NAME}{text}"));
    posix.unlink(caller, root, &name("one")).unwrap();
    let (new, victim) = (std::ffi::OsString::from("new"), name("two"));
    posix.rename(caller, (root, &new), (root, &victim), RenameMode::Replace).unwrap();
    let calm = std::ffi::OsString::from("renamed");
    posix.rename(caller, (root, &victim), (root, &calm), RenameMode::Replace).unwrap();
    posix.unlink(caller, root, &name("three")).unwrap();
    let (folder, _) = posix.lookup(root, &name("folder")).unwrap();
    posix.unlink(caller, folder, &name("in-it")).unwrap();
    posix.rmdir(caller, root, &name("folder")).unwrap();
    posix.sync().unwrap();
}

/// Not a game by itself: what the games run as a process that ends at a step.
#[test]
fn child() {
    let (Ok(place), Ok(step), Ok(manner)) = (env::var(PLACE), env::var(STEP), env::var(MANNER))
    else {
        return;
    };
    let (wanted, times) = step.split_once('.').unwrap();
    let all = Step::ALL.into_iter().chain(Step::AHEAD);
    let wanted = all.into_iter().find(|step| format!("{step:?}") == wanted).unwrap();
    let times: usize = times.parse().unwrap();
    if let Ok(fault) = env::var(FAULT) {
        let faults = [Fault::IntentUnwritten, Fault::MovesUnhooked];
        plant(&faults.into_iter().filter(|m| format!("{m:?}") == fault).collect::<Vec<_>>());
    }
    let cut = env::var("TACITA_PURGE_CRASH_CUT").is_ok();
    let seen = AtomicUsize::new(0);
    let dir = place.clone();
    at_each_step(move |step| {
        if step == wanted && seen.fetch_add(1, Ordering::SeqCst) + 1 == times {
            if cut {
                crate::image::cut_power(Path::new(&dir));
            }
            std::process::abort();
        }
    });
    match manner.as_str() {
        "moved" | "linked" | "single" => crate::ahead::delete(Path::new(&place), &manner),
        _ => delete(Path::new(&place), &manner),
    }
}

/// Runs a child that ends when it comes by a step for the given time; whether it did.
pub(crate) fn crash(
    image: &Image,
    (step, times): (Step, usize),
    manner: &str,
    cut: bool,
    fault: Option<Fault>,
) -> bool {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["crash::child", "--exact", "--test-threads=1", "--nocapture"]);
    child.env(PLACE, image.dir()).env(STEP, format!("{step:?}.{times}")).env(MANNER, manner);
    if cut {
        child.env("TACITA_PURGE_CRASH_CUT", "1");
    }
    if let Some(fault) = fault {
        child.env(FAULT, format!("{fault:?}"));
    }
    !child.output().unwrap().status.success()
}

/// The names that are still there, each with its whole content, and the others nowhere.
fn examine(image: &Image, place: &str) {
    let dir = image.dir();
    let listed: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(fs::read(dir.join("calm")).unwrap() == fill(KEPT, 64 << 10), "hurt: {place}");
    let mut alive = 0;
    for name in listed.iter().filter(|name| name.starts_with(NAME)) {
        let path = dir.join(name);
        if path.is_dir() {
            for entry in fs::read_dir(&path).unwrap() {
                assert_eq!(fs::read(entry.unwrap().path()).unwrap(), LOST.as_bytes());
                alive += 1;
            }
            continue;
        }
        let content = fs::read(&path).unwrap();
        let new = content == fill(KEPT, 8 << 10);
        assert!(new || content == fill(LOST, LOST_LEN), "half alive: {name}, {place}");
        alive += usize::from(!new);
    }
    if alive == 0 {
        image.unmount();
        assert_eq!(image.count(LOST), 0, "content is left: {place}");
        let names = listed.iter().filter(|name| name.starts_with(NAME)).count();
        if names == 0 {
            assert_eq!(image.count(NAME), 0, "a name is left: {place}");
        }
        image.mount();
    } else {
        // Deleting what came back must work, and leave nothing either.
        for name in listed.iter().filter(|name| name.starts_with(NAME)) {
            let mut removal = tacita_purge::Removal::new(tacita_purge::RemovalOptions {
                recursive: true,
                ..tacita_purge::RemovalOptions::default()
            });
            removal.purge(&dir.join(name));
            let verdicts = removal.finish();
            assert!(verdicts.iter().all(tacita_purge::Verdict::holds), "{verdicts:?}");
        }
        image.unmount();
        assert_eq!(image.count(LOST), 0, "content is left: {place}");
        image.mount();
    }
}

/// Inode number and size of every file.
fn sizes(dir: &Path) -> HashMap<u64, u64> {
    let mut sizes = HashMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let (path, meta) = entry.map(|e| (e.path(), e.metadata().unwrap())).unwrap();
        if meta.is_dir() {
            sizes.extend(self::sizes(&path));
        } else {
            sizes.insert(meta.ino(), meta.len());
        }
    }
    sizes
}

/// Verdicts of what an earlier mount has left say which file it was, and how long; unless its
/// overwriting had begun, or it waited for the end of the epoch without content, with its attributes.
/// How many say how long.
fn examine_verdicts(
    status: &Value,
    (known, with_attributes): (&HashMap<u64, u64>, u64),
    ((step, times), at): ((Step, usize), &str),
) -> usize {
    // Another file may be in hand when a later one comes by.
    let is_begun =
        times > 1 || !matches!(step, Step::Spooled | Step::Linked | Step::Durable | Step::Intended);
    let mut sized = 0;
    for verdict in status["last"].as_array().unwrap() {
        let size = verdict["inode"].as_u64().and_then(|inode| known.get(&inode));
        let may_be_unknown = is_begun || verdict["inode"] == with_attributes;
        let is_unknown = size.is_some() && may_be_unknown && verdict["size"].is_null();
        let is_told = size.is_some_and(|size| verdict["size"] == *size);
        assert!(is_told || is_unknown, "{at}: {verdict:#}");
        sized += usize::from(is_told);
    }
    sized
}

fn game(test: &str, fs: Fs, manner: &str, cut: bool) {
    let _turn = turn();
    // Of what is overwritten ahead the first makes the log of intents, by which the loss of its
    // name becomes durable: the third and the fourth can come back.
    let (steps, often): (&[Step], usize) = match manner {
        "ahead" => (&Step::AHEAD, 4),
        _ => (&Step::ALL, if all() { 2 } else { 1 }),
    };
    let mut sized = 0;
    for step in steps {
        for times in 1..=often {
            let Some(image) = Image::new(test, fs) else { return };
            prepare(&image.dir());
            image.remount();
            assert!(image.count(LOST) > 0);
            let known = sizes(&image.dir());
            let one = fs::metadata(image.dir().join(format!("{NAME}one"))).unwrap().ino();
            let place = format!("{fs:?}, {manner}, {step:?} for time {times}");
            if !crash(&image, (*step, times), manner, cut, None) {
                // It does not come by that often.
                assert!(times > 1, "never came by: {place}");
                continue;
            }
            if cut {
                image.remount_after_cut();
            }
            let overlay = Overlay::open(&image.dir(), options("clear", false)).unwrap();
            let status = overlay.status();
            assert_eq!(status["queued"], 0);
            sized += examine_verdicts(&status, (&known, one), ((*step, times), &place));
            drop(overlay);
            examine(&image, &place);
        }
    }
    assert!(sized > 0, "no verdict says how long anything was");
}

#[test]
fn killed_at_once() {
    game("killed_at_once", Fs::Ext4, "sync", false);
}

#[test]
fn killed_in_the_background() {
    game("killed_in_the_background", Fs::Ext4, "async", false);
}

#[test]
fn killed_without_a_journal() {
    game("killed_without_a_journal", Fs::Ext4Plain, "async", false);
}

#[test]
fn power_cut_at_once() {
    game("power_cut_at_once", Fs::Ext4, "sync", true);
}

#[test]
fn killed_ahead_of_the_loss_of_names() {
    game("killed_ahead_of_the_loss_of_names", Fs::Ext4, "ahead", false);
}

#[test]
fn power_cut_ahead_of_the_loss_of_names() {
    game("power_cut_ahead_of_the_loss_of_names", Fs::Ext4, "ahead", true);
}

#[test]
fn power_cut_in_the_background() {
    game("power_cut_in_the_background", Fs::Ext4, "async", true);
}

#[test]
fn power_cut_with_data_in_the_journal() {
    game("power_cut_with_data_in_the_journal", Fs::Ext4Journaled, "sync", true);
}

/// `fdatasync` in a mount keeps what it promises: content that is written over, and that is new.
#[test]
fn content_that_is_synced_survives_a_power_cut() {
    let _turn = turn();
    let test = "content_that_is_synced_survives_a_power_cut";
    if skip_without_fuse(test) {
        return;
    }
    for fs in [Fs::Ext4, Fs::Xfs] {
        let Some(image) = Image::new(test, fs) else { return };
        fs::write(image.dir().join("old"), fill(LOST, LOST_LEN)).unwrap();
        image.remount();
        let mounted = Mounted::new(&image, options("clear", false));
        for name in ["old", "new"] {
            let path = mounted.dir.join(name);
            let options = fs::OpenOptions::new().write(true).create(true).truncate(false).clone();
            let mut file = options.open(path).unwrap();
            file.write_all(&fill(KEPT, 64 << 10)).unwrap();
            file.sync_data().unwrap();
        }
        crate::image::cut_power(&image.dir());
        // Of what else was to be written nobody knows.
        mounted.end_in_failure();
        image.remount_after_cut();
        for name in ["old", "new"] {
            let found = fs::read(image.dir().join(name)).unwrap();
            assert!(found == fill(KEPT, 64 << 10), "{name} on {fs:?}");
        }
    }
}

/// Without recovery the spool would keep everything.
#[test]
fn recovery_left_out_is_caught() {
    let _turn = turn();
    let Some(image) = Image::new("recovery_left_out_is_caught", Fs::Ext4) else { return };
    prepare(&image.dir());
    image.remount();
    assert!(crash(&image, (Step::Spooled, 1), "async", false, None));
    plant(&[Fault::RecoveryUnhooked]);
    let overlay = Overlay::open(&image.dir(), options("clear", false));
    plant(&[]);
    drop(overlay.unwrap());
    image.unmount();
    assert!(image.count(LOST) > 0);
    let _ = fs::metadata(image.path());
}
