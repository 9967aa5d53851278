//! Files that are overwritten before the loss of their names is durable: whatever a power cut
//! brings back is whole, or recovery purges it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tacita_clock::System;
use tacita_purge::faults::{Fault, Step, at_each_step, plant};
use tacita_purge::spool::intent::{INTENT_LEN, Intent};
use tacita_purge::spool::tags::{SECTOR_LEN, Tags};
use tacita_purge::{Map, Overlay};
use tacita_vfs::Posix;
use tacita_vfs::posix::{Caller, RenameMode};

use crate::acts::fill;
use crate::crash::crash;
use crate::image::{Fs, Image, turn};
use crate::overlay::options;
use tacita_testkit::system;

const LOST: &str = "LOST-Ahead-m-";
const LEN: u64 = 8 << 10;

const SECTOR_COUNT: usize = 16;

/// What every child does, in one of three manners: the file to be looked at is deleted last.
pub(crate) fn delete(dir: &Path, manner: &str) {
    let overlay = Overlay::open(dir, options("clear", false)).unwrap();
    let posix = Posix::new(overlay, Arc::new(System));
    let (root, caller) = (posix.root(), Caller::default());
    let (from, _) = posix.lookup(root, "from".as_ref()).unwrap();
    let (to, _) = posix.lookup(root, "to".as_ref()).unwrap();
    // So the log of intents is made, and holds both folders.
    posix.unlink(caller, to, "first".as_ref()).unwrap();
    match manner {
        "moved" => {
            let (old, new) = ((from, "file".as_ref()), (to, "moved".as_ref()));
            posix.rename(caller, old, new, RenameMode::Replace).unwrap();
            posix.unlink(caller, to, "moved".as_ref()).unwrap();
        }
        "linked" => {
            let (node, _) = posix.lookup(from, "file".as_ref()).unwrap();
            posix.link(node, to, "linked".as_ref()).unwrap();
            posix.unlink(caller, from, "file".as_ref()).unwrap();
            posix.unlink(caller, to, "linked".as_ref()).unwrap();
        }
        _ => drop(posix.unlink(caller, from, "file".as_ref()).unwrap()),
    }
    posix.sync().unwrap();
}

/// How often a power cut is tried that is to bring a name back: whoever else syncs everything on this
/// machine at that moment makes its loss durable.
const TRIES: usize = 10;

fn prepare(test: &str, fs: Fs, len: u64) -> Option<Image> {
    let image = Image::new(test, fs)?;
    for folder in ["from", "to"] {
        fs::create_dir(image.dir().join(folder)).unwrap();
    }
    fs::write(image.dir().join("to/first"), fill("KEPT-Ahead-m-", LEN)).unwrap();
    fs::write(image.dir().join("from/file"), fill(LOST, len)).unwrap();
    image.remount();
    if fs != Fs::Xfs {
        // The journal is not to be written by itself meanwhile.
        system("mount", &["-o", "remount,commit=600", image.dir().to_str().unwrap()]).unwrap();
    }
    Some(image)
}

/// An image in which power was cut at a step, and the file is there again.
pub(crate) fn come_back(test: &str, step: Step) -> Option<Image> {
    for _ in 0..TRIES {
        let image = prepare(test, Fs::Ext4, LEN)?;
        assert!(crash(&image, (step, 2), "single", true, None), "never came by");
        image.remount_after_cut();
        if image.dir().join("from/file").exists() {
            return Some(image);
        }
    }
    panic!("it never comes back");
}

/// Whether a file is there under some fault after power was cut, and is not what it was.
fn is_hurt(manner: &str, fault: Fault) -> bool {
    (0..TRIES).any(|_| {
        let found = after_a_cut(Fs::Ext4, manner, LEN, Some(fault)).unwrap();
        found.iter().any(|found| *found != fill(LOST, LEN))
    })
}

