//! A medium that does not give what lies in some places of it, for a moment or for ever: verdicts say no
//! more than what was seen, and nothing else waits for it.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{XattrFlags, lremovexattr, lsetxattr};
use serde_json::Value;
use tacita_purge::faults::{Step, at_each_step, make_unreadable};
use tacita_purge::{Map, Overlay, Removal, RemovalOptions};
use tacita_testkit::{skip_without_fuse, system};

use crate::acts::fill;
use crate::ahead::come_back;
use crate::folders::{self, chosen, left};
use crate::image::{Fs, Image, turn};
use crate::overlay::{Mounted, options};

/// All of the device, and all but its superblock.
const PLACES: [std::ops::Range<u64>; 2] = [0..u64::MAX, 4096..u64::MAX];

const VALUE: &str = "LOST-Unread-m-";

/// The device is to be read again.
struct Readable;

impl Drop for Readable {
    fn drop(&mut self) {
        make_unreadable(0..0, 0);
    }
}

fn make(dir: &Path) {
    fs::create_dir(dir.join("folder")).unwrap();
    for number in 0..9 {
        let path = dir.join(format!("folder/secretname-Unread-{number}-"));
        fs::write(path, fill("LOST-Content-m-", 8 << 10)).unwrap();
    }
}

fn delete(dir: &Path, number: u64) {
    fs::remove_file(dir.join(format!("folder/secretname-Unread-{number}-"))).unwrap();
}

fn last(mounted: &Mounted) -> Value {
    mounted.overlay().status()["last"].as_array().unwrap().last().unwrap().clone()
}

#[test]
fn an_epoch_ends_where_the_device_cannot_be_read() {
    let _turn = turn();
    let test = "an_epoch_ends_where_the_device_cannot_be_read";
    if skip_without_fuse(test) {
        return;
    }
    let _readable = Readable;
    for places in PLACES {
        let Some(image) = Image::new(test, Fs::Ext4) else { return };
        make(&image.dir());
        image.remount();
        let mounted = Mounted::new(&image, options("clear", false));
        make_unreadable(places.clone(), u32::MAX);
        delete(&mounted.dir, 1);
        mounted.overlay().finish().unwrap();
        let verdict = last(&mounted);
        assert_eq!(verdict["content"], "verified in place", "{verdict:#}");
        assert_eq!(verdict["holds"], false, "{verdict:#}");
        for part in ["name", "journal"] {
            assert!(verdict[part]["left"].is_string(), "{verdict:#}");
        }
        make_unreadable(0..0, 0);
        delete(&mounted.dir, 2);
        mounted.overlay().finish().unwrap();
        assert_eq!(last(&mounted)["holds"], true, "{:#}", last(&mounted));
        // Only for a moment: the folder is looked at again at once.
        make_unreadable(4096..u64::MAX, 2);
        delete(&mounted.dir, 3);
        mounted.overlay().finish().unwrap();
        assert_eq!(last(&mounted)["holds"], true, "{:#}", last(&mounted));
        mounted.end();
        assert!(!image.dir().join(".tacita-purge").exists());
    }
}

#[test]
fn a_run_by_path_tells_of_all_where_the_device_cannot_be_read() {
    let _turn = turn();
    let test = "a_run_by_path_tells_of_all_where_the_device_cannot_be_read";
    let _readable = Readable;
    for places in PLACES {
        let Some(image) = Image::new(test, Fs::Ext4) else { return };
        make(&image.dir());
        image.remount();
        let mut removal = Removal::new(RemovalOptions::default());
        removal.purge(&image.dir().join("folder/secretname-Unread-1-"));
        make_unreadable(places, u32::MAX);
        let verdicts = removal.finish();
        make_unreadable(0..0, 0);
        let [verdict] = &verdicts[..] else { panic!("{verdicts:?}") };
        assert!(verdict.removed && !verdict.holds(), "{verdict:?}");
    }
}

/// Names that are left in it are cleared then, and a mount that ends before leaves that to the next one.
#[test]
fn a_folder_that_cannot_be_read_is_looked_at_again() {
    let _turn = turn();
    let test = "a_folder_that_cannot_be_read_is_looked_at_again";
    if skip_without_fuse(test) {
        return;
    }
    let _readable = Readable;
    for is_next_mount in [false, true] {
        let Some(image) = Image::new(test, Fs::Ext4) else { return };
        folders::make(&image.dir());
        image.remount();
        let mut mounted = Mounted::new(&image, options("clear", false));
        make_unreadable(4096..u64::MAX, u32::MAX);
        let names = chosen(7);
        for (number, name) in &names {
            fs::remove_file(folders::folder(&mounted.dir, *number).join(name)).unwrap();
        }
        mounted.overlay().finish().unwrap();
        assert!(last(&mounted)["name"]["left"].is_string(), "{:#}", last(&mounted));
        assert_eq!(mounted.overlay().status()["idle"], false);
        if is_next_mount {
            mounted.end();
            make_unreadable(0..0, 0);
            mounted = Mounted::new(&image, options("clear", false));
        }
        make_unreadable(0..0, 0);
        mounted.overlay().finish().unwrap();
        assert_eq!(mounted.overlay().status()["idle"], true);
        mounted.end();
        assert!(!image.dir().join(".tacita-purge").exists());
        image.unmount();
        let left = left(&image, &names);
        assert!(left.is_empty(), "next mount: {is_next_mount}: {left:?}");
        image.mount();
    }
}

