//! Values of attributes, wherever ext4 puts them: gone from the raw image, or the verdict says so.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{XattrFlags, removexattr, setxattr};
use serde_json::Value;
use tacita_purge::OverlayOptions;
use tacita_testkit::skip_without_fuse;

use crate::acts::fill;
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

/// What happens to an attribute.
#[derive(Debug, Clone)]
enum Step {
    /// A new value of that length, full of the mark.
    Set(&'static str, &'static str, u64),
    Remove(&'static str),
    Unlink,
}

use Step::{Remove, Set, Unlink};

/// Lengths that fit into the inode, or not any more, or never; what is set and removed in turn, so
/// that values would move from one place to the other.
const HISTORIES: [&[Step]; 9] = [
    &[Set("user.aa", "A", 60), Set("user.bb", "B", 48), Remove("user.aa"), Remove("user.bb")],
    &[Set("user.aa", "A", 60), Set("user.bb", "B", 48), Remove("user.bb"), Remove("user.aa")],
    &[Set("user.aa", "A", 60), Set("user.bb", "B", 48), Remove("user.aa"), Unlink],
    &[Set("user.aa", "A", 30), Set("user.bb", "B", 30), Unlink],
    &[Set("user.aa", "A", 40), Set("user.aa", "B", 300), Set("user.aa", "C", 20), Unlink],
    &[Set("user.aa", "A", 700), Set("user.bb", "B", 900), Set("user.aa", "C", 10), Unlink],
    &[
        Set("user.aa", "A", 60),
        Set("user.bb", "B", 48),
        Set("user.cc", "C", 32),
        Remove("user.aa"),
        Set("user.bb", "D", 12),
        Remove("user.cc"),
        Remove("user.bb"),
    ],
    &[Set("trusted.aa", "A", 60), Set("user.bb", "B", 60), Remove("trusted.aa"), Unlink],
    &[Set("user.aa", "A", 3000), Remove("user.aa"), Set("user.aa", "B", 3500), Unlink],
];

/// Values that do not fit into a block.
const LARGE: [&[Step]; 2] = [
    &[Set("user.aa", "A", 16_000), Remove("user.aa")],
    &[Set("user.aa", "A", 9000), Set("user.bb", "B", 9000), Unlink],
];

fn mark(history: usize, letter: &str) -> String {
    format!("LOST-Value{letter}-{history}-")
}

/// Each step in turn, with everything on the medium before the next.
fn happen(dir: &Path, history: usize, steps: &[Step]) {
    let path = dir.join(format!("file-{history}"));
    for step in steps {
        match step {
            Set(name, letter, len) => {
                let value = fill(&mark(history, letter), *len);
                setxattr(&path, *name, &value, XattrFlags::empty()).unwrap();
            }
            Remove(name) => removexattr(&path, *name).unwrap(),
            Unlink => fs::remove_file(&path).unwrap(),
        }
        if path.exists() {
            File::open(&path).unwrap().sync_all().unwrap();
        }
    }
}

fn letters(steps: &[Step]) -> Vec<&'static str> {
    let set = steps.iter().filter_map(|step| match step {
        Set(_, letter, _) => Some(*letter),
        _ => None,
    });
    set.collect()
}

/// Which values are left in the raw image, and how many verdicts said so.
fn left(fs: Fs, histories: &[&[Step]], asynchronous: bool) -> Option<(Vec<String>, usize)> {
    let image = Image::new("values_of_attributes", fs)?;
    for history in 0..histories.len() {
        fs::write(image.dir().join(format!("file-{history}")), "x").unwrap();
    }
    image.remount();
    let report = image.path().with_extension("report");
    let options = OverlayOptions {
        report: Some(File::create(&report).unwrap()),
        ..options("clear", asynchronous)
    };
    let mounted = Mounted::new(&image, options);
    for (number, history) in histories.iter().enumerate() {
        happen(&mounted.dir, number, history);
    }
    mounted.end();
    image.unmount();
    crate::matrix::check_with_fsck(&image);
    let report = fs::read_to_string(report).unwrap();
    let verdicts = report.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told = verdicts.filter(|verdict| verdict["attributes"].is_object()).count();
    let marks = histories.iter().enumerate().flat_map(|(number, history)| {
        letters(history).into_iter().map(move |letter| mark(number, letter))
    });
    let tally = image.tally();
    Some((marks.filter(|mark| tally.contains_key(mark)).collect(), told))
}