/// What is left of the file after power was cut when it had been overwritten, and the next mount.
fn after_a_cut(fs: Fs, manner: &str, len: u64, fault: Option<Fault>) -> Option<Vec<Vec<u8>>> {
    let image = prepare("after_a_cut", fs, len)?;
    assert!(crash(&image, (Step::FirstPass, 2), manner, true, fault), "never came by");
    image.remount_after_cut();
    drop(Overlay::open(&image.dir(), options("clear", false)).unwrap());
    let names = ["from/file", "to/moved", "to/linked"];
    let found = names.iter().filter_map(|name| fs::read(image.dir().join(name)).ok()).collect();
    assert!(!image.dir().join(".tacita-purge").exists());
    Some(found)
}

#[test]
fn a_file_that_comes_back_overwritten_is_purged() {
    let _turn = turn();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Ext3, Fs::Ext4Writeback, Fs::Ext4FastCommit] {
        // Whole blocks, a tail that holds a tag, and one that does not.
        for len in [LEN, LEN - 1000, LEN + 10, 1, 1 << 20] {
            let Some(found) = after_a_cut(fs, "single", len, None) else { break };
            assert_eq!(found.len(), 0, "{fs:?}, {len} bytes");
        }
    }
    if after_a_cut(Fs::Ext4, "single", LEN, None).is_some() {
        assert!(is_hurt("single", Fault::IntentUnwritten), "a missing intent is caught");
    }
}

#[test]
fn recovery_that_does_not_look_for_tags_is_caught() {
    let _turn = turn();
    let test = "recovery_that_does_not_look_for_tags_is_caught";
    if Image::new(test, Fs::Ext4).is_none() {
        return;
    }
    let image = come_back(test, Step::FirstPass).unwrap();
    plant(&[Fault::TagsUnseen]);
    let overlay = Overlay::open(&image.dir(), options("clear", false));
    plant(&[]);
    drop(overlay.unwrap());
    let found = fs::read(image.dir().join("from/file")).unwrap();
    assert!(found != fill(LOST, LEN), "it has come back, and is not what it was");
}

/// The old name could come back in a folder where nobody would look for it.
#[test]
fn a_file_from_another_folder_is_not_overwritten_ahead() {
    let _turn = turn();
    for fs in [Fs::Ext4, Fs::Xfs] {
        for manner in ["moved", "linked"] {
            let Some(found) = after_a_cut(fs, manner, LEN, None) else { break };
            assert_eq!(found.len(), 0, "{fs:?}, {manner}");
        }
    }
    for manner in ["moved", "linked"] {
        if after_a_cut(Fs::Ext4, manner, LEN, None).is_some() {
            let hurt = is_hurt(manner, Fault::MovesUnhooked);
            assert!(hurt, "{manner}: what is not remembered is caught");
        }
    }
}

/// A device may have written any sectors of what was in its own memory.
#[test]
fn any_sector_that_was_reached_is_enough() {
    let _turn = turn();
    let test = "any_sector_that_was_reached_is_enough";
    if Image::new(test, Fs::Ext4).is_none() {
        return;
    }
    let image = come_back(test, Step::Intended).unwrap();
    let path = image.dir().join("from/file");
    assert_eq!(fs::read(&path).unwrap(), fill(LOST, LEN), "it has come back whole");
    let log = File::open(image.dir().join(".tacita-purge/intents")).unwrap();
    let file = File::open(&path).unwrap();
    let mut handle = vec![1, 0, 0, 0];
    handle.extend(u32::try_from(file.metadata().unwrap().ino()).unwrap().to_le_bytes());
    let listed = system("lsattr", &["-v", path.to_str().unwrap()]).unwrap();
    let generation: u32 = listed.split_whitespace().next().unwrap().parse().unwrap();
    handle.extend(generation.to_le_bytes());
    let mut slot = [0; INTENT_LEN];
    let intents = (0..8).filter_map(|number| {
        log.read_exact_at(&mut slot, number * INTENT_LEN as u64).unwrap();
        Intent::decode(&slot).unwrap()
    });
    let keys: Vec<[u8; 32]> = intents.map(|intent| intent.key).collect();
    assert!(!keys.is_empty() && keys.iter().all(|key| *key == keys[0]));
    let mut tagged = vec![0; SECTOR_COUNT * SECTOR_LEN];
    Tags::new(&keys[0], &handle).put(0, &mut tagged);
    let place = Map::of(&file).unwrap().unwrap().extents[0].physical;
    drop((log, file));
    image.unmount();
    let before = fs::read(image.path()).unwrap();
    for reached in
        [vec![], vec![0], vec![SECTOR_COUNT - 1], vec![3, 7, 8], (0..SECTOR_COUNT).collect()]
    {
        fs::write(image.path(), &before).unwrap();
        let device = OpenOptions::new().write(true).open(image.path()).unwrap();
        for sector in &reached {
            let at = sector * SECTOR_LEN;
            device.write_all_at(&tagged[at..at + SECTOR_LEN], place + at as u64).unwrap();
        }
        drop(device);
        image.mount();
        drop(Overlay::open(&image.dir(), options("clear", false)).unwrap());
        let found = fs::read(&path).ok();
        image.unmount();
        if reached.is_empty() {
            assert_eq!(found, Some(fill(LOST, LEN)), "nothing was reached, and it is whole");
        } else {
            assert!(found.is_none(), "sectors {reached:?}");
            assert_eq!(image.count(LOST), 0, "sectors {reached:?}");
        }
    }
    image.mount();
}

