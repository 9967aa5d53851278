//! Files with the same attributes, for which ext4 keeps one block: each keeps the values for the
//! others, and the last of them takes them along.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};

use rustix::fs::{XattrFlags, setxattr};
use serde_json::Value;
use tacita_clock::System;
use tacita_purge::{Overlay, Removal, RemovalOptions};
use tacita_vfs::Posix;
use tacita_vfs::posix::Caller;

use crate::acts::fill;
use crate::image::{Fs, Image, all, turn};
use crate::overlay::options;
use tacita_testkit::system;

const LOST: &str = "LOST-Shared-m-";
const ATTRIBUTE: &str = "LOST-SharedName-m-";

/// As many verdicts as are remembered.
const PAIRS: usize = 16;

/// How the files are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// By their paths, in one run.
    Paths,
    /// In one epoch of an overlay.
    Epoch,
}

use Manner::{Epoch, Paths};

fn paths(image: &Image) -> Vec<PathBuf> {
    (0..4).map(|number| image.dir().join(format!("file-{number}"))).collect()
}

/// Four files with one block of attributes.
fn prepare(test: &str, fs: Fs) -> Option<Image> {
    let image = Image::new(test, fs)?;
    for path in paths(&image) {
        fs::write(&path, "x").unwrap();
        let name = format!("user.{ATTRIBUTE}");
        setxattr(&path, name, &fill(LOST, 1500), XattrFlags::CREATE).unwrap();
        setxattr(&path, "user.more", &fill(LOST, 60), XattrFlags::CREATE).unwrap();
    }
    image.remount();
    let block = |number: usize| {
        let command = format!("stat /file-{number}");
        let told = system("debugfs", &["-R", &command, image.path().to_str().unwrap()]).unwrap();
        let line = told.lines().find(|line| line.contains("File ACL: ")).unwrap().to_owned();
        line.split("File ACL: ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    };
    let blocks: Vec<String> = (0..4).map(block).collect();
    assert!(blocks[0] != "0" && blocks.iter().all(|other| *other == blocks[0]), "{blocks:?}");
    assert!(image.count(LOST) > 0 && image.count(ATTRIBUTE) > 0);
    Some(image)
}

/// Deletes files; their verdicts.
fn delete(image: &Image, files: &[PathBuf], manner: Manner) -> Vec<Value> {
    if manner == Paths {
        let mut removal = Removal::new(RemovalOptions::default());
        for path in files {
            removal.purge(path);
        }
        return removal.finish().iter().map(tacita_purge::Verdict::json).collect();
    }
    let overlay = Overlay::open(&image.dir(), options("clear", false)).unwrap();
    let posix = Posix::new(overlay, Arc::new(System));
    for path in files {
        posix.unlink(Caller::default(), posix.root(), path.file_name().unwrap()).unwrap();
    }
    posix.file_system().finish().unwrap();
    posix.file_system().status()["last"].as_array().unwrap().clone()
}

fn is_left(image: &Image) -> (bool, bool) {
    image.unmount();
    let seen = (image.count(LOST) > 0, image.count(ATTRIBUTE) > 0);
    image.mount();
    seen
}

#[test]
fn the_last_of_several_files_takes_their_values_along() {
    let _turn = turn();
    let test = "the_last_of_several_files_takes_their_values_along";
    for fs in [Fs::Ext4, Fs::Ext4Plain, Fs::Ext2] {
        for manner in [Paths, Epoch] {
            let Some(image) = prepare(test, fs) else { break };
            let verdicts = delete(&image, &paths(&image), manner);
            assert_eq!(verdicts.len(), 4);
            for verdict in &verdicts {
                let told = (&verdict["attributes"], &verdict["holds"]);
                assert_eq!(told, (&"done".into(), &true.into()), "{fs:?}, {manner:?}: {verdict:#}");
            }
            assert_eq!(is_left(&image), (false, false), "{fs:?}, {manner:?}");
        }
    }
}

#[test]
fn what_another_file_keeps_is_told_of() {
    let _turn = turn();
    for manner in [Paths, Epoch] {
        let Some(image) = prepare("what_another_file_keeps_is_told_of", Fs::Ext4) else { return };
        let (paths, last) = (paths(&image), image.dir().join("file-3"));
        for verdict in delete(&image, &paths[..3], manner) {
            let why = verdict["attributes"]["left"].as_str().unwrap();
            assert!(why.contains("other files"), "{manner:?}: {why}");
            assert_eq!((&verdict["removed"], &verdict["holds"]), (&true.into(), &false.into()));
        }
        assert_eq!(is_left(&image), (true, true), "{manner:?}: the fourth has them");
        let mut value = vec![0; 2000];
        let name = format!("user.{ATTRIBUTE}");
        let len = rustix::fs::getxattr(&last, name, &mut value[..]).unwrap();
        assert_eq!(value[..len], fill(LOST, 1500), "and they are whole");
        let verdicts = delete(&image, &[last], manner);
        assert_eq!(verdicts[0]["holds"], true, "{manner:?}: {:#}", verdicts[0]);
        assert_eq!(is_left(&image), (false, false), "{manner:?}");
    }
}

/// Pairs of files with one block, of which both are deleted at the same time; how many of their verdicts
/// say that a value is left, and whether one is.
fn side_by_side(test: &str) -> Option<(usize, bool)> {
    let image = Image::new(test, Fs::Ext4)?;
    for folder in ["left", "right"] {
        fs::create_dir(image.dir().join(folder)).unwrap();
        for pair in 0..PAIRS {
            let path = image.dir().join(format!("{folder}/{pair}"));
            fs::write(&path, "x").unwrap();
            let value = fill(&format!("{LOST}{pair}-"), 1500);
            setxattr(&path, "user.note", &value, XattrFlags::CREATE).unwrap();
        }
    }
    image.remount();
    // With several passes the thread that deletes does all of it.
    let overlay = Overlay::open(&image.dir(), options("e", false)).unwrap();
    let posix = Posix::new(overlay, Arc::new(System));
    let begin = Barrier::new(2);
    std::thread::scope(|scope| {
        for folder in ["left", "right"] {
            let (posix, begin) = (&posix, &begin);
            scope.spawn(move || {
                let (folder, _) = posix.lookup(posix.root(), folder.as_ref()).unwrap();
                for pair in 0..PAIRS {
                    begin.wait();
                    let name = pair.to_string();
                    posix.unlink(Caller::default(), folder, name.as_ref()).unwrap();
                }
            });
        }
    });
    posix.file_system().finish().unwrap();
    let status = posix.file_system().status();
    let verdicts = status["last"].as_array().unwrap();
    let told = verdicts.iter().filter(|verdict| verdict["attributes"] != "done").count();
    drop(posix);
    Some((told, is_left(&image).0))
}

/// Without a lock a value is left once in some hundred pairs.
#[test]
fn two_files_leave_their_block_one_after_the_other() {
    let _turn = turn();
    let test = "two_files_leave_their_block_one_after_the_other";
    for _ in 0..if all() { 60 } else { 3 } {
        let Some(seen) = side_by_side(test) else { return };
        assert_eq!(seen, (0, false));
    }
}

/// Verdicts that do not look again, and blocks that become equal when they are cleared.
#[cfg(feature = "faults")]
#[test]
fn shared_values_that_are_left_are_caught() {
    use tacita_purge::faults::{Fault, plant};
    let _turn = turn();
    let test = "shared_values_that_are_left_are_caught";
    let with = |fault: Fault, files: usize| {
        let image = prepare(test, Fs::Ext4)?;
        plant(&[fault]);
        let verdicts = delete(&image, &paths(&image)[..files], Epoch);
        plant(&[]);
        let told = verdicts.iter().filter(|verdict| verdict["attributes"] == "done").count();
        Some((told, is_left(&image)))
    };
    let Some(seen) = with(Fault::SharedUnseen, 3) else { return };
    assert_eq!(seen, (3, (true, true)), "a value that is there is claimed to be gone");
    let (_, (values, names)) = with(Fault::PlaceholdersAlike, 4).unwrap();
    assert_eq!((values, names), (false, true), "names of attributes are left");
}
