//! Purging by path, without a mount.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};
use tacita_purge::{
    Content, Kind, Overlay, Part, Proof, Removal, RemovalOptions, Suitability, Verdict,
};

use crate::acts::fill;
use crate::image::{Fs, Image, turn};

const LOST: &str = "LOST-Command-m-";
const NAME: &str = "secretname-Command-m-";

fn purge(paths: &[&Path], options: RemovalOptions) -> (Vec<Verdict>, Option<Kind>) {
    let mut removal = Removal::new(options);
    for path in paths {
        removal.purge(path);
    }
    (removal.finish(), removal.failure())
}

fn plain() -> RemovalOptions {
    RemovalOptions::default()
}

#[test]
fn a_file_is_gone_from_every_file_system() {
    let _turn = turn();
    for fs in [Fs::Ext2, Fs::Ext4, Fs::Ext4Journaled, Fs::Ext4Plain, Fs::Xfs] {
        let Some(image) = Image::new("a_file_is_gone_from_every_file_system", fs) else { continue };
        let paths: Vec<_> = ["d", "random", "custom:00,R,ff,V"]
            .iter()
            .map(|method| {
                let path = image.dir().join(format!("{NAME}{}", method.len()));
                fs::write(&path, fill(LOST, 300_000)).unwrap();
                (path, method.parse().unwrap())
            })
            .collect();
        image.remount();
        assert!(image.count(LOST) > 0);
        for (path, method) in paths {
            let options = RemovalOptions { method, ..plain() };
            let (verdicts, failure) = purge(&[&path], options);
            assert_eq!(failure, None);
            let verdict = &verdicts[0];
            let verified = verdict.content == Content::Verified(Proof::Device);
            assert!(verified || verdict.content == Content::InPlace, "{fs:?}: {verdict:?}");
            assert_eq!(verdict.holds(), fs.clears_names(), "{verdict:?}");
        }
        image.unmount();
        assert_eq!(image.count(LOST), 0, "{fs:?}");
        if fs.clears_names() {
            assert_eq!(image.count(NAME), 0, "{fs:?}");
        }
    }
}

#[test]
fn a_folder_goes_with_everything_in_it() {
    let _turn = turn();
    for fs in [Fs::Ext4, Fs::Ext4Plain] {
        let Some(image) = Image::new("a_folder_goes_with_everything_in_it", fs) else { return };
        let top = image.dir().join("top");
        let deep = top.join(format!("{NAME}a/{NAME}b/{NAME}c"));
        fs::create_dir_all(&deep).unwrap();
        for number in 0..100 {
            fs::write(deep.join(format!("{NAME}{number}")), fill(LOST, 5000)).unwrap();
        }
        symlink("elsewhere", deep.join(format!("{NAME}link"))).unwrap();
        image.remount();
        let (verdicts, failure) = purge(&[&top], plain());
        assert_eq!((failure, verdicts[0].removed), (Some(Kind::Invalid), false));
        let (verdicts, failure) = purge(&[&top], RemovalOptions { recursive: true, ..plain() });
        assert_eq!(failure, None);
        assert_eq!(verdicts.len(), 105);
        assert!(verdicts.iter().all(Verdict::holds), "{verdicts:#?}");
        assert!(!top.exists());
        image.unmount();
        assert_eq!((image.count(LOST), image.count(NAME)), (0, 0), "{fs:?}");
    }
}

#[test]
fn what_cannot_be_purged_stays_and_says_why() {
    let _turn = turn();
    let Some(image) = Image::new("what_cannot_be_purged_stays_and_says_why", Fs::Ext4) else {
        return;
    };
    let dir = image.dir();
    let two_names = dir.join("two-names");
    fs::write(&two_names, fill(LOST, 5000)).unwrap();
    fs::hard_link(&two_names, dir.join("second")).unwrap();
    let open = dir.join("open");
    fs::write(&open, fill(LOST, 5000)).unwrap();
    let held = fs::File::open(&open).unwrap();
    let missing = dir.join("missing");
    for (path, kind) in
        [(&two_names, Kind::Unpurgeable), (&open, Kind::InUse), (&missing, Kind::NotFound)]
    {
        let (verdicts, failure) = purge(&[path], plain());
        assert_eq!(failure, Some(kind), "{verdicts:?}");
        assert!(matches!(verdicts[0].content, Content::Kept(_)));
        assert!(!verdicts[0].holds());
    }
    assert_eq!(fs::read(&two_names).unwrap(), fill(LOST, 5000));
    assert_eq!(fs::read(&open).unwrap(), fill(LOST, 5000));
    drop(held);
}