/// A folder and a link with attributes, whose places have to be known before their values go.
#[test]
fn what_cannot_be_purged_yet_holds_nothing_else_up() {
    let _turn = turn();
    let test = "what_cannot_be_purged_yet_holds_nothing_else_up";
    if skip_without_fuse(test) {
        return;
    }
    let _readable = Readable;
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    make(&image.dir());
    let (removed, link) = (image.dir().join("removed"), image.dir().join("link"));
    fs::create_dir(&removed).unwrap();
    symlink("elsewhere", &link).unwrap();
    for (path, name) in [(&removed, "user.note"), (&link, "trusted.note")] {
        lsetxattr(path, name, &fill(VALUE, 1500), XattrFlags::empty()).unwrap();
    }
    image.remount();
    let mounted = Mounted::new(&image, options("clear", false));
    make_unreadable(0..u64::MAX, u32::MAX);
    fs::remove_dir(mounted.dir.join("removed")).unwrap();
    fs::remove_file(mounted.dir.join("link")).unwrap();
    delete(&mounted.dir, 1);
    assert!(mounted.overlay().finish().is_err(), "two are not purged");
    assert_eq!(last(&mounted)["content"], "verified in place", "the epoch of the others has ended");
    assert!(last(&mounted)["name"]["left"].is_string(), "{:#}", last(&mounted));
    assert!(mounted.overlay().finish().is_err(), "they are not forgotten");
    make_unreadable(0..0, 0);
    mounted.overlay().finish().unwrap();
    assert_eq!(mounted.overlay().status()["idle"], true);
    mounted.end();
    assert!(!image.dir().join(".tacita-purge").exists());
    image.unmount();
    assert_eq!(image.count(VALUE), 0);
    image.mount();
}

/// A value that has another in its place, or is removed, or goes with its folder, and what it has left cannot be looked
/// for: nobody can later, so a verdict says so, and the epoch that clears the journal of it comes.
#[test]
fn values_that_cannot_be_looked_at_are_told_of() {
    let _turn = turn();
    let test = "values_that_cannot_be_looked_at_are_told_of";
    if skip_without_fuse(test) {
        return;
    }
    let _readable = Readable;
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let names = ["file", "other", "folder"];
    let [file, other, folder] = names.map(|name| image.dir().join(name));
    for path in [&file, &other] {
        fs::write(path, b"stays").unwrap();
    }
    fs::create_dir(&folder).unwrap();
    for (number, path) in [&file, &other, &folder].into_iter().enumerate() {
        let value = fill(&format!("LOST-Unread-{number}-"), 1500);
        lsetxattr(path, "user.note", &value, XattrFlags::empty()).unwrap();
    }
    image.remount();
    let mounted = Mounted::new(&image, options("clear", false));
    let [file, other, folder] = names.map(|name| mounted.dir.join(name));
    let acts: [&dyn Fn(); 3] = [
        &|| lsetxattr(&file, "user.note", b"another", XattrFlags::empty()).unwrap(),
        &|| lremovexattr(&other, "user.note").unwrap(),
        &|| fs::remove_dir(&folder).unwrap(),
    ];
    let told = || mounted.overlay().status()["last"].as_array().unwrap().len();
    let unreadable_for = |times| {
        at_each_step(move |step| {
            if step == Step::ValuesChanged {
                make_unreadable(0..u64::MAX, times);
            }
        });
    };
    for (number, act) in acts.into_iter().enumerate() {
        let epochs = mounted.overlay().status()["epochs"].clone();
        unreadable_for(u32::MAX);
        act();
        let finished = mounted.overlay().finish();
        at_each_step(|_| ());
        make_unreadable(0..0, 0);
        finished.unwrap();
        assert_eq!(told(), number + 1);
        let verdict = last(&mounted);
        let why = verdict["attributes"]["left"].as_str().unwrap();
        assert!(why.contains("could not be read"), "{verdict:#}");
        assert!(mounted.overlay().status()["epochs"] != epochs);
    }
    // Only for a moment: they are looked at again at once.
    unreadable_for(1);
    lremovexattr(&file, "user.note").unwrap();
    at_each_step(|_| ());
    assert_eq!(told(), acts.len());
    mounted.overlay().finish().unwrap();
    assert_eq!(mounted.overlay().status()["idle"], true);
    mounted.end();
    assert!(!image.dir().join(".tacita-purge").exists());
    image.unmount();
    assert_eq!(image.count("LOST-Unread-"), 0);
    image.mount();
}