#[test]
fn values_are_gone_from_every_place() {
    let _turn = turn();
    if skip_without_fuse("values_are_gone_from_every_place") {
        return;
    }
    let places = [Fs::Ext2, Fs::Ext3, Fs::Ext4, Fs::Ext4Plain, Fs::Ext4EaInode, Fs::Ext4Inline];
    for fs in places {
        for asynchronous in [false, true] {
            let Some((left, told)) = left(fs, &HISTORIES, asynchronous) else { continue };
            assert_eq!((left, told), (Vec::new(), 0), "{fs:?}, async {asynchronous}");
        }
    }
}

/// No call overwrites them, and no verdict says otherwise.
#[test]
fn values_with_inodes_of_their_own_are_told_of() {
    let _turn = turn();
    let test = "values_with_inodes_of_their_own_are_told_of";
    if skip_without_fuse(test) {
        return;
    }
    let Some((left, told)) = left(Fs::Ext4EaInode, &LARGE, false) else { return };
    assert!(!left.is_empty(), "are they purged by now?");
    assert_eq!(told, LARGE.len());
}

/// A value that moves while it is overwritten stays where it was.
#[cfg(feature = "faults")]
#[test]
fn a_value_that_moves_is_caught() {
    use tacita_purge::faults::{Fault, plant};
    let _turn = turn();
    if skip_without_fuse("a_value_that_moves_is_caught") {
        return;
    }
    let with = |faults: &[Fault]| {
        plant(faults);
        // Nothing comes after it that would use the block again.
        let seen = left(Fs::Ext4, &HISTORIES[..1], false);
        plant(&[]);
        seen
    };
    let Some((left, told)) = with(&[Fault::ValuesMove]) else { return };
    assert!(!left.is_empty() && told >= left.len(), "{left:?}, {told} told");
    let (left, told) = with(&[Fault::ValuesMove, Fault::ValuesUnseen]).unwrap();
    assert!(!left.is_empty() && told == 0, "not looking is not caught");
}

/// Programs that ask while others set and remove: the values and names that they see, but for those that
/// were set.
#[cfg(feature = "faults")]
fn seen_beside(fs: Fs) -> Option<Vec<String>> {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{getxattr, listxattr};
    use rustix::io::Errno;

    let values = ["GOOD".to_owned(), "G".repeat(60), "G".repeat(300), "G".repeat(20)];
    let image = Image::new("values_are_replaced_at_once", fs)?;
    let mounted = Mounted::new(&image, options("clear", false));
    let path = mounted.dir.join("file");
    fs::write(&path, "x").unwrap();
    setxattr(&path, "user.stays", &fill("STAYS-", 40), XattrFlags::empty()).unwrap();
    let is_over = AtomicBool::new(false);
    let look = || {
        let (mut seen, mut value, mut list) = (BTreeSet::new(), vec![0; 4096], vec![0; 4096]);
        while !is_over.load(Ordering::Relaxed) {
            match getxattr(&path, "user.changes", &mut value[..]) {
                Ok(len) => {
                    let text = String::from_utf8_lossy(&value[..len]).into_owned();
                    seen.extend((!values.contains(&text)).then_some(text));
                }
                Err(error) => assert_eq!(error, Errno::NODATA),
            }
            let len = listxattr(&path, &mut list[..]).unwrap();
            let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
            seen.extend(names.filter(|name| !["user.changes", "user.stays"].contains(&&name[..])));
        }
        seen
    };
    let seen = std::thread::scope(|scope| {
        let lookers = [scope.spawn(look), scope.spawn(look)];
        for turn in 0..40 {
            let value = values[turn % values.len()].as_bytes();
            setxattr(&path, "user.changes", value, XattrFlags::empty()).unwrap();
            if turn % 10 == 9 {
                removexattr(&path, "user.changes").unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        lookers.into_iter().flat_map(|looker| looker.join().unwrap()).collect()
    });
    mounted.end();
    image.unmount();
    Some(seen)
}

/// Whoever asks has the old value or the new one, and never what is put over them.
#[cfg(feature = "faults")]
#[test]
fn values_are_replaced_at_once() {
    use tacita_purge::faults::{Fault, plant};
    let _turn = turn();
    if skip_without_fuse("values_are_replaced_at_once") {
        return;
    }
    for fs in [Fs::Ext4, Fs::Xfs] {
        let Some(seen) = seen_beside(fs) else { continue };
        assert_eq!(seen, Vec::<String>::new(), "{fs:?}");
    }
    plant(&[Fault::ValuesTorn]);
    let seen = seen_beside(Fs::Ext4);
    plant(&[]);
    assert!(seen.is_none_or(|seen| !seen.is_empty()), "values that are torn are not caught");
}
