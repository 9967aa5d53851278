//! Folders that live on: of the names that they lose nothing is left, or the verdict says so.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tacita_purge::{OverlayOptions, Removal, RemovalOptions};
use tacita_testkit::history::Rng;
use tacita_testkit::search::{self, Stretch};
use tacita_testkit::skip_without_fuse;

use crate::image::{Fs, Image, all, turn};
use crate::overlay::{Mounted, options};

/// How many names each folder has: in its inode or a block, in some blocks, in an index of them.
fn sizes() -> &'static [u64] {
    if all() {
        &[5, 50, 300, 600, 600, 600, 2000, 6000]
    } else {
        &[5, 50, 300, 600, 600, 600, 2000]
    }
}

/// Names of several lengths, none of which ends as another does.
fn name(folder: usize, number: u64) -> String {
    let end = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ folder as u64;
    let more = usize::try_from(number * 7 % 40).unwrap();
    format!("secretname-Folder-{folder}-{number}-{:x<more$}{end:016x}", "")
}

pub(crate) fn folder(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("folder-{number}"))
}

pub(crate) fn make(dir: &Path) {
    for (number, count) in sizes().iter().enumerate() {
        let folder = folder(dir, number);
        fs::create_dir(&folder).unwrap();
        for file in 0..*count {
            File::create(folder.join(name(number, file))).unwrap();
        }
    }
}