/// Damages the inode of a file of an image that is not mounted: whoever looks at it is refused.
pub(crate) fn damage(image: &Image, path: &str) {
    let asked = format!("imap {path}");
    let told = system("debugfs", &["-R", &asked, image.path().to_str().unwrap()]).unwrap();
    let number = |after: &str| {
        let rest = &told[told.find(after).unwrap() + after.len()..];
        let digits = rest.trim_start_matches("0x");
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        let radix = if rest.starts_with("0x") { 16 } else { 10 };
        u64::from_str_radix(&digits[..end], radix).unwrap()
    };
    let at = number("at block ") * 4096 + number("offset ");
    let file = fs::File::options().read(true).write(true).open(image.path()).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at + 8).unwrap();
    byte[0] ^= 0xff;
    file.write_all_at(&byte, at + 8).unwrap();
}

#[test]
fn an_entry_that_cannot_be_opened_keeps_no_mount_away() {
    let _turn = turn();
    let test = "an_entry_that_cannot_be_opened_keeps_no_mount_away";
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let spool = image.dir().join(".tacita-purge");
    fs::create_dir(&spool).unwrap();
    fs::set_permissions(&spool, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in ["1", "2"] {
        fs::write(spool.join(entry), fill("LOST-Content-m-", 8 << 10)).unwrap();
    }
    fs::create_dir(spool.join("3")).unwrap();
    image.unmount();
    for entry in ["1", "3"] {
        damage(&image, &format!("/.tacita-purge/{entry}"));
    }
    image.mount();
    let overlay = Overlay::open(&image.dir(), options("clear", false)).unwrap();
    assert!(!spool.join("2").exists());
    assert!(overlay.finish().is_err(), "the others are not purged");
    drop(overlay);
    let listed = fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(listed.filter(|name| name == "1" || name == "3").count() == 2, "they stay");
}

/// What was being overwritten has come back, beside a file that cannot even be opened.
#[test]
fn a_file_that_cannot_be_opened_keeps_no_mount_away() {
    let _turn = turn();
    let test = "a_file_that_cannot_be_opened_keeps_no_mount_away";
    if Image::new(test, Fs::Ext4).is_none() {
        return;
    }
    let image = come_back(test, Step::FirstPass).unwrap();
    let other = image.dir().join("from/other");
    fs::write(&other, fill("KEPT-Unread-m-", 8 << 10)).unwrap();
    let turn_bad_or_good = || {
        image.unmount();
        damage(&image, "/from/other");
        image.mount();
    };
    turn_bad_or_good();
    fs::read(&other).unwrap_err();
    drop(Overlay::open(&image.dir(), options("clear", false)).unwrap());
    assert!(!image.dir().join("from/file").exists(), "the others are looked at");
    let intents = image.dir().join(".tacita-purge/intents");
    assert!(intents.exists(), "the next mount looks again");
    turn_bad_or_good();
    drop(Overlay::open(&image.dir(), options("clear", false)).unwrap());
    assert!(!image.dir().join(".tacita-purge").exists());
    assert_eq!(fs::read(&other).unwrap(), fill("KEPT-Unread-m-", 8 << 10));
}

/// One tag is enough, and what cannot be read is looked at by the next mount.
#[test]
fn a_file_that_has_come_back_with_bad_sectors_is_purged() {
    let _turn = turn();
    let test = "a_file_that_has_come_back_with_bad_sectors_is_purged";
    if Image::new(test, Fs::Ext4).is_none() {
        return;
    }
    let _readable = Readable;
    for bad in [4096, 8192] {
        let image = come_back(test, Step::FirstPass).unwrap();
        let path = image.dir().join("from/file");
        let map = Map::of(&fs::File::open(&path).unwrap()).unwrap().unwrap();
        assert_eq!(map.extents.len(), 1);
        let begin = map.extents[0].physical;
        make_unreadable(begin..begin + bad, u32::MAX);
        drop(Overlay::open(&image.dir(), options("clear", false)).unwrap());
        make_unreadable(0..0, 0);
        assert_eq!(path.exists(), bad == 8192, "{bad} bytes cannot be read");
        drop(Overlay::open(&image.dir(), options("clear", false)).unwrap());
        assert!(!path.exists(), "{bad} bytes could not be read");
        drop(Overlay::open(&image.dir(), options("clear", false)).unwrap());
        assert!(!image.dir().join(".tacita-purge").exists());
    }
}

/// Damages the block of attributes of a file: whoever asks for them is refused.
fn damage_attributes(image: &Image, path: &str) {
    let told = system("debugfs", &["-R", &format!("stat {path}"), image.path().to_str().unwrap()]);
    let told = told.unwrap();
    let (_, rest) = told.split_once("File ACL: ").unwrap();
    let block: u64 = rest.split_whitespace().next().unwrap().parse().unwrap();
    assert_ne!(block, 0);
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    file.write_all_at(&[0xff; 16], block * 4096).unwrap();
}

/// Whether a file is to be purged, and whether a link has anything that is, cannot be seen: they are.
#[test]
fn what_cannot_be_asked_for_is_purged() {
    let _turn = turn();
    let test = "what_cannot_be_asked_for_is_purged";
    if skip_without_fuse(test) {
        return;
    }
    // No attribute lies in an inode then.
    let Some(image) = Image::with(test, Fs::Ext4, &["-I", "128"]) else { return };
    let (file, link) = (image.dir().join("file"), image.dir().join("link"));
    fs::write(&file, fill("LOST-Content-m-", 8 << 10)).unwrap();
    symlink("elsewhere", &link).unwrap();
    for (path, name, value) in
        [(&file, "user.purge", b"clear".to_vec()), (&link, "trusted.note", fill(VALUE, 1500))]
    {
        lsetxattr(path, name, &value, XattrFlags::empty()).unwrap();
    }
    image.unmount();
    for path in ["/file", "/link"] {
        damage_attributes(&image, path);
    }
    image.mount();
    let mut options = options("clear", false);
    options.policy.marked_only = true;
    let mounted = Mounted::new(&image, options);
    // It says that not all of it could be purged, or not yet.
    let _ = fs::remove_file(mounted.dir.join("file"));
    assert!(!mounted.dir.join("file").exists());
    assert!(mounted.overlay().finish().is_err(), "its attributes are not purged");
    mounted.end_in_failure();
    image.unmount();
    assert_eq!(image.count("LOST-Content-m-"), 0);
    image.mount();
    let mounted = Mounted::new(&image, crate::overlay::options("clear", false));
    let _ = fs::remove_file(mounted.dir.join("link"));
    assert!(mounted.overlay().finish().is_err(), "its attributes are not purged");
    let spool = fs::read_dir(image.dir().join(".tacita-purge")).unwrap();
    let links = spool.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_symlink());
    assert_eq!(links.count(), 1, "it waits");
    mounted.end_in_failure();
}