/// Folders without a name of their own, which nobody can remove, as `rm` says, too.
#[test]
fn a_folder_has_to_be_named() {
    for path in [".", "..", "/", "/tmp/.."] {
        for recursive in [false, true] {
            let options = RemovalOptions { recursive, ..plain() };
            let (verdicts, failure) = purge(&[Path::new(path)], options);
            assert_eq!(failure, Some(Kind::Invalid), "{path}: {verdicts:?}");
            let Content::Kept(why) = &verdicts[0].content else { panic!("{verdicts:?}") };
            assert!(why.contains("no name"), "{why}");
        }
    }
}

/// A link's target is another file: it is not touched.
#[test]
fn links_are_not_followed() {
    let _turn = turn();
    let Some(image) = Image::new("links_are_not_followed", Fs::Ext4) else { return };
    let (target, link) = (image.dir().join("target"), image.dir().join("link"));
    fs::write(&target, "whole").unwrap();
    symlink(&target, &link).unwrap();
    let (verdicts, _) = purge(&[&link], plain());
    assert!(verdicts[0].removed);
    assert!(!link.exists());
    assert_eq!(fs::read_to_string(&target).unwrap(), "whole");
}

/// A slash at the end means what a link leads to, which is not named; and whoever names a device means
/// what is on it.
#[test]
fn what_is_not_meant_stays() {
    let _turn = turn();
    let Some(image) = Image::new("what_is_not_meant_stays", Fs::Ext4) else { return };
    let dir = image.dir();
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("folder/inner"), "whole").unwrap();
    symlink("folder", dir.join("link")).unwrap();
    fs::write(dir.join("file"), "whole").unwrap();
    let node = |name: &str, kind: FileType| {
        mknodat(CWD, dir.join(name), kind, Mode::RUSR, makedev(7, 200)).unwrap();
    };
    node("block", FileType::BlockDevice);
    node("folder/node", FileType::CharacterDevice);
    for (name, kind) in
        [("link/", Kind::Invalid), ("file/", Kind::Invalid), ("block", Kind::Unpurgeable)]
    {
        let options = RemovalOptions { recursive: true, ..plain() };
        let (verdicts, failure) = purge(&[&dir.join(name)], options);
        assert_eq!(failure, Some(kind), "{name}: {verdicts:?}");
        assert!(matches!(verdicts[0].content, Content::Kept(_)), "{verdicts:?}");
        assert!(fs::symlink_metadata(dir.join(name.trim_end_matches('/'))).is_ok(), "{name}");
    }
    assert_eq!(fs::read_to_string(dir.join("folder/inner")).unwrap(), "whole");
    // In a folder that goes, nodes go; and a folder may have the slash.
    let options = RemovalOptions { recursive: true, ..plain() };
    let (verdicts, failure) = purge(&[&dir.join("folder/")], options);
    assert_eq!(failure, None, "{verdicts:?}");
    assert!(!dir.join("folder").exists());
}

/// Values that have inodes of their own are left, and the verdict does not hide it.
#[test]
fn attributes_that_are_left_are_told_of() {
    let _turn = turn();
    let test = "attributes_that_are_left_are_told_of";
    let Some(image) = Image::new(test, Fs::Ext4EaInode) else { return };
    let folder = image.dir().join("folder");
    for (len, is_left) in [(400, false), (5000, true)] {
        fs::create_dir(&folder).unwrap();
        setxattr(&folder, "user.note", &fill(LOST, len), XattrFlags::CREATE).unwrap();
        let options = RemovalOptions { recursive: true, ..plain() };
        let (verdicts, failure) = purge(&[&folder], options);
        assert_eq!(failure, None, "{verdicts:?}");
        let attributes = &verdicts[0].attributes;
        assert_eq!(matches!(attributes, Part::Left(_)), is_left, "{attributes:?}");
        assert_eq!(*attributes == Part::Done, !is_left, "{attributes:?}");
    }
}