/// Some names of each folder.
pub(crate) fn chosen(seed: u64) -> Vec<(usize, String)> {
    let mut rng = Rng::new(seed);
    let mut chosen = Vec::new();
    for (folder, count) in sizes().iter().enumerate() {
        let mut numbers: Vec<u64> = (0..30).map(|_| rng.below(*count)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        chosen.extend(numbers.into_iter().map(|number| (folder, name(folder, number))));
    }
    chosen
}

/// Which of the names are in the raw image.
pub(crate) fn left(image: &Image, names: &[(usize, String)]) -> Vec<String> {
    let stretches = search::stretches(&image.path()).unwrap();
    let found: Vec<&[u8]> = stretches
        .iter()
        .flat_map(|Stretch { bytes, .. }| {
            let places = search::places(bytes, "secretname-Folder-");
            places.into_iter().map(|at| &bytes[at..(at + 100).min(bytes.len())])
        })
        .collect();
    let is_left = |name: &&String| found.iter().any(|place| place.starts_with(name.as_bytes()));
    names.iter().map(|(_, name)| name).filter(is_left).cloned().collect()
}

pub(crate) fn verdicts(report: &Path) -> Vec<Value> {
    let text = fs::read_to_string(report).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Deletes some names; how many are in the image afterwards, and how many verdicts hold.
fn delete(fs: Fs, asynchronous: bool, seed: u64) -> Option<(usize, usize, usize)> {
    let image = Image::new("names_in_folders_that_live_on", fs)?;
    make(&image.dir());
    image.remount();
    let names = chosen(seed);
    let report = image.path().with_extension("report");
    let options = OverlayOptions {
        report: Some(File::create(&report).unwrap()),
        ..options("clear", asynchronous)
    };
    let mounted = Mounted::new(&image, options);
    for (number, name) in &names {
        fs::remove_file(folder(&mounted.dir, *number).join(name)).unwrap();
    }
    mounted.end();
    let listed = |number| fs::read_dir(folder(&image.dir(), number)).unwrap().count() as u64;
    for (number, count) in sizes().iter().enumerate() {
        let gone = names.iter().filter(|(folder, _)| *folder == number).count() as u64;
        assert_eq!(listed(number), count - gone, "no name but those is gone, and none has come");
    }
    image.unmount();
    crate::matrix::check_with_fsck(&image);
    let verdicts = verdicts(&report);
    assert_eq!(verdicts.len(), names.len());
    let held = verdicts.iter().filter(|verdict| verdict["holds"] == true).count();
    let left = left(&image, &names);
    Some((left.len(), held, names.len()))
}

#[test]
fn names_in_folders_that_live_on() {
    let _turn = turn();
    if skip_without_fuse("names_in_folders_that_live_on") {
        return;
    }
    for fs in [Fs::Ext4, Fs::Ext3, Fs::Ext4Plain, Fs::Ext4Journaled, Fs::Ext2] {
        for asynchronous in [false, true] {
            let Some((left, held, all)) = delete(fs, asynchronous, 7) else { return };
            // A gap that holds no entry may keep the last letters of a name, which is told then.
            assert_eq!(left, 0, "{fs:?}, async {asynchronous}");
            assert!(held + all / 20 >= all, "{fs:?}, async {asynchronous}: {held} of {all}");
        }
    }
    let Some((_, held, _)) = delete(Fs::Xfs, false, 7) else { return };
    assert_eq!(held, 0, "names on XFS are left, and nothing says otherwise");
}

/// Nothing is called clear, and no verdict is missing, while an epoch is coming to its end.
#[cfg(feature = "faults")]
#[test]
fn an_epoch_that_is_coming_to_its_end_has_not_ended() {
    use std::sync::{Arc, Mutex};
    use tacita_purge::Overlay;
    use tacita_purge::faults::{Step, at_each_step};
    use tacita_testkit::by_name;
    use tacita_vfs::{FileSystem, Timestamp};
    let _turn = turn();
    let test = "an_epoch_that_is_coming_to_its_end_has_not_ended";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    File::create(image.dir().join("file")).unwrap();
    let overlay = Arc::new(Overlay::open(&image.dir(), options("clear", false)).unwrap());
    let removed = by_name::remove(&*overlay, overlay.root(), "file".as_ref(), Timestamp::default());
    overlay.unlinked(removed.unwrap(), &|| false).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let (asked, told) = (Arc::downgrade(&overlay), Arc::clone(&seen));
    at_each_step(move |step| {
        if step == Step::Flushed {
            *told.lock().unwrap() = asked.upgrade().map(|overlay| overlay.status());
        }
    });
    overlay.finish().unwrap();
    at_each_step(|_| ());
    let seen = seen.lock().unwrap().take().unwrap();
    assert_eq!((&seen["idle"], &seen["epochs"]), (&false.into(), &0.into()), "{seen:#}");
    assert_eq!(seen["last"][0]["name"], "pending", "{seen:#}");
    let status = overlay.status();
    assert_eq!((&status["idle"], &status["last"][0]["name"]), (&true.into(), &"done".into()));
    assert_eq!(status["last"].as_array().unwrap().len(), 1);
}

/// Without clearing them names are left, and verdicts say so; without looking they do not.
#[cfg(feature = "faults")]
#[test]
fn names_that_are_left_are_told_of() {
    use tacita_purge::faults::{Fault, plant};
    let _turn = turn();
    if skip_without_fuse("names_that_are_left_are_told_of") {
        return;
    }
    plant(&[Fault::FillersUnhooked]);
    let told = delete(Fs::Ext4, false, 7);
    plant(&[Fault::FoldersUnseen]);
    let untold = delete(Fs::Ext4, false, 7);
    plant(&[]);
    let (Some((left, held, all)), Some((unseen, claimed, _))) = (told, untold) else { return };
    assert!(left > 0 && held <= all - left, "{left} left, {held} of {all} hold");
    assert!(unseen > 0 && claimed == all, "not looking is not caught: {unseen} left");
}

#[test]
fn names_purged_by_path_are_gone_from_their_folder() {
    let _turn = turn();
    let test = "names_purged_by_path_are_gone_from_their_folder";
    for fs in [Fs::Ext4, Fs::Ext4Plain] {
        let Some(image) = Image::new(test, fs) else { return };
        make(&image.dir());
        image.remount();
        let names = chosen(11);
        let mut removal = Removal::new(RemovalOptions::default());
        for (number, name) in &names {
            removal.purge(&folder(&image.dir(), *number).join(name));
        }
        let verdicts = removal.finish();
        drop(removal);
        let held = verdicts.iter().filter(|verdict| verdict.holds()).count();
        assert!(held + names.len() / 20 >= names.len(), "{verdicts:#?}");
        image.unmount();
        assert_eq!(left(&image, &names), Vec::<String>::new(), "{fs:?}");
        crate::matrix::check_with_fsck(&image);
    }
}

/// Folders that go: what they held in the slack of their blocks goes first.
#[test]
fn names_in_folders_that_go() {
    let _turn = turn();
    if skip_without_fuse("names_in_folders_that_go") {
        return;
    }
    let Some(image) = Image::new("names_in_folders_that_go", Fs::Ext4) else { return };
    make(&image.dir());
    image.remount();
    let mounted = Mounted::new(&image, options("clear", true));
    for number in 0..sizes().len() {
        fs::remove_dir_all(folder(&mounted.dir, number)).unwrap();
    }
    mounted.overlay().finish().unwrap();
    assert_eq!(mounted.overlay().status()["names_left"], 0);
    mounted.end();
    image.unmount();
    assert_eq!(image.count("secretname-Folder-"), 0);
}

/// Who has a folder open below can put something into it after it was removed: that stays, and keeps no
/// epoch from its end.
#[test]
fn a_removed_folder_into_which_something_was_put_holds_nothing_up() {
    let _turn = turn();
    let test = "a_removed_folder_into_which_something_was_put_holds_nothing_up";
    if skip_without_fuse(test) {
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    fs::create_dir(image.dir().join("folder")).unwrap();
    let below = File::open(image.dir().join("folder")).unwrap();
    let mounted = Mounted::new(&image, options("clear", true));
    fs::remove_dir(mounted.dir.join("folder")).unwrap();
    let put = format!("/proc/self/fd/{}/put", below.as_raw_fd());
    fs::write(&put, "kept").unwrap();
    mounted.overlay().finish().unwrap();
    mounted.end();
    // Nor does it hold up another mount, and it goes when it is empty again.
    for is_empty in [false, true] {
        if is_empty {
            fs::remove_file(&put).unwrap();
        }
        let mounted = Mounted::new(&image, options("clear", true));
        fs::write(mounted.dir.join("file"), "gone").unwrap();
        fs::remove_file(mounted.dir.join("file")).unwrap();
        mounted.overlay().finish().unwrap();
        assert!(mounted.overlay().status()["epochs"].as_u64() > Some(0));
        mounted.end();
        assert_eq!(fs::exists(&put).unwrap(), !is_empty);
    }
    drop(below);
    let names = fs::read_dir(image.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| name == "lost+found"), "nothing is left of it");
}

/// Tells the child where to work.
#[cfg(feature = "faults")]
const PLACE: &str = "TACITA_PURGE_FILLERS_PLACE";

/// Not a game by itself: a process that ends while a folder is full of fillers.
#[cfg(feature = "faults")]
#[test]
fn child() {
    use tacita_purge::faults::{Step, at_each_step};
    use tacita_vfs::FileSystem;
    let Ok(place) = std::env::var(PLACE) else { return };
    at_each_step(|step| {
        if step == Step::Filled {
            std::process::abort();
        }
    });
    let overlay = tacita_purge::Overlay::open(Path::new(&place), options("clear", false)).unwrap();
    let now = tacita_vfs::Timestamp::default();
    for (number, name) in chosen(7) {
        let folder = format!("folder-{number}");
        let (folder, _) = overlay.lookup(overlay.root(), folder.as_ref()).unwrap();
        let file = tacita_testkit::by_name::remove(&overlay, folder, name.as_ref(), now).unwrap();
        overlay.unlinked(file, &|| false).unwrap();
    }
    overlay.finish().unwrap();
}

/// The next mount takes out what a crash has left of them; without recovery they would stay.
#[cfg(feature = "faults")]
#[test]
fn fillers_do_not_outlive_a_crash() {
    use std::process::Command;
    use tacita_purge::faults::{Fault, plant};
    let _turn = turn();
    let strangers = |faults: &[Fault]| {
        let image = Image::new("fillers_do_not_outlive_a_crash", Fs::Ext4)?;
        make(&image.dir());
        image.remount();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["folders::child", "--exact", "--test-threads=1", "--nocapture"]);
        let ended = child.env(PLACE, image.dir()).output().unwrap();
        assert!(!ended.status.success(), "it was to end at a step");
        plant(faults);
        drop(tacita_purge::Overlay::open(&image.dir(), options("clear", false)).unwrap());
        plant(&[]);
        let folders = (0..sizes().len()).map(|number| folder(&image.dir(), number));
        let names = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        Some(names.filter(|name| !name.starts_with("secretname-")).count())
    };
    let Some(without) = strangers(&[]) else { return };
    assert_eq!(without, 0);
    assert!(strangers(&[Fault::RecoveryUnhooked]).unwrap() > 0);
}