/// Bytes of the log that are not zero when an epoch has come to its end.
fn left_in_the_log(faults: &[Fault]) -> Option<usize> {
    let image = prepare("intents_are_erased_at_the_end_of_the_epoch", Fs::Ext4, LEN)?;
    plant(faults);
    let overlay = Overlay::open(&image.dir(), options("clear", false)).unwrap();
    let posix = Posix::new(overlay, Arc::new(System));
    let (from, _) = posix.lookup(posix.root(), "from".as_ref()).unwrap();
    posix.unlink(Caller::default(), from, "file".as_ref()).unwrap();
    let log = image.dir().join(".tacita-purge/intents");
    let count = || fs::read(&log).unwrap().iter().filter(|byte| **byte != 0).count();
    assert!(count() > 0, "an intent is there as long as the name can come back");
    posix.sync().unwrap();
    plant(&[]);
    Some(count())
}

#[test]
fn intents_are_erased_at_the_end_of_the_epoch() {
    let _turn = turn();
    let Some(without) = left_in_the_log(&[]) else { return };
    assert_eq!(without, 0);
    assert!(left_in_the_log(&[Fault::IntentsStay]).unwrap() > 0);
}

/// What makes the mode quick: the journal is not waited for, and an intent is written once.
#[test]
fn one_intent_serves_a_folder_for_an_epoch() {
    let _turn = turn();
    let test = "one_intent_serves_a_folder_for_an_epoch";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    for number in 0..50 {
        fs::write(image.dir().join(number.to_string()), fill(LOST, 100 + 300 * number)).unwrap();
    }
    image.remount();
    let seen: Arc<[AtomicUsize; 2]> = Arc::default();
    let counts = Arc::clone(&seen);
    at_each_step(move |step| match step {
        Step::Intended => drop(counts[0].fetch_add(1, Ordering::SeqCst)),
        Step::Durable => drop(counts[1].fetch_add(1, Ordering::SeqCst)),
        _ => {}
    });
    let posix =
        Posix::new(Overlay::open(&image.dir(), options("clear", false)).unwrap(), Arc::new(System));
    for epoch in 0..2 {
        for number in epoch * 25..(epoch + 1) * 25 {
            let name = number.to_string();
            posix.unlink(Caller::default(), posix.root(), name.as_ref()).unwrap();
        }
        posix.sync().unwrap();
    }
    at_each_step(|_| ());
    let status = posix.file_system().status();
    assert_eq!(status["verified"], 50, "{status:#}");
    let seen = seen.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert_eq!(seen, [2, 0], "intents, and waits for the journal");
    drop(posix);
    image.unmount();
    assert_eq!(image.count(LOST), 0);
    image.mount();
}