#[test]
fn suitability_is_found_out() {
    let _turn = turn();
    for (fs, suits) in [(Fs::Ext4, true), (Fs::Ext2, true), (Fs::Xfs, true), (Fs::Btrfs, false)] {
        let Some(image) = Image::new("suitability_is_found_out", fs) else { continue };
        let found = Suitability::of(&image.dir()).unwrap();
        // The machine's own disk may be flash, which is a reason too.
        if !found.lower.flash {
            assert_eq!(found.reason().is_none(), suits, "{:?}", found.reason());
        }
        let kept = matches!(found.probe, Content::Verified(_));
        assert_eq!(kept, suits, "{fs:?}: {:?}", found.probe);
        if !suits {
            let file = image.dir().join("file");
            fs::write(&file, fill(LOST, 9000)).unwrap();
            let (_, failure) = purge(&[&file], plain());
            assert_eq!(failure, Some(Kind::Unsuitable));
            assert!(file.exists(), "it stays");
            let (verdicts, _) = purge(&[&file], RemovalOptions { anyway: true, ..plain() });
            assert!(verdicts[0].removed && !verdicts[0].holds());
        }
    }
    let folder = tempfile::Builder::new().tempdir_in("/dev/shm");
    if let Ok(folder) = folder {
        assert!(Suitability::of(folder.path()).unwrap().reason().is_some(), "memory");
    }
}

/// XFS can let two files share blocks: overwriting one leaves what the other has.
#[test]
fn shared_blocks_are_told() {
    let _turn = turn();
    let Some(image) = Image::new("shared_blocks_are_told", Fs::Xfs) else { return };
    let (one, two) = (image.dir().join("one"), image.dir().join("two"));
    fs::write(&one, fill(LOST, 100_000)).unwrap();
    let cloned = tacita_testkit::system(
        "cp",
        &["--reflink=always", one.to_str().unwrap(), two.to_str().unwrap()],
    );
    if let Err(why) = cloned {
        eprintln!("SKIPPED: shared_blocks_are_told: {why}");
        return;
    }
    let (verdicts, failure) = purge(&[&one], plain());
    assert_eq!(failure, Some(Kind::Unpurgeable), "{verdicts:?}");
    assert_eq!(fs::read(&two).unwrap(), fill(LOST, 100_000));
    let (verdicts, _) = purge(&[&one], RemovalOptions { anyway: true, ..plain() });
    assert!(matches!(verdicts[0].content, Content::Shared(_)), "{verdicts:?}");
    assert_eq!(fs::read(&two).unwrap(), fill(LOST, 100_000));
}

/// What has been written over shared blocks, and is only in memory, gets blocks of its own.
#[test]
fn what_was_written_over_shared_blocks_goes() {
    let _turn = turn();
    let test = "what_was_written_over_shared_blocks_goes";
    // Where it has blocks of its own besides, the passes over those flush the rest, too.
    for (len, own, is_all) in [(200_000, 0, true), (20_000, 0, false), (20_000, 100_000, false)] {
        let Some(image) = Image::new(test, Fs::Xfs) else { return };
        let (one, two) = (image.dir().join("one"), image.dir().join("two"));
        fs::write(&one, fill("KEPT-Command-m-", 200_000)).unwrap();
        let names = [one.to_str().unwrap(), two.to_str().unwrap()];
        if let Err(why) = tacita_testkit::system("cp", &["--reflink=always", names[0], names[1]]) {
            eprintln!("SKIPPED: {test}: {why}");
            return;
        }
        let file = fs::OpenOptions::new().write(true).open(&two).unwrap();
        file.write_all_at(&fill(LOST, own), 200_000).unwrap();
        drop(file);
        image.remount();
        let file = fs::OpenOptions::new().write(true).open(&two).unwrap();
        file.write_all_at(&fill(LOST, len), 0).unwrap();
        drop(file);
        let (verdicts, _) = purge(&[&two], RemovalOptions { anyway: true, ..plain() });
        let verdict = &verdicts[0];
        assert!(verdict.removed && verdict.overwritten >= len + own, "{verdict:?}");
        let is_proven = verdict.content == Content::Verified(Proof::Device);
        assert_eq!(is_proven, is_all, "{verdict:?}");
        assert_eq!(matches!(verdict.content, Content::Shared(_)), !is_all, "{verdict:?}");
        image.unmount();
        assert_eq!(image.count(LOST), 0);
        image.mount();
        assert_eq!(fs::read(&one).unwrap(), fill("KEPT-Command-m-", 200_000));
    }
}