#[test]
fn fillers_that_could_not_be_removed_are_removed_later() {
    let _turn = turn();
    let test = "fillers_that_could_not_be_removed_are_removed_later";
    if skip_without_fuse(test) {
        return;
    }
    let Some(image) = Image::new(test, Fs::Ext4) else { return };
    let folder = image.dir().join("folder");
    fs::create_dir(&folder).unwrap();
    // So many that blocks are split, and leave names behind.
    let name = |number: u64| format!("secretname-Unread-{number}-{:0>40}", number * 7919);
    for number in 0..600 {
        fs::File::create(folder.join(name(number))).unwrap();
    }
    image.remount();
    let mounted = Mounted::new(&image, options("clear", false));
    for number in (0..600).step_by(7) {
        fs::remove_file(mounted.dir.join("folder").join(name(number))).unwrap();
    }
    let is_first = AtomicBool::new(true);
    let refused = folder.clone();
    at_each_step(move |step| {
        if step == Step::Filled && is_first.swap(false, Ordering::Relaxed) {
            system("chattr", &["+i", refused.to_str().unwrap()]).unwrap();
        }
    });
    let finished = mounted.overlay().finish();
    at_each_step(|_| ());
    system("chattr", &["-i", folder.to_str().unwrap()]).unwrap();
    let filled = fs::read_dir(&folder).unwrap().count();
    mounted.end();
    finished.unwrap();
    let listed = fs::read_dir(&folder).unwrap();
    let strange = listed.map(|entry| entry.unwrap()).filter(|entry| {
        let is_ours = entry.file_name().to_string_lossy().starts_with("secretname-");
        !is_ours || entry.metadata().unwrap().nlink() != 1
    });
    assert!(filled > 600 - 86, "nothing was filled: {filled}");
    assert_eq!(strange.count(), 0);
    assert!(!image.dir().join(".tacita-purge").exists());
}