/// What is refused for where it lies is as it was, whatever it is.
#[test]
fn what_is_refused_is_untouched() {
    let _turn = turn();
    let Ok(folder) = tempfile::Builder::new().tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: what_is_refused_is_untouched: no /dev/shm");
        return;
    };
    let top = folder.path().join("top");
    fs::create_dir(&top).unwrap();
    let at = |name: &str| top.join(name);
    fs::write(at("file"), fill(LOST, 9000)).unwrap();
    symlink("elsewhere", at("link")).unwrap();
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::create_dir(at("folder/inner")).unwrap();
    let look = || {
        let names = ["file", "link", "pipe", "folder", "folder/inner", ""];
        names.map(|name| {
            let meta = fs::symlink_metadata(at(name)).unwrap();
            (meta.ino(), meta.ctime(), meta.ctime_nsec(), meta.mtime_nsec())
        })
    };
    let before = look();
    for name in ["file", "link", "pipe", "folder"] {
        let options = RemovalOptions { recursive: true, ..plain() };
        let (verdicts, failure) = purge(&[&at(name)], options);
        assert_eq!((failure, verdicts.len()), (Some(Kind::Unsuitable), 1), "{name}: {verdicts:?}");
        assert!(matches!(verdicts[0].content, Content::Kept(_)), "{verdicts:?}");
    }
    assert_eq!(look(), before);
    let held = RemovalOptions { method: "f".parse().unwrap(), anyway: true, ..plain() };
    assert_eq!(purge(&[&at("file")], held).1, Some(Kind::Invalid));
    assert_eq!(look(), before);
    assert_eq!(fs::read(at("file")).unwrap(), fill(LOST, 9000));
    let anyway = RemovalOptions { recursive: true, anyway: true, ..plain() };
    let (verdicts, _) = purge(&[&top], anyway);
    assert!(verdicts.iter().all(|verdict| verdict.removed && !verdict.holds()), "{verdicts:#?}");
}

/// The root of a file system cannot be removed from within it: the verdict says what can be named.
#[test]
fn the_root_of_a_file_system_is_kept_and_the_remedy_told() {
    let _turn = turn();
    let test = "the_root_of_a_file_system_is_kept_and_the_remedy_told";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    for recursive in [false, true] {
        let options = RemovalOptions { recursive, ..plain() };
        let (verdicts, failure) = purge(&[&image.dir()], options);
        assert_eq!((failure, verdicts.len()), (Some(Kind::Unpurgeable), 1), "{verdicts:?}");
        let Content::Kept(why) = &verdicts[0].content else { panic!("{verdicts:?}") };
        assert!(why.contains("cannot be removed: name what is in it"), "{why}");
    }
}

/// Folders that went cannot be looked at afterwards: what nobody saw before is not said to be gone.
#[test]
fn names_in_a_folder_that_went_unseen_are_not_called_gone() {
    let _turn = turn();
    for fs in [Fs::Xfs, Fs::Ext4FastCommit, Fs::Ext4] {
        let test = "names_in_a_folder_that_went_unseen_are_not_called_gone";
        let Some(image) = Image::new(test, fs) else { continue };
        let top = image.dir().join("top");
        fs::create_dir_all(top.join("inner")).unwrap();
        fs::write(top.join("inner").join(NAME), fill(LOST, 5000)).unwrap();
        let (verdicts, failure) = purge(&[&top], RemovalOptions { recursive: true, ..plain() });
        assert_eq!((failure, verdicts.len()), (None, 3), "{verdicts:#?}");
        for verdict in &verdicts {
            assert_eq!(verdict.name == Part::Done, fs.clears_names(), "{fs:?}: {verdict:?}");
            assert_eq!(verdict.holds(), fs.clears_names(), "{fs:?}: {verdict:?}");
        }
        // The file comes first, and then the folders that have held names.
        for verdict in &verdicts[1..] {
            let is_empty = verdict.content == Content::NothingStored;
            assert_eq!(is_empty, fs.clears_names(), "{fs:?}: {verdict:?}");
        }
    }
}

/// A probe has no name that could stay behind if it is ended.
#[cfg(feature = "faults")]
#[test]
fn a_probe_has_no_name() {
    use std::sync::{Arc, Mutex};
    use tacita_purge::faults::at_each_step;
    let _turn = turn();
    let Some(image) = Image::new("a_probe_has_no_name", Fs::Ext4) else { return };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (dir, told) = (image.dir(), Arc::clone(&seen));
    at_each_step(move |_| {
        let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
        told.lock().unwrap().push(names.collect::<Vec<_>>());
    });
    let found = Suitability::of(&image.dir());
    at_each_step(|_| ());
    assert!(matches!(found.unwrap().probe, Content::Verified(_)));
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|names| *names == ["lost+found"]), "{seen:?}");
}

/// While a file is purged by its path, another program puts a new one there, or gives it a second
/// name: the new one lives, and a file that lives on is not touched.
#[cfg(feature = "faults")]
#[test]
fn a_path_is_tied_to_its_file() {
    use tacita_purge::faults::{Fault, Step, at_each_step, plant};
    let _turn = turn();
    let race = |wanted: Step, replaces: bool, faults: &[Fault]| {
        let image = Image::new("a_path_is_tied_to_its_file", Fs::Ext4)?;
        let (path, new) = (image.dir().join("file"), image.dir().join("new"));
        let second = image.dir().join("second");
        fs::write(&path, fill(LOST, 9000)).unwrap();
        fs::write(&new, "new").unwrap();
        image.remount();
        let (from, link) = (path.clone(), second.clone());
        plant(faults);
        at_each_step(move |step| {
            if step == wanted && replaces {
                let _ = fs::rename(&new, &from);
            } else if step == wanted {
                let _ = fs::hard_link(&from, &link);
            }
        });
        let (verdicts, _) = purge(&[&path], plain());
        at_each_step(|_| ());
        plant(&[]);
        let is_whole = |path: &Path| fs::read(path).is_ok_and(|seen| seen == fill(LOST, 9000));
        let second_is_whole = !second.exists() || is_whole(&second);
        let new_lives = !replaces || fs::read(&path).is_ok_and(|seen| seen == b"new");
        Some((new_lives && second_is_whole, verdicts[0].holds()))
    };
    for (step, replaces, held) in [
        (Step::Found, true, false),
        (Step::Found, false, false),
        (Step::HalfPass, true, true),
        (Step::HalfPass, false, true),
    ] {
        let Some(seen) = race(step, replaces, &[]) else { return };
        assert_eq!(seen, (true, held), "{step:?}, replaced {replaces}");
    }
    let (lives, _) = race(Step::HalfPass, true, &[Fault::AsideUnhooked]).unwrap();
    assert!(!lives, "a new file that is removed is not caught");
    let (whole, _) = race(Step::HalfPass, false, &[Fault::AsideUnhooked]).unwrap();
    assert!(!whole, "a second name that is overwritten is not caught");
}

#[test]
fn a_file_goes_when_all_of_its_names_are_to_go() {
    let _turn = turn();
    for fs in [Fs::Ext4, Fs::Ext4Plain, Fs::Xfs] {
        let Some(image) = Image::new("a_file_goes_when_all_of_its_names_are_to_go", fs) else {
            break;
        };
        let tree = image.dir().join("tree");
        fs::create_dir_all(tree.join("within")).unwrap();
        let names = ["one", "within/two", "within/three"].map(|name| {
            let path = tree.join(name);
            path.with_file_name(format!("{NAME}{}", path.file_name().unwrap().display()))
        });
        fs::write(&names[0], fill(LOST, 300_000)).unwrap();
        setxattr(&names[0], "user.note", &fill(LOST, 500), XattrFlags::CREATE).unwrap();
        for name in &names[1..] {
            fs::hard_link(&names[0], name).unwrap();
        }
        image.remount();
        // Two of three, and one of them twice: all of them stay as they were.
        let content = fs::read(&names[0]).unwrap();
        let (verdicts, failure) = purge(&[&names[0], &names[1], &names[0]], plain());
        assert_eq!(failure, Some(Kind::Unpurgeable));
        assert_eq!(verdicts.len(), 2, "{verdicts:?}");
        let told = |verdict: &Verdict| matches!(&verdict.content, Content::Kept(why) if why.contains("3 names"));
        assert!(verdicts.iter().all(told), "{verdicts:?}");
        assert!(names.iter().all(|name| fs::read(name).unwrap() == content));
        let recursive = RemovalOptions { recursive: true, ..plain() };
        let (verdicts, failure) = purge(&[&tree], recursive);
        assert_eq!((failure, verdicts.len()), (None, 5), "{fs:?}: {verdicts:?}");
        let paths: Vec<_> = verdicts.iter().filter_map(|verdict| verdict.path.clone()).collect();
        for name in &names {
            let at = paths.iter().position(|path| path == name).unwrap();
            assert_eq!(verdicts[at].content, Content::Verified(Proof::Device), "{verdicts:?}");
        }
        let held = verdicts.iter().filter(|verdict| verdict.holds()).count();
        assert_eq!(held, if fs.clears_names() { 5 } else { 0 }, "{fs:?}: {verdicts:?}");
        assert!(!tree.exists());
        image.unmount();
        let left = if fs.clears_names() { image.count(NAME) } else { 0 };
        let values = if fs.clears_names() { image.count(LOST) } else { 0 };
        assert_eq!((left, values), (0, 0), "{fs:?}");
        image.mount();
    }
}

/// Without what lies there the next mount would not know after a crash where to look.
#[test]
fn the_spool_of_a_mount_that_is_served_stays() {
    let _turn = turn();
    let Some(image) = Image::new("the_spool_of_a_mount_that_is_served_stays", Fs::Ext4) else {
        return;
    };
    let spool = image.dir().join(".tacita-purge");
    let overlay = Overlay::open(&image.dir(), crate::overlay::options("clear", false)).unwrap();
    let held = |dir: &Path| fs::read_dir(dir).unwrap().count();
    let before = held(&spool);
    let recursive = || RemovalOptions { recursive: true, ..plain() };
    let (verdicts, failure) = purge(&[&spool], recursive());
    assert_eq!((failure, verdicts.len(), held(&spool)), (Some(Kind::InUse), 1, before));
    let within: Vec<_> = fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in &within {
        assert_eq!(purge(&[path], recursive()).1, Some(Kind::InUse), "{}", path.display());
    }
    assert_eq!((within.is_empty(), held(&spool)), (false, before));
    drop(overlay);
    fs::create_dir(&spool).unwrap();
    let (verdicts, failure) = purge(&[&spool], recursive());
    assert_eq!((failure, verdicts[0].holds(), spool.exists()), (None, true, false));
}

/// A folder that lies in its inode and goes: the reason is that nobody looks there, and not who asks.
#[test]
fn a_folder_that_is_not_looked_at_is_not_for_want_of_a_privilege() {
    let _turn = turn();
    let test = "a_folder_that_is_not_looked_at_is_not_for_want_of_a_privilege";
    let Some(image) = Image::new(test, Fs::Ext4Inline) else { return };
    let tree = image.dir().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    image.remount();
    let (verdicts, _) = purge(&[&tree], RemovalOptions { recursive: true, ..plain() });
    let [file, folder] = &verdicts[..] else { panic!("{verdicts:?}") };
    let Part::Left(name) = &file.name else { panic!("{file:?}") };
    let Content::Unproven(within) = &folder.content else { panic!("{folder:?}") };
    for why in [name, within] {
        assert!(why.contains("stored in a way") && !why.contains("root"), "{why}");
    }
}
